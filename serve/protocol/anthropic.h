/*
 * The parts of the dialect of Anthropic's Messages.
 *
 * A body is translated into that of a chat (translate.h). Where the two APIs differ in more than names:
 *
 * - Blocks of the system that begin "x-anthropic-billing-header" are left out. Claude Code sends such a line first, and it is
 *   another one in each request, so that no two prompts would have a prefix in common.
 * - If the last message is the assistant's, the answer continues it.
 * - input_tokens are those tokens of the prompt that were not in the cache, and are not pinned either.
 * - cache_control marks a block: the prompt up to its end is to stay in the cache.
 */
#ifndef SERVE_PROTOCOL_ANTHROPIC_H
#define SERVE_PROTOCOL_ANTHROPIC_H

#include "dialect.h"
#include "translate.h"

/* What the fields cache_control mark: the prompt up to the last one of them. */
typedef struct anthropic_marks {
    int n;                   /* these fields */
    int32_t ttl_s;           /* the longest time that one of them wants */
    size_t n_messages;       /* messages of the chat up to the last one; 0: it is that of a tool */
    size_t n_parts, n_calls; /* of the last one of these messages, parts of its content and calls */
} anthropic_marks;

/* Translate a body. Free *t afterwards, also if this fails. */
bool anthropic_translate(openai_translation *t, const json_t *body, anthropic_marks *marks, openai_error *error);

/* Append the messages that `system` and `messages` make to the chat (anthropic_input.c). */
bool anthropic_read_input(openai_translation *t, anthropic_marks *marks);

/*
 * Read cache_control of a block or of the body, if it is there (anthropic_marks.c): then the chat's messages so far are marked.
 * where: the block's name in messages; "": the body.
 */
bool anthropic_read_mark(openai_translation *t, anthropic_marks *marks, const json_t *value, const char *where);

/* The same of all tools, before any message is read. */
bool anthropic_read_tool_marks(openai_translation *t, anthropic_marks *marks);

/*
 * Let the request pin the tokens that are marked, if prompts can be pinned: those that the whole chat has in common with the
 * chat up to the mark. Where the mark cannot be found like that, nothing is pinned.
 */
void anthropic_set_pin(const openai_translation *t, const anthropic_marks *marks, const openai_context *context,
                       openai_request *request);

/* The functions of the dialect that write (anthropic_write.c). */
void anthropic_write_error(openai_writer *w, const char *key, const openai_error *error);
void anthropic_write_answer(openai_writer *w, const char *key, const openai_result *result);
void anthropic_stream_begin(openai_writer *w, openai_result *result);
void anthropic_stream_event(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event);
void anthropic_stream_end(openai_writer *w, openai_result *result, const openai_error *error);

#endif

/*
 * The parts of the dialect of Anthropic's Messages.
 *
 * A body is translated into that of a chat (translate.h). Where the two APIs differ in more than names:
 *
 * - Blocks of the system that begin "x-anthropic-billing-header" are left out. Claude Code sends such a line first, and it is
 *   another one in each request, so that no two prompts would have a prefix in common.
 * - If the last message is the assistant's, the answer continues it.
 * - input_tokens are those tokens of the prompt that were not in the cache.
 */
#ifndef OPENAI_ANTHROPIC_H
#define OPENAI_ANTHROPIC_H

#include "dialect.h"
#include "translate.h"

/* Translate a body. Free *t afterwards, whatever is returned. */
bool anthropic_translate(openai_translation *t, const json_t *body, openai_error *error);

/* Append the messages that `system` and `messages` make to the chat (anthropic_input.c). */
bool anthropic_read_input(openai_translation *t);

/* The functions of the dialect that write (anthropic_write.c). */
void anthropic_write_error(openai_writer *w, const char *key, const openai_error *error);
void anthropic_write_answer(openai_writer *w, const char *key, const openai_result *result);
void anthropic_stream_begin(openai_writer *w, openai_result *result);
void anthropic_stream_event(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event);
void anthropic_stream_end(openai_writer *w, openai_result *result, const openai_error *error);

#endif

/*
 * The parts of the dialect of OpenAI's Responses: /v1/responses.
 *
 * A body is translated into that of a chat (translate.h). Nothing is kept between requests, so each brings the conversation so
 * far as the items of `input`. What the answer repeats of the body is request->repeated.
 */
#ifndef SERVE_PROTOCOL_RESPONSES_H
#define SERVE_PROTOCOL_RESPONSES_H

#include "dialect.h"
#include "translate.h"

/* What is between the name of a namespace and that of its function in the name that the model sees. */
#define RESPONSES_NAMESPACE "__"

/* Translate a body. Free *t afterwards, also if this fails. */
bool responses_translate(openai_translation *t, const openai_context *context, const json_t *body, openai_error *error);

/* Append the messages that `instructions` and `input` make to the chat (responses_input.c). */
bool responses_read_input(openai_translation *t);

/* The functions of the dialect that write (responses_write.c, responses_stream.c). */
void responses_write_answer(openai_writer *w, const char *key, const openai_result *result);
void responses_stream_begin(openai_writer *w, openai_result *result);
void responses_stream_event(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event);
void responses_stream_end(openai_writer *w, openai_result *result, const openai_error *error);

/* ---- Between the files that write (responses_write.c) ---- */

/* How far an answer is, or one of its items. */
typedef enum responses_status {
    RESPONSES_IN_PROGRESS,
    RESPONSES_COMPLETED,
    RESPONSES_INCOMPLETE, /* its end was cut off */
    RESPONSES_FAILED,
} responses_status;

/* The status of an answer whose choice has ended. */
responses_status responses_status_of(const openai_result *result);

/* The status of item i of an answer that has ended: only the last one can be incomplete. */
responses_status responses_item_status(const openai_result *result, size_t i, responses_status answer);

/* Write the whole object of a response as the value of `key`; error: with RESPONSES_FAILED, otherwise NULL. */
void responses_write(openai_writer *w, const char *key, const openai_result *result, responses_status status,
                     const openai_error *error);

/* Write item i as the value of `key`; while it is in progress, without its text. */
void responses_write_item(openai_writer *w, const char *key, const openai_result *result, size_t i, responses_status status);

/* Write the part of item i's content, or of a summary, that has its text; empty: without the text. */
void responses_write_part(openai_writer *w, const char *key, const openai_result *result, size_t i, bool empty);

/* Write the member "item_id" or "id" of item i. */
void responses_write_id(openai_writer *w, const char *key, const openai_result *result, size_t i);

/* Write the member "name" of a call's function, and "namespace" if it belongs to one. */
void responses_write_name(openai_writer *w, const openai_result *result, const openai_call *call);

/* Whether reasoning is shown as its summary, because the request asks for one. */
bool responses_summarizes(const openai_result *result);

#endif

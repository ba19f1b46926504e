/*
 * The parts of Ollama's dialects. Where its API differs from OpenAI's in more than names:
 *
 * - A stream is an object on each line, and is what requests get that do not say otherwise.
 * - A body without a prompt only asks for the model, which is there: its request has no prompts, and is answered at once.
 * - Arguments of calls are objects. In a stream a call comes whole, once the model has written it.
 * - If the last message of a chat is the assistant's, the answer continues it.
 */
#ifndef SERVE_PROTOCOL_OLLAMA_H
#define SERVE_PROTOCOL_OLLAMA_H

#include "dialect.h"

/* The functions of the dialects that write (ollama_write.c). What the model says is a `message` of /api/chat, and else text. */
void ollama_write_error(openai_writer *w, const char *key, const openai_error *error);
void ollama_write_message(openai_writer *w, const char *key, const openai_result *result);
void ollama_write_text(openai_writer *w, const char *key, const openai_result *result);
void ollama_write_embed(openai_writer *w, const char *key, const openai_result *result);
void ollama_write_embedding(openai_writer *w, const char *key, const openai_result *result);
void ollama_stream_begin(openai_writer *w, openai_result *result);
void ollama_stream_message(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event);
void ollama_stream_text(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event);
void ollama_end_message(openai_writer *w, openai_result *result, const openai_error *error);
void ollama_end_text(openai_writer *w, openai_result *result, const openai_error *error);

#endif

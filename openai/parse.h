/* The parts of reading a request; see openai_request_parse. Each reads its fields of the body into *request. */
#ifndef OPENAI_PARSE_H
#define OPENAI_PARSE_H

#include "openai.h"

/* `messages` or `prompt`, as token ids (openai_prompt.c). Needs request->echo. */
bool openai_parse_prompts(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/* How to generate and what to tell (openai_params.c). */
bool openai_parse_params(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/* Refuse known fields that are not offered and would change the result (openai_refused.c). */
bool openai_check_offered(openai_endpoint endpoint, const json_t *body, openai_error *error);

#endif

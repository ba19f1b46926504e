/* Parsed requests for the tests of OpenAI's JSON. */
#ifndef TESTS_SERVE_PROTOCOL_OPENAI_FIXTURE_H
#define TESTS_SERVE_PROTOCOL_OPENAI_FIXTURE_H

#include "serve/protocol/openai.h"

/* The smallest body of each endpoint with further fields. */
#define CHAT(fields)       "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," fields "}"
#define COMPLETION(fields) "{\"prompt\":\"x\"," fields "}"

/* The fake model under the name "fake", with OpenAI's defaults and no limit on the context. */
openai_context fake_context(void);

/* openai_request_parse of a body written as text. */
bool parse(const openai_context *c, openai_endpoint endpoint, const char *body, openai_request *r, openai_error *error);

/* The same; the test fails if the body is refused. */
void parse_ok(const openai_context *c, openai_endpoint endpoint, const char *body, openai_request *r);

/*
 * The test fails unless openai_request_parse refuses the body with status 400, this param and a whole message that contains
 * in_message.
 */
void assert_refused(const openai_context *c, openai_endpoint endpoint, const char *body, const char *param,
                    const char *in_message);

/* The test fails unless the error has these. */
void assert_error(const openai_error *error, const char *body, int status, const char *param, const char *in_message);

#endif

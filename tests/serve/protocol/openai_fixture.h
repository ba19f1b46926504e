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

#endif

/* Scenes of the tests of dialects: parsed bodies, and their answers, whose items a test may choose. */
#ifndef TESTS_SERVE_PROTOCOL_APIS_FIXTURE_H
#define TESTS_SERVE_PROTOCOL_APIS_FIXTURE_H

#include "serve/protocol/dialect.h"

/* A request in a dialect, and its result with the id "PREFIXid". */
typedef struct scene {
    const openai_dialect *dialect;
    openai_context context;
    openai_request request;
    openai_result result;
    openai_writer stream; /* all events so far */
} scene;

/* Parse a body, which must be accepted. */
void scene_begin(scene *s, const openai_dialect *dialect, const char *body);
void scene_end(scene *s);

/* The model writes text of a kind: of a call, its name; of arguments, more of the last call's. The stream reports it. */
void scene_say(scene *s, cl_reply_kind kind, const char *text);

/* The choice ends; stop: the index of the stop string, or -1. The stream reports it. */
void scene_finish(scene *s, cl_engine_finish finish, int32_t stop);

/* The JSON that was written, which must be whole. The caller frees it. */
json_t *read_writer(openai_writer *w);

/* The whole answer, and the events of the stream: an array of [type, data]. The caller frees them. */
json_t *scene_answer(const scene *s);
json_t *scene_events(scene *s);

/* OpenAI's chunk k for an event of the first prompt, which was added to the result. The caller frees it. */
json_t *scene_chunk(scene *s, const cl_engine_event *event, size_t k);

/* The test fails unless the value of a JSON pointer such as "/output/0/text" is this JSON; NULL: there is no such value. */
void assert_at(const json_t *json, const char *pointer, const char *expected);

/* The test fails unless the types of the events are these, in order, ended by NULL. */
void assert_types(const json_t *events, const char *const *types);

/* All strings of a field in the events of a type, joined; pointer is within the data. Allocated. */
char *joined(const json_t *events, const char *type, const char *pointer);

/* The test fails unless the dialect refuses the body with this status, param and part of the message. */
void assert_body_refused(const openai_dialect *dialect, const char *body, int status, const char *param,
                         const char *in_message);

#endif

/* A server over the fake engine, for tests of one behaviour each: cmocka's set-ups, and what they look at. */
#ifndef TESTS_SERVER_SERVER_FIXTURE_H
#define TESTS_SERVER_SERVER_FIXTURE_H

#include <jansson.h>
#include <stdbool.h>

#include "server/server.h"

typedef struct fixture {
    cl_engine *engine;
    server *server;
    uint16_t port;
} fixture;

/* Any free port, bodies of 100000 bytes. */
server_config base_config(void);

int set_up_fast(void **state);
int set_up_slow(void **state);         /* two requests at a time, 5 ms a step */
int set_up_long_prefill(void **state); /* no token ever comes */
int set_up_guarded(void **state);      /* wants the key "secret", and lets web pages call */
int set_up_impatient(void **state);    /* connections may idle for a second */
int tear_down(void **state);

/* Bodies of completions that run for minutes: a stream, and two choices in one answer. */
extern const char endless[], endless_whole[];

/* Wait until a metric has this value; false after a minute, which a busy machine may need for what takes a moment. */
bool comes_to(uint16_t port, const char *metric, double value);

/* Status and error object of a refused request. */
void assert_refused(uint16_t port, const char *method, const char *path, const char *body, int status, const char *param,
                    const char *in_message);

/* json_unpack that fails the test, naming what did not fit. */
#define assert_unpack(json, ...)                                                                                               \
    do {                                                                                                                       \
        json_error_t at_;                                                                                                      \
        if (json_unpack_ex(json, &at_, 0, __VA_ARGS__) != 0) fail_msg("%s", at_.text);                                         \
    } while (0)

#endif

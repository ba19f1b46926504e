/* Servers over the fake engine: cmocka's set-up functions, and checks that several tests use. */
#ifndef TESTS_SERVE_HTTP_SERVER_FIXTURE_H
#define TESTS_SERVE_HTTP_SERVER_FIXTURE_H

#include <jansson.h>
#include <stdbool.h>

#include "serve/http/server.h"

typedef struct fixture {
    cl_engine *engine;
    server_keys keys;
    http_server *running;
    uint16_t port;
    char files_dir[40]; /* "": the server has none; removed with its files by tear_down */
} fixture;

/* A configuration with any free port, a limit of 100000 bytes on bodies, and the hosts "a", "test" and "x". */
server_config base_config(void);

/* Start a server with this configuration and a fast engine; f: zeroed but for the keys, which config may point to. */
int set_up_config(void **state, fixture *f, const server_config *config);

int set_up_fast(void **state);         /* 200 us a step */
int set_up_slow(void **state);         /* two requests at a time, 5 ms a step */
int set_up_long_prefill(void **state); /* the first token never comes */
int set_up_guarded(void **state);      /* requires the key "secret"; web pages may call it */
int set_up_impatient(void **state);    /* connections may be idle for three seconds */
int set_up_few(void **state);          /* five connections; a request must arrive within a second */
int set_up_pins(void **state);         /* as fast; prompts can be pinned */
int set_up_crowded(void **state);      /* one request at a time, 5 ms a step; others wait for ten minutes at most */
int set_up_files(void **state);        /* as fast; it keeps files, of at most 100000 bytes */
int tear_down(void **state);

/* Bodies of completions that run for minutes: a stream, and two choices in one answer. */
extern const char endless[], endless_whole[];

/* Wait until a metric has this value. */
void wait_for_metric(uint16_t port, const char *metric, double value);

/* Wait until the server has read all that was sent on a client's connection, or has answered or closed it. */
void wait_until_read(int fd);

/* The files and the threads of this process, as long as nothing else opens files. */
int n_files(void);
int n_threads(void);

/* Send a request, which must be refused with this status, param (NULL: none) and part of the message. */
void assert_refused(uint16_t port, const char *method, const char *path, const char *body, int status, const char *param,
                    const char *in_message);

/* json_unpack that fails the test with jansson's message. */
#define assert_unpack(json, ...)                                                                                               \
    do {                                                                                                                       \
        json_error_t at_;                                                                                                      \
        if (json_unpack_ex(json, &at_, 0, __VA_ARGS__) != 0) fail_msg("%s", at_.text);                                         \
    } while (0)

#endif

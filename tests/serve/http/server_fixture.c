/* Starts servers over the fake engine, and checks their answers. */
#include "server_fixture.h"

#include "tests/support/wait.h"

#include <dirent.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/folder.h"

const char endless[] = "{\"prompt\":\"abc\",\"max_tokens\":90000,\"stream\":true}";
const char endless_whole[] = "{\"prompt\":\"abc\",\"max_tokens\":90000,\"n\":2}";

enum { MAX_FILES = 1024 };

/* f: zeroed but for the keys, which config points to. */
static int set_up_fixture(void **state, fixture *f, const server_config *config, const fake_config *fake) {
    cl_error error;
    f->engine = fake_engine_create(fake);
    if (server_start(config, &f->running, &error) != CL_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    server_serve(f->running, f->engine, fake_model(), fake_chat(), NULL);
    f->port = server_port(f->running);
    *state = f;
    return 0;
}

static int set_up_with(void **state, const server_config *config, const fake_config *fake) {
    return set_up_fixture(state, calloc(1, sizeof(fixture)), config, fake);
}

static const fake_config fast = {.step_us = 200, .max_running = 64, .prefill_steps = 1, .n_ctx = 4096};
static const fake_config slow = {.step_us = 5000, .max_running = 2, .prefill_steps = 1, .n_ctx = 100000};
static const fake_config long_prefill = {.step_us = 5000, .max_running = 2, .prefill_steps = 100000, .n_ctx = 4096};

server_config base_config(void) {
    server_config config;
    server_config_init(&config);
    config.port = 0;
    config.model_name = "fake \"model\"";
    config.allowed_hosts = "a, test, x";
    config.max_body_bytes = 100000;
    config.timeout_s = config.request_timeout_s = 3600; /* which no test takes */
    config.prepare_timeout_s = 1800;                    /* nor this */
    return config;
}

int set_up_config(void **state, fixture *f, const server_config *config) { return set_up_fixture(state, f, config, &fast); }

int set_up_fast(void **state) {
    const server_config config = base_config();
    return set_up_with(state, &config, &fast);
}
int set_up_slow(void **state) {
    const server_config config = base_config();
    return set_up_with(state, &config, &slow);
}
int set_up_long_prefill(void **state) {
    const server_config config = base_config();
    return set_up_with(state, &config, &long_prefill);
}
int set_up_guarded(void **state) {
    fixture *f = calloc(1, sizeof *f);
    server_config config = base_config();
    if (server_keys_add(&f->keys, OPENAI_DEFAULT_TENANT, "secret", NULL) != CL_OK) return -1;
    config.keys = &f->keys;
    config.cors_origin = "*";
    return set_up_fixture(state, f, &config, &fast);
}

int set_up_impatient(void **state) {
    server_config config = base_config();
    config.timeout_s = 3; /* by libmicrohttpd's clock, which a test cannot move */
    return set_up_with(state, &config, &slow);
}

int set_up_few(void **state) {
    server_config config = base_config();
    config.max_connections = 5;
    config.max_body_bytes = 2 << 20;
    config.request_timeout_s = 1;
    config.cors_origin = "*";
    return set_up_with(state, &config, &fast);
}

int set_up_pins(void **state) {
    server_config config = base_config();
    config.can_pin = true;
    return set_up_with(state, &config, &fast);
}
int set_up_crowded(void **state) {
    server_config config = base_config();
    fake_config fake = slow;
    config.queue_timeout_s = 600;
    fake.max_running = 1;
    return set_up_with(state, &config, &fake);
}
int set_up_files(void **state) {
    fixture *f = calloc(1, sizeof *f);
    server_config config = base_config();
    strcpy(f->files_dir, "/tmp/chunkllama-files-XXXXXX");
    config.files_dir = mkdtemp(f->files_dir);
    config.max_file_bytes = 100000;
    return set_up_fixture(state, f, &config, &fast);
}

/* What a test that failed has left open, and the server would wait for as long as its clock stands still. */
static void shut_down_clients(uint16_t port) {
    for (int fd = 0; fd < MAX_FILES; fd++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port)
            shutdown(fd, SHUT_RDWR);
    }
}

int tear_down(void **state) {
    fixture *f = *state;
    shut_down_clients(f->port);
    server_stop(&f->running);
    cl_engine_destroy(&f->engine);
    server_keys_free(&f->keys);
    if (f->files_dir[0]) remove_folder(f->files_dir);
    free(f);
    return 0;
}

/* The number of files in a folder of /proc. */
static int count(const char *folder) {
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

int n_files(void) { return count("/proc/self/fd"); }
int n_threads(void) { return count("/proc/self/task"); }

void wait_for_metric(uint16_t port, const char *metric, double value) {
    for (int turns = 0; client_metric(port, metric) != value; turns++) wait_a_turn(turns, metric, __FILE__, __LINE__);
}

/* The server's end of a client's connection, which is a file of this process; -1: there is none. */
static int server_end(int fd) {
    struct sockaddr_in client, peer;
    socklen_t size = sizeof client;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&client, &size), 0);
    for (int i = 0; i < MAX_FILES; i++) {
        size = sizeof peer;
        if (getpeername(i, (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET &&
            peer.sin_port == client.sin_port)
            return i;
    }
    return -1;
}

static bool is_read(int fd) {
    char answer;
    int underway = 1, unread = 1;
    const int end = server_end(fd);
    if (end >= 0) { /* it reports the bytes at once */
        setsockopt(end, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
        if (ioctl(fd, SIOCOUTQ, &underway) == 0 && underway == 0 && ioctl(end, FIONREAD, &unread) == 0 && unread == 0)
            return true;
    }
    return recv(fd, &answer, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

void wait_until_read(int fd) { WAIT_UNTIL(is_read(fd)); }

void assert_refused(uint16_t port, const char *method, const char *path, const char *body, int status, const char *param,
                    const char *in_message) {
    json_t *reply;
    const int got = client_call_json(port, method, path, body, &reply);
    if (got != status) fail_msg("%s %s: status %d, not %d", path, body ? body : "", got, status);
    const char *message, *type;
    const json_t *param_json, *code;
    assert_unpack(reply, "{s:{s:s, s:s, s:o, s:o!}!}", "error", "message", &message, "type", &type, "param", &param_json,
                  "code", &code);
    if (!strstr(message, in_message)) fail_msg("'%s' does not say '%s'", message, in_message);
    if (param)
        assert_string_equal(json_string_value(param_json), param);
    else
        assert_true(json_is_null(param_json));
    json_decref(reply);
}

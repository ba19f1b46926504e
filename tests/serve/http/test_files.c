/* Files over HTTP: forms of all kinds, whole and in pieces, from clients that end early, and the queries of lists. */
#include "tests/support/wait.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "serve/http/batches.h"
#include "serve/http/server_state.h"
#include "server_fixture.h"

#define PART(name, more, text) "--XY\r\nContent-Disposition: form-data; name=\"" name "\"" more "\r\n\r\n" text "\r\n"
#define FILE_PART(text)        PART("file", "; filename=\"a.jsonl\"\r\nContent-Type: application/octet-stream", text)
#define PURPOSE                PART("purpose", "", "batch")
#define END                    "--XY--\r\n"
#define FORM                   "multipart/form-data; boundary=XY"

/* Send a form in pieces of `piece` bytes; the status, and the reply, allocated. */
static int send_form(uint16_t port, const char *type, const char *body, size_t size, size_t piece, char **reply) {
    char head[300];
    const int fd = client_connect(port);
    snprintf(head, sizeof head, "POST /v1/files HTTP/1.0\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", type,
             size);
    client_send_bytes(fd, head, strlen(head));
    for (size_t at = 0; at < size; at += piece) {
        client_send_bytes(fd, body + at, size - at < piece ? size - at : piece);
        if (piece < 100) wait_until_read(fd); /* so that the pieces arrive one by one */
    }
    *reply = client_read_all(fd);
    close(fd);
    return atoi(*reply + strlen("HTTP/1.1 "));
}

static void expect_form(uint16_t port, const char *type, const char *body, size_t size, int status, const char *text) {
    static const size_t pieces[] = {1 << 20, 7};
    for (size_t i = 0; i < 2; i++) {
        char *reply;
        const int got = send_form(port, type, body, size, pieces[i], &reply);
        if (got != status || !strstr(reply, text))
            fail_msg("%s <%s> in pieces of %zu: %d <%s>", type, body, pieces[i], got, reply);
        free(reply);
    }
}

/* How many files' contents there are. */
static int count_files(const fixture *f) {
    DIR *list = opendir(f->files_dir);
    int n = 0;
    for (const struct dirent *e; (e = readdir(list));) n += strncmp(e->d_name, "file-", strlen("file-")) == 0;
    closedir(list);
    return n;
}

static void forms(void **state) {
    const fixture *f = *state;
#define CASE(type, body, status, text)                                                                                         \
    { type, body, sizeof(body) - 1, status, text }
    static const struct {
        const char *type, *body;
        size_t size;
        int status;
        const char *text;
    } cases[] = {
        CASE(FORM, PURPOSE FILE_PART("text\r\n--Xno") END, 200, "\"bytes\":11"),
        CASE(FORM, FILE_PART("text") PURPOSE END, 200, "\"filename\":\"a.jsonl\""),
        CASE("multipart/form-data; boundary=\"XY\"", FILE_PART("text") PURPOSE END, 200, "\"bytes\":4"),
        CASE("Multipart/Form-Data; charset=utf-8; boundary=XY", FILE_PART("text") PURPOSE END, 200, "\"bytes\":4"),
        CASE(FORM, PURPOSE FILE_PART("\0\1\2\r\n\r\n-\r") END, 200, "\"bytes\":9"),
        CASE(FORM, PART("unknown", "", "x") PURPOSE FILE_PART("a") PART("expires_after[anchor]", "", "x") END, 200,
             "\"bytes\":1"),
        CASE(FORM, PURPOSE PART("file", "; filename=\"../../etc/passwd\"", "a") END, 200, "\"filename\":\"passwd\""),
        CASE(FORM, PURPOSE PART("file", "; filename=\"\xff\xfe\"", "a") END, 200, "\"filename\":\"\""),

        CASE(FORM, "", 400, "invalid_request_error"),
        CASE(FORM, "--XY--\r\n", 400, "invalid_request_error"),
        CASE(FORM, "no form at all", 400, "invalid_request_error"),
        CASE(FORM, PURPOSE FILE_PART("text"), 400, "invalid_request_error"),
        CASE(FORM, PURPOSE "--XY\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ntext", 400,
             "invalid_request_error"),
        CASE(FORM, PURPOSE END, 400, "\"param\":\"file\""),
        CASE(FORM, FILE_PART("text") END, 400, "\"param\":\"purpose\""),
        CASE(FORM, PART("purpose", "", "fine-tune") FILE_PART("text") END, 400, "\"param\":\"purpose\""),
        CASE(FORM, PART("purpose", "", "batchbatchbatchbatchbatchbatchbatchbatch") FILE_PART("a") END, 400,
             "\"param\":\"purpose\""),
        CASE(FORM, PURPOSE PURPOSE FILE_PART("a") END, 400, "\"param\":\"purpose\""),
        CASE(FORM, PURPOSE PART("file", "", "text") END, 400, "no file name"),
        CASE(FORM, PURPOSE FILE_PART("text") FILE_PART("more") END, 400, "several parts"),
        CASE(FORM, PURPOSE PART("file", "; filename=\"a\"\r\nContent-Transfer-Encoding: base64", "dGV4dA==") END, 400,
             "Content-Transfer-Encoding"),
        CASE("application/json", "{}", 415, "multipart/form-data"),
        CASE("application/x-www-form-urlencoded", "purpose=batch&file=text", 415, "multipart/form-data"),
        CASE("multipart/form-data", PURPOSE FILE_PART("text") END, 415, "boundary"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_form(f->port, cases[i].type, cases[i].body, cases[i].size, cases[i].status, cases[i].text);
    assert_int_equal(count_files(f), 2 * 8); /* those with status 200 */
}

/* Wait until the folder has n files. */
static void wait_for_files(const fixture *f, int n) { WAIT_UNTIL(count_files(f) == n); }

static void a_client_that_hangs_up_leaves_nothing(void **state) {
    const fixture *f = *state;
    static const char head[] = "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: " FORM "\r\nContent-Length: 100000\r\n\r\n";
    static const char body[] =
        "--XY\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nmuch text\r\n\r\n\r\n";
    static const char more[50000]; /* more than is buffered */
    const int fd = client_connect(f->port);
    client_send_bytes(fd, head, sizeof head - 1);
    client_send_bytes(fd, body, sizeof body - 1);
    client_send_bytes(fd, more, sizeof more);
    wait_for_files(f, 1);
    close(fd);
    wait_for_files(f, 0);
}

static void lists_have_limits(void **state) {
    const fixture *f = *state;
    static const char *const wrong[][2] = {
        {"/v1/files?limit=0", "limit"},  {"/v1/files?limit=10001", "limit"},  {"/v1/files?limit=x", "limit"},
        {"/v1/files?limit=-1", "limit"}, {"/v1/files?limit=%201", "limit"},   {"/v1/files?limit=99999999999999999999", "limit"},
        {"/v1/files?limit=", "limit"},   {"/v1/batches?limit=%2B1", "limit"}, {"/v1/files?order=", "order"},
        {"/v1/files?order=up", "order"}, {"/v1/batches?limit=101", "limit"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(f->port, "GET", wrong[i][0], NULL, 400, wrong[i][1], "must be");
    assert_refused(f->port, "GET", "/v1/files?after=file-1", NULL, 404, "after", "there is no file");
    assert_refused(f->port, "GET", "/v1/files/file-1", NULL, 404, NULL, "there is no file 'file-1'");
    assert_refused(f->port, "GET", "/v1/files/file-1/content", NULL, 404, NULL, "there is no file");
    assert_refused(f->port, "DELETE", "/v1/files/file-1", NULL, 404, NULL, "there is no file");
    assert_refused(f->port, "DELETE", "/v1/files/../x", NULL, 404, NULL, "there is no endpoint");
    assert_refused(f->port, "POST", "/v1/batches/batch_1/cancel", NULL, 404, NULL, "there is no batch 'batch_1'");
    assert_refused(f->port, "DELETE", "/v1/batches/batch_1", NULL, 404, NULL, "there is no batch 'batch_1'");
    assert_refused(f->port, "POST", "/v1/batches/batch_1", NULL, 405, NULL, "use GET, HEAD, DELETE");
    assert_refused(f->port, "POST", "/v1/batches", "[]", 400, NULL, "must be a JSON object");
    assert_refused(f->port, "POST", "/v1/batches", "{}", 400, "input_file_id", "is missing");
}

/* While `no_download`, memory is lacking for the struct of a server and a descriptor, such as that of a file that is sent. */
static atomic_bool no_download;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) {
    return atomic_load(&no_download) && n * size == 2 * sizeof(void *) ? NULL : __real_calloc(n, size);
}

/* Transfers that fail for lack of memory do not count as running ones. */
static void contents_are_sent_again_when_there_is_memory(void **state) {
    const fixture *f = *state;
    static const char body[] = FILE_PART("text") PURPOSE END;
    char *reply, path[100];
    assert_int_equal(send_form(f->port, FORM, body, sizeof body - 1, sizeof body, &reply), 200);
    const char *id = strstr(reply, "\"file-");
    assert_non_null(id);
    snprintf(path, sizeof path, "/v1/files/%.*s/content", (int)strcspn(id + 1, "\""), id + 1);
    free(reply);
    atomic_store(&no_download, true);
    for (int i = 0; i < BATCHES_MAX_TRANSFERS; i++) assert_refused(f->port, "GET", path, NULL, 503, NULL, "memory");
    atomic_store(&no_download, false);
    assert_int_equal(client_call(f->port, "GET", path, NULL, &reply), 200);
    assert_string_equal(reply, "text");
    free(reply);
}

/* A file can be received, and the transfer ends. */
static void expect_transfer(const fixture *f, const char *path) {
    char *reply;
    const size_t n_before = shares_amount(&f->running->transfers);
    assert_int_equal(client_call(f->port, "GET", path, NULL, &reply), 200);
    free(reply);
    WAIT_UNTIL(shares_amount(&f->running->transfers) == n_before);
}

/* A client that is alone has half of all transfers at once, sent or received, and hears that these are lacking. */
static void transfers_are_shared(void **state) {
    const fixture *f = *state;
    enum { N = BATCHES_MAX_TRANSFERS / 2 };
    static const char head[] =
        "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: " FORM "\r\nContent-Length: 1000\r\n\r\n--XY";
    static const char body[] = FILE_PART("text") PURPOSE END;
    char *reply, path[100];
    int fds[N];
    assert_int_equal(send_form(f->port, FORM, body, sizeof body - 1, sizeof body, &reply), 200);
    const char *id = strstr(reply, "\"file-");
    assert_non_null(id);
    snprintf(path, sizeof path, "/v1/files/%.*s/content", (int)strcspn(id + 1, "\""), id + 1);
    free(reply);
    for (int i = 0; i < N; i++) {
        if (i == N - 1) expect_transfer(f, path); /* the last one is free until then */
        fds[i] = client_connect(f->port);
        client_send_bytes(fds[i], head, sizeof head - 1);
        WAIT_UNTIL(shares_amount(&f->running->transfers) == (size_t)i + 1);
    }
    assert_refused(f->port, "GET", path, NULL, 503, NULL, "sends and receives as many files");
    expect_form(f->port, FORM, body, sizeof body - 1, 503, "too_many_transfers");
    for (int i = 0; i < N; i++) close(fds[i]);
    WAIT_UNTIL(shares_amount(&f->running->transfers) == 0);
    expect_transfer(f, path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(forms, set_up_files, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_hangs_up_leaves_nothing, set_up_files, tear_down),
        cmocka_unit_test_setup_teardown(lists_have_limits, set_up_files, tear_down),
        cmocka_unit_test_setup_teardown(transfers_are_shared, set_up_files, tear_down),
        cmocka_unit_test_setup_teardown(contents_are_sent_again_when_there_is_memory, set_up_files, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

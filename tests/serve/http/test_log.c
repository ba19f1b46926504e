/* Lines of the log: with any values they stay lines, and a reader who does not read them holds up nobody. */
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#include "tests/support/wait.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/http/log.h"

/* A log that writes to a pipe. */
typedef struct piped {
    server_log *log;
    int reader, writer;
} piped;

static piped open_log(log_level level, bool json) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    piped p = {server_log_create(fds[1], level, json), fds[0], fds[1]};
    assert_non_null(p.log);
    return p;
}

/* End the log; the text that was not read before, terminated. The caller frees it. */
static char *close_log(piped *p) {
    server_log_destroy(&p->log);
    assert_null(p->log);
    close(p->writer);
    size_t size = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    for (ssize_t n; (n = read(p->reader, text + size, capacity - size - 1)) > 0;) {
        size += (size_t)n;
        if (capacity - size < 1 << 15) text = realloc(text, capacity *= 2);
    }
    close(p->reader);
    text[size] = '\0';
    return text;
}

static void write_line(server_log *log, log_level level, const char *value, size_t size) {
    log_line line;
    if (!log_begin(&line, log, level, "event")) return;
    log_bytes(&line, "value", value, size);
    log_integer(&line, "n", -7);
    log_real(&line, "x", 0.25);
    log_text(&line, "none", NULL);
    log_end(&line);
}

static void levels_are_kept(void **state) {
    (void)state;
    piped p = open_log(LOG_LEVEL_WARN, false);
    write_line(p.log, LOG_LEVEL_INFO, "info", 4);
    write_line(p.log, LOG_LEVEL_WARN, "warn", 4);
    write_line(p.log, LOG_LEVEL_DEBUG, "debug", 5);
    write_line(p.log, LOG_LEVEL_ERROR, "error", 5);
    write_line(NULL, LOG_LEVEL_ERROR, "no log", 6);
    assert_int_equal(server_log_lost(NULL), 0);
    char *text = close_log(&p);
    assert_non_null(strstr(text, "Z warn  event value=warn n=-7 x=0.25\n"));
    assert_non_null(strstr(text, "Z error event value=error n=-7 x=0.25\n"));
    assert_null(strstr(text, "info"));
    assert_null(strstr(text, "debug"));
    free(text);
}

static void numbers_have_few_digits(void **state) {
    (void)state;
    static const double numbers[] = {0, -0.5, 0.0000042, 0.009, 12.3456, 98765.4, INFINITY};
    piped p = open_log(LOG_LEVEL_INFO, false);
    log_line line;
    assert_true(log_begin(&line, p.log, LOG_LEVEL_INFO, "event"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) log_real(&line, "x", numbers[i]);
    log_end(&line);
    char *text = close_log(&p);
    assert_non_null(strstr(text, " x=0 x=-0.5 x=0.000004 x=0.009000 x=12.35 x=98765 x=0\n"));
    free(text);
}

static void values_are_quoted(void **state) {
    (void)state;
    static const struct {
        const char *value, *written;
    } cases[] = {
        {"a/b-c_d.1", "value=a/b-c_d.1 "},
        {"", "value=\"\" "},
        {"two words", "value=\"two words\" "},
        {"a=b", "value=\"a=b\" "},
        {"\"\\", "value=\"\\\"\\\\\" "},
        {"a\nerror b\r\t", "value=\"a\\nerror b\\u000d\\t\" "},
        {"\033[2J\177", "value=\"\\u001b[2J\\u007f\" "},
        {"\302\233K", "value=\"\\u009bK\" "}, /* C1's CSI */
        {"\342\200\256x", "value=\"\\u202ex\" "},
        {"\363\240\201\201", "value=\"\\udb40\\udc41\" "}, /* an invisible tag */
        {"\xff g\xc3", "value=\"\\ufffd g\\ufffd\" "},
        {"gr\303\274n \360\237\230\200", "value=\"gr\303\274n \360\237\230\200\" "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        piped p = open_log(LOG_LEVEL_INFO, false);
        write_line(p.log, LOG_LEVEL_INFO, cases[i].value, strlen(cases[i].value));
        char *text = close_log(&p);
        if (!strstr(text, cases[i].written)) fail_msg("%s is not in %s", cases[i].written, text);
        free(text);
    }
}

/* Each line is an object with the value that was passed, and nothing in it moves a terminal's cursor. */
static void hostile_values_stay_one_line(void **state) {
    (void)state;
    enum { N = 300, MOST = 20000 };
    piped p = open_log(LOG_LEVEL_INFO, true);
    static char values[N][MOST];
    static size_t sizes[N];
    unsigned seed = 1;
    print_message("seed %u\n", seed);
    fcntl(p.reader, F_SETPIPE_SZ, 1 << 20); /* nothing is lost */
    for (int i = 0; i < N; i++) {
        sizes[i] = i < N - 20 ? (size_t)(rand_r(&seed) % 200) : MOST; /* the last ones are cut */
        for (size_t k = 0; k < sizes[i]; k++) values[i][k] = (char)(i % 2 ? rand_r(&seed) % 128 : rand_r(&seed));
        write_line(p.log, LOG_LEVEL_INFO, values[i], sizes[i]);
    }
    char *text = close_log(&p);
    int n = 0;
    for (char *line = text, *end; *line; line = end + 1, n++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        for (const char *c = line; c < end; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
        json_error_t wrong;
        json_t *object = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, &wrong);
        if (!object) fail_msg("line %d: %s", n, wrong.text);
        assert_string_equal(json_string_value(json_object_get(object, "event")), "event");
        assert_int_equal(json_integer_value(json_object_get(object, "n")), -7);
        const char *value = json_string_value(json_object_get(object, "value")); /* it may contain zero characters */
        const size_t size = json_string_length(json_object_get(object, "value"));
        if (n >= N - 20) {
            assert_string_equal(value + size - 3, "...");
        } else if (n % 2) { /* ASCII */
            assert_int_equal(size, sizes[n]);
            assert_memory_equal(value, values[n], size);
        }
        json_decref(object);
    }
    assert_int_equal(n, N);
    free(text);
}

/* The number of lost lines, as the log reports it. */
static uint64_t lost_in(const char *text) {
    static const char said[] = "warn  log lost_lines=";
    uint64_t n = 0;
    while ((text = strstr(text, said))) n += strtoull(text += strlen(said), NULL, 10);
    return n;
}

/* The lines that a reader has not read yet, when nobody writes any more. */
static uint64_t count_lines(int reader) {
    char text[1 << 12];
    uint64_t n_lines = 0;
    for (ssize_t n; (n = read(reader, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) n_lines += text[i] == '\n';
    return n_lines;
}

/* A reader that does not read: lines are lost, are counted, and lines say so; nobody waits, not even for the end. */
static void a_stopped_reader_holds_up_nobody(void **state) {
    (void)state;
    enum { N = 1000 };
    char value[8000];
    memset(value, 'x', sizeof value);
    piped p = open_log(LOG_LEVEL_INFO, false);
    for (int i = 0; i < N; i++) write_line(p.log, LOG_LEVEL_INFO, value, sizeof value); /* one that waits does so for ever */
    const uint64_t n_lost = server_log_lost(p.log);
    assert_in_range(n_lost, N / 2, N);
    const uint64_t n_last = server_log_destroy(&p.log);
    close(p.writer);
    assert_int_equal(n_last, N - count_lines(p.reader)); /* the lines that fit into the pipe are not lost */
    close(p.reader);

    p = open_log(LOG_LEVEL_INFO, false);
    for (int i = 0; i < N; i++) write_line(p.log, LOG_LEVEL_INFO, value, sizeof value);
    char *text = malloc(N * (sizeof value + 256));
    const uint64_t n_silent = server_log_lost(p.log);
    assert_in_range(n_silent, N / 2, N);
    size_t size = 0;
    do {
        const ssize_t n = read(p.reader, text + size, 1 << 12);
        assert_true(n > 0);
        size += (size_t)n;
        text[size] = '\0';
    } while (text[size - 1] != '\n' || lost_in(text) < n_silent);
    assert_int_equal(lost_in(text), n_silent);
    assert_int_equal(server_log_lost(p.log), n_silent);
    free(text);
    free(close_log(&p));
}

/* While `always_ready`, poll says that a file takes more, as it does just before another program fills a pipe. */
static atomic_bool always_ready;
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms) { return atomic_load(&always_ready) ? 1 : __real_poll(fds, n, ms); }

/* The end of the log does not wait for a write that waits for its reader. */
static void a_write_that_waits_holds_up_nobody(void **state) {
    (void)state;
    enum { N = 100 };
    char value[8000];
    memset(value, 'x', sizeof value);
    piped p = open_log(LOG_LEVEL_INFO, false);
    atomic_store(&always_ready, true);
    for (int i = 0; i < N; i++) write_line(p.log, LOG_LEVEL_INFO, value, sizeof value);
    const uint64_t n_lost = server_log_destroy(&p.log);
    atomic_store(&always_ready, false);
    fcntl(p.reader, F_SETFL, O_NONBLOCK);
    const uint64_t n_read = count_lines(p.reader); /* the write that waited may end meanwhile, so the pipe stays open */
    assert_in_range(n_lost, N - n_read, N - n_read + 1);
}

/* What a log cannot write is not lost in silence: when writing works again, a line says how many lines are lost. */
static void lines_that_a_full_disk_lost_are_reported(void **state) {
    (void)state;
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    piped p = open_log(LOG_LEVEL_INFO, false);
    const int writer = dup(p.writer);
    assert_true(dup2(full, p.writer) >= 0);
    for (int i = 0; i < 3; i++) write_line(p.log, LOG_LEVEL_INFO, "lost", 4);
    WAIT_UNTIL(server_log_lost(p.log) == 3);
    assert_true(dup2(writer, p.writer) >= 0);
    close(writer);
    close(full);
    write_line(p.log, LOG_LEVEL_INFO, "written", 7);
    char *text = close_log(&p);
    assert_null(strstr(text, "value=lost"));
    assert_non_null(strstr(text, "value=written"));
    assert_int_equal(lost_in(text), 3);
    free(text);
}

static void *write_many(void *log) {
    for (int i = 0; i < 500; i++) write_line(log, LOG_LEVEL_INFO, "value", 5);
    return NULL;
}

static void threads_write_at_once(void **state) {
    (void)state;
    enum { N = 4 };
    piped p = open_log(LOG_LEVEL_INFO, false);
    fcntl(p.reader, F_SETPIPE_SZ, 1 << 20);
    pthread_t threads[N];
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_many, p.log), 0);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    assert_int_equal(server_log_lost(p.log), 0);
    char *text = close_log(&p);
    int n_lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) n_lines++;
    assert_int_equal(n_lines, 500 * N);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_kept),
        cmocka_unit_test(numbers_have_few_digits),
        cmocka_unit_test(values_are_quoted),
        cmocka_unit_test(hostile_values_stay_one_line),
        cmocka_unit_test(a_stopped_reader_holds_up_nobody),
        cmocka_unit_test(a_write_that_waits_holds_up_nobody),
        cmocka_unit_test(lines_that_a_full_disk_lost_are_reported),
        cmocka_unit_test(threads_write_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

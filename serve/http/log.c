/* Lines of the log, the buffer that holds them, and the thread that writes them: see log.h. */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/signals.h"
#include "chunkllama/common/str.h"

static const double LAST_WAIT = 1; /* seconds for a reader that does not read, when the log ends */

const char *const log_level_names[] = {"error", "warn", "info", "debug", NULL};

/* The lines of a kind. */
typedef struct log_limit {
    double used;         /* of LOG_BURST, at the time `at`; flows off */
    double at;           /* clock_seconds() */
    uint64_t n_left_out; /* lines since the last one */
} log_limit;

struct server_log {
    int fd;
    log_level level;
    bool json;
    pthread_t thread;
    char *written; /* [LOG_BUFFER_BYTES] the bytes that the thread writes; its own */

    pthread_mutex_t lock;   /* guards the fields below */
    pthread_cond_t changed; /* there is a line, or the log ends */
    char *lines;            /* [n_bytes] of LOG_BUFFER_BYTES; swapped with `written` */
    size_t n_bytes;
    uint64_t n_lost, n_lost_reported; /* lines; those of them that a line has reported */
    bool stop;                        /* the log ends */
    uint64_t n_unwritten;             /* lines that the thread is writing */
    log_limit limits[LOG_N_KINDS];
    bool ended, abandoned; /* the thread writes nothing more; nobody waits for it, so it frees the log */
};

/* ---- Writing a line ---- */

/* Append as much as fits. The last byte is kept for the line's end. */
static void put(log_line *line, const char *text, size_t size) {
    const size_t left = LOG_LINE_BYTES - 1 - line->size;
    if (size > left) size = left;
    memcpy(line->text + line->size, text, size);
    line->size += size;
}

static void put_text(log_line *line, const char *text) { put(line, text, strlen(text)); }

/* Whether a value needs no quotes in a line of text. */
static bool is_plain(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!text[i] || !strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@+-", text[i])) return false;
    return size > 0;
}

/*
 * Whether a character is written as it is: control characters, line and paragraph separators, and those that change the
 * direction of text are not, since they could hide text of a line.
 */
static bool is_shown(uint32_t c) {
    const bool controls = c < 0x20 || (c >= 0x7f && c < 0xa0);
    const bool moves = (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    return !controls && !moves && c != 0x061c && c != 0xfeff && c < 0x10000;
}

/* The character that begins a valid text, and its bytes. */
static uint32_t decode(const unsigned char *at, size_t *size) {
    static const unsigned char masks[] = {0x7f, 0, 0x1f, 0x0f, 0x07};
    *size = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t c = at[0] & masks[*size == 1 ? 0 : *size];
    for (size_t i = 1; i < *size; i++) c = c << 6 | (at[i] & 0x3f);
    return c;
}

/* Write a character as JSON does, with an escape where it needs one; buf has 13 bytes. */
static size_t escape(uint32_t c, const char *bytes, size_t size, char *buf) {
    if (c == '"' || c == '\\') return (size_t)sprintf(buf, "\\%c", (char)c);
    if (c == '\n') return (size_t)sprintf(buf, "\\n");
    if (c == '\t') return (size_t)sprintf(buf, "\\t");
    if (is_shown(c) || (c >= 0x10000 && c < 0xe0000)) { /* tags and private planes, from 0xe0000 on, are invisible */
        memcpy(buf, bytes, size);
        return size;
    }
    if (c < 0x10000) return (size_t)sprintf(buf, "\\u%04x", c);
    return (size_t)sprintf(buf, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
}

/* Write a text in quotes. Bytes that are not UTF-8 become U+FFFD. */
static void put_quoted(log_line *line, const char *text, size_t size) {
    const size_t most = line->size + LOG_VALUE_BYTES;
    put_text(line, "\"");
    size_t valid = cl_utf8_valid(text, size);
    for (size_t at = 0, n; at < size; at += n) {
        char buf[16];
        size_t n_buf;
        if (at < valid) {
            const uint32_t c = decode((const unsigned char *)text + at, &n);
            n_buf = escape(c, text + at, n, buf);
        } else {
            n = 1;
            n_buf = (size_t)sprintf(buf, "\\ufffd");
            valid = at + 1 + cl_utf8_valid(text + at + 1, size - at - 1);
        }
        /* A quote, and a field or two of numbers, still fit. */
        if (line->size + n_buf + 4 > most || line->size + n_buf + 512 > LOG_LINE_BYTES) {
            put_text(line, "...");
            break;
        }
        put(line, buf, n_buf);
    }
    put_text(line, "\"");
}

static void put_key(log_line *line, const char *key) {
    put_text(line, line->log->json ? ", \"" : " ");
    put_text(line, key);
    put_text(line, line->log->json ? "\": " : "=");
}

/* ---- Lines ---- */

bool log_begin(log_line *line, server_log *log, log_level level, const char *event) {
    if (!log || level > log->level) return false;
    struct timespec now;
    struct tm utc;
    char time[32];
    line->log = log;
    line->size = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    char head[96];
    snprintf(head, sizeof head, log->json ? "{\"time\": \"%s.%03dZ\", \"level\": \"%s\", \"event\": \"" : "%s.%03dZ %-5s ",
             time, (int)(now.tv_nsec / 1000000), log_level_names[level]);
    put_text(line, head);
    put_text(line, event);
    if (log->json) put_text(line, "\"");
    return true;
}

/* Whether there may be one more line of a kind; *n_left_out: how many before it there could not. */
static bool admit(server_log *log, log_kind kind, uint64_t *n_left_out) {
    const double now = clock_seconds();
    log_limit *l = &log->limits[kind];
    pthread_mutex_lock(&log->lock);
    l->used = fmax(0, l->used - LOG_RATE * fmax(0, now - l->at));
    l->at = now;
    const bool ok = l->used + 1 <= LOG_BURST;
    if (ok) l->used++;
    *n_left_out = l->n_left_out;
    l->n_left_out = ok ? 0 : l->n_left_out + 1;
    pthread_mutex_unlock(&log->lock);
    return ok;
}

bool log_begin_limited(log_line *line, server_log *log, log_level level, const char *event, log_kind kind) {
    uint64_t n_left_out;
    if (!log || level > log->level || !admit(log, kind, &n_left_out)) return false;
    log_begin(line, log, level, event);
    if (n_left_out > 0) log_integer(line, "left_out", (int64_t)n_left_out);
    return true;
}

void log_bytes(log_line *line, const char *key, const char *text, size_t size) {
    put_key(line, key);
    if (!line->log->json && size < 256 && is_plain(text, size))
        put(line, text, size);
    else
        put_quoted(line, text, size);
}

void log_text(log_line *line, const char *key, const char *text) {
    if (text) log_bytes(line, key, text, strlen(text));
}

void log_integer(log_line *line, const char *key, int64_t value) {
    char buf[24];
    snprintf(buf, sizeof buf, "%" PRId64, value);
    put_key(line, key);
    put_text(line, buf);
}

void log_real(log_line *line, const char *key, double value) {
    char buf[32];
    if (!isfinite(value)) value = 0;
    const double size = fabs(value);
    snprintf(buf, sizeof buf, size >= 1000 ? "%.0f" : size > 0 && size < 0.01 ? "%.6f" : "%.4g", value);
    put_key(line, key);
    put_text(line, buf);
}

/* Add lines to the buffer, or count one as lost. The caller holds the lock. */
static void add(server_log *log, const char *text, size_t size) {
    if (log->n_bytes + size > LOG_BUFFER_BYTES) {
        log->n_lost++;
        return;
    }
    memcpy(log->lines + log->n_bytes, text, size);
    log->n_bytes += size;
}

static void put_end(log_line *line) {
    if (line->log->json) put_text(line, "}");
    line->text[line->size++] = '\n';
}

void log_end(log_line *line) {
    server_log *log = line->log;
    put_end(line);
    pthread_mutex_lock(&log->lock);
    add(log, line->text, line->size);
    pthread_cond_signal(&log->changed);
    pthread_mutex_unlock(&log->lock);
}

void log_end_now(log_line *line) {
    struct pollfd out = {.fd = line->log->fd, .events = POLLOUT};
    put_end(line);
    if (poll(&out, 1, 0) > 0 && write(line->log->fd, line->text, line->size < PIPE_BUF ? line->size : PIPE_BUF) < 0)
        return; /* nobody reads it */
}

uint64_t server_log_lost(server_log *log) {
    if (!log) return 0;
    pthread_mutex_lock(&log->lock);
    const uint64_t n = log->n_lost;
    pthread_mutex_unlock(&log->lock);
    return n;
}

/* ---- The thread ---- */

/* Wait until the reader takes more, or until a second after the log's end. Returns whether it does. */
static bool await_reader(server_log *log, double *end) {
    for (;;) {
        struct pollfd out = {.fd = log->fd, .events = POLLOUT};
        const bool ready = poll(&out, 1, 100) > 0; /* also for an error, which write reports */
        pthread_mutex_lock(&log->lock);
        const bool stop = log->stop, abandoned = log->abandoned;
        pthread_mutex_unlock(&log->lock);
        if (abandoned) return false;
        if (ready) return true;
        const double now = clock_seconds();
        if (stop && *end == 0) *end = now + LAST_WAIT;
        if (stop && now >= *end) return false;
    }
}

static uint64_t count_lines(const char *text, size_t size) {
    uint64_t n = 0;
    for (const char *end; (end = memchr(text, '\n', size)); n++) {
        size -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    return n;
}

static void set_unwritten(server_log *log, uint64_t n) {
    pthread_mutex_lock(&log->lock);
    log->n_unwritten = n;
    pthread_mutex_unlock(&log->lock);
}

/*
 * Write a text, in pieces that a pipe takes whole once poll says that it takes something. A terminal may take less, and another
 * program may have filled the pipe since: then write waits. Returns the number of lines that cannot be written; they are
 * dropped. counted: n_unwritten follows the lines.
 */
static uint64_t write_all(server_log *log, const char *text, size_t size, bool counted, double *end) {
    uint64_t n_lines = count_lines(text, size);
    if (counted) set_unwritten(log, n_lines);
    while (size > 0 && await_reader(log, end)) {
        const ssize_t n = write(log->fd, text, size < PIPE_BUF ? size : PIPE_BUF);
        if (n < 0 && errno != EINTR && errno != EAGAIN) break;
        if (n <= 0) continue;
        n_lines -= count_lines(text, (size_t)n);
        if (counted) set_unwritten(log, n_lines);
        text += n;
        size -= (size_t)n;
    }
    return n_lines;
}

/* Wait for lines, or for the log's end, and take them to `written`. Returns their size. *stop: the log ends. */
static size_t take_lines(server_log *log, bool *stop, uint64_t *n_lost) {
    pthread_mutex_lock(&log->lock);
    if (log->n_bytes == 0 && !log->stop) pthread_cond_wait(&log->changed, &log->lock);
    char *lines = log->lines;
    const size_t size = log->n_bytes;
    log->lines = log->written;
    log->written = lines;
    log->n_bytes = 0;
    *n_lost = log->n_lost - log->n_lost_reported;
    *stop = log->stop && size == 0;
    pthread_mutex_unlock(&log->lock);
    return size;
}

/* Write how many lines were lost: not by way of the buffer, which may be full again. False: it could not be written. */
static bool write_lost(server_log *log, uint64_t n_lost, double *end) {
    log_line line;
    const log_level level = log->level < LOG_LEVEL_WARN ? log->level : LOG_LEVEL_WARN;
    if (n_lost == 0 || !log_begin(&line, log, level, "log")) return true;
    log_integer(&line, "lost_lines", (int64_t)n_lost);
    put_end(&line);
    return write_all(log, line.text, line.size, false, end) == 0;
}

static void log_free(server_log *log) {
    pthread_mutex_destroy(&log->lock);
    pthread_cond_destroy(&log->changed);
    free(log->lines);
    free(log->written);
    free(log);
}

static void *run(void *arg) {
    server_log *log = arg;
    double end = 0;
    for (bool stop = false; !stop;) {
        uint64_t n_lost;
        const size_t size = take_lines(log, &stop, &n_lost);
        const uint64_t n_dropped = write_all(log, log->written, size, true, &end);
        const bool reported = write_lost(log, n_lost, &end);
        pthread_mutex_lock(&log->lock);
        log->n_lost += n_dropped; /* the next lines that can be written say so */
        log->n_unwritten = 0;
        if (reported) log->n_lost_reported += n_lost;
        pthread_mutex_unlock(&log->lock);
    }
    pthread_mutex_lock(&log->lock);
    log->ended = true;
    const bool abandoned = log->abandoned;
    pthread_cond_signal(&log->changed);
    pthread_mutex_unlock(&log->lock);
    if (abandoned) log_free(log);
    return NULL;
}

/* ---- Life ---- */

static bool start_thread(server_log *log) {
    sigset_t before;
    signals_block_all(&before);
    const bool started = pthread_create(&log->thread, NULL, run, log) == 0;
    signals_restore(&before);
    return started;
}

server_log *server_log_create(int fd, log_level level, bool json) {
    server_log *log = calloc(1, sizeof *log);
    if (!log) return NULL;
    *log = (server_log){.fd = fd, .level = level, .json = json};
    pthread_mutex_init(&log->lock, NULL);
    clock_cond_init(&log->changed);
    log->lines = malloc(LOG_BUFFER_BYTES);
    log->written = malloc(LOG_BUFFER_BYTES);
    if (log->lines && log->written && start_thread(log)) return log;
    log_free(log);
    return NULL;
}

uint64_t server_log_destroy(server_log **address) {
    server_log *log = address ? *address : NULL;
    if (!log) return 0;
    *address = NULL;
    const pthread_t thread = log->thread;
    const struct timespec until = clock_deadline(2 * LAST_WAIT);
    int failure = 0;
    pthread_mutex_lock(&log->lock);
    log->stop = true;
    pthread_cond_broadcast(&log->changed);
    while (!log->ended && failure == 0) failure = pthread_cond_timedwait(&log->changed, &log->lock, &until);
    const uint64_t n_lost = log->n_lost - log->n_lost_reported + log->n_unwritten + count_lines(log->lines, log->n_bytes);
    const bool ended = log->ended;
    log->abandoned = !ended;
    pthread_mutex_unlock(&log->lock);
    if (!ended) {
        pthread_detach(thread);
        return n_lost;
    }
    pthread_join(thread, NULL);
    log_free(log);
    return n_lost;
}

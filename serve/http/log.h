/*
 * The log: one line for each thing that happened, as text or JSON.
 *
 * A line is put together by the thread that has something to say, and copied to a bounded buffer under a lock that nobody holds
 * for longer than such a copy. A thread of the log's own writes the buffer. So nobody waits for the log's reader: lines
 * that do not fit into the buffer are lost, and a line says how many.
 *
 * No value can forge a line or control a terminal: characters that are not printable are written as JSON's escapes.
 *
 * All functions may be called from any thread. A log of NULL has no lines.
 */
#ifndef SERVE_HTTP_LOG_H
#define SERVE_HTTP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG } log_level;

extern const char *const log_level_names[]; /* by log_level; then NULL */

typedef struct server_log server_log;

enum {
    LOG_LINE_BYTES = 16 << 10,  /* of the longest line */
    LOG_VALUE_BYTES = 12 << 10, /* of the longest value as it is written; the rest is left out, which "..." marks */
    LOG_BUFFER_BYTES = 1 << 20, /* of lines that are not written yet */
};

/*
 * Start a log that writes lines of this level and of those before it to a file descriptor, which is borrowed. The
 * log's thread has the limits of the calling one, and no signals. NULL if memory or threads are lacking.
 */
server_log *server_log_create(int fd, log_level level, bool json);

/*
 * Write the remaining lines, and free the log. It waits two seconds at most, also for a slow reader; the rest is
 * lost. Returns how many lines are lost without a line that says so. A thread that still waits in a write is left behind: it
 * writes nothing else, and frees the log when the write returns. Nobody may use the log any more. NULL and pointers to NULL are
 * ignored.
 */
uint64_t server_log_destroy(server_log **log);

/* Lines that were lost so far. */
uint64_t server_log_lost(server_log *log);

/* A line that is being put together, on the stack. */
typedef struct log_line {
    server_log *log;
    size_t size;
    char text[LOG_LINE_BYTES];
} log_line;

/* The lines that clients can cause at will, also without a key. */
typedef enum log_kind { LOG_CONNECTION, LOG_UNREADABLE, LOG_REFUSED, LOG_N_KINDS } log_kind;

/* Of each kind, lines at once and lines per second; further ones are left out, and the next one says how many. */
enum { LOG_BURST = 100, LOG_RATE = 10 };

/*
 * Begin a line. event: its name, one or two plain words. False: the log does not have lines of this level, and there is
 * nothing to add or to end.
 */
bool log_begin(log_line *line, server_log *log, log_level level, const char *event);

/* The same with a line of a kind, unless it is left out. */
bool log_begin_limited(log_line *line, server_log *log, log_level level, const char *event, log_kind kind);

/* Add a field. key: plain letters, digits and "_". A text of NULL adds nothing. */
void log_text(log_line *line, const char *key, const char *text);
void log_bytes(log_line *line, const char *key, const char *text, size_t size);
void log_integer(log_line *line, const char *key, int64_t value);
void log_real(log_line *line, const char *key, double value); /* to four digits or a millionth */

/* End the line, and pass it to the log's thread. */
void log_end(log_line *line);

/* End the line, and write it at once if the reader takes it, before lines that the log's thread has: for the end of a program.
 */
void log_end_now(log_line *line);

#endif

/* Keeps the history of lines in a file, to which each line is appended when it is entered. */
#include "line_history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_LINES = 1000,        /* that can be recalled */
    MAX_BYTES = 4 << 20,     /* a larger file is written anew when it is read, with these lines only */
    MAX_KEPT_LINE = 1 << 18, /* bytes; longer lines are recalled, but not kept */
};

/* Set *path to the file's path, owned; NULL: there is no home. */
static cl_status find_path(char **path, cl_error *error) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const bool given = state && *state == '/'; /* the specification lets relative paths be ignored */
    *path = NULL;
    if (!given && (!home || *home != '/')) return CL_OK;
    if (asprintf(path, "%s%s/chunkllama/chat_history", given ? state : home, given ? "" : "/.local/state") >= 0) return CL_OK;
    *path = NULL;
    return cl_fail(error, CL_ERR_NOMEM, "no memory for the history");
}

/* Stop to keep the lines, and say why. */
static void give_up(line_history *h, const char *why) {
    fprintf(stderr, "chunkllama chat: the history is not kept: %s: %s\n", h->path, why);
    free(h->path);
    h->path = NULL;
}

/* Write a line of the history as one of the file, in which \n is a line feed and \\ a backslash. */
static void write_line(const char *line, FILE *out) {
    for (; *line; line++) {
        if (*line == '\n')
            fputs("\\n", out);
        else if (*line == '\\')
            fputs("\\\\", out);
        else
            fputc(*line, out);
    }
    fputc('\n', out);
}

/* Turn a line of the file, without its end, into the line of the history, in place. */
static void decode_line(char *line) {
    char *to = line;
    for (const char *from = line; *from; from++) {
        if (*from == '\\' && from[1])
            from++, *to++ = *from == 'n' ? '\n' : *from;
        else
            *to++ = *from;
    }
    *to = 0;
}

/* Open a file that only the user may read, for writing with these flags. NULL: errno says why not. */
static FILE *open_private(const char *path, int flags) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    FILE *out = fd >= 0 && fchmod(fd, 0600) == 0 ? fdopen(fd, "w") : NULL;
    if (out || fd < 0) return out;
    const int cause = errno;
    close(fd);
    errno = cause;
    return NULL;
}

/* Close a file that was written. False: not all was; errno says why. */
static bool close_written(FILE *out) {
    const bool ok = !ferror(out);
    return fclose(out) == 0 && ok;
}

/* Write a file that has grown anew, with the lines that are recalled. If that fails, the old one stays. */
static void shorten_file(const line_history *h) {
    HistEvent event;
    char *shorter = NULL;
    if (asprintf(&shorter, "%s.new", h->path) < 0) return;
    unlink(shorter);
    FILE *out = open_private(shorter, O_EXCL);
    if (out)
        for (int found = history(h->lines, &event, H_LAST); found == 0; found = history(h->lines, &event, H_PREV))
            write_line(event.str, out);
    if (!out || !close_written(out) || rename(shorter, h->path)) unlink(shorter);
    free(shorter);
}

static void read_file(const line_history *h) {
    HistEvent event;
    char *line = NULL;
    size_t capacity = 0;
    FILE *in = fopen(h->path, "re");
    if (!in) return;
    for (ssize_t n; (n = getline(&line, &capacity, in)) > 0;) {
        if (line[n - 1] == '\n') line[--n] = 0;
        decode_line(line);
        if (*line) history(h->lines, &event, H_ENTER, line);
    }
    const bool grown = ftello(in) > MAX_BYTES;
    free(line);
    fclose(in);
    if (grown) shorten_file(h);
}

cl_status line_history_open(line_history *h, bool keep, cl_error *error) {
    HistEvent event;
    h->lines = history_init();
    if (!h->lines) return cl_fail(error, CL_ERR_NOMEM, "no memory for the history");
    history(h->lines, &event, H_SETSIZE, MAX_LINES);
    const cl_status status = keep ? find_path(&h->path, error) : CL_OK;
    if (status == CL_OK && h->path) read_file(h);
    return status;
}

/* Create the folders in which the file is. */
static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

static void append_line(line_history *h, const char *line) {
    make_folders(h->path);
    FILE *out = open_private(h->path, O_APPEND);
    if (out) write_line(line, out);
    if (!out || !close_written(out)) give_up(h, strerror(errno));
}

void line_history_add(line_history *h, const char *line) {
    HistEvent event;
    if (history(h->lines, &event, H_FIRST) == 0 && strcmp(event.str, line) == 0) return;
    history(h->lines, &event, H_ENTER, line);
    if (h->path && strlen(line) <= MAX_KEPT_LINE) append_line(h, line);
}

void line_history_close(line_history *h) {
    if (h->lines) history_end(h->lines);
    free(h->path);
    *h = (line_history){0};
}

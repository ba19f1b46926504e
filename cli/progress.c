/* Draws the progress bar, and prints progress as lines: see progress.h. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"

static const double DRAW_S = 0.1;                          /* seconds between two states of the bar */
static const double FIRST_LINE_S = 2, MOST_BETWEEN_S = 60; /* between lines: a twentieth of the time so far, within these */

void progress_begin(progress *p) {
    const char *kind = getenv("TERM");
    const bool terminal = isatty(STDERR_FILENO) && !(kind && strcmp(kind, "dumb") == 0); /* which has no escapes */
    *p = (progress){.terminal = terminal, .next_s = terminal ? 0 : FIRST_LINE_S, .counts = "requests"};
}

/* ", 1:02:03 left", if it is known. */
static void write_left(const progress_state *s, char *text, size_t size) {
    const double left = s->part > 0 && s->part < 1 ? s->seconds * (1 - s->part) / s->part : -1;
    text[0] = '\0';
    if (left < 0 || left > 1e8) return;
    const long n = (long)(left + 0.5);
    if (n >= 3600)
        snprintf(text, size, ", %ld:%02ld:%02ld left", n / 3600, n / 60 % 60, n % 60);
    else
        snprintf(text, size, ", %ld:%02ld left", n / 60, n % 60);
}

/* "3/6 requests, 120 tokens, 24.0 tokens/s, 0:05 left" */
static void write_state(const progress *p, const progress_state *s, char *text, size_t size) {
    char total[32] = "", tokens[64] = "", left[48];
    const double rate = s->seconds > 0 ? (double)s->tokens / s->seconds : 0;
    if (s->total) snprintf(total, sizeof total, "/%zu", s->total);
    if (s->tokens >= 0) snprintf(tokens, sizeof tokens, ", %lld tokens, %.1f tokens/s", s->tokens, rate);
    write_left(s, left, sizeof left);
    snprintf(text, size, "%zu%s %s%s%s", s->done, total, p->counts, tokens, left);
}

/* The columns of the terminal that are left for a bar beside a text, at most 30; the last column stays free. */
static size_t bar_width(const char *text) {
    enum { MOST = 30, FRAME = 4 };
    struct winsize window;
    const size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col : 80,
                 taken = strlen(text) + FRAME;
    return columns <= taken ? 0 : columns - taken > MOST ? MOST : columns - taken;
}

void progress_show(progress *p, const progress_state *s) {
    char text[192];
    if (s->seconds < p->next_s) return;
    write_state(p, s, text, sizeof text);
    if (!p->terminal) {
        const double gap = s->seconds / 20;
        p->next_s = s->seconds + (gap < FIRST_LINE_S ? FIRST_LINE_S : gap > MOST_BETWEEN_S ? MOST_BETWEEN_S : gap);
        fprintf(stderr, "%s\n", text);
        return;
    }
    p->next_s = s->seconds + DRAW_S;
    fputc('\r', stderr);
    const size_t width = s->total ? bar_width(text) : 0;
    if (width) fputc('[', stderr);
    for (size_t i = 0; i < width; i++) fputc(i * s->total < s->done * width ? '#' : '.', stderr);
    fprintf(stderr, "%s%s\033[K", width ? "] " : "", text);
}

void progress_clear(const progress *p) {
    if (p->terminal && p->next_s > 0) fprintf(stderr, "\r\033[K");
}

course course_begin(size_t n, double work, const char *counts) {
    course c = {.n = n, .work = work, .start = clock_seconds()};
    progress_begin(&c.progress);
    c.progress.counts = counts;
    return c;
}

void course_show(course *c) {
    progress_show(&c->progress, &(progress_state){.done = c->n_done,
                                                  .total = c->n,
                                                  .tokens = -1,
                                                  .seconds = clock_seconds() - c->start,
                                                  .part = c->work > 0 ? c->work_done / c->work : 0});
}

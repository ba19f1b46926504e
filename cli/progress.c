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

cli_progress progress_begin(const char *counts, size_t total, double work) {
    const char *kind = getenv("TERM");
    const bool terminal = isatty(STDERR_FILENO) && !(kind && strcmp(kind, "dumb") == 0); /* which has no escapes */
    return (cli_progress){.counts = counts,
                          .total = total,
                          .work = work,
                          .tokens = -1,
                          .start = clock_seconds(),
                          .next_s = terminal ? 0 : FIRST_LINE_S,
                          .terminal = terminal};
}

/* ", 1:02:03 left", if it is known. */
static void write_left(const cli_progress *p, double seconds, char *text, size_t size) {
    const double part = p->work > 0 ? p->work_done / p->work : 0;
    const double left = part > 0 && part < 1 ? seconds * (1 - part) / part : -1;
    text[0] = '\0';
    if (left < 0 || left > 1e8) return;
    const long n = (long)(left + 0.5);
    if (n >= 3600)
        snprintf(text, size, ", %ld:%02ld:%02ld left", n / 3600, n / 60 % 60, n % 60);
    else
        snprintf(text, size, ", %ld:%02ld left", n / 60, n % 60);
}

/* "3/6 requests, 120 tokens, 24.0 tokens/s, 0:05 left" */
static void write_state(const cli_progress *p, double seconds, char *text, size_t size) {
    char total[32] = "", tokens[64] = "", left[48];
    const double rate = seconds > 0 ? (double)p->tokens / seconds : 0;
    if (p->total) snprintf(total, sizeof total, "/%zu", p->total);
    if (p->tokens >= 0) snprintf(tokens, sizeof tokens, ", %lld tokens, %.1f tokens/s", p->tokens, rate);
    write_left(p, seconds, left, sizeof left);
    snprintf(text, size, "%zu%s %s%s%s", p->done, total, p->counts, tokens, left);
}

/* The columns of the terminal that are left for a bar beside a text, at most 30; the last column stays free. */
static size_t bar_width(const char *text) {
    enum { MOST = 30, FRAME = 4 };
    struct winsize window;
    const size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col ? window.ws_col : 80,
                 taken = strlen(text) + FRAME;
    return columns <= taken ? 0 : columns - taken > MOST ? MOST : columns - taken;
}

void progress_show(cli_progress *p) {
    char text[192];
    const double seconds = clock_seconds() - p->start;
    if (seconds < p->next_s) return;
    write_state(p, seconds, text, sizeof text);
    if (!p->terminal) {
        const double gap = seconds / 20;
        p->next_s = seconds + (gap < FIRST_LINE_S ? FIRST_LINE_S : gap > MOST_BETWEEN_S ? MOST_BETWEEN_S : gap);
        fprintf(stderr, "%s\n", text);
        return;
    }
    p->next_s = seconds + DRAW_S;
    p->drawn = true;
    fputc('\r', stderr);
    const size_t width = p->total ? bar_width(text) : 0;
    if (width) fputc('[', stderr);
    for (size_t i = 0; i < width; i++) fputc(i * p->total < p->done * width ? '#' : '.', stderr);
    fprintf(stderr, "%s%s\033[K", width ? "] " : "", text);
}

void progress_clear(cli_progress *p) {
    if (p->drawn) fprintf(stderr, "\r\033[K");
}

/*
 * Progress of long commands on stderr: on a terminal a bar that is redrawn, otherwise, and if TERM is "dumb", a line every few
 * seconds, as logs want it, and less often the longer the command takes.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/* How far a command is. Make it with progress_begin; the caller sets done, work_done and tokens before each progress_show. */
typedef struct cli_progress {
    const char *counts;     /* what done and total count, in the plural, such as "requests" */
    size_t done, total;     /* total 0: unknown */
    double work_done, work; /* in any unit, from which the time left follows; work 0: unknown */
    long long tokens;       /* generated since the beginning; -1: none are counted */
    double start;           /* clock_seconds() */
    double next_s;          /* when it is shown again, in seconds from the beginning */
    bool terminal;          /* stderr is one that can redraw a line */
    bool drawn;             /* the bar stands there */
} cli_progress;

/* The progress of `total` things with this work, which begin now. */
cli_progress progress_begin(const char *counts, size_t total, double work);

/* Show the progress if it is time: on a terminal ten times a second, otherwise every few seconds. */
void progress_show(cli_progress *p);

/* Remove the bar, if it was drawn. */
void progress_clear(cli_progress *p);

#endif

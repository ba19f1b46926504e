/*
 * Progress of long commands on stderr: on a terminal a bar that is redrawn, otherwise, and if TERM is "dumb", a line every few
 * seconds, as logs want it, and less often the longer the command takes.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Fill with progress_begin. */
typedef struct progress {
    bool terminal;      /* stderr is one that can redraw a line */
    double next_s;      /* when it is shown again, in seconds from the beginning */
    const char *counts; /* what done and total count, in the plural: "requests", unless the caller sets it */
} progress;

/* How far the command is. */
typedef struct progress_state {
    size_t done, total; /* total 0: unknown */
    long long tokens;   /* generated in these seconds; -1: none are counted */
    double seconds;     /* since the beginning */
    double part;        /* of the work, 0 to 1, that was done in these seconds; 0: unknown, so the time left is, too */
} progress_state;

void progress_begin(progress *p);

/* Show the state if it is time: on a terminal ten times a second, otherwise every few seconds. */
void progress_show(progress *p, const progress_state *state);

/* Remove the bar, if it was drawn. */
void progress_clear(const progress *p);

/* ---- A course of measurements, of which each shows how far the whole is ---- */

typedef struct course {
    size_t n_done, n;       /* measurements */
    double work_done, work; /* in any unit; work 0: unknown */
    double start;           /* clock_seconds() */
    progress progress;
} course;

/* A course of n measurements of together this work, which begins now. counts: as in progress. */
course course_begin(size_t n, double work, const char *counts);

void course_show(course *c);

#endif

/* A progress bar on a terminal. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stddef.h>

/* Redraw it on stderr: done of total requests (total 0: unknown), tokens generated so far in `seconds`. */
void progress_draw(size_t done, size_t total, long long tokens, double seconds);

/* Remove it. */
void progress_clear(void);

#endif

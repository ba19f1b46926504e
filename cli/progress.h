/* A progress bar on a terminal, for commands that run many requests. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stddef.h>

/* Redraw the bar on stderr: `done` of `total` requests (0: unknown), and `tokens` generated in `seconds` so far. */
void progress_draw(size_t done, size_t total, long long tokens, double seconds);

/* Remove the bar. */
void progress_clear(void);

#endif

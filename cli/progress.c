/* Draws the progress bar. */
#include "progress.h"

#include <stdio.h>

void progress_draw(size_t done, size_t total, long long tokens, double seconds) {
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    const double rate = seconds > 0 ? (double)tokens / seconds : 0;
    if (!total) {
        fprintf(stderr, "\r%zu requests, %lld tokens, %.1f tokens/s\033[K", done, tokens, rate);
        return;
    }
    for (size_t i = 0; i < WIDTH; i++) bar[i] = i * total < done * WIDTH ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r[%s] %zu/%zu requests, %lld tokens, %.1f tokens/s\033[K", bar, done, total, tokens, rate);
}

void progress_clear(void) { fprintf(stderr, "\r\033[K"); }

/* Writes text of unknown origin to a terminal, which must not obey what is in it. */
#ifndef CLI_VISIBLE_H
#define CLI_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Write text [size] to `out`, with control characters other than line feed and tab, and bytes that are not UTF-8, as \x1b.
 *
 * last: no more text follows. Otherwise an incomplete character at the end is left out. Returns the number of bytes of the text
 * that were written.
 */
size_t visible_write(const char *text, size_t size, bool last, FILE *out);

#endif

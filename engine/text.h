/*
 * The text of one choice on its way out: bytes of tokens are held back until they form whole UTF-8 characters and cannot be
 * the beginning of a stop string any more. What is not UTF-8 comes out as U+FFFD, one for each maximal broken part.
 */
#ifndef ENGINE_TEXT_H
#define ENGINE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cl_text_bytes {
    char *data;
    size_t size, capacity;
} cl_text_bytes;

/* Zero-initialise and set stop, which is borrowed: [n_stop] terminated strings, none empty. */
typedef struct cl_text {
    const char *const *stop;
    int n_stop;
    cl_text_bytes held; /* not shown yet */
    cl_text_bytes out;  /* what the last call let out */
} cl_text;

void cl_text_free(cl_text *t);

/* Room for n more bytes, to be written at its return value before cl_text_added; NULL without memory. */
char *cl_text_room(cl_text *t, size_t n);

/*
 * Take in the n bytes written at cl_text_room. Puts what may be shown now in t->out. *stopped: a stop string is complete; what
 * came before it is in t->out, the rest is gone. False without memory.
 */
bool cl_text_added(cl_text *t, size_t n, bool *stopped);

/* Whether the n bytes written at cl_text_room, if taken in, complete a stop string. */
bool cl_text_completes(const cl_text *t, size_t n);

/* The end: puts all that is still held in t->out, an unfinished character as U+FFFD. False without memory. */
bool cl_text_finish(cl_text *t);

#endif

/*
 * The text of one choice on its way out. The bytes of tokens are held back until they form whole UTF-8 characters and cannot be
 * the beginning of a stop string any more. Each maximal part that is not UTF-8 comes out as U+FFFD.
 */
#ifndef CHUNKLLAMA_ENGINE_COMPLETION_TEXT_H
#define CHUNKLLAMA_ENGINE_COMPLETION_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cl_text_bytes {
    char *data; /* [size] owned */
    size_t size, capacity;
} cl_text_bytes;

/* Zero-initialise, then set stop, n_stop and include_stop. Free with cl_text_free. */
typedef struct cl_text {
    const char *const *stop; /* [n_stop] terminated strings, none of them empty; borrowed */
    int n_stop;
    bool include_stop;  /* the text ends with the stop string and not before it */
    cl_text_bytes held; /* not released yet */
    size_t n_passed;    /* of these, the first ones with which no stop string may end */
    cl_text_bytes out;  /* the text that the last call released */
    int n_found;        /* 1 + the index of the stop string that is complete; 0: none is */
} cl_text;

void cl_text_free(cl_text *t);

/*
 * Where the caller writes n more bytes before cl_text_added; valid until the next call. NULL if memory is lacking. This is the
 * only function that allocates, so what is held can always be shown.
 */
char *cl_text_reserve(cl_text *t, size_t n);

/*
 * Add the n bytes that were written at cl_text_reserve, and put what may be shown now in t->out. True: a stop string is
 * complete; what came before it is in t->out, with include_stop itself too, and the rest is dropped. stoppable: stop strings
 * that end with these bytes count; they may begin with earlier ones that do not.
 */
bool cl_text_added(cl_text *t, size_t n, bool stoppable);

/*
 * Whether the n bytes that were written at cl_text_reserve would complete a stop string, of which the first n_passed are not
 * stoppable. Adds nothing.
 */
bool cl_text_completes(const cl_text *t, size_t n, size_t n_passed);

/* The text ends: put all that is held in t->out, an unfinished character as U+FFFD. */
void cl_text_finish(cl_text *t);

#endif

/*
 * The text of one choice on its way out. The bytes of tokens are held back until they form whole UTF-8 characters and cannot be
 * the beginning of a stop string any more. Each maximal part that is not UTF-8 comes out as U+FFFD.
 */
#ifndef CHUNKLLAMA_ENGINE_COMPLETION_TEXT_H
#define CHUNKLLAMA_ENGINE_COMPLETION_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cl_text_bytes {
    char *data; /* [size] owned */
    size_t size, capacity;
} cl_text_bytes;

/* Zero-initialise, then set stop, n_stop, include_stop, min_indent, and indent to -1. Free with cl_text_free. */
typedef struct cl_text {
    const char *const *stop; /* [n_stop] terminated strings, none of them empty; borrowed */
    int n_stop;
    bool include_stop;  /* the text ends with the stop string and not before it */
    int32_t min_indent; /* the text ends before a line with fewer blanks before its first character; 0: none does */
    cl_text_bytes held; /* not released yet */
    size_t n_passed;    /* of these, the first ones with which no stop string may end */
    cl_text_bytes out;  /* the text that the last call released */
    int n_found;        /* 1 + the index of the stop string that is complete; 0: none is */
    bool outdented;     /* a line with too few blanks ends the text */
    int32_t indent;     /* blanks of the line before the held text; < 0: it is the first line, or has other characters */
} cl_text;

void cl_text_free(cl_text *t);

/*
 * Where the caller writes n more bytes before cl_text_added; valid until the next call. NULL if memory is lacking. This is the
 * only function that allocates, so what is held can always be shown.
 */
char *cl_text_reserve(cl_text *t, size_t n);

/*
 * Add the n bytes that were written at cl_text_reserve, and put what may be shown now in t->out. True: the text ends, with a
 * stop string or a line that has too few blanks; what came before that is in t->out, with include_stop the stop string, too,
 * and the rest is dropped. stoppable: stop strings that end with these bytes count; they may begin with earlier ones that do
 * not.
 */
bool cl_text_added(cl_text *t, size_t n, bool stoppable);

/*
 * Whether the text would end with the n bytes that were written at cl_text_reserve, of which the first n_passed are not
 * stoppable. Adds nothing.
 */
bool cl_text_completes(const cl_text *t, size_t n, size_t n_passed);

/* The text ends: put all that is held in t->out, an unfinished character as U+FFFD. */
void cl_text_finish(cl_text *t);

#endif

/*
 * Strings of which each byte carries its origin, and the methods of Python's str. All are UTF-8; indices and widths count
 * characters, as Python's do. Results share the bytes of their arguments where they can, since strings never change.
 */
#ifndef CHUNKLLAMA_JINJA_TEXT_H
#define CHUNKLLAMA_JINJA_TEXT_H

#include <stdbool.h>

#include "chunkllama/common/str.h"
#include "run.h"

typedef struct cj_text {
    const char *data;
    const char *marks; /* [size] of each byte whether it is the template's own; NULL: all are, or none, as `own` says */
    size_t size;
    bool own;
    bool markup; /* it is HTML (filters safe and escape): `+` escapes what is joined to it, as Python's Markup does */
} cj_text;

/* A literal of the template; text that comes from the caller, or that Jinja writes. */
static inline cj_text cj_own(cl_str s) { return (cj_text){.data = s.data, .size = s.size, .own = true}; }
static inline cj_text cj_foreign(cl_str s) { return (cj_text){.data = s.data, .size = s.size}; }
static inline cj_text cj_foreign_of(const char *s) { return cj_foreign(cl_str_of(s)); }

static inline bool cj_text_is(cj_text t, const char *s) { return cl_str_is((cl_str){t.data, t.size}, s); }
static inline bool cj_text_equal(cj_run *r, cj_text a, cj_text b) {
    if (a.size != b.size) return false;
    if (a.size >= 64) cj_step_bytes(r, a.size);
    return a.size == 0 || memcmp(a.data, b.data, a.size) == 0;
}
int cj_text_compare(cj_run *r, cj_text a, cj_text b);

/* The bytes [begin, end). */
cj_text cj_part(cj_text t, size_t begin, size_t end);

/* ---- Characters ---- */

/* The bytes of the character at an offset, and its code point. */
static inline size_t cj_char_size(char first) {
    const unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}
int32_t cj_char(cj_text t, size_t at);
size_t cj_n_chars(cj_text t);
/* The offset of a character by its index <= cj_n_chars. */
size_t cj_offset(cj_run *r, cj_text t, size_t index);

bool cj_is_space(int32_t c);

/* ---- Building strings ---- */

typedef struct cj_builder {
    cj_run *r;
    char *data, *marks;
    size_t size, capacity;
} cj_builder;

void cj_put(cj_builder *b, cj_text t);
/* Text that Jinja writes, which counts as the caller's. */
void cj_put_foreign(cj_builder *b, const char *s);
void cj_put_char(cj_builder *b, char c);
/* A code point in place of bytes of the origin `own`. */
void cj_put_code(cj_builder *b, int32_t c, bool own);
/* n times. */
void cj_put_times(cj_builder *b, cj_text t, size_t n);
cj_text cj_built(cj_builder *b);

cj_text cj_join2(cj_run *r, cj_text a, cj_text b);

/* The characters that HTML gives a meaning, by their names; the result is HTML. HTML stays as it is. */
cj_text cj_escape(cj_run *r, cj_text t);

/* ---- Methods of Python's str ---- */

typedef enum cj_sides { CJ_LEFT = 1, CJ_RIGHT = 2 } cj_sides;
/* chars: NULL for white space. sides: CJ_LEFT | CJ_RIGHT. */
cj_text cj_strip(cj_run *r, cj_text t, const cj_text *chars, unsigned sides);

/* CJ_TITLE is Python's str.title, CJ_WORDS the filter `title`. */
typedef enum cj_case { CJ_UPPER, CJ_LOWER, CJ_TITLE, CJ_CAPITALIZE, CJ_WORDS } cj_case;
cj_text cj_change_case(cj_run *r, cj_text t, cj_case how);

/* The offset of the first occurrence of `part` in [from, size); SIZE_MAX: none. */
size_t cj_find(cj_run *r, cj_text t, cj_text part, size_t from);
cj_text cj_replace(cj_run *r, cj_text t, cj_text old, cj_text replacement);

/* The bytes of the line break at an offset, or 0: those of str.splitlines. */
size_t cj_line_break(cj_text t, size_t at);

#endif

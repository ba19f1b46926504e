/* Cuts, joins and changes strings, and keeps the origin of each byte. */
#define _GNU_SOURCE /* memmem */
#include "text.h"

#include <utf8proc.h>

int cj_text_compare(cj_run *r, cj_text a, cj_text b) {
    const size_t n = a.size < b.size ? a.size : b.size;
    cj_step_bytes(r, n);
    const int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

cj_text cj_part(cj_text t, size_t begin, size_t end) {
    if (begin >= end) return (cj_text){.data = "", .own = t.own, .markup = t.markup};
    t.data += begin;
    if (t.marks) t.marks += begin;
    t.size = end - begin;
    return t;
}

static bool is_own(cj_text t, size_t at) { return t.marks ? t.marks[at] : t.own; }

/* ---- Characters ---- */

int32_t cj_char(cj_text t, size_t at) {
    utf8proc_int32_t c;
    utf8proc_iterate((const utf8proc_uint8_t *)t.data + at, (utf8proc_ssize_t)(t.size - at), &c);
    return c;
}

/* The offset of the character before `at` > 0. */
static size_t char_before(cj_text t, size_t at) {
    while (--at > 0 && ((unsigned char)t.data[at] & 0xc0) == 0x80) {
    }
    return at;
}

size_t cj_n_chars(cj_text t) {
    size_t n = 0;
    for (size_t i = 0; i < t.size; i++) n += ((unsigned char)t.data[i] & 0xc0) != 0x80;
    return n;
}

size_t cj_offset(cj_run *r, cj_text t, size_t index) {
    size_t at = 0;
    cj_step_text(r, index);
    while (index-- > 0) at += cj_char_size(t.data[at]);
    return at;
}

bool cj_is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* ---- Building strings ---- */

static void reserve(cj_builder *b, size_t more) {
    if (more > b->r->max_text || b->size > b->r->max_text - more)
        cj_fail(b->r, CL_ERR_LIMIT, "a text is longer than the allowed %zu bytes", b->r->max_text);
    if (more <= b->capacity - b->size) return;
    const size_t capacity = 2 * b->capacity + more + 32;
    char *data = cj_alloc(b->r, 2, capacity), *marks = data + capacity;
    if (b->size > 0) {
        memcpy(data, b->data, b->size);
        memcpy(marks, b->marks, b->size);
    }
    b->data = data;
    b->marks = marks;
    b->capacity = capacity;
}

void cj_put(cj_builder *b, cj_text t) {
    if (t.size == 0) return;
    reserve(b, t.size);
    cj_step_bytes(b->r, t.size);
    memcpy(b->data + b->size, t.data, t.size);
    if (t.marks)
        memcpy(b->marks + b->size, t.marks, t.size);
    else
        memset(b->marks + b->size, t.own, t.size);
    b->size += t.size;
}

void cj_put_foreign(cj_builder *b, const char *s) { cj_put(b, cj_foreign_of(s)); }

void cj_put_char(cj_builder *b, char c) { cj_put(b, cj_foreign((cl_str){&c, 1})); }

void cj_put_code(cj_builder *b, int32_t c, bool own) {
    utf8proc_uint8_t bytes[4];
    const size_t size = (size_t)utf8proc_encode_char(c, bytes);
    cj_put(b, (cj_text){.data = (const char *)bytes, .size = size, .own = own});
}

void cj_put_times(cj_builder *b, cj_text t, size_t n) {
    if (t.size == 0) return;
    if (n > b->r->max_text / t.size) n = b->r->max_text / t.size + 1; /* reserve refuses it before long */
    reserve(b, n * t.size);
    while (n-- > 0) cj_put(b, t);
}

cj_text cj_built(cj_builder *b) {
    cj_text t = {.data = b->data, .marks = b->marks, .size = b->size};
    if (b->size == 0) return (cj_text){.data = "", .own = true};
    if (!memchr(b->marks, !b->marks[0], b->size)) { /* all alike */
        t.own = b->marks[0];
        t.marks = NULL;
    }
    return t;
}

cj_text cj_join2(cj_run *r, cj_text a, cj_text b) {
    if (a.size == 0) return b;
    if (b.size == 0) return a;
    cj_builder out = {.r = r};
    reserve(&out, a.size + b.size);
    cj_put(&out, a);
    cj_put(&out, b);
    return cj_built(&out);
}

cj_text cj_escape(cj_run *r, cj_text t) {
    static const struct {
        char c;
        const char *name;
    } names[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    if (t.markup) return t;
    cj_builder b = {.r = r};
    for (size_t at = 0; at < t.size; at++) {
        size_t i = 0;
        while (i < sizeof names / sizeof *names && names[i].c != t.data[at]) i++;
        if (i < sizeof names / sizeof *names)
            cj_put_foreign(&b, names[i].name);
        else
            cj_put(&b, cj_part(t, at, at + 1));
    }
    t = cj_built(&b);
    t.markup = true;
    return t;
}

/* ---- Methods of Python's str ---- */

/* The characters that are stripped. */
typedef struct char_set {
    cj_run *r;
    const cj_text *chars; /* NULL: white space */
    bool ascii[128];
} char_set;

static char_set set_of(cj_run *r, const cj_text *chars) {
    char_set set = {.r = r, .chars = chars};
    const size_t n = chars ? chars->size : 0;
    cj_step_text(r, n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)chars->data[i] < 128) set.ascii[(unsigned char)chars->data[i]] = true;
    return set;
}

static bool is_in(const char_set *set, cj_text t, size_t at) {
    const unsigned char first = (unsigned char)t.data[at];
    if (!set->chars) return cj_is_space(cj_char(t, at));
    if (first < 128) return set->ascii[first];
    return cj_find(set->r, *set->chars, cj_part(t, at, at + cj_char_size((char)first)), 0) != SIZE_MAX;
}

cj_text cj_strip(cj_run *r, cj_text t, const cj_text *chars, unsigned sides) {
    const char_set set = set_of(r, chars);
    size_t begin = 0, end = t.size;
    while (sides & CJ_LEFT && begin < end && is_in(&set, t, begin)) begin += cj_char_size(t.data[begin]);
    while (sides & CJ_RIGHT && begin < end) {
        const size_t last = char_before(t, end);
        if (!is_in(&set, t, last)) break;
        end = last;
    }
    cj_step_text(r, t.size - (end - begin));
    return cj_part(t, begin, end);
}

static bool is_cased(int32_t c) {
    const utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

/* The characters before which the filter `title` begins a new word. */
static bool ends_word(int32_t c) { return cj_is_space(c) || (c < 128 && c > 0 && strchr("-({[<", c) != NULL); }

cj_text cj_change_case(cj_run *r, cj_text t, cj_case how) {
    enum { SHARP_S = 0xdf };
    const bool titles = how == CJ_TITLE || how == CJ_CAPITALIZE; /* the first letter gets title case instead of upper case */
    cj_builder b = {.r = r};
    bool starts = true; /* a word, where that matters */
    for (size_t at = 0; at < t.size; at += cj_char_size(t.data[at])) {
        const int32_t c = cj_char(t, at);
        const bool own = is_own(t, at), upper = how == CJ_UPPER || (how != CJ_LOWER && starts);
        if (upper && c == SHARP_S) { /* the one common letter that becomes two */
            cj_put_code(&b, 'S', own);
            cj_put_code(&b, titles ? 's' : 'S', own);
        } else if (upper)
            cj_put_code(&b, titles ? utf8proc_totitle(c) : utf8proc_toupper(c), own);
        else
            cj_put_code(&b, utf8proc_tolower(c), own);
        starts = how == CJ_TITLE ? !is_cased(c) : how == CJ_WORDS && ends_word(c);
    }
    return cj_built(&b);
}

size_t cj_find(cj_run *r, cj_text t, cj_text part, size_t from) {
    if (from > t.size || part.size > t.size - from) return SIZE_MAX;
    if (part.size == 0) return from;
    const char *found = memmem(t.data + from, t.size - from, part.data, part.size);
    const size_t at = found ? (size_t)(found - t.data) : t.size;
    cj_step_text(r, at - from + part.size);
    return found ? at : SIZE_MAX;
}

cj_text cj_replace(cj_run *r, cj_text t, cj_text old, cj_text replacement) {
    cj_builder b = {.r = r};
    size_t done = 0, at = 0;
    if (old.size == 0) cj_fail(r, CL_ERR_UNSUPPORTED, "replacing an empty string is not supported");
    while ((at = cj_find(r, t, old, at)) != SIZE_MAX) {
        cj_put(&b, cj_part(t, done, at));
        cj_put(&b, replacement);
        done = at += old.size;
    }
    if (done == 0 && b.size == 0) return t;
    cj_put(&b, cj_part(t, done, t.size));
    return cj_built(&b);
}

size_t cj_line_break(cj_text t, size_t at) {
    const int32_t c = cj_char(t, at);
    if (c == '\r' && at + 1 < t.size && t.data[at + 1] == '\n') return 2;
    const bool breaks = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return breaks ? cj_char_size(t.data[at]) : 0;
}

/* Finds the longest name by narrowing a range of the sorted list, one byte of text after the other. */
#include "names.h"

#include <stdlib.h>

#include "vocab.h"

static int compare(const void *a, const void *b) {
    const cl_name *s = a, *t = b;
    const int order = memcmp(s->text.data, t->text.data, s->text.size < t->text.size ? s->text.size : t->text.size);
    if (order != 0) return order;
    if (s->text.size != t->text.size) return s->text.size < t->text.size ? -1 : 1;
    return s->id < t->id ? -1 : s->id > t->id;
}

void cl_names_init(cl_names *names, cl_name *all, size_t n) {
    names->all = all;
    names->n = n;
    if (n > 0) qsort(all, n, sizeof *all, compare);
    size_t i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < n && (unsigned char)all[i].text.data[0] < byte) i++;
        names->first[byte] = i;
    }
}

void cl_names_free(cl_names *names) {
    free(names->all);
    names->all = NULL;
    names->n = 0;
}

/* The first of names [from, to), which have their first `at` bytes in common, whose next byte is not below `byte`. */
static size_t not_below(const cl_names *names, size_t from, size_t to, size_t at, int byte) {
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        const cl_str text = names->all[middle].text;
        if (text.size > at && (unsigned char)text.data[at] >= byte)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

const cl_name *cl_names_at(const cl_names *names, bool spaced, const char *text, size_t size, size_t *taken) {
    const cl_name *longest = NULL;
    size_t from = 0, to = 0, end = 0;
    for (size_t at = 0; end < size; at++) {
        const size_t space = spaced ? cl_spaced_size(text + end, size - end) : 0;
        const int byte = space ? ' ' : (unsigned char)text[end];
        end += space ? space : 1;
        from = at ? not_below(names, from, to, at, byte) : names->first[byte];
        to = at ? not_below(names, from, to, at, byte + 1) : names->first[byte + 1];
        if (from == to) break;
        if (names->all[from].text.size > at + 1) continue;
        longest = &names->all[from];
        *taken = end;
    }
    return longest;
}

/* Finds the longest match by narrowing a range of the sorted list, byte by byte of the text. */
#include "added_tokens.h"

#include <stdlib.h>

#include "vocab.h"

static int compare(const void *a, const void *b) {
    const cl_added_token *s = a, *t = b;
    const int order = memcmp(s->text.data, t->text.data, s->text.size < t->text.size ? s->text.size : t->text.size);
    if (order != 0) return order;
    if (s->text.size != t->text.size) return s->text.size < t->text.size ? -1 : 1;
    return s->id < t->id ? -1 : s->id > t->id;
}

void cl_added_tokens_init(cl_added_tokens *tokens, cl_added_token *all, size_t n) {
    tokens->all = all;
    tokens->n = n;
    if (n > 0) qsort(all, n, sizeof *all, compare);
    size_t i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < n && (unsigned char)all[i].text.data[0] < byte) i++;
        tokens->first[byte] = i;
    }
}

void cl_added_tokens_free(cl_added_tokens *tokens) {
    free(tokens->all);
    tokens->all = NULL;
    tokens->n = 0;
}

/* The first of tokens [from, to), whose texts have the first `at` bytes in common, that continues with `byte` or a higher one.
 */
static size_t not_below(const cl_added_tokens *tokens, size_t from, size_t to, size_t at, int byte) {
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        const cl_str text = tokens->all[middle].text;
        if (text.size > at && (unsigned char)text.data[at] >= byte)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

const cl_added_token *cl_added_tokens_find(const cl_added_tokens *tokens, bool metaspace, const char *text, size_t size,
                                           size_t *matched) {
    const cl_added_token *longest = NULL;
    size_t from = 0, to = 0, end = 0;
    for (size_t at = 0; end < size; at++) {
        const size_t space = metaspace ? cl_metaspace_size(text + end, size - end) : 0;
        const int byte = space ? ' ' : (unsigned char)text[end];
        end += space ? space : 1;
        from = at ? not_below(tokens, from, to, at, byte) : tokens->first[byte];
        to = at ? not_below(tokens, from, to, at, byte + 1) : tokens->first[byte + 1];
        if (from == to) break;
        if (tokens->all[from].text.size > at + 1) continue;
        longest = &tokens->all[from];
        *matched = end;
    }
    return longest;
}

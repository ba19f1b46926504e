/* The text of a prompt grows and shrinks. */
#include "prompt.h"

#include <stdlib.h>

void cl_prompt_free(cl_prompt *p) {
    free(p->text);
    free(p->own);
}

void cl_prompt_add(cl_prompt *p, cl_str text) {
    if (p->capacity - p->size < text.size) {
        const size_t capacity = 2 * p->capacity + text.size;
        char *grown = realloc(p->text, capacity);
        p->no_memory |= !grown;
        if (!grown) return;
        p->text = grown;
        p->capacity = capacity;
    }
    if (text.size > 0) memcpy(p->text + p->size, text.data, text.size);
    p->size += text.size;
}

void cl_prompt_add_own(cl_prompt *p, cl_str text) {
    const size_t start = p->size;
    cl_prompt_add(p, text);
    if (p->n_own > 0 && p->own[p->n_own - 1].end == start) {
        p->own[p->n_own - 1].end = p->size;
        return;
    }
    if (p->n_own == p->own_capacity) {
        const size_t capacity = 2 * p->own_capacity + 16;
        cl_text_span *grown = realloc(p->own, capacity * sizeof *grown);
        p->no_memory |= !grown;
        if (!grown) return;
        p->own = grown;
        p->own_capacity = capacity;
    }
    p->own[p->n_own++] = (cl_text_span){start, p->size};
}

void cl_prompt_add_format(cl_prompt *p, const char *text) { cl_prompt_add_own(p, cl_str_of(text)); }

void cl_prompt_add_token(cl_prompt *p, const cl_tokenizer *tok, int32_t id) {
    char name[256];
    const size_t size = cl_tokenizer_piece(tok, id, true, name, sizeof name);
    cl_prompt_add_own(p, (cl_str){name, size < sizeof name ? size : sizeof name});
}

void cl_prompt_add_part(cl_prompt *p, const cl_prompt *from, size_t start, size_t end) {
    for (size_t i = 0; i < from->n_own && start < end; i++) {
        const size_t own = from->own[i].start < end ? from->own[i].start : end;
        const size_t own_end = from->own[i].end < end ? from->own[i].end : end;
        if (own > start) cl_prompt_add(p, (cl_str){from->text + start, own - start});
        if (own > start) start = own;
        if (own_end > start) cl_prompt_add_own(p, (cl_str){from->text + start, own_end - start});
        if (own_end > start) start = own_end;
    }
    if (start < end) cl_prompt_add(p, (cl_str){from->text + start, end - start});
}

void cl_prompt_remove(cl_prompt *p, size_t start, size_t end) {
    if (start == end) return;
    memmove(p->text + start, p->text + end, p->size - end);
    p->size -= end - start;
    size_t n = 0;
    for (size_t i = 0; i < p->n_own; i++) {
        size_t *const ends[] = {&p->own[i].start, &p->own[i].end};
        for (int k = 0; k < 2; k++)
            if (*ends[k] > start) *ends[k] = *ends[k] < end ? start : *ends[k] - (end - start);
        if (p->own[i].start < p->own[i].end) p->own[n++] = p->own[i];
    }
    p->n_own = n;
}

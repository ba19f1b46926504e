/* A heap of candidate pairs over a linked list of symbols; pairs that a merge made stale are dropped when they come up. */
#include "merge.h"

#include <stdlib.h>

int cl_merge_reserve(cl_merge_space *space, size_t n) {
    space->n_symbols = space->n_heap = 0;
    if (n <= space->capacity) return 0;
    const size_t capacity = n < 64 ? 64 : n + n / 2;
    if (capacity > SIZE_MAX / 2 / sizeof(cl_merge_pair)) return -1;
    cl_merge_free(space);
    space->symbols = malloc(capacity * sizeof *space->symbols);
    /* n - 1 pairs at the start; each of at most n - 1 merges takes one off and adds two at most. */
    space->heap = malloc(2 * capacity * sizeof *space->heap);
    if (!space->symbols || !space->heap) {
        cl_merge_free(space);
        return -1;
    }
    space->capacity = capacity;
    return 0;
}

void cl_merge_free(cl_merge_space *space) {
    free(space->symbols);
    free(space->heap);
    *space = (cl_merge_space){0};
}

void cl_merge_add(cl_merge_space *space, uint32_t start, uint32_t size, int32_t id) {
    const int32_t i = (int32_t)space->n_symbols++;
    space->symbols[i] = (cl_merge_symbol){start, size, id, i - 1, -1};
    if (i > 0) space->symbols[i - 1].next = i;
}

static bool before(const cl_merge_pair *a, const cl_merge_pair *b) {
    return a->order != b->order ? a->order < b->order : a->left < b->left;
}

static void push(cl_merge_space *space, cl_merge_pair pair) {
    size_t i = space->n_heap++;
    for (; i > 0 && before(&pair, &space->heap[(i - 1) / 2]); i = (i - 1) / 2) space->heap[i] = space->heap[(i - 1) / 2];
    space->heap[i] = pair;
}

static cl_merge_pair pop(cl_merge_space *space) {
    const cl_merge_pair top = space->heap[0], last = space->heap[--space->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < space->n_heap; child = 2 * i + 1) {
        if (child + 1 < space->n_heap && before(&space->heap[child + 1], &space->heap[child])) child++;
        if (!before(&space->heap[child], &last)) break;
        space->heap[i] = space->heap[child];
        i = child;
    }
    space->heap[i] = last;
    return top;
}

static void consider(cl_merge_space *space, int32_t left, int32_t right, cl_merge_lookup lookup, const void *ctx) {
    if (left < 0 || right < 0) return;
    const cl_merge_symbol *l = &space->symbols[left], *r = &space->symbols[right];
    cl_merge_pair pair = {.left = left, .right = right, .size = l->size + r->size};
    if (lookup(ctx, l, r, &pair.order, &pair.id)) push(space, pair);
}

void cl_merge_run(cl_merge_space *space, cl_merge_lookup lookup, const void *ctx) {
    cl_merge_symbol *s = space->symbols;
    for (size_t i = 1; i < space->n_symbols; i++) consider(space, (int32_t)i - 1, (int32_t)i, lookup, ctx);
    while (space->n_heap > 0) {
        const cl_merge_pair pair = pop(space);
        cl_merge_symbol *l = &s[pair.left], *r = &s[pair.right];
        /* Symbols only grow, so equal neighbours of equal size are the pair that was seen. */
        if (l->size == 0 || l->next != pair.right || l->size + r->size != pair.size) continue;
        l->size = pair.size;
        l->id = pair.id;
        l->next = r->next;
        if (r->next >= 0) s[r->next].prev = pair.left;
        r->size = 0;
        consider(space, l->prev, pair.left, lookup, ctx);
        consider(space, pair.left, l->next, lookup, ctx);
    }
}

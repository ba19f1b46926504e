/*
 * A small engine with a paged K/V cache of its own, like those that use libchunkattn with foreign pages: pages have reference
 * counts, full pages are found again by the hash of their tokens, forks share the page that is being filled, and ids are
 * reused.
 */
#ifndef TESTS_CHUNKATTN_EXACT_ENGINE_H
#define TESTS_CHUNKATTN_EXACT_ENGINE_H

#include <stdbool.h>

#include "world.h"

#include "chunkattn_pages.h"

enum { ENGINE_MAX_PAGES = 2048, ENGINE_MAX_TABLE = 256, ENGINE_LAYOUTS = CATTN_PAGES_VLLM_HND + 2 };

/* A running sequence: the first n_tokens tokens of one of a world. */
typedef struct engine_seq {
    const world_seq *is;
    int32_t n_tokens, n_pages;
    int32_t table[ENGINE_MAX_TABLE];
} engine_seq;

/* Where an engine's pages are. */
typedef struct engine_memory {
    void *(*alloc)(size_t bytes, const char *name);
    void (*free)(void *p);
    int gap; /* elements between tokens in the layout with gaps */
} engine_memory;

typedef struct engine {
    const world *w;
    engine_memory of;
    cattn_type type;
    int32_t page_size, n_pages;
    int layout; /* a cattn_page_layout; the number after the last one: K and V apart, gaps between tokens and pages */
    char *memory[WORLD_MAX_LAYERS];
    cattn_page_view k[WORLD_MAX_LAYERS], v[WORLD_MAX_LAYERS];
    int32_t refs[ENGINE_MAX_PAGES];
    uint64_t holds[ENGINE_MAX_PAGES]; /* the hash of the tokens up to the end of a full page; 0: it is not full */
} engine;

/* pages: a handle of the shape, for cattn_pages_views; */
void engine_init(engine *e, const world *w, const cattn_pages_config *config, const cattn_pages *pages, int layout,
                 const engine_memory *of);
void engine_free(engine *e);

/* Start a sequence with the first n_tokens tokens of one of a world. Full pages with these tokens are shared. */
void engine_join(engine *e, engine_seq *s, const world_seq *is, int32_t n_tokens);
void engine_fork(engine *e, engine_seq *fork, const engine_seq *s);

/* Change the length. A page that another sequence also fills is copied first, unless `share`. */
void engine_resize(engine *e, engine_seq *s, int32_t n_tokens, bool share);
void engine_leave(engine *e, engine_seq *s);

#endif

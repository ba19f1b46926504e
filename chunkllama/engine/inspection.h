/*
 * Calls of functions that look at the engine's cache between two steps: the queue behind cl_engine_inspect.
 *
 * Other threads post inspections to a list of which the last one is the first, under the engine's mutex. The engine's thread
 * moves them to a list of its own, in their order, and calls them.
 */
#ifndef CHUNKLLAMA_ENGINE_INSPECTION_H
#define CHUNKLLAMA_ENGINE_INSPECTION_H

#include "chunkllama.h"

typedef struct cl_inspection cl_inspection;
struct cl_inspection {
    void (*fn)(void *ctx, const cattn_cache *cache);
    void *ctx;
    cl_inspection *next;
};

/* NULL without memory. */
cl_inspection *cl_inspection_create(void (*fn)(void *ctx, const cattn_cache *cache), void *ctx);
void cl_inspection_free(cl_inspection *inspection);

/* Add one to a list of those that are posted. */
void cl_inspections_post(cl_inspection **posted, cl_inspection *inspection);

/* Move the posted ones behind those that are due. */
void cl_inspections_append(cl_inspection **due, cl_inspection **posted);

/* Call and free those that are due, the first of them and others until `seconds` have passed. */
void cl_inspections_call(cl_inspection **due, const cattn_cache *cache, double seconds);

#endif

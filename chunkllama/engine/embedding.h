/*
 * The embedding of a request's prompt, pooled from the final states of its tokens (cl_engine_pooling).
 *
 * Its bits depend on the states alone: a mean is summed in double precision in the order of positions, however the prompt was
 * cut into steps.
 */
#ifndef CHUNKLLAMA_ENGINE_EMBEDDING_H
#define CHUNKLLAMA_ENGINE_EMBEDDING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cl_embedding {
    int32_t n;       /* floats of a state and of the embedding */
    float *value;    /* [n] owned; NULL until cl_embedding_start */
    double *sum;     /* [n] of a mean, over the leading n_added tokens; owned; the same */
    int64_t n_added; /* tokens */
} cl_embedding;

/* Thousands may wait, so this allocates no states. NULL if memory is lacking. */
cl_embedding *cl_embedding_create(int32_t n);
/* Allocate the states, before the first one is passed. Does nothing if it has them. False if memory is lacking. */
bool cl_embedding_start(cl_embedding *embedding);
/* NULL and pointers to NULL are ignored. */
void cl_embedding_free(cl_embedding **embedding);

/* The state [n] of the last token is the embedding. */
void cl_embedding_set(cl_embedding *embedding, const float *state);

/*
 * Add the state [n] of the token at `position`; the embedding is the mean of all that were added. Positions ascend by one, but
 * those that were added before may be passed again, as after a preemption, and are ignored.
 */
void cl_embedding_add(cl_embedding *embedding, int64_t position, const float *state);

/* The embedding [n] of the states that were passed; valid until the next call on it. */
const float *cl_embedding_value(cl_embedding *embedding);

#endif

/* The router of a mixture of experts: which experts a row goes to, and how much each of their outputs counts. */
#ifndef CHUNKLLAMA_MODEL_ROUTER_H
#define CHUNKLLAMA_MODEL_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkllama/linear/row_ops.h"

enum { CL_ROUTER_MAX_EXPERTS = 4096, CL_ROUTER_MAX_GROUPS = 64 };

/* How logits become scores: by a softmax over all experts, or each by itself. */
typedef enum cl_scoring { CL_SCORING_SOFTMAX, CL_SCORING_SIGMOID } cl_scoring;

typedef struct cl_router_params {
    int32_t n_experts, n_used;

    /*
     * Experts are divided into n_groups groups of neighbours, and only those of the n_groups_used groups whose best two have
     * the largest sums are chosen. 1 and 1: all can be. A group has at least 2 experts, and those used have n_used together.
     */
    int32_t n_groups, n_groups_used;
    cl_scoring scoring;
    bool normalised; /* weights are divided by their sum */
    float scale;     /* and then multiplied by this */
} cl_router_params;

/*
 * Choose the n_used experts with the largest score + bias, largest first; of equal ones the first. Their weights come from
 * their scores alone. bias: [n_experts] or NULL; logits, room: [n_experts], overwritten; expert, weight: [n_used], filled. From
 * NaN no experts follow that mean anything, but indices are valid. The bits are the same on every CPU.
 */
void cl_router_choose(const cl_router_params *p, const cl_row_ops *ops, const float *bias, float *logits, float *room,
                      int32_t *expert, float *weight);

#endif

/* Chooses experts: scores, groups, and the largest few. */
#include "router.h"

#include <float.h>
#include <string.h>

/* Turn logits [n_experts] into scores, of which room gets a copy. */
static void score(const cl_router_params *p, const cl_row_ops *ops, float *logits, float *room) {
    enum { MAX_SUMS = CL_ROUTER_MAX_EXPERTS / CL_OPS_WEIGHTS };
    const int32_t n = p->n_experts;
    double sums[MAX_SUMS], sum = 0;
    if (p->scoring == CL_SCORING_SIGMOID) {
        for (int32_t i = 0; i < n; i++) room[i] = cl_ops_sigmoid(logits[i]);
    } else {
        ops->weigh(logits, n, logits[ops->argmax(logits, n)], 1, room, sums);
        for (int32_t i = 0; i * CL_OPS_WEIGHTS < n; i++) sum += sums[i];
        for (int32_t i = 0; i < n; i++) room[i] = (float)((double)room[i] / sum);
    }
    memcpy(logits, room, sizeof *room * (size_t)n);
}

/* The index of the largest of x [n], of equal ones the first, which becomes minus infinity; 0 if there is none. */
static int32_t take_largest(float *x, int32_t n) {
    int32_t largest = 0;
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (x[i] > max) {
            max = x[i];
            largest = i;
        }
    x[largest] = -INFINITY;
    return largest;
}

/* The sum of the largest two of x [n]. */
static float best_two(const float *x, int32_t n) {
    float first = -INFINITY, second = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] > first) {
            second = first;
            first = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return first + second;
}

/* Set the experts of groups that are not used to minus infinity. */
static void leave_groups(const cl_router_params *p, float *x) {
    const int32_t size = p->n_experts / p->n_groups;
    float sums[CL_ROUTER_MAX_GROUPS];
    bool used[CL_ROUTER_MAX_GROUPS] = {false};
    for (int32_t g = 0; g < p->n_groups; g++) sums[g] = best_two(x + g * size, size);
    for (int32_t k = 0; k < p->n_groups_used; k++) used[take_largest(sums, p->n_groups)] = true;
    for (int32_t g = 0; g < p->n_groups; g++)
        for (int32_t i = 0; !used[g] && i < size; i++) x[g * size + i] = -INFINITY;
}

void cl_router_choose(const cl_router_params *p, const cl_row_ops *ops, const float *bias, float *logits, float *room,
                      int32_t *expert, float *weight) {
    float sum = 0;
    score(p, ops, logits, room);
    if (bias) ops->add(room, bias, p->n_experts);
    if (p->n_groups > p->n_groups_used) leave_groups(p, room);
    for (int32_t k = 0; k < p->n_used; k++) {
        expert[k] = take_largest(room, p->n_experts);
        weight[k] = logits[expert[k]];
        sum += weight[k];
    }
    const float divisor = p->normalised ? fmaxf(sum, FLT_MIN) : 1;
    for (int32_t k = 0; k < p->n_used; k++) weight[k] = weight[k] / divisor * p->scale;
}

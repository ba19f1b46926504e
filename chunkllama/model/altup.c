/* Predicts and corrects the states of a row. */
#include "altup.h"

/* What a layer makes of a state: n_states values from -1 to 1. */
static void read_state(const cl_states *s, const cl_altup_weights *w, float mode[CL_MAX_STATES]) {
    const int32_t n = s->p->n_embd;
    s->ops->rms_norm(s->x, w->router_norm.scale, n, s->p->norm_eps, s->room);
    for (int32_t i = 0; i < s->p->n_states; i++) mode[i] = s->ops->dot(s->room, w->router + (size_t)i * (size_t)n, n);
    cl_ops_softcap(mode, s->p->n_states, 1);
}

static float sum_of_products(const float *x, const float *y, int32_t n) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

void cl_altup_predict(const cl_states *s, const cl_altup_weights *w) {
    const int32_t n = s->p->n_embd, n_states = s->p->n_states;
    float mode[CL_MAX_STATES], factor[CL_MAX_STATES][CL_MAX_STATES], *state[CL_MAX_STATES] = {s->x};
    read_state(s, w, mode);
    for (int32_t i = 1; i < n_states; i++) state[i] = s->others + (size_t)(i - 1) * (size_t)n;
    for (int32_t to = 0; to < n_states; to++)
        for (int32_t from = 0; from < n_states; from++)
            factor[to][from] = sum_of_products(w->predict + (to * n_states + from) * n_states, mode, n_states);
    for (int32_t j = 0; j < n; j++) {
        float old[CL_MAX_STATES];
        for (int32_t i = 0; i < n_states; i++) old[i] = state[i][j];
        for (int32_t i = 0; i < n_states; i++) state[i][j] = old[i] + sum_of_products(factor[i], old, n_states);
    }
}

void cl_altup_correct(const cl_states *s, const cl_altup_weights *w, const float *predicted) {
    const int32_t n = s->p->n_embd, n_states = s->p->n_states;
    float mode[CL_MAX_STATES], factor[CL_MAX_STATES] = {1};
    read_state(s, w, mode);
    for (int32_t i = 0; i < n_states; i++) factor[i] = 1 + sum_of_products(w->correct + i * n_states, mode, n_states);
    for (int32_t j = 0; j < n; j++) s->room[j] = s->x[j] - predicted[j];
    for (int32_t j = 0; j < n; j++) s->x[j] = predicted[j] + factor[0] * s->room[j];
    for (int32_t i = 1; i < n_states; i++) s->ops->add_scaled(s->others + (size_t)(i - 1) * (size_t)n, s->room, n, factor[i]);
}

void cl_altup_match(const cl_row_ops *ops, const float *x, float *y, int32_t n_embd) {
    const float n = (float)n_embd, target = sqrtf(ops->dot(x, x, n_embd) / n), own = ops->dot(y, y, n_embd) / n;
    const float factor = target / sqrtf(fmaxf(own, 1e-5f));
    for (int32_t i = 0; i < n_embd; i++) y[i] *= factor;
}

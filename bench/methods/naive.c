#include "naive.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 }; /* sums side by side: without leave to reorder, the compiler keeps one sum a scalar */

static float dot(const float *a, const float *b, int32_t n) {
    float sums[LANES] = {0};
    for (int32_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) sums[l] += a[i + l] * b[i + l];
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += sums[l];
    return sum;
}

static void softmax(float *x, int64_t n) {
    float max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

void naive_attend(const naive_head *h, float *scores) {
    for (int64_t t = 0; t < h->n_tokens; t++)
        for (int32_t r = 0; r < h->n_rows; r++)
            scores[r * h->n_tokens + t] = h->scale * dot(h->q + r * h->dim, h->k + t * h->dim, h->dim);
    for (int32_t r = 0; r < h->n_rows; r++) softmax(scores + r * h->n_tokens, h->n_tokens);
    memset(h->out, 0, (size_t)h->n_rows * (size_t)h->dim * sizeof(float));
    for (int64_t t = 0; t < h->n_tokens; t++)
        for (int32_t r = 0; r < h->n_rows; r++) {
            const float p = scores[r * h->n_tokens + t], *v = h->v + t * h->dim;
            float *out = h->out + r * h->dim;
            for (int32_t i = 0; i < h->dim; i++) out[i] += p * v[i];
        }
}

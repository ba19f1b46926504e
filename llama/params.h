/* A model's parameters: the shape of its layers and the constants in them, read from a file's metadata and checked. */
#ifndef LLAMA_PARAMS_H
#define LLAMA_PARAMS_H

#include "arch.h"
#include "llama/file/model_file.h"

/* A rotation: dimension pair i of n_rot / 2 turns by base^(-2i / n_rot) / scale / factors[i] radians a position. */
typedef struct cl_rope_params {
    double base;
    double scale;
    const float *factors; /* [n_rot / 2] (Llama 3), NULL: 1 */
} cl_rope_params;

enum { CL_ROPE_FULL, CL_ROPE_WINDOW, CL_N_ROPES }; /* of layers without and with a window */

typedef struct cl_model_params {
    const cl_arch *arch;
    int32_t n_vocab, n_layers, n_embd, n_ff;
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t n_ctx_train;
    int32_t n_rot;    /* leading dimensions of a head that are rotated */
    bool rope_halves; /* as in arch; weights that were not permuted rotate in halves too */
    cl_rope_params rope[CL_N_ROPES];
    int32_t *windows; /* [n_layers] positions that a row sees, 0: all; NULL: all layers see all. Owned */
    float rms_eps;
    float score_scale;   /* multiplies q.k; 0: 1 / sqrt(head_dim) */
    float score_softcap; /* 0: none */
    float logit_softcap; /* 0: none */
} cl_model_params;

/* All but n_vocab and rope factors. On failure, and after use, cl_params_free. */
cl_status cl_params_read(const cl_model_file *file, cl_model_params *p, cl_error *error);
void cl_params_free(cl_model_params *p);

#endif

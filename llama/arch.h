/*
 * What distinguishes the architectures: one row of a table each. Loading and the forward pass ask for these fields, never for
 * an architecture's name.
 */
#ifndef LLAMA_ARCH_H
#define LLAMA_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

typedef struct cl_arch {
    const char *name;          /* general.architecture; what its keys begin with */
    bool rope_halves;          /* rotates pairs (i, n_rot / 2 + i); else (2i, 2i + 1), as llama's GGUF files are permuted for */
    bool qkv_bias;             /* Q, K and V have a bias */
    bool qk_norm;              /* each head of Q and K is normed before its rotation */
    bool post_norms;           /* what attention and feed-forward part give is normed before it is added */
    bool gelu;                 /* the gate goes through GELU (its tanh form); else SiLU */
    bool scaled_embedding;     /* by sqrt(n_embd) */
    bool windows;              /* layers may have a sliding window */
    int32_t full_every;        /* of so many layers the last has no window, where the file says nothing; 0: all have it */
    double window_rope_base;   /* of layers with a window, where the file says nothing; 0: as the others */
    int32_t wide_scale_layers; /* a model of so many layers scales scores by 1 / sqrt(n_embd / n_heads), which its file does not
                                  say; others by 1 / sqrt(head_dim) */
} cl_arch;

/* CL_ERR_UNSUPPORTED lists the names there are. */
cl_status cl_arch_find(cl_str name, const cl_arch **found, cl_error *error);

#endif

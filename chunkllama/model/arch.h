/*
 * The differences between the supported architectures: one row of a table (arch.c) for each. Loading and the forward pass
 * depend on these fields only, never on the name of an architecture.
 */
#ifndef CHUNKLLAMA_MODEL_ARCH_H
#define CHUNKLLAMA_MODEL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkllama/common/error.h"
#include "chunkllama/common/str.h"

/* A part of files that is left out, since text does not need it: what it is, and how the names of its tensors begin. */
typedef struct cl_left_out {
    const char *what, *names; /* beginnings of names, in GGUF and in folders, separated by spaces */
} cl_left_out;

enum { CL_MAX_LEFT_OUT = 3 };

typedef struct cl_arch {
    const char *name; /* general.architecture in GGUF; its metadata keys begin with it */

    /* RoPE rotates pairs (i, n_rot / 2 + i); otherwise pairs (2i, 2i + 1), for which Llama's GGUF files are permuted. */
    bool rope_halves;
    bool qkv_bias;         /* Q, K and V have a bias */
    bool qk_norm;          /* each head of Q and K is normed before its rotation */
    bool post_norms;       /* the outputs of attention and feed-forward block are normed before they are added to x */
    bool gelu;             /* the gate's activation is GELU in its tanh form; otherwise SiLU */
    bool scaled_embedding; /* embeddings are multiplied by sqrt(n_embd) */
    bool windows;          /* layers may have a sliding window */

    /* Every full_every-th layer has no window if the file does not list them; 0: all layers have one. */
    int32_t full_every;
    /* RoPE base of layers with a window if the file has none; 0: the base of the other layers. */
    double window_rope_base;
    /*
     * Models with this many layers scale attention scores by 1 / sqrt(n_embd / n_heads), which their files do not say; all
     * others by 1 / sqrt(head_dim).
     */
    int32_t wide_scale_layers;

    cl_left_out left_out[CL_MAX_LEFT_OUT]; /* the rest is zero. All other tensors that the model does not have are refused */
} cl_arch;

/* The architecture called `name`, static. CL_ERR_UNSUPPORTED: it is not supported; the message lists those that are. */
cl_status cl_arch_find(cl_str name, const cl_arch **found, cl_error *error);

/* The part that is left out to which a tensor with this name of the file's belongs, static; NULL: it is no such tensor. */
const char *cl_arch_left_out(const cl_arch *arch, cl_str name);

#endif

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
#include "router.h"

/* A part of files that is left out, since text does not need it: what it is, and how the names of its tensors begin. */
typedef struct cl_left_out {
    const char *what, *names; /* beginnings of names, in GGUF and in folders, separated by spaces */
} cl_left_out;

enum { CL_MAX_LEFT_OUT = 3 };

/* What a norm divides by: the root of the mean of squares, or the deviation from the mean, which it subtracts first. */
typedef enum cl_norm_kind { CL_NORM_RMS, CL_NORM_LAYER } cl_norm_kind;

/* Where the norms of attention and feed-forward block are: before their inputs, behind their outputs, or both. */
typedef enum cl_norm_place { CL_NORM_BEFORE, CL_NORM_BEHIND, CL_NORM_AROUND } cl_norm_place;

/* What a norm of Q and K takes together, and whose weights it has. */
typedef enum cl_qk_norm {
    CL_QK_NORM_NONE,
    CL_QK_NORM_HEAD, /* a head; all heads have the same weights */
    CL_QK_NORM_OWN,  /* a head; each head has its own weights */
    CL_QK_NORM_ALL,  /* all heads of a row */
} cl_qk_norm;

/*
 * The feed-forward block multiplies up x by the activated gate x, or activates up x. GELU has its tanh form. The clamped SwiGLU
 * is that of row_ops.h.
 */
typedef enum cl_ffn { CL_FFN_SWIGLU, CL_FFN_SWIGLU_CLAMPED, CL_FFN_GEGLU, CL_FFN_GELU } cl_ffn;

/* Whether logits are multiplied or divided by the file's logit_scale. */
typedef enum cl_logit_scale { CL_LOGIT_SCALE_NONE, CL_LOGIT_SCALE_FACTOR, CL_LOGIT_SCALE_DIVISOR } cl_logit_scale;

/* Bits of a mask: the matrices, or the norms, that have a bias. */
enum {
    CL_BIAS_QKV = 1,
    CL_BIAS_OUTPUT = 2, /* of attention */
    CL_BIAS_FFN = 4,
    CL_BIAS_NORM = 8,     /* of all norms but those of Q and K */
    CL_BIAS_EXPERTS = 16, /* of the experts and their router */
    CL_BIAS_CHOICE = 32,  /* of the router's scores, for the choice alone */
    CL_BIAS_ALL = 63,
    CL_BIAS_MATRICES = CL_BIAS_QKV | CL_BIAS_OUTPUT | CL_BIAS_FFN,
};

typedef struct cl_arch {
    const char *name; /* general.architecture in GGUF; its metadata keys begin with it */

    /* RoPE rotates pairs (i, n_rot / 2 + i); otherwise pairs (2i, 2i + 1), for which Llama's GGUF files are permuted. */
    bool rope_halves;
    bool qk_norm_rotated; /* Q and K are normed behind their rotation; otherwise before it */
    bool parallel;        /* attention and feed-forward block have the same input, which attn_norm norms */
    bool fused_gate;      /* ffn_up has the rows of the gate, and behind them its own */
    bool embedding_root;  /* embeddings are multiplied by sqrt(n_embd) */
    bool windows;         /* layers may have a sliding window */
    bool sinks;           /* heads have a sink logit */
    bool altup;           /* rows have several states (altup.h), and layers a low-rank product beside attention (LAuReL) */
    bool v_norm;          /* the heads of V are normed, without weights */
    bool layer_scale;     /* x may be multiplied by a number at the end of a layer */
    /* Layers without a window may lack the matrix of V, which is then what K is before its norm. */
    bool values_may_be_keys;
    cl_norm_kind norm;
    cl_norm_place norm_place;
    cl_qk_norm qk_norm;
    cl_ffn ffn;
    cl_logit_scale logit_scale;
    unsigned biases;        /* that the files have */
    unsigned maybe_biases;  /* that files may have */
    const char *ffn_norm;   /* the name of the norm before the feed-forward block; NULL: ffn_norm */
    bool maybe_qk_norm;     /* files may lack the weights of qk_norm; it is left out then */
    int32_t plain_every;    /* every plain_every-th layer is not rotated if the file does not list them; 0: all are */
    bool plain_untrained;   /* no layer is rotated if the file says that it was not trained so (rope.scaling.finetuned) */
    bool plain_full;        /* if there are windows, layers without one are not rotated */
    bool experts;           /* files may have experts */
    bool experts_beside;    /* they are beside a dense block; each of the two, and the router, norms x in its own way */
    cl_scoring scoring;     /* of the router, if the file does not say it, as the next one */
    bool normalised;        /* weights of experts are divided by their sum */
    bool shared_router;     /* a matrix of its own makes the weight of the shared expert, which is 1 otherwise */
    bool yarn_unrounded;    /* YaRN's ramp may begin and end between two pairs, though GGUF files do not say it */
    bool window_unscaled;   /* the rotation of layers with a window is not scaled */
    int32_t default_window; /* if the file has none */
    float default_score_softcap, default_logit_softcap;
    float score_scale; /* multiplies attention scores if the file does not say it; 0: 1 / sqrt(head_dim) */

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

/*
 * The architecture called `name`, static. CL_ERR_UNSUPPORTED: it is not supported; the message says what it has that is
 * missing, or lists those that are.
 */
cl_status cl_arch_find(cl_str name, const cl_arch **found, cl_error *error);

/* The part that is left out to which a tensor with this name of the file's belongs, static; NULL: it is no such tensor. */
const char *cl_arch_left_out(const cl_arch *arch, cl_str name);

#endif

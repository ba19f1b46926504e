/* The classes of Hugging Face's library whose files are read, as config.json names them: hf_config.c reads its fields by them.
 */
#ifndef CHUNKLLAMA_FILE_HF_CLASS_H
#define CHUNKLLAMA_FILE_HF_CLASS_H

#include "hf.h"

/* Groups of fields that only some classes read. Files may have fields of other classes, which then mean nothing. */
enum {
    ONE_WINDOW = 1,    /* sliding_window */
    LAYER_KINDS = 2,   /* layers may differ in their window, and so in their rotation */
    SCORES = 4,        /* a cap and the scale of attention scores */
    MULTIPLIERS = 8,   /* of embeddings, branches, scores and logits */
    LOGIT_SCALE = 16,  /* of logits alone */
    PLAIN_LAYERS = 32, /* layers may have no rotation */
    EXPERTS = 64,
    LOGIT_CAP = 128,
    UNLIKE_LAYERS = 256, /* layers may differ in their heads and feed-forward blocks, and lack K and V */
    STATES = 512         /* rows have several states, and layers cut gates */
};

/* Bits of the biases in ARCH.biases (model_file.h). */
enum { QKV = 1, OUTPUT = 2, FFN = 4, NORM = 8, EXPERT = 16, CHOICE = 32 };

/* A field that says whether there are biases, and its value where a file leaves it out. */
typedef struct bias_field {
    const char *name;
    unsigned biases;
    bool given;
} bias_field;

enum { MAX_BIAS_FIELDS = 3 };

/*
 * Classes of Hugging Face's library that share their model of text, and its defaults for fields that a file leaves out. Those
 * for models that also see have the fields in text_config. Those whose name ends in "Model" lack the head.
 */
typedef struct cl_hf_class {
    const char *names, *arch;                  /* names are separated by spaces */
    const char *text_type;                     /* model_type of text_config */
    const char *activation_field, *activation; /* separated by spaces */
    const char *eps; /* the field of the norms' epsilon if they subtract the mean; NULL: rms_norm_eps */
    double rope_base;
    double partial;  /* partial_rotary_factor where the file leaves it out; 0: all dimensions are rotated */
    unsigned reads;  /* groups, or-ed */
    unsigned biases; /* that all models have */
    bool norm_plus_one, tied;
    bool pairs;           /* rotates pairs (2i, 2i + 1) */
    bool yarn_is_long;    /* calls longrope yarn, too */
    bool own_experts;     /* hf_experts.h */
    bool own_head_dim;    /* the head size does not follow from hidden_size and must be given */
    const char *defaults; /* JSON of fields that published files leave out; NULL: none */
    bias_field bias_fields[MAX_BIAS_FIELDS];
} cl_hf_class;

/*
 * The class that "architectures" names; *base: the file lacks the head. NULL with an error in *doc if there is none, which
 * says what the class needs, where that is known.
 */
const cl_hf_class *cl_hf_find_class(cl_json_doc *doc, bool *base);

#endif

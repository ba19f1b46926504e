/*
 * Alternating updates (AltUp): a row has several states, of which layers compute the first alone. Before a layer all states are
 * predicted from each other, and behind it they are corrected by how much the layer's output differs from the prediction.
 * Source: Baykal et al., arXiv 2301.13310, in the form of Gemma 3n.
 */
#ifndef CHUNKLLAMA_MODEL_ALTUP_H
#define CHUNKLLAMA_MODEL_ALTUP_H

#include "chunkllama/linear/row_ops.h"
#include "weights.h"

/* The states of a row, x [n_embd] and n_states - 1 others [n_embd] behind each other, and room for n_embd values. */
typedef struct cl_states {
    const cl_row_ops *ops;
    const cl_model_params *p;
    float *x, *others, *room;
} cl_states;

/* Replace the states by their predictions for a layer. */
void cl_altup_predict(const cl_states *s, const cl_altup_weights *w);

/* Replace the states by their corrections, where x is the layer's output, and predicted [n_embd] what was predicted for it. */
void cl_altup_correct(const cl_states *s, const cl_altup_weights *w, const float *predicted);

/* Scale y [n_embd] so that its mean square is that of x [n_embd]. */
void cl_altup_match(const cl_row_ops *ops, const float *x, float *y, int32_t n_embd);

#endif

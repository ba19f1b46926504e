/*
 * The forward pass, the same for all architectures: what they differ in is in arch.h's table and in which vectors a layer has.
 * All but attention treats rows one by one, so it goes in pieces of rows: after a layer's attention, a piece passes its output
 * projection, the feed-forward part and the next layer's Q, K and V while it is warm in the cache, and the wide buffers hold
 * one piece only.
 */
#include "forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forward_rows.h"
#include "kv_status.h"

enum { PIECE = 512 };

/* ---- Creation ---- */

static float *new_floats(size_t rows, size_t columns) {
    return aligned_alloc(64, (rows * columns * sizeof(float) + 63) / 64 * 64);
}

/* Room for the angles of a rotation, once; its frequencies. */
static bool create_angles(forward *f, int rope) {
    if (f->cos_sin[rope]) return true;
    const model_params *p = &f->m->params;
    const rope_params *r = &p->rope[rope];
    f->cos_sin[rope] = new_floats((size_t)f->max_rows, (size_t)p->n_rot);
    double *frequency = f->frequency[rope] = malloc((size_t)p->n_rot / 2 * sizeof *frequency);
    if (!f->cos_sin[rope] || !frequency) return false;
    for (int32_t i = 0; i < p->n_rot / 2; i++)
        frequency[i] = pow(r->base, -2.0 * i / p->n_rot) / r->scale / (r->factors ? (double)r->factors[i] : 1.0);
    return true;
}

cl_status forward_create(const model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, forward **out, cl_error *error) {
    *out = NULL;
    if (max_rows < 1) return cl_fail(error, CL_ERR_ARG, "max_rows is %d; it must be at least 1", max_rows);
    forward *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory for the forward pass");
    const model_params *p = &m->params;
    const size_t rows = (size_t)max_rows, n_piece = max_rows < PIECE ? rows : PIECE;
    f->m = m;
    f->cache = cache;
    f->pool = pool;
    f->max_rows = max_rows;
    f->n_q = p->n_heads * p->head_dim;
    f->n_kv = p->n_kv_heads * p->head_dim;
    f->x = new_floats(rows, (size_t)p->n_embd);
    f->q = new_floats(rows, (size_t)f->n_q);
    f->k = new_floats(rows, (size_t)f->n_kv);
    f->v = new_floats(rows, (size_t)f->n_kv);
    f->attended = new_floats(rows, (size_t)f->n_q);
    f->branch = new_floats(n_piece, (size_t)p->n_embd);
    f->h = new_floats(n_piece, (size_t)p->n_ff);
    f->rope = p->rope_halves ? m->kernel->rope_halves : m->kernel->rope;
    f->activate = p->arch->gelu ? m->kernel->geglu : m->kernel->swiglu;
    f->embedding_scale = p->arch->scaled_embedding ? sqrtf((float)p->n_embd) : 1;
    bool angles = true;
    for (int32_t i = 0; i < p->n_layers; i++) angles &= create_angles(f, rope_of(p, i));
    const int32_t widest = p->n_embd > f->n_q ? p->n_embd : f->n_q;
    f->in = linear_input_create(m->kernel, m->weights.forms, (int32_t)n_piece, widest, ca_pool_size(pool));
    f->in_h = linear_input_create(m->kernel, m->weights.forms, (int32_t)n_piece, p->n_ff, ca_pool_size(pool));
    if (!f->x || !f->q || !f->k || !f->v || !f->attended || !f->branch || !f->h || !angles || !f->in || !f->in_h) {
        forward_free(&f);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for steps of %d rows; use smaller steps", max_rows);
    }
    *out = f;
    return CL_OK;
}

void forward_free(forward **forward_) {
    forward *f = *forward_;
    if (!f) return;
    float *const buffers[] = {f->x, f->q, f->k, f->v, f->attended, f->branch, f->h};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    for (int i = 0; i < N_ROPES; i++) {
        free(f->cos_sin[i]);
        free(f->frequency[i]);
    }
    linear_input_free(&f->in);
    linear_input_free(&f->in_h);
    free(f);
    *forward_ = NULL;
}

/* ---- The pass ---- */

/* Normed x to Q, K and V of a layer. */
static void before_attention(piece *p, int32_t layer) {
    forward *f = p->f;
    const layer_weights *l = &f->m->weights.layers[layer];
    p->layer = layer;
    const linear_product products[] = {
        {&l->q, row_of(f->q, p->first, f->n_q), (size_t)f->n_q},
        {&l->k, row_of(f->k, p->first, f->n_kv), (size_t)f->n_kv},
        {&l->v, row_of(f->v, p->first, f->n_kv), (size_t)f->n_kv},
    };
    linear_apply(f->in, products, 3, &(linear_finish){rows_finish_qkv, p, rows_qkv_unit(p)}, f->pool);
}

/* The attention's output and x through the rest of a layer to x, normed for what follows. */
static void after_attention(piece *p, int32_t layer) {
    forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    const layer_weights *l = &f->m->weights.layers[layer];
    p->layer = layer;
    linear_set(f->in, row_of(f->attended, p->first, f->n_q), (size_t)f->n_q, p->n, f->n_q);
    linear_prepare(f->in, f->pool);
    linear_apply(f->in, &(linear_product){&l->o, f->branch, (size_t)n_embd}, 1, NULL, f->pool);
    rows_add_attention(p);
    linear_apply_gated(f->in, &l->gate, &l->up, f->activate, f->h, &l->down, f->in_h, f->pool);
    linear_apply(f->in_h, &(linear_product){&l->down, f->branch, (size_t)n_embd}, 1, NULL, f->pool);
    rows_add_ffn(p);
}

/* Normed x to logits. */
static void output(piece *p) {
    forward *f = p->f;
    linear_apply(f->in, &(linear_product){&f->m->weights.output, p->logits, (size_t)f->m->params.n_vocab}, 1, NULL, f->pool);
    if (f->m->params.logit_softcap > 0) rows_cap_logits(p);
}

static cl_status attend(forward *f, int32_t layer, cl_error *error) {
    const int32_t head_dim = f->m->params.head_dim;
    const cattn_view q = {f->q, CATTN_F32, f->n_q, head_dim}, out = {f->attended, CATTN_F32, f->n_q, head_dim};
    const cattn_view k = {f->k, CATTN_F32, f->n_kv, head_dim}, v = {f->v, CATTN_F32, f->n_kv, head_dim};
    cattn_error e;
    cattn_status status = cattn_step_write(f->cache, layer, &k, &v, &e);
    if (status == CATTN_OK) status = cattn_step_attend(f->cache, layer, &q, &out, NULL, &e);
    return status == CATTN_OK ? CL_OK : cl_fail(error, kv_status(status), "attention of layer %d: %s", layer, e.message);
}

/* Move rows `kept`, ascending, to the front: nothing behind the last layer's attention needs the others. */
static void keep_rows(forward *f, const int32_t *kept, int32_t n) {
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = 0; i < n; i++) {
        if (kept[i] == i) continue;
        memcpy(row_of(f->x, i, n_embd), row_of(f->x, kept[i], n_embd), sizeof(float) * (size_t)n_embd);
        memcpy(row_of(f->attended, i, f->n_q), row_of(f->attended, kept[i], f->n_q), sizeof(float) * (size_t)f->n_q);
    }
}

static piece piece_at(forward *f, int32_t first, int32_t n_rows) {
    return (piece){.f = f, .first = first, .n = n_rows - first < PIECE ? n_rows - first : PIECE};
}

cl_status forward_step(forward *f, const int32_t *tokens, const int64_t *positions, int32_t n_rows, const int32_t *logit_rows,
                       int32_t n_logits, float *logits, cl_error *error) {
    const model *m = f->m;
    if (n_rows < 1 || n_rows > f->max_rows)
        return cl_fail(error, CL_ERR_ARG, "a step of %d rows; allowed: 1 to %d", n_rows, f->max_rows);
    for (int32_t i = 0; i < n_rows; i++)
        if (tokens[i] < 0 || tokens[i] >= m->params.n_vocab)
            return cl_fail(error, CL_ERR_ARG, "token %d of row %d; allowed: 0 to %d", tokens[i], i, m->params.n_vocab - 1);
    for (int32_t i = 0; i < n_logits; i++)
        if (logit_rows[i] < 0 || logit_rows[i] >= n_rows || (i > 0 && logit_rows[i] <= logit_rows[i - 1]))
            return cl_fail(error, CL_ERR_ARG, "logits of row %d; allowed: 0 to %d, ascending", logit_rows[i], n_rows - 1);
    f->tokens = tokens;
    f->positions = positions;

    for (int32_t first = 0; first < n_rows; first += PIECE) {
        piece p = piece_at(f, first, n_rows);
        rows_embed(&p);
        before_attention(&p, 0);
    }
    const int32_t last = m->params.n_layers - 1;
    for (int32_t layer = 0; layer < last; layer++) {
        const cl_status status = attend(f, layer, error);
        if (status != CL_OK) return status;
        for (int32_t first = 0; first < n_rows; first += PIECE) {
            piece p = piece_at(f, first, n_rows);
            after_attention(&p, layer);
            before_attention(&p, layer + 1);
        }
    }
    const cl_status status = attend(f, last, error);
    if (status != CL_OK) return status;
    keep_rows(f, logit_rows, n_logits);
    for (int32_t first = 0; first < n_logits; first += PIECE) {
        piece p = piece_at(f, first, n_logits);
        p.logits = logits + (size_t)first * (size_t)m->params.n_vocab;
        after_attention(&p, last);
        output(&p);
    }
    return CL_OK;
}

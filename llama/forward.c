/*
 * The forward pass. All but attention treats rows one by one, so it goes in pieces of rows: after a layer's attention, a piece
 * passes its output projection, the feed-forward part and the next layer's Q, K and V while it is warm in the cache, and the
 * wide buffers hold one piece only. What lies between two products (residual, norm, activation, quantisation) is one task a
 * tile.
 */
#include "forward.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "linear_kernels.h"
#include "tensor_row.h"

enum { PIECE = 512 };

struct forward {
    const model *m;
    cattn_cache *cache;
    ca_pool *pool;
    int32_t max_rows;
    int32_t n_q, n_kv;           /* width of Q and of the attention's output; of K and V */
    float *x;                    /* [max_rows][n_embd] residual stream */
    float *q, *k, *v, *attended; /* [max_rows][n_q or n_kv] */
    float *cos_sin;              /* [max_rows][n_rot] */
    float *normed, *delta;       /* [piece][n_embd]; delta is what the last product adds to x */
    float *gate, *up;            /* [piece][n_ff] */
    double *frequency;           /* [n_rot / 2] radians a position */
    linear_input *in;

    /* The open step. */
    const int32_t *tokens;
    const int64_t *positions;
};

/* Rows [first, first + n) of the step, and what a task does to a tile of them. */
typedef struct piece {
    forward *f;
    int32_t first, n;
    const model_layer *layer;
} piece;

/* ---- Creation ---- */

static float *new_floats(size_t rows, size_t columns) {
    return aligned_alloc(64, (rows * columns * sizeof(float) + 63) / 64 * 64);
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
    f->cos_sin = new_floats(rows, (size_t)p->n_rot);
    f->normed = new_floats(n_piece, (size_t)p->n_embd);
    f->delta = new_floats(n_piece, (size_t)p->n_embd);
    f->gate = new_floats(n_piece, (size_t)p->n_ff);
    f->up = new_floats(n_piece, (size_t)p->n_ff);
    f->frequency = malloc((size_t)p->n_rot / 2 * sizeof *f->frequency);
    int32_t widest = p->n_embd > p->n_ff ? p->n_embd : p->n_ff;
    if (f->n_q > widest) widest = f->n_q;
    f->in = linear_input_create(m->kernel, (int32_t)n_piece, widest, ca_pool_size(pool));
    if (!f->x || !f->q || !f->k || !f->v || !f->attended || !f->cos_sin || !f->normed || !f->delta || !f->gate || !f->up ||
        !f->frequency || !f->in) {
        forward_free(&f);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for steps of %d rows; use smaller steps", max_rows);
    }
    for (int32_t i = 0; i < p->n_rot / 2; i++)
        f->frequency[i] =
            pow(p->rope_base, -2.0 * i / p->n_rot) / p->rope_scale / (p->rope_factors ? (double)p->rope_factors[i] : 1.0);
    *out = f;
    return CL_OK;
}

void forward_free(forward **forward_) {
    forward *f = *forward_;
    if (!f) return;
    float *const buffers[] = {f->x, f->q, f->k, f->v, f->attended, f->cos_sin, f->normed, f->delta, f->gate, f->up};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    free(f->frequency);
    linear_input_free(&f->in);
    free(f);
    *forward_ = NULL;
}

/* ---- Tasks: a tile of a piece each ---- */

static float *row_of(float *rows, int32_t row, int32_t n) { return rows + (size_t)row * (size_t)n; }

static int32_t tile_end(const piece *p, int32_t tile) {
    const int32_t end = (tile + 1) * LINEAR_TILE;
    return end < p->n ? end : p->n;
}

static void run_tiles(piece *p, ca_task task) { ca_pool_run(p->f->pool, (p->n + LINEAR_TILE - 1) / LINEAR_TILE, task, p); }

/* Token ids to x, positions to the angles' cosine and sine. */
static void embed_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    forward *f = p->f;
    const unsigned fp = ca_fp_enter();
    const int32_t n_rot = f->m->params.n_rot;
    for (int32_t i = p->first + tile * LINEAR_TILE; i < p->first + tile_end(p, tile); i++) {
        tensor_row_f32(f->m->embedding, f->tokens[i], row_of(f->x, i, f->m->params.n_embd));
        float *cos_sin = row_of(f->cos_sin, i, n_rot);
        for (int32_t j = 0; j < n_rot / 2; j++) {
            const double angle = (double)f->positions[i] * f->frequency[j];
            cos_sin[2 * j] = (float)cos(angle);
            cos_sin[2 * j + 1] = (float)sin(angle);
        }
    }
    ca_fp_leave(fp);
}

static void norm_rows(const piece *p, int32_t tile, const float *weight) {
    forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = tile * LINEAR_TILE; i < tile_end(p, tile); i++)
        f->m->kernel->rms_norm(row_of(f->x, p->first + i, n_embd), weight, n_embd, f->m->params.rms_eps,
                               row_of(f->normed, i, n_embd));
    linear_prepare_tile(f->in, tile);
}

static void add_rows(const piece *p, int32_t tile) {
    forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = tile * LINEAR_TILE; i < tile_end(p, tile); i++)
        f->m->kernel->add(row_of(f->x, p->first + i, n_embd), row_of(f->delta, i, n_embd), n_embd);
}

static void attn_norm_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const unsigned fp = ca_fp_enter();
    norm_rows(p, tile, p->layer->attn_norm);
    ca_fp_leave(fp);
}

static void add_ffn_norm_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const unsigned fp = ca_fp_enter();
    add_rows(p, tile);
    norm_rows(p, tile, p->layer->ffn_norm);
    ca_fp_leave(fp);
}

static void add_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const unsigned fp = ca_fp_enter();
    add_rows(arg, tile);
    ca_fp_leave(fp);
}

static void rope_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    forward *f = p->f;
    const model_params *mp = &f->m->params;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + tile * LINEAR_TILE; i < p->first + tile_end(p, tile); i++) {
        const float *cos_sin = row_of(f->cos_sin, i, mp->n_rot);
        f->m->kernel->rope(row_of(f->q, i, f->n_q), cos_sin, mp->n_heads, mp->head_dim, mp->n_rot);
        f->m->kernel->rope(row_of(f->k, i, f->n_kv), cos_sin, mp->n_kv_heads, mp->head_dim, mp->n_rot);
    }
    ca_fp_leave(fp);
}

static void swiglu_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    forward *f = p->f;
    const int32_t n_ff = f->m->params.n_ff, first = tile * LINEAR_TILE;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = first; i < tile_end(p, tile); i++)
        f->m->kernel->swiglu(row_of(f->gate, i, n_ff), row_of(f->up, i, n_ff), n_ff, row_of(f->gate, i, n_ff));
    linear_prepare_tile(f->in, tile);
    ca_fp_leave(fp);
}

static void output_norm_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const unsigned fp = ca_fp_enter();
    norm_rows(p, tile, p->f->m->output_norm);
    ca_fp_leave(fp);
}

/* ---- The pass ---- */

/* x to Q, K and V of a layer. */
static void before_attention(piece *p, const model_layer *l) {
    forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    p->layer = l;
    linear_set(f->in, f->normed, (size_t)n_embd, p->n, n_embd);
    run_tiles(p, attn_norm_tile);
    const linear_product products[] = {
        {&l->q, row_of(f->q, p->first, f->n_q), (size_t)f->n_q},
        {&l->k, row_of(f->k, p->first, f->n_kv), (size_t)f->n_kv},
        {&l->v, row_of(f->v, p->first, f->n_kv), (size_t)f->n_kv},
    };
    linear_apply(f->in, products, 3, f->pool);
    run_tiles(p, rope_tile);
}

/* The attention's output and x through the rest of a layer to x. */
static void after_attention(piece *p, const model_layer *l) {
    forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd, n_ff = f->m->params.n_ff;
    p->layer = l;
    linear_set(f->in, row_of(f->attended, p->first, f->n_q), (size_t)f->n_q, p->n, f->n_q);
    linear_prepare(f->in, f->pool);
    linear_apply(f->in, &(linear_product){&l->o, f->delta, (size_t)n_embd}, 1, f->pool);

    linear_set(f->in, f->normed, (size_t)n_embd, p->n, n_embd);
    run_tiles(p, add_ffn_norm_tile);
    const linear_product products[] = {{&l->gate, f->gate, (size_t)n_ff}, {&l->up, f->up, (size_t)n_ff}};
    linear_apply(f->in, products, 2, f->pool);

    linear_set(f->in, f->gate, (size_t)n_ff, p->n, n_ff);
    run_tiles(p, swiglu_tile);
    linear_apply(f->in, &(linear_product){&l->down, f->delta, (size_t)n_embd}, 1, f->pool);
    run_tiles(p, add_tile);
}

static cl_status attend(forward *f, int32_t layer, cl_error *error) {
    const int32_t head_dim = f->m->params.head_dim;
    const cattn_view q = {f->q, CATTN_F32, f->n_q, head_dim}, out = {f->attended, CATTN_F32, f->n_q, head_dim};
    const cattn_view k = {f->k, CATTN_F32, f->n_kv, head_dim}, v = {f->v, CATTN_F32, f->n_kv, head_dim};
    cattn_error e;
    cattn_status status = cattn_step_write(f->cache, layer, &k, &v, &e);
    if (status == CATTN_OK) status = cattn_step_attend(f->cache, layer, &q, &out, NULL, &e);
    if (status == CATTN_OK) return CL_OK;
    const cl_status code = status == CATTN_ERR_NOMEM         ? CL_ERR_NOMEM
                           : status == CATTN_ERR_BUDGET      ? CL_ERR_LIMIT
                           : status == CATTN_ERR_UNSUPPORTED ? CL_ERR_UNSUPPORTED
                                                             : CL_ERR_ARG;
    return cl_fail(error, code, "attention of layer %d: %s", layer, e.message);
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
        run_tiles(&p, embed_tile);
        before_attention(&p, &m->layers[0]);
    }
    const int32_t last = m->params.n_layers - 1;
    for (int32_t layer = 0; layer < last; layer++) {
        const cl_status status = attend(f, layer, error);
        if (status != CL_OK) return status;
        for (int32_t first = 0; first < n_rows; first += PIECE) {
            piece p = piece_at(f, first, n_rows);
            after_attention(&p, &m->layers[layer]);
            before_attention(&p, &m->layers[layer + 1]);
        }
    }
    const cl_status status = attend(f, last, error);
    if (status != CL_OK) return status;
    keep_rows(f, logit_rows, n_logits);
    for (int32_t first = 0; first < n_logits; first += PIECE) {
        piece p = piece_at(f, first, n_logits);
        const size_t n_vocab = (size_t)m->params.n_vocab;
        after_attention(&p, &m->layers[last]);
        linear_set(f->in, f->normed, (size_t)m->params.n_embd, p.n, m->params.n_embd);
        run_tiles(&p, output_norm_tile);
        linear_apply(f->in, &(linear_product){&m->output, logits + (size_t)first * n_vocab, n_vocab}, 1, f->pool);
    }
    return CL_OK;
}

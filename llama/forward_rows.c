/* Tasks over tiles of rows: see forward_rows.h. */
#include "forward_rows.h"

#include <math.h>

#include "base/fp.h"
#include "ops.h"
#include "tensor_row.h"

static int32_t tile_end(const piece *p, int32_t tile) {
    const int32_t end = (tile + 1) * LINEAR_TILE;
    return end < p->n ? end : p->n;
}

static void run_tiles(piece *p, ca_task task) {
    ca_pool_run_shares(p->f->pool, (p->n + LINEAR_TILE - 1) / LINEAR_TILE, task, p);
}

/* The same for tasks that end in norm_rows. */
static void run_norm_tiles(piece *p, ca_task task) {
    const int32_t n_embd = p->f->m->params.n_embd;
    linear_set(p->f->in, p->f->branch, (size_t)n_embd, p->n, n_embd);
    run_tiles(p, task);
}

static const layer_weights *layer_of(const piece *p) { return &p->f->m->weights.layers[p->layer]; }

static void angles(const struct forward *f, int rope, int32_t row) {
    const int32_t n_rot = f->m->params.n_rot;
    float *cos_sin = row_of(f->cos_sin[rope], row, n_rot);
    for (int32_t j = 0; j < n_rot / 2; j++) {
        const double angle = (double)f->positions[row] * f->frequency[rope][j];
        cos_sin[2 * j] = (float)cos(angle);
        cos_sin[2 * j + 1] = (float)sin(angle);
    }
}

static void norm_rows(const piece *p, int32_t tile, const float *weight) {
    const struct forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = tile * LINEAR_TILE; i < tile_end(p, tile); i++)
        f->m->kernel->rms_norm(row_of(f->x, p->first + i, n_embd), weight, n_embd, f->m->params.rms_eps,
                               row_of(f->branch, i, n_embd));
    linear_prepare_tile(f->in, tile);
}

static void embed_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const struct forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + tile * LINEAR_TILE; i < p->first + tile_end(p, tile); i++) {
        float *x = row_of(f->x, i, n_embd);
        tensor_row_f32(f->m->weights.embedding, f->tokens[i], x);
        for (int32_t k = 0; f->embedding_scale != 1 && k < n_embd; k++) x[k] *= f->embedding_scale;
        for (int rope = 0; rope < N_ROPES; rope++)
            if (f->cos_sin[rope]) angles(f, rope, i);
    }
    norm_rows(p, tile, layer_of(p)->attn_norm);
    ca_fp_leave(fp);
}

/* post: the norm that branch goes through first, or NULL. */
static void add_rows(const piece *p, int32_t tile, const float *post) {
    const struct forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = tile * LINEAR_TILE; i < tile_end(p, tile); i++) {
        float *delta = row_of(f->branch, i, n_embd);
        if (post) f->m->kernel->rms_norm(delta, post, n_embd, f->m->params.rms_eps, delta);
        f->m->kernel->add(row_of(f->x, p->first + i, n_embd), delta, n_embd);
    }
}

static void add_attention_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const unsigned fp = ca_fp_enter();
    add_rows(p, tile, layer_of(p)->post_attn_norm);
    norm_rows(p, tile, layer_of(p)->ffn_norm);
    ca_fp_leave(fp);
}

static void add_ffn_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const model_weights *w = &p->f->m->weights;
    const unsigned fp = ca_fp_enter();
    add_rows(p, tile, layer_of(p)->post_ffn_norm);
    norm_rows(p, tile, p->layer + 1 < p->f->m->params.n_layers ? w->layers[p->layer + 1].attn_norm : w->output_norm);
    ca_fp_leave(fp);
}

/* A row of Q or K: its bias and norm, where they are not NULL, and the rotation. */
static void rotate(const piece *p, float *x, int32_t n_heads, const float *bias, const float *norm, const float *cos_sin) {
    const struct forward *f = p->f;
    const model_params *mp = &f->m->params;
    if (bias) f->m->kernel->add(x, bias, n_heads * mp->head_dim);
    for (int32_t h = 0; norm && h < n_heads; h++) {
        float *head = row_of(x, h, mp->head_dim);
        f->m->kernel->rms_norm(head, norm, mp->head_dim, mp->rms_eps, head);
    }
    f->rope(x, cos_sin, n_heads, mp->head_dim, mp->n_rot);
}

static void rotate_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const struct forward *f = p->f;
    const model_params *mp = &f->m->params;
    const layer_weights *l = layer_of(p);
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + tile * LINEAR_TILE; i < p->first + tile_end(p, tile); i++) {
        const float *cos_sin = row_of(f->cos_sin[rope_of(mp, p->layer)], i, mp->n_rot);
        rotate(p, row_of(f->q, i, f->n_q), mp->n_heads, l->q_bias, l->q_norm, cos_sin);
        rotate(p, row_of(f->k, i, f->n_kv), mp->n_kv_heads, l->k_bias, l->k_norm, cos_sin);
        if (l->v_bias) f->m->kernel->add(row_of(f->v, i, f->n_kv), l->v_bias, f->n_kv);
    }
    ca_fp_leave(fp);
}

static void cap_tile(void *arg, int32_t tile, int32_t worker) {
    (void)worker;
    const piece *p = arg;
    const model_params *mp = &p->f->m->params;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = tile * LINEAR_TILE; i < tile_end(p, tile); i++)
        ops_softcap(row_of(p->logits, i, mp->n_vocab), mp->n_vocab, mp->logit_softcap);
    ca_fp_leave(fp);
}

void rows_embed(piece *p) { run_norm_tiles(p, embed_tile); }
void rows_rotate(piece *p) { run_tiles(p, rotate_tile); }
void rows_add_attention(piece *p) { run_norm_tiles(p, add_attention_tile); }
void rows_add_ffn(piece *p) { run_norm_tiles(p, add_ffn_tile); }
void rows_cap_logits(piece *p) { run_tiles(p, cap_tile); }

/* Lists the tensors of a layer. */
#include "layer_parts.h"

#include <stdio.h>
#include <string.h>

/* Whether a layer has a part: it has not, files may have it for nothing, the file decides, or it must have. */
typedef enum presence { ABSENT, UNUSED, OPTIONAL, REQUIRED } presence;

typedef struct list {
    const cl_model_file *file;
    const cl_model_params *p;
    int32_t layer;
    cl_layer_part_fn *fn;
    void *ctx;
    cl_status status; /* of the first fn that failed; then no further ones are called */
} list;

static bool has_tensor(const list *l, const char *name) {
    char whole[CL_TENSOR_NAME_SIZE];
    (void)snprintf(whole, sizeof whole, "blk.%d.%s", l->layer, name);
    return cl_model_file_find_tensor(l->file, whole) != NULL;
}

static void add(list *l, presence has, const char *name, cl_layer_part part) {
    if (l->status != CL_OK || has == ABSENT || (has != REQUIRED && !has_tensor(l, name))) return;
    (void)snprintf(part.tensor, sizeof part.tensor, "blk.%d.%s", l->layer, name);
    part.unused = has == UNUSED;
    if (part.n_all == 0) part.n_all = part.n_out;
    if (part.n_matrices == 0) part.n_matrices = 1;
    l->status = l->fn(l->ctx, &part);
}

/* A vector of n values, which the file has in rows. */
static void vector(list *l, presence has, const char *name, int64_t n, int64_t rows, float **to) {
    add(l, has, name, (cl_layer_part){.n_in = n / rows, .n_out = rows, .is_vector = true, .vector = to});
}

static void matrix(list *l, presence has, const char *name, int64_t n_in, int64_t n_out, cl_linear *to) {
    add(l, has, name, (cl_layer_part){.n_in = n_in, .n_out = n_out, .matrix = to});
}

static void f32_matrix(list *l, presence has, const char *name, int64_t n_in, int64_t n_out, cl_linear *to) {
    add(l, has, name, (cl_layer_part){.n_in = n_in, .n_out = n_out, .as_f32 = true, .matrix = to});
}

/* A matrix whose rows may be those of another tensor from `first` on, which has n_all. */
static void matrix_in(list *l, presence has, const char *name, const char *fused, int64_t n_in, int64_t n_out, int64_t first,
                      int64_t n_all, cl_linear *to) {
    if (has_tensor(l, fused))
        add(l, has, fused, (cl_layer_part){.n_in = n_in, .n_out = n_out, .first = first, .n_all = n_all, .matrix = to});
    else
        matrix(l, has, name, n_in, n_out, to);
}

/*
 * A matrix of each expert: in a tensor of all of them, `stem`_exps; in one that has their gate and up, whose rows are those
 * from `first` on; or in a tensor for each expert.
 */
static void experts(list *l, const char *stem, int64_t n_in, int64_t n_out, int64_t first, cl_linear *to,
                    cl_linear_room *room) {
    static const char FUSED[] = "ffn_gate_up_exps.weight";
    const int32_t n = l->p->router.n_experts;
    char name[CL_TENSOR_NAME_SIZE - 16];
    const bool fused = strcmp(stem, "ffn_down") != 0 && has_tensor(l, FUSED);
    (void)snprintf(name, sizeof name, "%s.0.weight", stem);
    const bool single = !fused && has_tensor(l, name);
    for (int32_t e = 0; e < n; e++) {
        cl_layer_part part = {
            .n_in = n_in, .n_out = n_out, .index = e, .n_matrices = n, .matrix = to ? to + e : NULL, .room = room};
        if (single) {
            part.index = 0;
            part.n_matrices = 1;
            (void)snprintf(name, sizeof name, "%s.%d.weight", stem, e);
        } else {
            (void)snprintf(name, sizeof name, "%s_exps.weight", stem);
        }
        if (fused) {
            part.first = first;
            part.n_all = 2 * n_out;
        }
        add(l, REQUIRED, fused ? FUSED : name, part);
    }
}

static presence when(bool has) { return has ? REQUIRED : ABSENT; }

static presence bias_of(const cl_model_params *p, unsigned bias) {
    return p->biases & bias ? REQUIRED : p->maybe_biases & bias ? OPTIONAL : ABSENT;
}

static void list_norms(list *l, cl_layer_weights *to) {
    const cl_arch *a = l->p->arch;
    const int64_t n = l->p->n_embd;
    const bool before = a->norm_place != CL_NORM_BEHIND, behind = a->norm_place != CL_NORM_BEFORE;
    const presence bias = before ? bias_of(l->p, CL_BIAS_NORM) : ABSENT;
    vector(l, when(before), "attn_norm.weight", n, 1, &to->attn_norm.scale);
    vector(l, bias, "attn_norm.bias", n, 1, &to->attn_norm.bias);
    vector(l, when(before && !a->parallel), a->ffn_norm ? a->ffn_norm : "ffn_norm.weight", n, 1, &to->ffn_norm.scale);
    vector(l, a->parallel ? ABSENT : bias, "ffn_norm.bias", n, 1, &to->ffn_norm.bias);
    vector(l, when(behind), "post_attention_norm.weight", n, 1, &to->post_attn_norm.scale);
    vector(l, when(behind), "post_ffw_norm.weight", n, 1, &to->post_ffn_norm.scale);
    vector(l, a->layer_scale ? OPTIONAL : ABSENT, "layer_output_scale.weight", 1, 1, &to->scale);
}

/* Whether a layer has a matrix of V. */
static presence has_values(const cl_model_params *p, int32_t layer) {
    if (!cl_has_kv(p, layer)) return UNUSED;
    if (p->windows && p->windows[layer]) return REQUIRED;
    return p->maybe_values_are_keys ? OPTIONAL : when(!p->values_are_keys);
}

static void list_attention(list *l, cl_layer_weights *to) {
    const cl_model_params *p = l->p;
    const cl_arch *a = p->arch;
    const int64_t n = p->n_embd, d = p->head_dim[l->layer], n_q = cl_n_q(p, l->layer), n_kv = cl_n_kv(p, l->layer),
                  n_qkv = n_q + 2 * n_kv;
    const presence bias = bias_of(p, CL_BIAS_QKV), norm = a->maybe_qk_norm ? OPTIONAL : when(a->qk_norm);
    const presence keys = cl_has_kv(p, l->layer) ? REQUIRED : UNUSED;
    const bool of_head = a->qk_norm == CL_QK_NORM_HEAD, own = a->qk_norm == CL_QK_NORM_OWN;
    static const char QKV[] = "attn_qkv.weight";
    vector(l, norm, "attn_q_norm.weight", of_head ? d : n_q, own ? p->n_heads : 1, &to->q_norm);
    vector(l, norm && keys == UNUSED ? UNUSED : norm, "attn_k_norm.weight", of_head ? d : n_kv,
           own ? p->n_kv_heads[l->layer] : 1, &to->k_norm);
    vector(l, bias, "attn_q.bias", n_q, 1, &to->q_bias);
    vector(l, bias, "attn_k.bias", n_kv, 1, &to->k_bias);
    vector(l, bias, "attn_v.bias", n_kv, 1, &to->v_bias);
    vector(l, bias_of(p, CL_BIAS_OUTPUT), "attn_output.bias", n, 1, &to->o_bias);
    vector(l, when(a->sinks), "attn_sinks.weight", p->n_heads, 1, &to->sinks);
    matrix_in(l, REQUIRED, "attn_q.weight", QKV, n, n_q, 0, n_qkv, &to->q);
    matrix_in(l, keys, "attn_k.weight", QKV, n, n_kv, n_q, n_qkv, &to->k);
    matrix_in(l, has_values(p, l->layer), "attn_v.weight", QKV, n, n_kv, n_q + n_kv, n_qkv, &to->v);
    matrix(l, REQUIRED, "attn_output.weight", n_q, n, &to->o);
}

static void list_ffn(list *l, cl_layer_weights *to) {
    const cl_arch *a = l->p->arch;
    const int64_t n = l->p->n_embd, n_ff = l->p->n_ff[l->layer];
    const bool gated = a->ffn != CL_FFN_GELU;
    const presence bias = bias_of(l->p, CL_BIAS_FFN);
    vector(l, gated ? bias : ABSENT, "ffn_gate.bias", n_ff, 1, &to->gate_bias);
    vector(l, bias, "ffn_up.bias", n_ff, 1, &to->up_bias);
    vector(l, bias, "ffn_down.bias", n, 1, &to->down_bias);
    if (a->fused_gate) {
        add(l, REQUIRED, "ffn_up.weight", (cl_layer_part){.n_in = n, .n_out = n_ff, .n_all = 2 * n_ff, .matrix = &to->gate});
        add(l, REQUIRED, "ffn_up.weight",
            (cl_layer_part){.n_in = n, .n_out = n_ff, .first = n_ff, .n_all = 2 * n_ff, .matrix = &to->up});
    } else {
        matrix(l, when(gated), "ffn_gate.weight", n, n_ff, &to->gate);
        matrix(l, REQUIRED, "ffn_up.weight", n, n_ff, &to->up);
    }
    matrix(l, REQUIRED, "ffn_down.weight", n_ff, n, &to->down);
}

static void list_experts(list *l, cl_layer_weights *to) {
    const cl_model_params *p = l->p;
    const int64_t n = p->n_embd, n_ff = p->expert_n_ff, n_experts = p->router.n_experts;
    const presence bias = bias_of(p, CL_BIAS_EXPERTS);
    cl_expert_weights *e = &to->experts;
    f32_matrix(l, REQUIRED, "ffn_gate_inp.weight", n, n_experts, &e->router);
    vector(l, bias, "ffn_gate_inp.bias", n_experts, 1, &e->router_bias);
    vector(l, bias_of(p, CL_BIAS_CHOICE), "exp_probs_b.bias", n_experts, 1, &e->choice_bias);
    vector(l, bias, "ffn_gate_exps.bias", n_experts * n_ff, n_experts, &e->gate_bias);
    vector(l, bias, "ffn_up_exps.bias", n_experts * n_ff, n_experts, &e->up_bias);
    vector(l, bias, "ffn_down_exps.bias", n_experts * n, n_experts, &e->down_bias);
    experts(l, "ffn_gate", n, n_ff, 0, e->gate, &e->gate_room);
    experts(l, "ffn_up", n, n_ff, n_ff, e->up, &e->up_room);
    experts(l, "ffn_down", n_ff, n, 0, e->down, &e->down_room);
}

static void list_shared_expert(list *l, cl_layer_weights *to) {
    const int64_t n = l->p->n_embd, n_ff = l->p->n_ff[l->layer];
    static const char GATE_UP[] = "ffn_gate_up_shexp.weight";
    if (n_ff == 0) return;
    f32_matrix(l, when(l->p->arch->shared_router), "ffn_gate_inp_shexp.weight", n, 1, &to->experts.shared_router);
    matrix_in(l, REQUIRED, "ffn_gate_shexp.weight", GATE_UP, n, n_ff, 0, 2 * n_ff, &to->gate);
    matrix_in(l, REQUIRED, "ffn_up_shexp.weight", GATE_UP, n, n_ff, n_ff, 2 * n_ff, &to->up);
    matrix(l, REQUIRED, "ffn_down_shexp.weight", n_ff, n, &to->down);
}

/* What experts beside a dense block have more than others. */
static void list_beside(list *l, cl_layer_weights *to) {
    const int64_t n = l->p->n_embd;
    cl_expert_weights *e = &to->experts;
    vector(l, REQUIRED, "ffn_gate_inp.scale", n, 1, &e->router_norm.scale);
    vector(l, OPTIONAL, "ffn_down_exps.scale", l->p->router.n_experts, 1, &e->scale);
    vector(l, REQUIRED, "pre_ffw_norm_2.weight", n, 1, &e->norm.scale);
    vector(l, REQUIRED, "post_ffw_norm_1.weight", n, 1, &e->post_dense_norm.scale);
    vector(l, REQUIRED, "post_ffw_norm_2.weight", n, 1, &e->post_norm.scale);
}

static void list_altup(list *l, cl_layer_weights *to) {
    const int64_t n = l->p->n_embd, n_states = l->p->n_states, rank = l->p->laurel_rank;
    cl_altup_weights *a = &to->altup;
    vector(l, REQUIRED, "altup_router.weight", n * n_states, n_states, &a->router);
    vector(l, REQUIRED, "altup_router_norm.weight", n, 1, &a->router_norm.scale);
    vector(l, REQUIRED, "altup_predict_coef.weight", n_states * n_states * n_states, n_states * n_states, &a->predict);
    vector(l, REQUIRED, "altup_correct_coef.weight", n_states * n_states, n_states, &a->correct);
    vector(l, REQUIRED, "altup_correct_scale.weight", n, 1, &a->scale);
    matrix(l, REQUIRED, "laurel_l.weight", n, rank, &to->laurel_left);
    matrix(l, REQUIRED, "laurel_r.weight", rank, n, &to->laurel_right);
    vector(l, REQUIRED, "laurel_post_norm.weight", n, 1, &to->laurel_norm.scale);
}

/* The layer's own embedding. */
static void list_layer_embd(list *l, cl_layer_weights *to) {
    const int64_t n = l->p->n_embd, width = l->p->n_layer_embd;
    const presence has = when(width > 0);
    matrix(l, has, "inp_gate.weight", n, width, &to->layer_embd_gate);
    matrix(l, has, "proj.weight", width, n, &to->layer_embd_up);
    vector(l, has, "post_norm.weight", n, 1, &to->post_layer_embd_norm.scale);
}

cl_status cl_layer_parts(const cl_model_file *file, const cl_model_params *p, int32_t layer, cl_layer_weights *to,
                         cl_layer_part_fn *fn, void *ctx) {
    list l = {file, p, layer, fn, ctx, CL_OK};
    cl_layer_weights none = {0};
    if (!to) to = &none;
    list_norms(&l, to);
    list_attention(&l, to);
    const bool has_experts = cl_has_experts(p, layer), beside = p->arch->experts_beside;
    if (has_experts) list_experts(&l, to);
    if (has_experts && beside) list_beside(&l, to);
    if (has_experts && !beside)
        list_shared_expert(&l, to);
    else
        list_ffn(&l, to);
    list_layer_embd(&l, to);
    if (p->arch->altup) list_altup(&l, to);
    return l.status;
}

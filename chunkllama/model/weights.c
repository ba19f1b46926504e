/* Loads the weights of a model. layer_parts.h lists the tensors of a layer with their shapes. */
#include "weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "chunkllama/tensor/tensor.h"
#include "layer_parts.h"

/* ---- Tensors ---- */

static const char EMBEDDING[] = "token_embd.weight", OUTPUT[] = "output.weight", OUTPUT_NORM[] = "output_norm.weight",
                  OUTPUT_NORM_BIAS[] = "output_norm.bias";

/* The layers' own embeddings. */
static const char LAYER_EMBEDDINGS[] = "per_layer_token_embd.weight", LAYER_PROJ[] = "per_layer_model_proj.weight",
                  LAYER_NORM[] = "per_layer_proj_norm.weight";

/* The divisors of RoPE's speeds: Llama 3's, and longrope's for long and short sequences. */
static const char FREQS[] = "rope_freqs.weight", LONG[] = "rope_factors_long.weight", SHORT[] = "rope_factors_short.weight";

static bool has_norm_bias(const cl_model_params *p) { return (p->biases | p->maybe_biases) & CL_BIAS_NORM; }

static bool has_tensor(const cl_model_file *file, const char *name) { return cl_model_file_find_tensor(file, name) != NULL; }

/* The part as a tensor [n_out][n_in], a copy that borrows the memory of the file. */
static cl_status find_part(const cl_model_file *file, const cl_layer_part *part, cl_tensor *found, cl_error *error) {
    const cl_tensor *t = cl_model_file_find_tensor(file, part->tensor);
    const char *shown = cl_model_file_source_name(file, part->tensor);
    const long long n_in = part->n_in, n_all = part->n_all, n = part->n_matrices;
    uint32_t block, block_bytes;
    char third[32] = "";
    if (!t) return cl_fail(error, CL_ERR_FORMAT, "tensor %s is missing", shown);
    if (n > 1) (void)snprintf(third, sizeof third, ", %lld", n);
    if (t->ne[0] != n_in || t->ne[1] != n_all || t->ne[2] != n || t->ne[3] != 1)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %s has shape [%lld, %lld, %lld, %lld]; the parameters say [%lld, %lld%s]",
                       shown, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], n_in, n_all,
                       third);
    if (!cl_tensor_is_readable(t)) return cl_tensor_fail_type(t, error);
    if (part->is_vector && t->type != CL_TENSOR_F32 && t->type != CL_TENSOR_F16 && t->type != CL_TENSOR_BF16)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "tensor %s has type %s; it must be F32, F16 or BF16", shown,
                       cl_tensor_type_name(t->type));
    *found = *t;
    if (!cl_tensor_block(t->type, &block, &block_bytes) || t->ne[0] % block) return CL_OK; /* cl_linear_pack refuses it */
    if (n > 1) *found = cl_tensor_matrix(t, part->index);
    const size_t row_bytes = cl_tensor_row_bytes(t->type, n_in);
    if (found->data) found->data = (const uint8_t *)found->data + (size_t)part->first * row_bytes;
    found->recipe_row += part->first;
    found->bytes = (size_t)part->n_out * row_bytes;
    found->ne[1] = part->n_out;
    return CL_OK;
}

/* All rows of a tensor, one behind the other; the caller frees *out. */
static cl_status load_rows(const cl_tensor *t, float **out, cl_error *error) {
    const size_t bytes = (size_t)t->ne[0] * (size_t)t->ne[1] * sizeof(float);
    cl_status status = CL_OK;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!*out) return cl_fail(error, CL_ERR_NOMEM, "no memory for tensor %.*s", (int)t->name.size, t->name.data);
    for (int64_t i = 0; status == CL_OK && i < t->ne[1]; i++) status = cl_tensor_row_f32(t, i, *out + i * t->ne[0], error);
    return status;
}

static cl_status pack_f32(const cl_tensor *t, ca_pool *pool, cl_linear *out, cl_error *error) {
    float *rows = NULL;
    cl_tensor f32 = {.name = t->name, .type = CL_TENSOR_F32, .n_dims = 2, .ne = {t->ne[0], t->ne[1], 1, 1}};
    cl_status status = load_rows(t, &rows, error);
    f32.data = rows;
    f32.bytes = (size_t)t->ne[0] * (size_t)t->ne[1] * sizeof *rows;
    if (status == CL_OK) status = cl_linear_pack(&f32, pool, out, error);
    free(rows);
    return status;
}

/* What parts are loaded with. */
typedef struct loading {
    const cl_model_file *file;
    ca_pool *pool;
    cl_model_weights *w;
    cl_error *error;
} loading;

static cl_status load_part(void *ctx, const cl_layer_part *part) {
    loading *l = ctx;
    cl_tensor t;
    if (part->unused) return CL_OK;
    cl_status status = find_part(l->file, part, &t, l->error);
    if (status != CL_OK) return status;
    if (part->is_vector) return load_rows(&t, part->vector, l->error);
    if (part->room)
        status = cl_linear_pack_into(&t, l->pool, part->room, part->matrix, l->error);
    else
        status =
            part->as_f32 ? pack_f32(&t, l->pool, part->matrix, l->error) : cl_linear_pack(&t, l->pool, part->matrix, l->error);
    if (status != CL_OK) return status;
    l->w->bytes += part->matrix->bytes;
    l->w->forms |= cl_linear_forms(part->matrix);
    return CL_OK;
}

static cl_layer_part whole_vector(const char *name, int64_t n, float **to) {
    cl_layer_part part = {.n_in = n, .n_out = 1, .n_all = 1, .n_matrices = 1, .is_vector = true, .vector = to};
    (void)snprintf(part.tensor, sizeof part.tensor, "%s", name);
    return part;
}

static cl_layer_part whole_matrix(const char *name, int64_t n_in, int64_t n_out, cl_linear *to) {
    cl_layer_part part = {.n_in = n_in, .n_out = n_out, .n_all = n_out, .n_matrices = 1, .matrix = to};
    (void)snprintf(part.tensor, sizeof part.tensor, "%s", name);
    return part;
}

/* What the layers' own embeddings have in common. Files may have embeddings of the first tokens alone. */
typedef struct layer_embd_parts {
    cl_layer_part embeddings, proj, norm;
} layer_embd_parts;

static layer_embd_parts list_layer_embd(const cl_model_file *file, const cl_model_params *p, cl_model_weights *w) {
    const int64_t n = (int64_t)p->n_layers * p->n_layer_embd;
    const cl_tensor *t = cl_model_file_find_tensor(file, LAYER_EMBEDDINGS);
    const int64_t n_tokens = t && t->ne[1] > 0 && t->ne[1] < p->n_vocab ? t->ne[1] : p->n_vocab;
    return (layer_embd_parts){whole_matrix(LAYER_EMBEDDINGS, n, n_tokens, &w->layer_embeddings),
                              whole_matrix(LAYER_PROJ, p->n_embd, n, &w->layer_embd_proj),
                              whole_vector(LAYER_NORM, p->n_layer_embd, &w->layer_embd_norm.scale)};
}

static const char STATES_IN[] = "altup_proj", STATES_OUT[] = "altup_unembd_proj";

/* A matrix from or to a further state, which are in one tensor or in one each. */
static cl_layer_part state_matrix(const cl_model_file *file, const cl_model_params *p, const char *stem, int32_t i,
                                  cl_linear *to) {
    cl_layer_part part = whole_matrix("", p->n_embd, p->n_embd, to);
    (void)snprintf(part.tensor, sizeof part.tensor, "%s.%d.weight", stem, i);
    if (has_tensor(file, part.tensor)) return part;
    part.index = i;
    part.n_matrices = p->n_states - 1;
    (void)snprintf(part.tensor, sizeof part.tensor, "%s.weight", stem);
    return part;
}

/* Call fn for each of them. */
static cl_status list_states(const cl_model_file *file, const cl_model_params *p, cl_model_weights *w, cl_layer_part_fn *fn,
                             void *ctx) {
    cl_status status = CL_OK;
    for (int32_t i = 0; status == CL_OK && i < p->n_states - 1; i++) {
        const cl_layer_part in = state_matrix(file, p, STATES_IN, i, &w->states_in[i]),
                            out = state_matrix(file, p, STATES_OUT, i, &w->states_out[i]);
        status = fn(ctx, &in);
        if (status == CL_OK) status = fn(ctx, &out);
    }
    return status;
}

static cl_status create_experts(const cl_model_params *p, cl_expert_weights *e, cl_error *error) {
    e->n = e->gate_room.n = e->up_room.n = e->down_room.n = p->router.n_experts;
    e->gate = calloc((size_t)e->n, sizeof *e->gate);
    e->up = calloc((size_t)e->n, sizeof *e->up);
    e->down = calloc((size_t)e->n, sizeof *e->down);
    if (e->gate && e->up && e->down) return CL_OK;
    return cl_fail(error, CL_ERR_NOMEM, "no memory for %d experts", e->n);
}

static cl_status load_layer(loading *l, const cl_model_params *p, int32_t i) {
    cl_layer_weights *to = &l->w->layers[i];
    cl_status status = cl_has_experts(p, i) ? create_experts(p, &to->experts, l->error) : CL_OK;
    if (status == CL_OK) status = cl_layer_parts(l->file, p, i, to, load_part, l);
    float *router_scale = to->experts.router_norm.scale, *altup_scale = to->altup.router_norm.scale;
    for (int32_t j = 0; status == CL_OK && router_scale && j < p->n_embd; j++) router_scale[j] /= sqrtf((float)p->n_embd);
    for (int32_t j = 0; status == CL_OK && altup_scale && j < p->n_embd; j++) altup_scale[j] /= (float)p->n_embd;
    return status;
}

/* ---- Tensors that the model does not have ---- */

/* Which tensors of a file belong to the model. */
typedef struct marks {
    const cl_model_file *file;
    bool *known; /* [n_tensors] */
} marks;

static void mark(const marks *m, const char *name) {
    const cl_tensor *t = cl_model_file_find_tensor(m->file, name);
    if (t) m->known[t - cl_model_file_tensor_at(m->file, 0)] = true;
}

static cl_status mark_part(void *ctx, const cl_layer_part *part) {
    mark(ctx, part->tensor);
    return CL_OK;
}

static void mark_all(marks *m, const cl_model_params *p) {
    static const char *const whole[] = {EMBEDDING, OUTPUT, OUTPUT_NORM, FREQS, LONG, SHORT};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) mark(m, whole[i]);
    static const char *const of_layers[] = {LAYER_EMBEDDINGS, LAYER_PROJ, LAYER_NORM};
    for (size_t i = 0; p->n_layer_embd > 0 && i < sizeof of_layers / sizeof *of_layers; i++) mark(m, of_layers[i]);
    if (has_norm_bias(p)) mark(m, OUTPUT_NORM_BIAS);
    (void)list_states(m->file, p, &(cl_model_weights){0}, mark_part, m);
    for (int32_t i = 0; i < p->n_layers; i++) {
        char name[CL_TENSOR_NAME_SIZE];
        (void)snprintf(name, sizeof name, "blk.%d.attn_rot_embd.weight", i);
        mark(m, name); /* frequencies in old files, which follow from the metadata */
        (void)cl_layer_parts(m->file, p, i, NULL, mark_part, m);
    }
}

/* Whether a tensor is of a layer behind the model's, which predicts further tokens. */
static bool is_of_next_layer(const cl_model_params *p, cl_str name) {
    for (int32_t i = p->n_layers; i < p->n_layers + p->n_next_layers; i++) {
        static const char *const formats[] = {"blk.", "model.layers."};
        for (int k = 0; k < 2; k++) {
            char begin[CL_TENSOR_NAME_SIZE];
            (void)snprintf(begin, sizeof begin, "%s%d.", formats[k], i);
            if (name.size > strlen(begin) && memcmp(name.data, begin, strlen(begin)) == 0) return true;
        }
    }
    return false;
}

/* A tensor that is not used would be left out silently, and another model computed; so a file with one is refused. */
static cl_status refuse_unknown(const cl_model_file *file, const cl_model_params *p, cl_error *error) {
    const size_t n = cl_model_file_n_tensors(file);
    marks m = {file, calloc(n + 1, sizeof *m.known)};
    if (!m.known) return cl_fail(error, CL_ERR_NOMEM, "no memory to look at %zu tensors", n);
    mark_all(&m, p);
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < n; i++) {
        const cl_str name = cl_model_file_tensor_at(file, i)->name;
        if (m.known[i] || cl_arch_left_out(p->arch, name) || is_of_next_layer(p, name)) continue;
        char shown[2 * CL_TENSOR_NAME_SIZE];
        status = cl_fail(error, CL_ERR_UNSUPPORTED,
                         "tensor %s is not part of the architecture %s; the model differs from it, and is not supported",
                         cl_str_show(name, shown, sizeof shown), p->arch->name);
    }
    free(m.known);
    return status;
}

static cl_status check_part(void *ctx, const cl_layer_part *part) {
    loading *l = ctx;
    cl_tensor t;
    return part->unused ? CL_OK : find_part(l->file, part, &t, l->error);
}

cl_status cl_weights_check(const cl_model_file *file, const cl_model_params *p, cl_error *error) {
    loading l = {.file = file, .error = error};
    const cl_layer_part embedding = whole_matrix(EMBEDDING, p->n_embd, p->n_vocab, NULL),
                        norm = whole_vector(OUTPUT_NORM, p->n_embd, NULL);
    cl_status status = refuse_unknown(file, p, error);
    if (status == CL_OK) status = check_part(&l, &embedding);
    if (status == CL_OK) status = check_part(&l, &norm);
    if (status == CL_OK && p->n_layer_embd > 0) {
        const layer_embd_parts parts = list_layer_embd(file, p, &(cl_model_weights){0});
        status = check_part(&l, &parts.embeddings);
        if (status == CL_OK) status = check_part(&l, &parts.proj);
        if (status == CL_OK) status = check_part(&l, &parts.norm);
    }
    if (status == CL_OK) status = list_states(file, p, &(cl_model_weights){0}, check_part, &l);
    for (int32_t i = 0; status == CL_OK && i < p->n_layers; i++) status = cl_layer_parts(file, p, i, NULL, check_part, &l);
    return status;
}

/* ---- Loading ---- */

static cl_status load_divisors(loading *l, const char *name, int32_t n, float **out) {
    const cl_layer_part part = whole_vector(name, n, out);
    const cl_status status = load_part(l, &part);
    for (int32_t i = 0; status == CL_OK && i < n; i++)
        if (!((*out)[i] > 0 && isfinite((*out)[i])))
            return cl_fail(l->error, CL_ERR_FORMAT, "tensor %s has %g at %d; factors are positive", name, (double)(*out)[i], i);
    return status;
}

static cl_status load_rope(loading *l, cl_model_params *p) {
    cl_model_weights *w = l->w;
    const bool two = has_tensor(l->file, LONG);
    if (!two && !has_tensor(l->file, FREQS)) return CL_OK;
    const int32_t n = p->rope[CL_ROPE_FULL].n_rot / 2;
    cl_status status = load_divisors(l, two ? LONG : FREQS, n, &w->divisors);
    if (status == CL_OK && two) status = load_divisors(l, SHORT, n, &w->short_divisors);
    for (int i = 0; i < CL_N_ROPES; i++) {
        if (i == CL_ROPE_WINDOW && p->arch->window_unscaled) continue;
        p->rope[i].divisors = w->divisors;
        p->rope[i].short_divisors = w->short_divisors;
    }
    return status;
}

/* Gather the sinks of all layers, as a cache takes them. */
static cl_status gather_sinks(cl_model_params *p, cl_model_weights *w, cl_error *error) {
    const size_t n_heads = (size_t)p->n_heads;
    if (!p->arch->sinks) return CL_OK;
    p->sink_logits = w->sink_logits = malloc(sizeof(float) * (size_t)p->n_layers * n_heads);
    if (!w->sink_logits) return cl_fail(error, CL_ERR_NOMEM, "no memory for the sinks of %d layers", p->n_layers);
    for (int32_t i = 0; i < p->n_layers; i++)
        memcpy(w->sink_logits + (size_t)i * n_heads, w->layers[i].sinks, sizeof(float) * n_heads);
    return CL_OK;
}

/* Load a matrix of which only rows are looked up. */
static cl_status load_rows_of(loading *l, const cl_layer_part *part) {
    cl_tensor t;
    const cl_status status = find_part(l->file, part, &t, l->error);
    return status == CL_OK ? cl_linear_pack(&t, l->pool, part->matrix, l->error) : status;
}

/* Load the output matrix and the embedding, which are one matrix if the file has no output matrix (tied). */
static cl_status load_embedding(loading *l, const cl_model_params *p) {
    cl_model_weights *w = l->w;
    const bool tied = !has_tensor(l->file, OUTPUT);
    w->embedding = tied ? &w->output : &w->own_embedding;
    const cl_layer_part embedding = whole_matrix(EMBEDDING, p->n_embd, p->n_vocab, &w->own_embedding),
                        output = whole_matrix(tied ? EMBEDDING : OUTPUT, p->n_embd, p->n_vocab, &w->output);
    const cl_status status = tied ? CL_OK : load_rows_of(l, &embedding);
    return status == CL_OK ? load_part(l, &output) : status;
}

static cl_status load_layer_embd(loading *l, const cl_model_params *p) {
    if (p->n_layer_embd == 0) return CL_OK;
    const layer_embd_parts parts = list_layer_embd(l->file, p, l->w);
    cl_status status = load_rows_of(l, &parts.embeddings);
    if (status == CL_OK) status = load_part(l, &parts.proj);
    return status == CL_OK ? load_part(l, &parts.norm) : status;
}

static cl_status load_output_norm(loading *l, const cl_model_params *p) {
    const cl_layer_part scale = whole_vector(OUTPUT_NORM, p->n_embd, &l->w->output_norm.scale),
                        bias = whole_vector(OUTPUT_NORM_BIAS, p->n_embd, &l->w->output_norm.bias);
    const cl_status status = load_part(l, &scale);
    return status == CL_OK && has_norm_bias(p) ? load_part(l, &bias) : status;
}

cl_status cl_weights_load(const cl_model_file *file, cl_model_params *p, ca_pool *pool, const cl_load_watcher *watcher,
                          cl_model_weights *w, cl_error *error) {
    *w = (cl_model_weights){0};
    loading l = {file, pool, w, error};
    cl_status status = refuse_unknown(file, p, error);
    if (status == CL_OK) status = load_embedding(&l, p);
    if (status == CL_OK) status = load_layer_embd(&l, p);
    if (status == CL_OK) status = list_states(file, p, w, load_part, &l);
    if (status == CL_OK) status = load_output_norm(&l, p);
    if (status == CL_OK) status = load_rope(&l, p);
    if (status != CL_OK) return status;
    w->layers = calloc((size_t)p->n_layers, sizeof *w->layers);
    if (!w->layers) return cl_fail(error, CL_ERR_NOMEM, "no memory for %d layers", p->n_layers);
    w->n_layers = p->n_layers;
    for (int32_t i = 0; status == CL_OK && i < p->n_layers; i++) {
        status = load_layer(&l, p, i);
        if (watcher) watcher->on_layer(watcher->ctx, i + 1, p->n_layers);
    }
    return status == CL_OK ? gather_sinks(p, w, error) : status;
}

enum { N_MATRICES = 13, N_ROOMS = 3 };

/* The matrices of a layer but those of experts, loaded or not. */
static void list_matrices(cl_layer_weights *l, cl_linear *matrices[N_MATRICES]) {
    cl_expert_weights *e = &l->experts;
    cl_linear *const all[N_MATRICES] = {&l->q,
                                        &l->k,
                                        &l->v,
                                        &l->o,
                                        &l->gate,
                                        &l->up,
                                        &l->down,
                                        &l->layer_embd_gate,
                                        &l->layer_embd_up,
                                        &l->laurel_left,
                                        &l->laurel_right,
                                        &e->router,
                                        &e->shared_router};
    memcpy(matrices, all, sizeof all);
}

static void list_rooms(cl_expert_weights *e, cl_linear_room *rooms[N_ROOMS]) {
    cl_linear_room *const all[N_ROOMS] = {&e->gate_room, &e->up_room, &e->down_room};
    memcpy(rooms, all, sizeof all);
}

void cl_weights_free(cl_model_weights *w) {
    for (int32_t i = 0; i < w->n_layers; i++) {
        cl_layer_weights *l = &w->layers[i];
        cl_expert_weights *e = &l->experts;
        float *const vectors[] = {l->attn_norm.scale,
                                  l->attn_norm.bias,
                                  l->ffn_norm.scale,
                                  l->ffn_norm.bias,
                                  l->post_attn_norm.scale,
                                  l->post_ffn_norm.scale,
                                  l->post_layer_embd_norm.scale,
                                  l->scale,
                                  l->laurel_norm.scale,
                                  l->altup.router_norm.scale,
                                  l->altup.router,
                                  l->altup.predict,
                                  l->altup.correct,
                                  l->altup.scale,
                                  l->q_norm,
                                  l->k_norm,
                                  l->q_bias,
                                  l->k_bias,
                                  l->v_bias,
                                  l->o_bias,
                                  l->sinks,
                                  l->gate_bias,
                                  l->up_bias,
                                  l->down_bias,
                                  e->router_bias,
                                  e->choice_bias,
                                  e->gate_bias,
                                  e->up_bias,
                                  e->down_bias,
                                  e->scale,
                                  e->router_norm.scale,
                                  e->norm.scale,
                                  e->post_norm.scale,
                                  e->post_dense_norm.scale};
        for (size_t j = 0; j < sizeof vectors / sizeof *vectors; j++) free(vectors[j]);
        cl_linear *matrices[N_MATRICES];
        cl_linear_room *rooms[N_ROOMS];
        list_matrices(l, matrices);
        list_rooms(e, rooms);
        for (int j = 0; j < N_MATRICES; j++) cl_linear_free(matrices[j]);
        for (int j = 0; j < N_ROOMS; j++) cl_linear_room_free(rooms[j]);
        free(e->gate);
        free(e->up);
        free(e->down);
    }
    cl_linear_free(&w->output);
    cl_linear_free(&w->own_embedding);
    cl_linear_free(&w->layer_embeddings);
    cl_linear_free(&w->layer_embd_proj);
    for (int i = 0; i < CL_MAX_STATES - 1; i++) {
        cl_linear_free(&w->states_in[i]);
        cl_linear_free(&w->states_out[i]);
    }
    free(w->layer_embd_norm.scale);
    free(w->output_norm.scale);
    free(w->output_norm.bias);
    free(w->divisors);
    free(w->short_divisors);
    free(w->sink_logits);
    free(w->layers);
    *w = (cl_model_weights){0};
}

/* The whole pages of matrices. */
static void fork_pages(void *data, size_t bytes, bool inherited) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (page - (uintptr_t)data % page) % page;
    if (data && bytes >= before + page)
        madvise((char *)data + before, (bytes - before) / page * page, inherited ? MADV_DOFORK : MADV_DONTFORK);
}

void cl_weights_fork(const cl_model_weights *w, bool inherited) {
    for (int32_t i = 0; i < w->n_layers; i++) {
        cl_linear *matrices[N_MATRICES];
        cl_linear_room *rooms[N_ROOMS];
        list_matrices(&w->layers[i], matrices);
        list_rooms(&w->layers[i].experts, rooms);
        for (int j = 0; j < N_MATRICES; j++) fork_pages(matrices[j]->data, matrices[j]->bytes, inherited);
        for (int j = 0; j < N_ROOMS; j++) fork_pages(rooms[j]->data, rooms[j]->bytes, inherited);
    }
    const cl_linear *const whole[] = {&w->output, &w->own_embedding, &w->layer_embeddings, &w->layer_embd_proj};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) fork_pages(whole[i]->data, whole[i]->bytes, inherited);
    for (int i = 0; i < CL_MAX_STATES - 1; i++) {
        fork_pages(w->states_in[i].data, w->states_in[i].bytes, inherited);
        fork_pages(w->states_out[i].data, w->states_out[i].bytes, inherited);
    }
}

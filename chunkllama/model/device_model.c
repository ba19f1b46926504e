/* See device_model.h. */
#include "device_model.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/cuda/kernel_table.h"

enum { ALIGNMENT = 256, MAX_ARRAYS = 32 };

/* ---- What a device can run ---- */

/* What a model has that the forward pass on a device has not; NULL: nothing. */
static const char *lacking(const cl_model_params *p) {
    if (p->router.n_experts > 0) return "a mixture of experts";
    if (p->n_states > 1) return "rows of several states";
    if (p->n_layer_embd > 0) return "embeddings of its layers' own";
    if (p->arch->parallel) return "attention and feed-forward blocks side by side";
    if (p->arch->qk_norm == CL_QK_NORM_ALL) return "norms of Q and K over all heads";
    if (p->values_are_keys || p->maybe_values_are_keys) return "values that are keys";
    if (p->arch->v_norm) return "norms of V";
    for (int32_t i = 0; i < p->n_layers; i++)
        if (cl_is_cut(p, i)) return "gates that are cut";
    return NULL;
}

static cl_status check_heads(const cl_model_params *p, cl_error *error) {
    for (int32_t i = 0; i < p->n_layers; i++) {
        const int32_t d = p->head_dim[i], group = p->n_heads / p->n_kv_heads[i];
        if (d != 64 && d != 96 && d != 128 && d != 256)
            return cl_fail(error, CL_ERR_UNSUPPORTED, "heads of %d dimensions; on a CUDA device they have 64, 96, 128 or 256",
                           d);
        if (group > 16)
            return cl_fail(error, CL_ERR_UNSUPPORTED, "%d query heads for a KV head; on a CUDA device there may be up to 16",
                           group);
    }
    return CL_OK;
}

cl_status cl_device_parse(const char *name, int32_t *device, cl_error *error) {
    static const char CUDA[] = "cuda";
    const size_t n = sizeof CUDA - 1;
    *device = -1;
    if (!name || strcmp(name, "cpu") == 0) return CL_OK;
    char *end = NULL;
    const long number = strncmp(name, CUDA, n) == 0 && name[n] == ':' ? strtol(name + n + 1, &end, 10) : 0;
    if (strcmp(name, CUDA) != 0 && (!end || end == name + n + 1 || *end || number < 0 || number > INT32_MAX))
        return cl_fail(error, CL_ERR_ARG, "device is '%.40s'; it must be cpu, cuda or cuda:N, where N counts from 0", name);
    *device = (int32_t)number;
    return CL_OK;
}

uint64_t cl_device_memory(int32_t device) {
    const cl_cuda_link *link = cl_cuda_get();
    ca_cuda_device info;
    int32_t n = 0;
    if (!link || link->runtime->count_devices(&n) || device < 0 || device >= n) return 0;
    return link->runtime->get_device(device, &info) ? 0 : info.memory_bytes / 16 * 15;
}

static cl_status check_memory(const cl_model_file *file, int32_t device, cl_error *error) {
    const uint64_t has = cl_device_memory(device), needs = cl_model_file_memory(file);
    if (needs <= has) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED, "the weights take %llu MB, and CUDA device %d has memory for %llu MB",
                   (unsigned long long)(needs >> 20), device, (unsigned long long)(has >> 20));
}

cl_status cl_device_model_check(const cl_model_file *file, const cl_model_params *p, int32_t device, cl_error *error) {
    const cl_cuda_link *link = cl_cuda_get();
    int32_t n = 0;
    if (!link) return cl_fail(error, CL_ERR_UNSUPPORTED, "this build has no CUDA backend; configure it with -DCATTN_CUDA=ON");
    const char *failure = link->runtime->count_devices(&n);
    if (failure) return cl_fail(error, CL_ERR_UNSUPPORTED, "CUDA does not work here (%s); check nvidia-smi", failure);
    if (device < 0 || device >= n)
        return cl_fail(error, CL_ERR_ARG, "CUDA device %d; this machine has %d, numbered from 0", device, n);
    const char *lacks = lacking(p);
    if (lacks) return cl_fail(error, CL_ERR_UNSUPPORTED, "the model has %s; that is not supported on a CUDA device", lacks);
    const cl_status status = check_heads(p, error);
    return status == CL_OK ? check_memory(file, device, error) : status;
}

/* ---- Copies ---- */

/* An array of the host's weights, whose pointer becomes that of its copy. */
typedef struct array {
    void **at;
    size_t bytes;
} array;

static int add_vector(array *to, float **v, int64_t n) {
    if (*v) *to = (array){(void **)v, (size_t)n * sizeof **v};
    return *v != NULL;
}

static int add_matrix(array *to, cl_linear *w) {
    if (w->data) *to = (array){&w->data, w->bytes};
    return w->data != NULL;
}

static int list_layer(cl_layer_weights *l, const cl_model_params *p, int32_t layer, array to[MAX_ARRAYS]) {
    const int64_t n_embd = p->n_embd, n_q = cl_n_q(p, layer), n_kv = cl_n_kv(p, layer), n_ff = p->n_ff[layer];
    const bool own = p->arch->qk_norm == CL_QK_NORM_OWN;
    const struct {
        float **v;
        int64_t n;
    } vectors[] = {
        {&l->attn_norm.scale, n_embd},
        {&l->attn_norm.bias, n_embd},
        {&l->ffn_norm.scale, n_embd},
        {&l->ffn_norm.bias, n_embd},
        {&l->post_attn_norm.scale, n_embd},
        {&l->post_attn_norm.bias, n_embd},
        {&l->post_ffn_norm.scale, n_embd},
        {&l->post_ffn_norm.bias, n_embd},
        {&l->scale, 1},
        {&l->q_norm, own ? n_q : p->head_dim[layer]},
        {&l->q_bias, n_q},
        {&l->k_norm, own ? n_kv : p->head_dim[layer]},
        {&l->k_bias, n_kv},
        {&l->v_bias, n_kv},
        {&l->o_bias, n_embd},
        {&l->gate_bias, n_ff},
        {&l->up_bias, n_ff},
        {&l->down_bias, n_embd},
    };
    cl_linear *const matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    int n = 0;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) n += add_vector(to + n, vectors[i].v, vectors[i].n);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) n += add_matrix(to + n, matrices[i]);
    return n;
}

static int list_output(cl_device_model *d, const cl_model_params *p, array to[MAX_ARRAYS]) {
    int n = add_matrix(to, &d->output);
    n += add_vector(to + n, &d->output_norm.scale, p->n_embd);
    return n + add_vector(to + n, &d->output_norm.bias, p->n_embd);
}

/* Copy arrays one behind the other, and set their pointers; without memory, only count their bytes. */
static const char *copy_arrays(cl_device_model *d, const array *all, int n, ca_cuda_stream stream) {
    const char *failure = NULL;
    for (int i = 0; i < n && !failure; i++) {
        if (d->memory) {
            void *to = d->memory + d->bytes;
            failure = d->runtime->copy(to, *all[i].at, all[i].bytes, stream);
            *all[i].at = to;
        }
        d->bytes += (all[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return failure;
}

static const char *copy_all(cl_device_model *d, const cl_model_params *p, ca_cuda_stream stream) {
    array all[MAX_ARRAYS];
    d->bytes = 0;
    const char *failure = copy_arrays(d, all, list_output(d, p, all), stream);
    for (int32_t i = 0; i < p->n_layers && !failure; i++)
        failure = copy_arrays(d, all, list_layer(&d->layers[i], p, i, all), stream);
    return failure;
}

static const char *upload(cl_device_model *d, const cl_model_params *p) {
    ca_cuda_stream stream;
    const char *failure = d->runtime->create_stream(&stream);
    if (failure) return failure;
    failure = copy_all(d, p, stream);
    if (!failure) failure = d->runtime->allocate((void **)&d->memory, d->bytes);
    if (!failure) failure = copy_all(d, p, stream);
    const char *wait = d->runtime->wait(stream);
    d->runtime->destroy_stream(stream);
    return failure ? failure : wait;
}

/* ---- Models ---- */

/* The host's matrices keep their shapes and types. */
static void free_host(cl_model_weights *w) {
    for (int32_t i = 0; i < w->n_layers; i++) {
        cl_layer_weights *l = &w->layers[i];
        cl_linear *const matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++) cl_linear_free(matrices[j]);
    }
    if (w->embedding != &w->output) cl_linear_free(&w->output);
}

cl_status cl_device_model_create(cl_model *m, int32_t device, cl_device_model **out, cl_error *error) {
    const cl_model_params *p = &m->params;
    const size_t layers_bytes = (size_t)p->n_layers * sizeof *m->weights.layers;
    *out = NULL;
    cl_device_model *d = calloc(1, sizeof *d);
    if (d) d->layers = malloc(layers_bytes);
    if (!d || !d->layers) {
        free(d);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the weights on CUDA device %d", device);
    }
    memcpy(d->layers, m->weights.layers, layers_bytes);
    d->runtime = cl_cuda_get()->runtime;
    d->device = device;
    d->output = m->weights.output;
    d->output_norm = m->weights.output_norm;
    ca_cuda_caller before;
    const char *failure = d->runtime->enter(device, &before);
    if (!failure) failure = upload(d, p);
    d->runtime->leave(&before);
    if (failure) {
        const cl_status status = cl_fail(error, CL_ERR_NOMEM, "the weights take %llu MB of CUDA device %d, which reports: %s",
                                         (unsigned long long)(d->bytes >> 20), device, failure);
        cl_device_model_free(&d);
        return status;
    }
    free_host(&m->weights);
    *out = d;
    return CL_OK;
}

void cl_device_model_free(cl_device_model **model) {
    cl_device_model *d = *model;
    if (!d) return;
    ca_cuda_caller before;
    if (d->memory) {
        d->runtime->enter(d->device, &before);
        d->runtime->free_memory(d->memory);
        d->runtime->leave(&before);
    }
    free(d->layers);
    free(d);
    *model = NULL;
}

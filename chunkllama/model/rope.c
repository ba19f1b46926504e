/* The speeds of RoPE's pairs, and the metadata that they follow from. */
#include "rope.h"

#include <math.h>
#include <stdlib.h>

#include "params_reader.h"

double cl_rope_frequency(const cl_rope_params *r, int32_t i, int64_t n_ctx) {
    double kept = 0; /* the part of the speed that is not divided by the factor */
    if (r->ramps) kept = 1 - fmin(fmax((i - r->ramp_begin) / (r->ramp_end - r->ramp_begin), 0), 1);
    const float *divisors = cl_rope_is_short(r, n_ctx) ? r->short_divisors : r->divisors;
    return pow(r->base, -2.0 * i / r->n_rot) * (kept + (1 - kept) / r->factor) / (divisors ? (double)divisors[i] : 1.0);
}

/* ---- Scaling ---- */

typedef enum scaling { NONE, LINEAR, YARN, LONGROPE } scaling;

static cl_status read_kind(cl_params_reader *r, scaling *kind, bool *named) {
    static const char *const names[] = {"none", "linear", "yarn", "longrope"};
    cl_str name;
    char shown[40];
    *kind = LINEAR; /* a factor without a kind */
    *named = cl_model_file_get_string(r->file, cl_params_key(r, "rope.scaling.type"), &name);
    for (int i = NONE; *named && i <= LONGROPE; i++) {
        if (!cl_str_is(name, names[i])) continue;
        *kind = (scaling)i;
        return CL_OK;
    }
    if (!*named && !cl_model_file_has(r->file, cl_params_key(r, "rope.scaling.type"))) return CL_OK;
    if (!*named) return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is no %s", "text");
    return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED,
                          " is \"%s\"; supported: none, linear, yarn, longrope, and Llama 3's (tensor rope_freqs)",
                          cl_str_show(name, shown, sizeof shown));
}

static double mscale(double factor, double weight) { return factor > 1 ? 1 + 0.1 * weight * log(factor) : 1; }

/* The number of the pair that turns `turns` times within n positions. */
static double pair_of(const cl_rope_params *rope, double turns, double n) {
    return rope->n_rot * log(n / (turns * 2 * M_PI)) / (2 * log(rope->base));
}

static cl_status read_yarn(cl_params_reader *r, int32_t n_trained, cl_rope_params *rope) {
    double fast = 32, slow = 1, weight = 0;
    bool whole = !r->arch->yarn_unrounded; /* the ramp begins and ends at whole pairs */
    cl_status status = cl_params_double(r, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &fast);
    if (status == CL_OK) status = cl_params_double(r, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &slow);
    if (status == CL_OK) status = cl_params_double(r, "rope.scaling.yarn_log_multiplier", 0, 1e3, &weight);
    if (status != CL_OK) return status;
    if (rope->base <= 1) {
        (void)cl_params_key(r, "rope.freq_base");
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %g; yarn needs more than 1", rope->base);
    }
    cl_model_file_get_bool(r->file, cl_params_key(r, "rope.scaling.yarn_whole_pairs"), &whole);
    const double first = pair_of(rope, fast, n_trained), last = pair_of(rope, slow, n_trained);
    rope->ramps = true;
    rope->ramp_begin = fmax(whole ? floor(first) : first, 0);
    rope->ramp_end = fmax(fmin(whole ? ceil(last) : last, rope->n_rot - 1), rope->ramp_begin + 0.001);
    rope->magnitude = weight > 0 ? mscale(rope->factor, 1) / mscale(rope->factor, weight) : mscale(rope->factor, 1);
    return CL_OK;
}

static cl_status read_scaling(cl_params_reader *r, const cl_model_params *p, cl_rope_params *rope) {
    scaling kind;
    bool named;
    int32_t n_trained = p->n_ctx_train;
    double attn_factor = 1;
    cl_status status = read_kind(r, &kind, &named);
    if (status != CL_OK || kind == NONE) return status;
    if (named && kind <= YARN && !cl_model_file_has(r->file, cl_params_key(r, "rope.scaling.factor")))
        return cl_fail(r->error, CL_ERR_FORMAT, "the file has no number %s, which %s scaling needs", cl_params_key_name(r),
                       kind == YARN ? "yarn" : "linear");
    status = cl_params_int(r, "rope.scaling.original_context_length", 1, INT32_MAX, &n_trained);
    if (status != CL_OK) return status;
    rope->n_short = n_trained;
    if (kind != LONGROPE) {
        /* First the name in old files. */
        status = cl_params_double(r, "rope.scale_linear", 1e-3, 1e6, &rope->factor);
        if (status == CL_OK) status = cl_params_double(r, "rope.scaling.factor", 1e-3, 1e6, &rope->factor);
    }
    if (status == CL_OK && kind == YARN) status = read_yarn(r, n_trained, rope);
    if (status == CL_OK) status = cl_params_double(r, "rope.scaling.attn_factor", 1e-3, 1e3, &attn_factor);
    /* Converters write Transformers' attention_factor, which is the whole magnitude of YaRN; 1 changes nothing. */
    rope->magnitude = kind == YARN && attn_factor != 1 ? attn_factor : rope->magnitude * attn_factor;
    return status == CL_OK ? cl_params_double(r, "rope.scaling.magnitude", 1e-3, 1e3, &rope->magnitude) : status;
}

/* ---- Layers ---- */

/* Whether positions have several parts, as for images. The parts of a text's positions are equal; pairs are halves then. */
static bool has_sections(cl_params_reader *r) {
    uint64_t size = 0;
    const char *key = cl_params_key(r, "rope.dimension_sections");
    for (size_t i = 0; cl_model_file_get_u64_at(r->file, key, i, &size); i++)
        if (size > 0) return true;
    return false;
}

static cl_status read_plain(cl_params_reader *r, cl_model_params *p) {
    const unsigned char *rotated;
    int32_t period = r->arch->plain_every;
    const cl_status status = cl_params_layers(r, "rope.layers", &rotated);
    const bool by_window = r->arch->plain_full && p->windows;
    bool trained = true;
    if (r->arch->plain_untrained) cl_model_file_get_bool(r->file, cl_params_key(r, "rope.scaling.finetuned"), &trained);
    if (!trained) period = 1;
    if (status != CL_OK || (!rotated && period == 0 && !by_window)) return status;
    p->plain = calloc((size_t)p->n_layers, sizeof *p->plain);
    if (!p->plain) return cl_fail(r->error, CL_ERR_NOMEM, "no memory for the rotations of %d layers", p->n_layers);
    for (int32_t i = 0; i < p->n_layers; i++)
        p->plain[i] = rotated ? !rotated[i] : by_window ? p->windows[i] == 0 : (i + 1) % period == 0;
    return CL_OK;
}

/* Queries are scaled by their position from the end of the first training on. */
static cl_status read_query_scale(cl_params_reader *r, cl_model_params *p) {
    cl_status status = cl_params_double(r, "attention.temperature_scale", 0, 1e3, &p->query_beta);
    if (status != CL_OK || p->query_beta == 0) return status;
    p->query_period = -1;
    return cl_params_int(r, "rope.scaling.original_context_length", 1, INT32_MAX, &p->query_period);
}

/* The head size of all layers with or without a window; of layer 0 if there are none. */
static cl_status find_head_dim(cl_params_reader *r, const cl_model_params *p, bool window, int32_t *head_dim) {
    bool found = false;
    *head_dim = p->head_dim[0];
    for (int32_t i = 0; i < p->n_layers; i++) {
        if ((p->windows && p->windows[i]) != window) continue;
        if (found && p->head_dim[i] != *head_dim) {
            (void)cl_params_key(r, "attention.key_length");
            return CL_PARAMS_FAIL(r, CL_ERR_UNSUPPORTED, " is %d and %d in layers %s a window, which must agree", *head_dim,
                                  p->head_dim[i], window ? "with" : "without");
        }
        *head_dim = p->head_dim[i];
        found = true;
    }
    return CL_OK;
}

static cl_status read_n_rot(cl_params_reader *r, const char *suffix, int32_t head_dim, int32_t *n_rot) {
    const cl_status status = cl_params_int(r, suffix, 2, head_dim, n_rot);
    if (status != CL_OK || *n_rot % 2 == 0) return status;
    return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %d; it must be even", *n_rot);
}

cl_status cl_params_rope(cl_params_reader *r, cl_model_params *p) {
    cl_rope_params *full = &p->rope[CL_ROPE_FULL], *window = &p->rope[CL_ROPE_WINDOW];
    int32_t full_dim, window_dim;
    cl_status status = find_head_dim(r, p, false, &full_dim);
    if (status == CL_OK) status = find_head_dim(r, p, true, &window_dim);
    if (status != CL_OK) return status;
    *full = (cl_rope_params){.n_rot = full_dim, .base = 10000, .factor = 1, .magnitude = 1};
    if ((status = read_n_rot(r, "rope.dimension_count", full_dim, &full->n_rot)) != CL_OK) return status;
    p->rope_halves = r->arch->rope_halves || has_sections(r);
    cl_model_file_get_bool(r->file, cl_params_key(r, "rope.halves"), &p->rope_halves);
    if ((status = cl_params_double(r, "rope.freq_base", 1, 1e12, &full->base)) != CL_OK) return status;
    *window = *full;
    if ((status = read_scaling(r, p, full)) != CL_OK) return status;
    if (!r->arch->window_unscaled) *window = *full;
    if (window_dim != full_dim) window->n_rot = window_dim;
    if (r->arch->window_rope_base > 0) window->base = r->arch->window_rope_base;
    if (r->arch->windows) status = cl_params_double(r, "rope.freq_base_swa", 1, 1e12, &window->base);
    if (status == CL_OK && r->arch->windows) status = read_n_rot(r, "rope.dimension_count_swa", window_dim, &window->n_rot);
    if (status == CL_OK) status = read_plain(r, p);
    return status == CL_OK ? read_query_scale(r, p) : status;
}

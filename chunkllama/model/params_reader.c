/* Reads numbers from metadata; messages name the key, its value and what is allowed. */
#include "params_reader.h"

#include <stdio.h>

const char *cl_params_key(cl_params_reader *r, const char *suffix) {
    (void)snprintf(r->key, sizeof r->key, "%s.%s", r->arch->name, suffix);
    return r->key;
}

const char *cl_params_key_name(const cl_params_reader *r) { return cl_model_file_source_name(r->file, r->key); }

static cl_status bad_value(const cl_params_reader *r, double value, double min, double max) {
    return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is %g; allowed: %g to %g", value, min, max);
}

/* An array has a value for each layer. */
static cl_status check_length(const cl_params_reader *r) {
    cl_meta_type type;
    size_t n;
    const void *data;
    if (!cl_model_file_get_array(r->file, r->key, &type, &n, &data)) return CL_OK;
    if (r->n_layers == 0) return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, "%s", " is an array; one number is needed");
    if (n == (size_t)r->n_layers) return CL_OK;
    return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " has %zu entries; one number, or one for each of the %d layers, is needed", n,
                          r->n_layers);
}

cl_status cl_params_int(cl_params_reader *r, const char *suffix, int64_t min, int64_t max, int32_t *out) {
    uint64_t value;
    if (!cl_model_file_get_u64(r->file, cl_params_key(r, suffix), &value)) {
        if (cl_model_file_has(r->file, r->key))
            return CL_PARAMS_FAIL(
                r, CL_ERR_UNSUPPORTED, "%s",
                " is not one integer from 0, nor an array of equal ones; layers that differ are not supported");
        if (*out >= 0) return CL_OK;
        return cl_fail(r->error, CL_ERR_FORMAT, "the file has no integer %s; it is not a complete %s model",
                       cl_params_key_name(r), r->arch->name);
    }
    if (value > (uint64_t)max || value < (uint64_t)min) return bad_value(r, (double)value, (double)min, (double)max);
    *out = (int32_t)value;
    return check_length(r);
}

cl_status cl_params_ints(cl_params_reader *r, const char *suffix, int64_t min, int64_t max, int32_t n, int32_t *out) {
    uint64_t value;
    if (!cl_model_file_has(r->file, cl_params_key(r, suffix))) return cl_params_int(r, suffix, min, max, out);
    if (cl_model_file_get_u64(r->file, r->key, &value)) {
        const cl_status status = cl_params_int(r, suffix, min, max, out);
        for (int32_t i = 1; status == CL_OK && i < n; i++) out[i] = out[0];
        return status;
    }
    const cl_status status = check_length(r);
    if (status != CL_OK) return status;
    for (int32_t i = 0; i < n; i++) {
        if (!cl_model_file_get_u64_at(r->file, r->key, (size_t)i, &value))
            return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, "%s", " is neither an integer from 0 nor an array of one for each layer");
        if (value > (uint64_t)max || value < (uint64_t)min) return bad_value(r, (double)value, (double)min, (double)max);
        out[i] = (int32_t)value;
    }
    return CL_OK;
}

cl_status cl_params_double(cl_params_reader *r, const char *suffix, double min, double max, double *out) {
    double value;
    uint64_t integer;
    if (!cl_model_file_has(r->file, cl_params_key(r, suffix))) return CL_OK;
    if (cl_model_file_get_u64(r->file, r->key, &integer))
        value = (double)integer;
    else if (!cl_model_file_get_f64(r->file, r->key, &value))
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " is not one number, nor an array of equal ones; %g to %g are allowed", min,
                              max);
    if (!(value >= min && value <= max)) return bad_value(r, value, min, max);
    *out = value;
    return check_length(r);
}

cl_status cl_params_float(cl_params_reader *r, const char *suffix, double min, double max, float *out) {
    double value = (double)*out;
    const cl_status status = cl_params_double(r, suffix, min, max, &value);
    *out = (float)value;
    return status;
}

cl_status cl_params_layers(cl_params_reader *r, const char *suffix, const unsigned char **out) {
    cl_meta_type type;
    size_t n;
    const void *data;
    *out = NULL;
    if (!cl_model_file_get_array(r->file, cl_params_key(r, suffix), &type, &n, &data)) return CL_OK;
    if (type != CL_META_BOOL || n != (size_t)r->n_layers)
        return CL_PARAMS_FAIL(r, CL_ERR_FORMAT, " has %zu entries; a bool for each of the %d layers is needed", n, r->n_layers);
    *out = data;
    return CL_OK;
}

/* Makes rows of experts from those of a folder that has them in another order. */
#include "hf_experts.h"

#include <stdlib.h>
#include <string.h>

typedef struct reordered {
    cl_tensor_recipe base; /* the first member, by which `make` finds the others */
    cl_hf_order order;
    cl_tensor stored;
    int64_t n_in, n_out; /* of a matrix that is made; n_out values of a vector */
} reordered;

static size_t value_bytes(const cl_tensor *t) { return t->type == CL_TENSOR_F32 ? 4 : 2; }

static bool read_bytes(const cl_tensor *t, size_t at, size_t n, uint8_t *out) {
    const uint8_t *p = cl_tensor_bytes(t, at, n, out);
    if (p && p != out) memcpy(out, p, n);
    return p;
}

/* Rows that are whole rows of the folder's: all matrices have `step` times as many. */
static bool make_rows(const cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out) {
    const reordered *r = (const reordered *)recipe;
    const size_t bytes = cl_tensor_row_bytes(r->stored.type, r->n_in);
    bool ok = true;
    for (int64_t i = row; ok && i < row + n_rows; i++, out += bytes)
        ok = read_bytes(&r->stored, (size_t)(r->order.first + r->order.step * i) * bytes, bytes, out);
    return ok;
}

/* Each step-th value of rows. */
static bool make_vectors(const cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out) {
    const reordered *r = (const reordered *)recipe;
    const size_t size = value_bytes(&r->stored), bytes = (size_t)r->stored.ne[0] * size;
    uint8_t *values = malloc(bytes);
    bool ok = values;
    for (int64_t i = row; ok && i < row + n_rows; i++) {
        ok = read_bytes(&r->stored, (size_t)i * bytes, bytes, values);
        for (int64_t k = 0; ok && k < r->n_out; k++, out += size)
            memcpy(out, values + (size_t)(r->order.first + r->order.step * k) * size, size);
    }
    free(values);
    return ok;
}

/* n rows of one matrix, which are columns of the folder's. at: its first value; column: the first row's. */
static bool read_columns(const reordered *r, size_t at, size_t column, size_t n, uint8_t *line, uint8_t *out) {
    const size_t size = value_bytes(&r->stored), step = (size_t)r->order.step, n_in = (size_t)r->n_in;
    const size_t line_bytes = (step * (n - 1) + 1) * size;
    for (size_t k = 0; k < n_in; k++) {
        if (!read_bytes(&r->stored, (at + k * (size_t)r->stored.ne[0] + column) * size, line_bytes, line)) return false;
        for (size_t i = 0; i < n; i++) memcpy(out + (i * n_in + k) * size, line + i * step * size, size);
    }
    return true;
}

static bool make_columns(const cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out) {
    const reordered *r = (const reordered *)recipe;
    const size_t size = value_bytes(&r->stored), matrix = (size_t)r->n_in * (size_t)r->stored.ne[0];
    uint8_t *line = malloc((size_t)r->stored.ne[0] * size);
    bool ok = line;
    while (ok && n_rows > 0) {
        const int64_t in_matrix = row % r->n_out, rest = r->n_out - in_matrix, n = rest < n_rows ? rest : n_rows;
        ok = read_columns(r, (size_t)(row / r->n_out) * matrix, (size_t)(r->order.first + r->order.step * in_matrix), (size_t)n,
                          line, out);
        out += (size_t)(n * r->n_in) * size;
        row += n;
        n_rows -= n;
    }
    free(line);
    return ok;
}

cl_status cl_hf_reorder(const cl_tensor *stored, const cl_hf_order *order, cl_model_file *file, cl_tensor *made,
                        cl_error *error) {
    const bool plain = stored->type == CL_TENSOR_F32 || stored->type == CL_TENSOR_F16 || stored->type == CL_TENSOR_BF16;
    const int32_t outputs = order->transposed || order->vectors ? 0 : 1; /* their dimension */
    const int n_dims = order->vectors ? 2 : 3;
    char shown[80];
    if (stored->n_dims != n_dims || stored->ne[outputs] % order->step || ((order->transposed || order->vectors) && !plain))
        return cl_fail(
            error, CL_ERR_FORMAT,
            "tensor %s has type %s and %d dimensions; needed are F32, F16, BF16 or MXFP4, %d dimensions, and as many "
            "outputs of gate as of up",
            cl_str_show(stored->name, shown, sizeof shown), cl_tensor_type_name(stored->type), stored->n_dims, n_dims);
    reordered *r = cl_arena_alloc(&file->memory, sizeof *r);
    if (!r) return cl_fail(error, CL_ERR_NOMEM, "no memory for tensor %s", cl_str_show(stored->name, shown, sizeof shown));
    *r = (reordered){.order = *order, .stored = *stored, .n_out = stored->ne[outputs] / order->step};
    r->n_in = order->transposed ? stored->ne[1] : stored->ne[0];
    r->base.make = order->vectors ? make_vectors : order->transposed ? make_columns : make_rows;
    *made = *stored;
    made->ne[0] = order->vectors ? r->n_out : r->n_in;
    made->ne[1] = order->vectors ? stored->ne[1] : r->n_out;
    made->bytes = stored->bytes / (size_t)order->step;
    made->data = NULL;
    made->file = NULL;
    made->recipe = &r->base;
    made->recipe_row = 0;
    return CL_OK;
}

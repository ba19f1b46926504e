/* Repacks a tensor of the file into panels of 16 outputs (linear_kernels.h). */
#include "linear_pack.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fp.h"
#include "base/half.h"
#include "linear.h"
#include "tensor_row.h"

enum { HUGE_PAGE = 2 << 20 };

typedef struct packing {
    const tensor *tensor;
    linear *w;
    linear_layout layout;
    size_t panel_bytes, row_bytes; /* row of the file */
    atomic_int bad_scale;
} packing;

static void pack_float(uint8_t *panel, int lane, const uint8_t *row, int32_t n_in, size_t element) {
    for (size_t k = 0; k < (size_t)n_in; k++)
        memcpy(panel + (k * LINEAR_LANES + (size_t)lane) * element, row + k * element, element);
}

/* Q4_0 is (code - 8) d = code d + m with m = -8 d, exact in f16 unless it overflows. False then. */
static bool pack_q4(uint8_t *record, int lane, const uint8_t *block, bool has_min) {
    const uint8_t *codes = block + (has_min ? 4 : 2);
    for (int j = 0; j < 4; j++) memcpy(record + 64 * j + 4 * lane, codes + 4 * j, 4);
    memcpy(record + 256 + 2 * lane, block, 2);
    if (has_min) {
        memcpy(record + 288 + 2 * lane, block + 2, 2);
        return true;
    }
    uint16_t d;
    memcpy(&d, block, 2);
    const uint16_t m = ca_f16_from_f32(-8.0f * ca_f32_from_f16(d));
    memcpy(record + 288 + 2 * lane, &m, 2);
    return (m & 0x7c00) != 0x7c00;
}

static void pack_q8(uint8_t *record, int lane, const uint8_t *block) {
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 4; i++) record[64 * j + 4 * lane + i] = block[2 + 4 * j + i] ^ 0x80;
    memcpy(record + 512 + 2 * lane, block, 2);
}

static void pack_panel(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    packing *p = arg;
    const unsigned fp = ca_fp_enter();
    const int32_t n_in = p->w->n_in, first = task * LINEAR_LANES;
    uint8_t *panel = (uint8_t *)p->w->data + (size_t)task * p->panel_bytes;
    const bool whole = first + LINEAR_LANES <= p->w->n_out;
    if (!whole) memset(panel, 0, p->panel_bytes);
    for (int lane = 0; lane < LINEAR_LANES && first + lane < p->w->n_out; lane++) {
        const uint8_t *row = (const uint8_t *)p->tensor->data + (size_t)(first + lane) * p->row_bytes;
        if (p->layout < LINEAR_Q4) {
            pack_float(panel, lane, row, n_in, p->layout == LINEAR_F32 ? 4 : 2);
            continue;
        }
        uint8_t *record = panel;
        for (int32_t b = 0; b < n_in / LINEAR_BLOCK; b++) {
            if (p->layout == LINEAR_Q8) {
                pack_q8(record, lane, row);
                row += TENSOR_Q8_0_BYTES;
                record += LINEAR_Q8_BYTES;
            } else {
                const bool has_min = p->w->type == TENSOR_Q4_1;
                if (!pack_q4(record, lane, row, has_min)) atomic_store(&p->bad_scale, 1);
                row += has_min ? TENSOR_Q4_1_BYTES : TENSOR_Q4_0_BYTES;
                record += LINEAR_Q4_BYTES;
            }
        }
    }
    ca_fp_leave(fp);
}

cl_status linear_pack(const tensor *tensor, ca_pool *pool, linear *out, cl_error *error) {
    const int name_size = (int)tensor->name.size;
    const char *name = tensor->name.data;
    memset(out, 0, sizeof *out);
    packing p = {.tensor = tensor, .w = out, .layout = linear_layout_of(tensor->type)};
    if (p.layout == LINEAR_N_LAYOUTS)
        return cl_fail(error, CL_ERR_UNSUPPORTED,
                       "tensor %.*s has type %s; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1 (requantise the model)", name_size,
                       name, tensor_type_name(tensor->type));
    if (tensor->ne[2] != 1 || tensor->ne[3] != 1 || tensor->ne[0] > INT32_MAX - LINEAR_BLOCK ||
        tensor->ne[1] > INT32_MAX - LINEAR_LANES || tensor->ne[0] < 1 || tensor->ne[1] < 1)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %.*s is not a matrix", name_size, name);
    if (p.layout >= LINEAR_Q4 && tensor->ne[0] % LINEAR_BLOCK)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %.*s has rows of %lld values; %s needs a multiple of %d", name_size, name,
                       (long long)tensor->ne[0], tensor_type_name(tensor->type), LINEAR_BLOCK);

    out->n_in = (int32_t)tensor->ne[0];
    out->n_out = (int32_t)tensor->ne[1];
    out->type = tensor->type;
    p.panel_bytes = linear_panel_bytes(p.layout, out->n_in);
    p.row_bytes = tensor_row_bytes(tensor->type, out->n_in);
    const int32_t n_panels = (out->n_out + LINEAR_LANES - 1) / LINEAR_LANES;
    out->bytes = (size_t)n_panels * p.panel_bytes;
    /* Large matrices on huge pages: a decode step streams all of them and would miss the TLB at every page. */
    const size_t align = out->bytes >= HUGE_PAGE ? HUGE_PAGE : 64, size = (out->bytes + align - 1) / align * align;
    out->data = aligned_alloc(align, size);
    if (!out->data)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu bytes of weights of tensor %.*s", out->bytes, name_size, name);
    if (align == HUGE_PAGE) (void)madvise(out->data, size, MADV_HUGEPAGE);
    ca_pool_run(pool, n_panels, pack_panel, &p);
    if (!atomic_load(&p.bad_scale)) return CL_OK;
    linear_free(out);
    return cl_fail(error, CL_ERR_FORMAT, "tensor %.*s has a Q4_0 scale beyond 8188 or not finite", name_size, name);
}

void linear_free(linear *w) {
    free(w->data);
    memset(w, 0, sizeof *w);
}

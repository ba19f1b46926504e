/* Repacks a tensor of the file into panels of 16 outputs (linear_format.h). */
#include "chunkllama/tensor/weight_type.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "chunkllama/tensor/tensor.h"
#include "linear.h"

enum {
    HUGE_PAGE = 2 << 20,
    TASK_BYTES = 1 << 17 /* that a task reads from the file at once: few calls, and they stay in the second-level cache */
};

typedef struct packing {
    const cl_tensor *tensor;
    cl_linear *w;
    cl_linear_layout layout;
    size_t panel_bytes, row_bytes; /* of a panel, and of a row in the file */
    const cl_quant_type *quant;    /* NULL: floats */
    uint32_t block, block_bytes;   /* elements and bytes of a block in the file */
    int32_t task_rows;             /* rows of a task: those of some panels */
    uint8_t *rows;                 /* [workers][task_rows][row_bytes] read from the file; NULL if the tensor is in memory */
    atomic_bool failed;            /* rows could not be read */
} packing;

static void pack_float(uint8_t *panel, int lane, const uint8_t *row, int32_t n_in, size_t element) {
    for (size_t k = 0; k < (size_t)n_in; k++)
        memcpy(panel + (k * CL_LINEAR_LANES + (size_t)lane) * element, row + k * element, element);
}

static void pack_bf16(uint8_t *panel, int lane, const uint8_t *row, int32_t n_in) {
    for (size_t k = 0; k < (size_t)n_in; k++)
        memcpy(panel + k / 2 * 4 * CL_LINEAR_LANES + 4 * (size_t)lane + k % 2 * 2, row + 2 * k, 2);
}

/* Pack codes of 8 bits in the order of a record: four of them, those of one step, are a word. */
static void put_word(uint8_t *record, int vector, int lane, uint32_t word) {
    memcpy(record + 64 * vector + 4 * lane, &word, sizeof word);
}

static void pack_codes(uint8_t *record, int lane, int bits, const uint8_t *codes) {
    uint32_t step[8];
    memcpy(step, codes, sizeof step);
    if (bits == 8) {
        for (int j = 0; j < 8; j++) put_word(record, j, lane, step[j]);
        return;
    }
    int shift = 0;
    if (bits & 4) {
        for (int i = 0; i < 4; i++) put_word(record, i, lane, (step[i] & 0x0f0f0f0f) | (step[i + 4] & 0x0f0f0f0f) << 4);
        record += 256;
        shift = 4;
    }
    if (bits & 2) {
        for (int i = 0; i < 2; i++) {
            uint32_t word = 0;
            for (int j = 0; j < 4; j++) word |= (step[4 * i + j] >> shift & 0x03030303) << 2 * j;
            put_word(record, i, lane, word);
        }
        record += 128;
        shift += 2;
    }
    if (bits & 1) {
        uint32_t word = 0;
        for (int j = 0; j < 8; j++) word |= (step[j] >> shift & 0x01010101) << j;
        put_word(record, 0, lane, word);
    }
}

static void put_f16(uint8_t *to, int lane, const uint8_t *from, uint16_t flip) {
    uint16_t h;
    memcpy(&h, from, sizeof h);
    h ^= flip;
    memcpy(to + 2 * lane, &h, sizeof h);
}

/* Pack one row of the file into its lane of a panel. */
static void pack_quant(const packing *p, uint8_t *record, int lane, const uint8_t *row) {
    const cl_quant_type *type = p->quant;
    const cl_linear_format f = cl_linear_formats[p->layout];
    const int n_scale_groups = CL_LINEAR_BLOCK / f.scale_group;
    cl_quant_block parts;
    for (int32_t k = 0; k < p->w->n_in; k += (int32_t)p->block, row += p->block_bytes) {
        type->decode(row, &parts);
        const uint8_t *d = cl_quant_scale(type, row, &parts);
        if (f.super) {
            put_f16(record, lane, d, 0);
            /* The sign bit is flipped, because files subtract the minimum. */
            if (f.min) put_f16(record + 2 * CL_LINEAR_LANES, lane, row + type->m_at, 0x8000);
            record += cl_linear_super_bytes(f);
        }
        for (uint32_t b = 0; b < p->block / CL_LINEAR_BLOCK; b++, record += cl_linear_record_bytes(f)) {
            pack_codes(record, lane, f.bits, parts.codes + (size_t)b * CL_LINEAR_BLOCK);
            for (int g = 0; g < n_scale_groups; g++) {
                const size_t group = (size_t)b * (size_t)n_scale_groups + (size_t)g;
                if (f.super) {
                    record[cl_linear_d_at(f, g) + (size_t)lane] = (uint8_t)parts.d[group];
                    if (f.min) record[cl_linear_m_at(f, g) + (size_t)lane] = (uint8_t)parts.m[group];
                } else if (f.powers) {
                    record[cl_linear_d_at(f, g) + (size_t)lane] = *d;
                } else {
                    put_f16(record + cl_linear_d_at(f, g), lane, d, 0);
                    if (f.min) put_f16(record + cl_linear_m_at(f, g), lane, row + type->m_at, 0);
                }
            }
        }
    }
}

/* Pack a panel from its rows in the file, n_rows <= 16. */
static void pack_panel(const packing *p, uint8_t *panel, const uint8_t *row, int n_rows) {
    const int32_t n_in = p->w->n_in;
    if (n_rows < CL_LINEAR_LANES || n_in % 2) memset(panel, 0, p->panel_bytes);
    for (int lane = 0; lane < n_rows; lane++, row += p->row_bytes) {
        if (p->quant)
            pack_quant(p, panel, lane, row);
        else if (p->layout == CL_LINEAR_BF16)
            pack_bf16(panel, lane, row, n_in);
        else
            pack_float(panel, lane, row, n_in, p->layout == CL_LINEAR_F32 ? 4 : 2);
    }
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static void pack_rows(void *arg, int32_t task, int32_t worker) {
    packing *p = arg;
    const int32_t first = task * p->task_rows, n = smaller(p->task_rows, p->w->n_out - first);
    uint8_t *buf = p->rows ? p->rows + (size_t)worker * (size_t)p->task_rows * p->row_bytes : NULL;
    const uint8_t *rows = cl_tensor_bytes(p->tensor, (size_t)first * p->row_bytes, (size_t)n * p->row_bytes, buf);
    if (!rows) {
        p->failed = true;
        return;
    }
    for (int32_t i = 0; i < n; i += CL_LINEAR_LANES)
        pack_panel(p, (uint8_t *)p->w->data + (size_t)(first + i) / CL_LINEAR_LANES * p->panel_bytes,
                   rows + (size_t)i * p->row_bytes, smaller(CL_LINEAR_LANES, n - i));
}

/* Check a tensor and describe the matrix, which has no memory yet. */
static cl_status describe(packing *p, const cl_tensor *tensor, cl_linear *out, cl_error *error) {
    const int name_size = (int)tensor->name.size;
    const char *name = tensor->name.data;
    memset(out, 0, sizeof *out);
    *p = (packing){
        .tensor = tensor, .w = out, .layout = cl_linear_layout_of(tensor->type), .quant = cl_quant_type_of(tensor->type)};
    if (p->layout == CL_LINEAR_N_LAYOUTS || !cl_tensor_block(tensor->type, &p->block, &p->block_bytes))
        return cl_tensor_fail_type(tensor, error);
    if (tensor->ne[2] != 1 || tensor->ne[3] != 1 || tensor->ne[0] > INT32_MAX - CL_LINEAR_BLOCK ||
        tensor->ne[1] > INT32_MAX - CL_LINEAR_LANES || tensor->ne[0] < 1 || tensor->ne[1] < 1)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %.*s is not a matrix", name_size, name);
    if (tensor->ne[0] % p->block)
        return cl_fail(error, CL_ERR_FORMAT, "tensor %.*s has rows of %lld values; %s needs a multiple of %u", name_size, name,
                       (long long)tensor->ne[0], cl_tensor_type_name(tensor->type), p->block);

    out->n_in = (int32_t)tensor->ne[0];
    out->n_out = (int32_t)tensor->ne[1];
    out->type = tensor->type;
    p->panel_bytes = cl_linear_panel_bytes(p->layout, out->n_in);
    p->row_bytes = cl_tensor_row_bytes(tensor->type, out->n_in);
    const int32_t n_panels = (out->n_out + CL_LINEAR_LANES - 1) / CL_LINEAR_LANES;
    const size_t task_panels = TASK_BYTES / (CL_LINEAR_LANES * p->row_bytes) + 1;
    p->task_rows = CL_LINEAR_LANES * smaller((int32_t)task_panels, n_panels);
    out->bytes = (size_t)n_panels * p->panel_bytes;
    return CL_OK;
}

/* Huge pages for large matrices: a decode step reads all of them, and would miss the TLB at every small page. */
static void *new_memory(size_t bytes) {
    const size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64, size = (bytes + align - 1) / align * align;
    void *data = aligned_alloc(align, size);
    if (data && align == HUGE_PAGE) (void)madvise(data, size, MADV_HUGEPAGE);
    return data;
}

static cl_status fail_memory(const cl_tensor *tensor, size_t bytes, cl_error *error) {
    return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu bytes of weights of tensor %.*s", bytes, (int)tensor->name.size,
                   tensor->name.data);
}

/* Pack into p->w->data, which may be NULL: there is no memory. */
static cl_status pack(packing *p, ca_pool *pool, cl_error *error) {
    const bool needs_rows = cl_tensor_needs_buffer(p->tensor);
    if (needs_rows) p->rows = malloc((size_t)ca_pool_size(pool) * (size_t)p->task_rows * p->row_bytes);
    const bool made = p->w->data && (p->rows || !needs_rows);
    if (made) ca_pool_run(pool, (p->w->n_out + p->task_rows - 1) / p->task_rows, pack_rows, p);
    free(p->rows);
    if (made && !p->failed) return CL_OK;
    const size_t bytes = p->w->bytes;
    cl_linear_free(p->w);
    return made ? cl_tensor_fail_read(p->tensor, error) : fail_memory(p->tensor, bytes, error);
}

cl_status cl_linear_pack(const cl_tensor *tensor, ca_pool *pool, cl_linear *out, cl_error *error) {
    packing p;
    const cl_status status = describe(&p, tensor, out, error);
    if (status != CL_OK) return status;
    out->data = new_memory(out->bytes);
    return pack(&p, pool, error);
}

cl_status cl_linear_pack_into(const cl_tensor *tensor, ca_pool *pool, cl_linear_room *room, cl_linear *out, cl_error *error) {
    packing p;
    const cl_status status = describe(&p, tensor, out, error);
    if (status != CL_OK) return status;
    if (!room->data) {
        *room = (cl_linear_room){.n = room->n, .type = out->type, .bytes = (size_t)room->n * out->bytes};
        room->data = new_memory(room->bytes);
        if (!room->data) return fail_memory(tensor, room->bytes, error);
    }
    if (out->type != room->type)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "tensor %.*s has type %s and those of other experts %s; they must be equal",
                       (int)tensor->name.size, tensor->name.data, cl_tensor_type_name(out->type),
                       cl_tensor_type_name(room->type));
    assert(room->n_packed < room->n && out->bytes == room->bytes / (size_t)room->n);
    out->in_room = true;
    out->data = (uint8_t *)room->data + (size_t)room->n_packed++ * out->bytes;
    return pack(&p, pool, error);
}

void cl_linear_room_free(cl_linear_room *room) {
    free(room->data);
    *room = (cl_linear_room){0};
}

void cl_linear_free(cl_linear *w) {
    if (!w->in_room) free(w->data);
    memset(w, 0, sizeof *w);
}

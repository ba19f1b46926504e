/* Makes rows of GGUF's types from quantised weights as Hugging Face folders store them. */
#include "hf_quant.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "safetensors.h"

enum { SHOWN = 80, BLOCK = 32 /* inputs of a block of the types that are made */ };
#define SHOW(s) cl_str_show(s, (char[SHOWN]){0}, SHOWN)

/* ---- config.json ---- */

static void refuse_scheme(cl_json_doc *doc, const char *where, const char *field, cl_str value, const char *supported) {
    cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                     "%squantization_config.%s is \"%s\"; supported: %s; use a GGUF file of the model, or its bf16 weights",
                     where, field, SHOW(value), supported);
}

static void read_blocks(cl_json_doc *doc, const json_t *config, const char *where, cl_hf_quant *q) {
    const json_t *size = cl_json_doc_field(doc, config, where, "weight_block_size", CL_JSON_KIND_ARRAY, false);
    if (!size) return;
    q->block_out = json_integer_value(json_array_get(size, 0));
    q->block_in = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || q->block_out < 1 || q->block_in < 1 || q->block_in > INT32_MAX ||
        q->block_out > INT32_MAX)
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "%squantization_config.weight_block_size must be two integers from 1", where);
}

static void require_4_bits(cl_json_doc *doc, const json_t *config, const char *where) {
    const json_t *bits = json_object_get(config, "bits");
    if (!bits) bits = json_object_get(config, "w_bit");
    if (json_integer_value(bits) != 4)
        cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED,
                         "%squantization_config.bits is %lld; supported: 4; use a GGUF file of the model, or its bf16 weights",
                         where, (long long)json_integer_value(bits));
}

/* compressed-tensors have the bits of each group of layers. */
static void require_4_bits_of_groups(cl_json_doc *doc, const json_t *config, const char *where) {
    const char *name;
    json_t *group;
    json_object_foreach(json_object_get(config, "config_groups"), name, group) {
        const json_t *bits = json_object_get(json_object_get(group, "weights"), "num_bits");
        if (bits && json_integer_value(bits) != 4)
            cl_json_doc_fail(
                doc, CL_ERR_UNSUPPORTED,
                "%squantization_config.config_groups.%.40s.weights.num_bits is %lld; supported: 4; use a GGUF file of "
                "the model, or its bf16 weights",
                where, name, (long long)json_integer_value(bits));
    }
}

void cl_hf_read_quant(cl_json_doc *doc, const json_t *object, const char *where, cl_hf_quant *q) {
    static const char *const methods[] = {"fp8", "fbgemm_fp8", "mxfp4", "gptq", "awq", "compressed-tensors"};
    static const cl_hf_scheme schemes[] = {CL_HF_FP8, CL_HF_FP8, CL_HF_MXFP4, CL_HF_GPTQ, CL_HF_AWQ, CL_HF_PACKED};
    enum { N = sizeof methods / sizeof *methods };
    const json_t *config = cl_json_doc_field(doc, object, where, "quantization_config", CL_JSON_KIND_OBJECT, false);
    if (!config) return;
    const cl_str method = cl_json_doc_string(doc, config, where, "quant_method");
    int i = 0;
    while (i < N && !cl_str_is(method, methods[i])) i++;
    if (i == N) {
        refuse_scheme(doc, where, "quant_method", method, "fp8, fbgemm_fp8, mxfp4, gptq, awq, compressed-tensors");
        return;
    }
    q->scheme = schemes[i];
    if (q->scheme == CL_HF_FP8) read_blocks(doc, config, where, q);
    if (q->scheme == CL_HF_GPTQ || q->scheme == CL_HF_AWQ) require_4_bits(doc, config, where);
    if (q->scheme == CL_HF_GPTQ) {
        const cl_str format = cl_json_doc_string(doc, config, where, "checkpoint_format");
        if (format.size > 0 && !cl_str_is(format, "gptq") && !cl_str_is(format, "gptq_v2"))
            refuse_scheme(doc, where, "checkpoint_format", format, "gptq, gptq_v2");
        q->zero_offset = !cl_str_is(format, "gptq_v2");
    }
    if (q->scheme == CL_HF_AWQ) {
        const cl_str version = cl_json_doc_string(doc, config, where, "version");
        if (version.size > 0 && !cl_str_is(version, "gemm") && !cl_str_is(version, "GEMM"))
            refuse_scheme(doc, where, "version", version, "gemm");
    }
    if (q->scheme == CL_HF_PACKED) {
        const cl_str format = cl_json_doc_string(doc, config, where, "format");
        if (cl_str_is(format, "float-quantized") || cl_str_is(format, "naive-quantized"))
            q->scheme = CL_HF_FP8;
        else if (cl_str_is(format, "pack-quantized"))
            require_4_bits_of_groups(doc, config, where);
        else
            refuse_scheme(doc, where, "format", format, "float-quantized, naive-quantized, pack-quantized");
    }
}

/* ---- Recipes ---- */

/* A quantised tensor: what its rows are made from. */
typedef struct quantised {
    cl_tensor_recipe base; /* the first member, by which `make` finds the others */
    cl_hf_quant quant;
    int64_t n_in, n_out;
    uint32_t type;                    /* of the rows that are made */
    int64_t group;                    /* inputs of a scale */
    int64_t block_out;                /* outputs of a scale; FP8 */
    cl_tensor weights, scales, zeros; /* zeros.name.size 0: none */
} quantised;

/* Read n bytes of each of n_lines lines of `stride` bytes, from byte `at` of the first on. */
static bool read_lines(const cl_tensor *t, size_t at, size_t n, size_t stride, size_t n_lines, uint8_t *out) {
    for (size_t i = 0; i < n_lines; i++, at += stride, out += n) {
        const uint8_t *p = cl_tensor_bytes(t, at, n, out);
        if (!p) return false;
        if (p != out) memcpy(out, p, n);
    }
    return true;
}

static uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }

/* Sign, 4 bits of exponent, 3 of mantissa; there is no infinity. In f16 it is 2^-8 as large. */
static float f32_from_e4m3(uint8_t code) {
    const uint16_t f16 = (uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7);
    return (code & 0x7f) == 0x7f ? ca_f32_from_bits(0x7fc00000) : ca_f32_from_f16(f16) * 256;
}

/* Rows of BF16 from FP8. */
static bool make_fp8(const cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out) {
    const quantised *q = (const quantised *)recipe;
    const size_t n_in = (size_t)q->n_in;
    float *scales = malloc((size_t)q->scales.ne[0] * sizeof *scales), values[256];
    uint8_t *codes = malloc(n_in);
    bool ok = scales && codes;
    for (int code = 0; code < 256; code++) values[code] = f32_from_e4m3((uint8_t)code);
    for (int64_t i = row; ok && i < row + n_rows; i++, out += 2 * n_in) {
        ok = read_lines(&q->weights, (size_t)i * n_in, n_in, 0, 1, codes) &&
             cl_tensor_row_f32(&q->scales, i / q->block_out, scales, NULL) == CL_OK;
        for (size_t k = 0; ok && k < n_in; k++)
            store_u16(out + 2 * k, ca_bf16_from_f32(values[codes[k]] * scales[k / (size_t)q->group]));
    }
    free(scales);
    free(codes);
    return ok;
}

/* Rows of MXFP4 from bytes of two neighbours each, and powers of two. */
static bool make_mxfp4(const cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out) {
    const quantised *q = (const quantised *)recipe;
    const size_t n_blocks = (size_t)(q->n_in / BLOCK);
    uint8_t *codes = malloc(n_blocks * (BLOCK / 2 + 1)), *powers = codes + n_blocks * (BLOCK / 2);
    bool ok = codes;
    for (int64_t i = row; ok && i < row + n_rows; i++) {
        const size_t n = n_blocks * (BLOCK / 2);
        ok = read_lines(&q->weights, (size_t)i * n, n, 0, 1, codes) &&
             read_lines(&q->scales, (size_t)i * n_blocks, n_blocks, 0, 1, powers);
        for (size_t b = 0; ok && b < n_blocks; b++, out += BLOCK / 2 + 1) {
            const uint8_t *pairs = codes + b * (BLOCK / 2);
            out[0] = powers[b];
            for (int j = 0; j < BLOCK / 2; j++)
                out[1 + j] = (uint8_t)((pairs[j / 2] >> 4 * (j % 2) & 15) | (pairs[8 + j / 2] >> 4 * (j % 2) & 15) << 4);
        }
    }
    free(codes);
    return ok;
}

/* Codes of a row: code k is 4 bits of a word. */
typedef struct nibbles {
    const uint8_t *words;
    size_t stride; /* bytes from a word to the next */
    int per_word;  /* inputs that share a word: 8, at ascending bits, or 1, at `shift` */
    int shift;
} nibbles;

static unsigned nibble_at(nibbles n, size_t k) {
    const size_t word = n.per_word == 8 ? k / 8 : k;
    return load_u32(n.words + word * n.stride) >> (n.per_word == 8 ? 4 * (k % 8) : (size_t)n.shift) & 15;
}

/* A block of Q4_0, where all zeros are 8, or of Q5_0. */
static void put_block(uint32_t type, uint16_t scale, unsigned zero, const unsigned *codes, uint8_t *out) {
    uint32_t fifth = 0;
    uint8_t *low = out + (type == CL_TENSOR_Q4_0 ? 2 : 6);
    store_u16(out, scale);
    memset(low, 0, BLOCK / 2);
    for (int k = 0; k < BLOCK; k++) {
        const unsigned code = type == CL_TENSOR_Q4_0 ? codes[k] : codes[k] + 16 - zero;
        low[k % 16] |= (uint8_t)((code & 15) << (k < 16 ? 0 : 4));
        fifth |= (code >> 4) << k;
    }
    if (type == CL_TENSOR_Q5_0) memcpy(out + 2, &fifth, sizeof fifth);
}

/* The bits at which AWQ has the output o of a word's eight: 0 4 1 5 2 6 3 7. */
static int awq_shift(int64_t o) { return 4 * (int)(o % 8 / 2 + o % 2 * 4); }

/* What is read for rows [row, row + n) of 4 bits: lines of words around these outputs, or rows of words. */
typedef struct four_bits {
    uint8_t *words, *zeros;
    uint8_t *scales;                            /* in the form of the file */
    size_t word_bytes, zero_bytes, scale_bytes; /* of a line */
    int64_t first;                              /* the first output of the words' lines */
} four_bits;

/* The folder's tensors are [inputs][outputs], or, packed by compressed-tensors, [outputs][inputs]. */
static bool read_four_bits(const quantised *q, int64_t row, int64_t n, four_bits *f) {
    const bool by_output = q->quant.scheme == CL_HF_PACKED, awq = q->quant.scheme == CL_HF_AWQ;
    const size_t n_in = (size_t)q->n_in, n_groups = (size_t)(q->n_in / q->group), rows = (size_t)n;
    const size_t scale = cl_tensor_row_bytes(q->scales.type, 1);
    const int64_t first8 = row / 8, n8 = (row + n + 7) / 8 - first8; /* words of eight outputs */
    f->first = 8 * first8;
    f->word_bytes = by_output ? n_in / 2 : awq ? 4 * (size_t)n8 : 4 * rows;
    const size_t n_lines = by_output ? rows : awq ? n_in : n_in / 8;
    f->scale_bytes = scale * (by_output ? n_groups : rows);
    f->zero_bytes = by_output ? 4 * n_groups : 4 * (size_t)n8;
    f->words = malloc(f->word_bytes * n_lines);
    f->scales = malloc(f->scale_bytes * (by_output ? rows : n_groups));
    f->zeros = malloc(f->zero_bytes * (by_output ? (size_t)n8 : n_groups));
    if (!f->words || !f->scales || !f->zeros) return false;
    const size_t out = (size_t)q->n_out, at = (size_t)row, at8 = 4 * (size_t)first8;
    if (by_output)
        return read_lines(&q->weights, at * f->word_bytes, f->word_bytes, f->word_bytes, rows, f->words) &&
               read_lines(&q->scales, at * f->scale_bytes, f->scale_bytes, f->scale_bytes, rows, f->scales) &&
               (!q->zeros.name.size ||
                read_lines(&q->zeros, (size_t)first8 * f->zero_bytes, f->zero_bytes, f->zero_bytes, (size_t)n8, f->zeros));
    return read_lines(&q->weights, awq ? at8 : 4 * at, f->word_bytes, awq ? out / 2 : 4 * out, n_lines, f->words) &&
           read_lines(&q->scales, scale * at, f->scale_bytes, scale * out, n_groups, f->scales) &&
           read_lines(&q->zeros, at8, f->zero_bytes, out / 2, n_groups, f->zeros);
}

static uint16_t scale_at(const quantised *q, const uint8_t *p) {
    uint16_t h;
    float x;
    if (q->scales.type == CL_TENSOR_F32) {
        memcpy(&x, p, sizeof x);
        return ca_f16_from_f32(x);
    }
    memcpy(&h, p, sizeof h);
    return q->scales.type == CL_TENSOR_BF16 ? ca_f16_from_f32(ca_f32_from_bf16(h)) : h;
}

/* Rows of Q4_0 or Q5_0 from 4 bits. i: the row's number among those that f holds. */
static void make_row(const quantised *q, const four_bits *f, int64_t row, size_t i, uint8_t *out) {
    const cl_hf_scheme scheme = q->quant.scheme;
    const size_t size = cl_tensor_row_bytes(q->type, BLOCK), scale = cl_tensor_row_bytes(q->scales.type, 1);
    const size_t eight = (size_t)((row - f->first) / 8);
    const nibbles codes = scheme == CL_HF_PACKED ? (nibbles){f->words + i * f->word_bytes, 4, 8, 0}
                          : scheme == CL_HF_GPTQ ? (nibbles){f->words + 4 * i, f->word_bytes, 8, 0}
                                                 : (nibbles){f->words + 4 * eight, f->word_bytes, 1, awq_shift(row)};
    for (int64_t k = 0; k < q->n_in; k += BLOCK, out += size) {
        const size_t g = (size_t)(k / q->group);
        const uint8_t *s =
            f->scales + (scheme == CL_HF_PACKED ? i * f->scale_bytes + scale * g : g * f->scale_bytes + scale * i);
        const uint8_t *z = f->zeros + (scheme == CL_HF_PACKED ? eight * f->zero_bytes + 4 * g : g * f->zero_bytes + 4 * eight);
        const int shift = scheme == CL_HF_AWQ ? awq_shift(row) : 4 * (int)(row % 8);
        const unsigned zero = q->type == CL_TENSOR_Q4_0 ? 8 : (load_u32(z) >> shift & 15) + (unsigned)q->quant.zero_offset;
        unsigned block[BLOCK];
        for (size_t j = 0; j < BLOCK; j++) block[j] = nibble_at(codes, (size_t)k + j);
        put_block(q->type, scale_at(q, s), zero, block, out);
    }
}

static bool make_four_bits(const cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out) {
    const quantised *q = (const quantised *)recipe;
    const size_t bytes = cl_tensor_row_bytes(q->type, q->n_in);
    four_bits f = {0};
    const bool ok = read_four_bits(q, row, n_rows, &f);
    for (int64_t i = 0; ok && i < n_rows; i++, out += bytes) make_row(q, &f, row + i, (size_t)i, out);
    free(f.words);
    free(f.scales);
    free(f.zeros);
    return ok;
}

/* ---- Tensors ---- */

/* A tensor and those that belong to it, while it is looked at. */
typedef struct reader {
    const cl_hf_quant *quant;
    const cl_hf_stored *stored;
    const cl_tensor *weights;
    cl_model_file *file;
    cl_str stem; /* of the names: that of the weights without `ending` */
    cl_error *error;
} reader;

#define FAIL(r, code, fmt, ...) cl_fail((r)->error, code, "tensor %s: " fmt, SHOW((r)->weights->name), __VA_ARGS__)

static bool ends_with(cl_str name, const char *ending) {
    const size_t n = strlen(ending);
    return name.size > n && memcmp(name.data + name.size - n, ending, n) == 0;
}

/* The tensor whose name is the stem and an ending; NULL: there is none. */
static const cl_tensor *find(const cl_hf_stored *stored, cl_str stem, const char *ending) {
    char name[256];
    const int n = snprintf(name, sizeof name, "%.*s%s", (int)stem.size, stem.data, ending);
    if (n < 0 || (size_t)n >= sizeof name) return NULL;
    const int32_t i = cl_str_map_get(&stored->map, name, (size_t)n);
    return i < 0 ? NULL : stored->tensors[i];
}

/* Find a tensor of some types and shape, the fastest dimension first. */
static cl_status need(const reader *r, const char *ending, bool floats, uint32_t type, int64_t ne0, int64_t ne1,
                      cl_tensor *out) {
    const cl_tensor *t = find(r->stored, r->stem, ending);
    if (!t) return FAIL(r, CL_ERR_FORMAT, "%.*s%s is missing beside it", (int)r->stem.size, r->stem.data, ending);
    const bool fits =
        floats ? t->type == CL_TENSOR_F32 || t->type == CL_TENSOR_F16 || t->type == CL_TENSOR_BF16 : t->type == type;
    if (!fits || t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != 1 || t->ne[3] != 1)
        return FAIL(r, CL_ERR_FORMAT, "%.*s%s has type %s and shape [%lld, %lld]; needed is %s [%lld, %lld]", (int)r->stem.size,
                    r->stem.data, ending, cl_tensor_type_name(t->type), (long long)t->ne[1], (long long)t->ne[0],
                    floats ? "F32, F16 or BF16" : cl_tensor_type_name(type), (long long)ne1, (long long)ne0);
    *out = *t;
    return CL_OK;
}

static quantised *new_quantised(const reader *r, cl_status *status) {
    quantised *q = cl_arena_alloc(&r->file->memory, sizeof *q);
    if (q) *q = (quantised){.quant = *r->quant, .weights = *r->weights};
    if (!q) *status = FAIL(r, CL_ERR_NOMEM, "%s", "no memory");
    return q;
}

/* The tensor that the recipe makes; n: of matrices. */
static cl_status describe(const reader *r, const quantised *q, int64_t n, const char *ending, cl_tensor *made) {
    char name[256];
    (void)snprintf(name, sizeof name, "%.*s%s", (int)r->stem.size, r->stem.data, ending);
    const size_t size = strlen(name);
    *made = (cl_tensor){.name = {cl_meta_copy(r->file, (cl_str){name, size + 1}).data, size}, /* terminated */
                        .type = q->type,
                        .n_dims = n > 1 ? 3 : 2,
                        .ne = {q->n_in, q->n_out, n, 1},
                        .bytes = (size_t)(n * q->n_out) * cl_tensor_row_bytes(q->type, q->n_in),
                        .recipe = &q->base};
    return r->file->no_memory ? FAIL(r, CL_ERR_NOMEM, "%s", "no memory") : CL_OK;
}

/* FP8 has a scale for the tensor, for each output, or for each block. */
static cl_status read_fp8(const reader *r, cl_tensor *made) {
    cl_status status = CL_OK;
    const cl_tensor *w = r->weights, *s = find(r->stored, r->stem, ".weight_scale_inv");
    const char *ending = s ? ".weight_scale_inv" : ".weight_scale";
    if (!s) s = find(r->stored, r->stem, ending);
    quantised *q = new_quantised(r, &status);
    if (!q) return status;
    q->base.make = make_fp8;
    q->type = CL_TENSOR_BF16;
    q->n_in = w->ne[0];
    q->n_out = w->ne[1];
    if (w->ne[2] != 1 || w->ne[3] != 1) return FAIL(r, CL_ERR_UNSUPPORTED, "%s", "it must be a matrix");
    const bool listed = s && s->n_dims == 1 && s->ne[0] > 1, by_output = s && s->ne[0] == 1 && s->ne[1] > 1;
    const bool by_block = s && !listed && s->ne[0] > 1;
    q->group = !by_block ? q->n_in : r->quant->block_in ? r->quant->block_in : 128;
    q->block_out = listed || by_output ? 1 : !by_block ? q->n_out : r->quant->block_out ? r->quant->block_out : 128;
    const int64_t ne0 = (q->n_in + q->group - 1) / q->group, ne1 = (q->n_out + q->block_out - 1) / q->block_out;
    status = listed ? need(r, ending, true, 0, ne1, 1, &q->scales) : need(r, ending, true, 0, ne0, ne1, &q->scales);
    if (status != CL_OK) return status;
    q->scales.n_dims = 2;
    q->scales.ne[0] = ne0;
    q->scales.ne[1] = ne1;
    return describe(r, q, 1, ".weight", made);
}

static cl_status read_mxfp4(const reader *r, cl_tensor *made) {
    cl_status status = CL_OK;
    const cl_tensor *w = r->weights, *s = find(r->stored, r->stem, "_scales");
    quantised *q = new_quantised(r, &status);
    if (!q) return status;
    q->base.make = make_mxfp4;
    q->type = CL_TENSOR_MXFP4;
    q->n_in = w->ne[1] * BLOCK;
    q->n_out = w->ne[2];
    if (!s || s->type != CL_TENSOR_U8 || w->type != CL_TENSOR_U8 || w->ne[0] != BLOCK / 2 || s->ne[0] != w->ne[1] ||
        s->ne[1] != w->ne[2] || s->ne[2] != w->ne[3] || s->ne[3] != 1)
        return FAIL(r, CL_ERR_FORMAT,
                    "it needs the type U8, the shape [matrices, outputs, blocks, %d], and %.*s_scales of U8 beside it, with "
                    "one for each block",
                    BLOCK / 2, (int)r->stem.size, r->stem.data);
    q->scales = *s;
    return describe(r, q, w->ne[3], "", made);
}

/* Whether all words of a tensor are `word`; false also if it cannot be read. */
static bool is_all(const cl_tensor *t, uint32_t word) {
    uint8_t buf[4096];
    for (size_t at = 0; at < t->bytes; at += sizeof buf) {
        const size_t n = t->bytes - at < sizeof buf ? t->bytes - at : sizeof buf;
        if (!read_lines(t, at, n, 0, 1, buf)) return false;
        for (size_t i = 0; i < n; i += sizeof word)
            if (load_u32(buf + i) != word) return false;
    }
    return true;
}

/* Refuse inputs that do not go to their groups in order. */
static cl_status check_order(const reader *r, int64_t n_in, int64_t group) {
    cl_tensor t;
    if (!find(r->stored, r->stem, ".g_idx")) return CL_OK;
    const cl_status status = need(r, ".g_idx", false, CL_TENSOR_I32, n_in, 1, &t);
    if (status != CL_OK) return status;
    enum { AT_ONCE = 1024 };
    uint8_t words[4 * AT_ONCE];
    for (int64_t i = 0; i < n_in; i++) {
        const size_t left = 4 * (size_t)(n_in - i), n = left < sizeof words ? left : sizeof words;
        if (i % AT_ONCE == 0 && !read_lines(&t, 4 * (size_t)i, n, 0, 1, words)) return cl_tensor_fail_read(&t, r->error);
        const uint32_t found = load_u32(words + 4 * (i % AT_ONCE));
        if (found != (uint32_t)(i / group))
            return FAIL(r, CL_ERR_UNSUPPORTED,
                        "its inputs are permuted (desc_act; %.*s.g_idx[%lld] is %u); use a GGUF file of the model",
                        (int)r->stem.size, r->stem.data, (long long)i, found);
    }
    return CL_OK;
}

static cl_status read_four_bit(const reader *r, cl_tensor *made) {
    cl_status status = CL_OK;
    const cl_hf_scheme scheme = r->quant->scheme;
    const bool packed = scheme == CL_HF_PACKED;
    const cl_tensor *w = r->weights, *s = find(r->stored, r->stem, packed ? ".weight_scale" : ".scales");
    quantised *q = new_quantised(r, &status);
    if (!q) return status;
    q->base.make = make_four_bits;
    if (w->type != CL_TENSOR_I32 || w->ne[2] != 1 || w->ne[3] != 1 || w->ne[0] > INT32_MAX || w->ne[1] > INT32_MAX)
        return FAIL(r, CL_ERR_FORMAT, "it has type %s; a matrix of I32 is needed", cl_tensor_type_name(w->type));
    q->n_in = packed ? 8 * w->ne[0] : scheme == CL_HF_AWQ ? w->ne[1] : 8 * w->ne[1];
    q->n_out = packed ? w->ne[1] : scheme == CL_HF_AWQ ? 8 * w->ne[0] : w->ne[0];
    const int64_t n_groups = !s ? 1 : packed ? s->ne[0] : s->ne[1];
    q->group = q->n_in / n_groups;
    if (q->n_in % BLOCK || q->group < 1 || q->n_in % n_groups || q->group % BLOCK || (!packed && q->n_out % 8))
        return FAIL(r, CL_ERR_UNSUPPORTED, "%lld inputs in %lld groups; groups of a multiple of %d are supported",
                    (long long)q->n_in, (long long)n_groups, BLOCK);
    status = packed ? need(r, ".weight_scale", true, 0, n_groups, q->n_out, &q->scales)
                    : need(r, ".scales", true, 0, q->n_out, n_groups, &q->scales);
    const bool zeros = !packed || find(r->stored, r->stem, ".weight_zero_point");
    const int64_t n8 = (q->n_out + 7) / 8;
    if (status == CL_OK && zeros)
        status = packed ? need(r, ".weight_zero_point", false, CL_TENSOR_I32, n_groups, n8, &q->zeros)
                        : need(r, ".qzeros", false, CL_TENSOR_I32, n8, n_groups, &q->zeros);
    if (status == CL_OK && scheme == CL_HF_GPTQ) status = check_order(r, q->n_in, q->group);
    if (status != CL_OK) return status;
    const uint32_t eights = 0x11111111u * (8 - (unsigned)r->quant->zero_offset);
    q->type = !zeros || is_all(&q->zeros, eights) ? CL_TENSOR_Q4_0 : CL_TENSOR_Q5_0;
    return describe(r, q, 1, ".weight", made);
}

/* For each scheme: the ending of the weights' name, those of what belongs to them, and how they are read. */
static const struct scheme {
    const char *weights;
    const char *others[4];
    cl_status (*read)(const reader *r, cl_tensor *made);
} schemes[] = {
    [CL_HF_FP8] = {".weight", {".weight_scale_inv", ".weight_scale", ".input_scale", ".activation_scale"}, read_fp8},
    [CL_HF_MXFP4] = {"_blocks", {"_scales"}, read_mxfp4},
    [CL_HF_GPTQ] = {".qweight", {".qzeros", ".scales", ".g_idx"}, read_four_bit},
    [CL_HF_AWQ] = {".qweight", {".qzeros", ".scales"}, read_four_bit},
    [CL_HF_PACKED] = {".weight_packed",
                      {".weight_scale", ".weight_zero_point", ".weight_shape", ".input_scale"},
                      read_four_bit},
};

/* Whether a tensor, or NULL, is quantised. Beside weights in FP8 there are others of the same name. */
static bool are_weights(const struct scheme *s, const cl_tensor *t) {
    return t && ends_with(t->name, s->weights) && (s->read != read_fp8 || t->type == CL_TENSOR_F8_E4M3);
}

static cl_str without(cl_str name, const char *ending) { return (cl_str){name.data, name.size - strlen(ending)}; }

bool cl_hf_quantised(const cl_hf_quant *quant, const cl_hf_stored *stored, const cl_tensor *t, cl_model_file *file,
                     cl_tensor *made, cl_status *status, cl_error *error) {
    *made = (cl_tensor){0};
    if (quant->scheme == CL_HF_PLAIN) return false;
    const struct scheme *s = &schemes[quant->scheme];
    if (ends_with(t->name, ".k_scale") || ends_with(t->name, ".v_scale")) return true; /* of a cache of 8 bits */
    for (size_t i = 0; i < sizeof s->others / sizeof *s->others && s->others[i]; i++)
        if (ends_with(t->name, s->others[i])) return are_weights(s, find(stored, without(t->name, s->others[i]), s->weights));
    if (!are_weights(s, t)) return false;
    const reader r = {quant, stored, t, file, without(t->name, s->weights), error};
    *status = s->read(&r, made);
    return true;
}

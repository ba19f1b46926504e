/* Safetensors and the folders they come in: what good ones yield, and that no bad one is believed. */
#define _GNU_SOURCE
#include "tests/support/testing.h"

#include <stdio.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "chunkllama/file/safetensors.h"
#include "chunkllama/model/model.h"
#include "edge.h"
#include "gguf_build.h"

/* ---- One file ---- */

/* A header's size and text are what GGUF calls a string. */
static gguf_bytes file_of(const char *header, size_t n_data) {
    gguf_bytes b = {0};
    put_string(&b, header);
    for (size_t i = 0; i < n_data; i++) put(&b, &(unsigned char){(unsigned char)i}, 1);
    return b;
}

static gguf_bytes good_file(void) {
    return file_of("{\"__metadata__\": {\"format\": \"pt\"},"
                   " \"w\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": [9, 33]},"
                   " \"i\": {\"dtype\": \"I8\", \"shape\": [3, 1, 3], \"data_offsets\": [0, 9]},"
                   " \"h\": {\"dtype\": \"F16\", \"shape\": [], \"data_offsets\": [41, 43]},"
                   " \"b\": {\"dtype\": \"BF16\", \"shape\": [4], \"data_offsets\": [33, 41]}}",
                   43);
}

static cl_status parse_at_edge(const unsigned char *data, size_t size, cl_error *error) {
    cl_file_bytes bytes = {.data = copy_to_edge(data, size), .size = size};
    cl_safetensors file;
    const cl_status status = cl_safetensors_parse("some file", &bytes, &file, error);
    if (status == CL_OK) {
        for (size_t i = 0; i < file.n; i++) read_tensor_data(&file.tensors[i]);
    } else {
        assert_true(file.n == 0 && !file.tensors && !file.header);
        assert_int_equal(error->code, status);
        assert_memory_equal(error->message, "some file: ", 11);
    }
    cl_safetensors_free(&file);
    return status;
}

static void reads_tensors(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t type;
        int32_t n_dims;
        int64_t ne[4];
        size_t at, bytes;
    } expect[] = {
        {"i", 24, 3, {3, 1, 3, 1}, 0, 9},
        {"w", CL_TENSOR_F32, 2, {3, 2, 1, 1}, 9, 24},
        {"b", CL_TENSOR_BF16, 1, {4, 1, 1, 1}, 33, 8},
        {"h", CL_TENSOR_F16, 1, {1, 1, 1, 1}, 41, 2},
    };
    gguf_bytes b = good_file();
    cl_file_bytes bytes = {.data = b.data, .size = b.size};
    cl_safetensors file;
    cl_error error = {.message = ""};
    if (cl_safetensors_parse("some file", &bytes, &file, &error) != CL_OK) fail_msg("%s", error.message);
    assert_int_equal(file.n, 4);
    for (size_t i = 0; i < 4; i++) {
        const cl_tensor *t = &file.tensors[i];
        assert_true(cl_str_is(t->name, expect[i].name));
        assert_int_equal(t->type, expect[i].type);
        assert_int_equal(t->n_dims, expect[i].n_dims);
        assert_memory_equal(t->ne, expect[i].ne, sizeof t->ne);
        assert_int_equal(t->bytes, expect[i].bytes);
        if (i == 0)
            assert_null(t->data); /* a type that is named, not read */
        else
            assert_ptr_equal(t->data, b.data + b.size - 43 + expect[i].at);
    }
    cl_safetensors_free(&file);
    assert_null(file.tensors);
    free(b.data);
}

static void refuses_every_truncation(void **state) {
    (void)state;
    gguf_bytes b = good_file();
    cl_error error;
    assert_int_equal(parse_at_edge(b.data, b.size, &error), CL_OK);
    for (size_t size = 0; size < b.size; size++) assert_int_equal(parse_at_edge(b.data, size, &error), CL_ERR_FORMAT);
    free(b.data);
}

static void survives_every_change(void **state) {
    (void)state;
    gguf_bytes b = good_file();
    cl_error error;
    int refused = 0;
    for (size_t i = 0; i < b.size; i++) {
        const unsigned char saved = b.data[i];
        for (int value = 0; value < 256; value++) {
            b.data[i] = (unsigned char)value;
            refused += parse_at_edge(b.data, b.size, &error) != CL_OK;
        }
        b.data[i] = saved;
    }
    assert_true(refused > 10000); /* and the changes did something */
    free(b.data);
}

static void expect_error(gguf_bytes b, cl_status status, const char *part) {
    cl_error error = {.message = ""};
    assert_int_equal(parse_at_edge(b.data, b.size, &error), status);
    if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
    free(b.data);
}

/* The file of one tensor, of 8 bytes of data. */
static void expect_tensor_error(const char *dtype, const char *shape, const char *offsets, cl_status status, const char *part) {
    char header[512];
    (void)snprintf(header, sizeof header, "{\"w\": {\"dtype\": %s, \"shape\": %s, \"data_offsets\": %s}}", dtype, shape,
                   offsets);
    expect_error(file_of(header, 8), status, part);
}

static void checks_tensors(void **state) {
    (void)state;
    static const char F32[] = "\"F32\"", ALL[] = "[0, 8]";
    expect_tensor_error("\"F8_E5M2\"", "[8]", ALL, CL_ERR_UNSUPPORTED,
                        "tensor w: its dtype is F8_E5M2; supported: F32, F16, BF16, F8_E4M3");
    expect_tensor_error("3", "[2]", ALL, CL_ERR_FORMAT, "its dtype must be a string");
    expect_tensor_error(F32, "2", ALL, CL_ERR_FORMAT, "its shape has 0 dimensions");
    expect_tensor_error(F32, "[1, 1, 1, 1, 2]", ALL, CL_ERR_FORMAT, "its shape has 5 dimensions");
    expect_tensor_error(F32, "[2.0]", ALL, CL_ERR_FORMAT, "shape[0] must be an integer from 1");
    expect_tensor_error(F32, "[2, 0]", ALL, CL_ERR_FORMAT, "shape[1] must be an integer from 1");
    expect_tensor_error(F32, "[-2, -1]", ALL, CL_ERR_FORMAT, "shape[0] must be an integer from 1");
    expect_tensor_error(F32, "[4294967296, 2147483648]", ALL, CL_ERR_FORMAT, "multiply to more than");
    expect_tensor_error(F32, "[4294967296, 4294967298]", ALL, CL_ERR_FORMAT, "multiply to more than"); /* 2^33 modulo 2^64 */
    expect_tensor_error(F32, "[4611686018427387906]", ALL, CL_ERR_FORMAT, "do not fill");              /* 8 bytes modulo 2^64 */
    expect_tensor_error(F32, "[3]", ALL, CL_ERR_FORMAT, "3 elements of 4 bytes do not fill data_offsets [0, 8]");
    expect_tensor_error("\"F16\"", "[2]", ALL, CL_ERR_FORMAT, "2 elements of 2 bytes do not fill");
    expect_tensor_error(F32, "[2]", "[0, 8, 8]", CL_ERR_FORMAT, "two ascending integers from 0");
    expect_tensor_error(F32, "[2]", "[8, 0]", CL_ERR_FORMAT, "two ascending integers from 0");
    expect_tensor_error(F32, "[2]", "[-8, 0]", CL_ERR_FORMAT, "two ascending integers from 0");
    expect_tensor_error(F32, "[2]", "[0.0, 8.0]", CL_ERR_FORMAT, "two ascending integers from 0");
    expect_tensor_error(F32, "[2]", "{\"0\": 8}", CL_ERR_FORMAT, "two ascending integers from 0");
    expect_tensor_error(F32, "[2]", "[1, 9]", CL_ERR_FORMAT, "its data end at 9, past the file's 8 bytes of data");
    expect_tensor_error(F32, "[2]", "[9223372036854775799, 9223372036854775807]", CL_ERR_FORMAT,
                        "its data end at 9223372036854775807");
    expect_tensor_error(F32, "[1]", "[4, 8]", CL_ERR_FORMAT, "begin at 4, but those before end at 0: they leave a gap");
    expect_tensor_error(F32, "[1]", "[0, 4]", CL_ERR_FORMAT, "4 of 8 bytes of data belong to no tensor");
}

#define ENTRY(type, n, from, to) "{\"dtype\": \"" type "\", \"shape\": [" #n "], \"data_offsets\": [" #from ", " #to "]}"

static void names_what_is_wrong(void **state) {
    (void)state;
    expect_error(file_of("{\"a\": " ENTRY("F32", 2, 0, 8) ", \"b\": " ENTRY("F16", 2, 4, 8) "}", 8), CL_ERR_FORMAT,
                 "tensor b: its data begin at 4, but those before end at 8: they overlap");
    expect_error(file_of("{\"a\": " ENTRY("F32", 2, 0, 8) ", \"b\": " ENTRY("F32", 2, 0, 8) "}", 8), CL_ERR_FORMAT, "overlap");
    expect_error(file_of("{\"a\": " ENTRY("F32", 1, 0, 4) ", \"a\": " ENTRY("F32", 1, 4, 8) "}", 8), CL_ERR_FORMAT,
                 "duplicate");
    expect_error(file_of("{\"e\\u001b[31m\": 1}", 0), CL_ERR_FORMAT, "tensor e?[31m: it must be an object of dtype, shape and");
    expect_error(file_of("{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"offsets\": [0, 8]}}", 8), CL_ERR_FORMAT,
                 "its data_offsets must be");
    expect_error(file_of("{\"__metadata__\": {\"a\": 1}}", 0), CL_ERR_FORMAT, "__metadata__ must be an object of strings");
    expect_error(file_of("{\"__metadata__\": \"a\"}", 0), CL_ERR_FORMAT, "__metadata__ must be an object of strings");
    expect_error(file_of("[1]", 0), CL_ERR_FORMAT, "its header is no JSON object: byte 0: another value");
    expect_error(file_of("{}, {}", 0), CL_ERR_FORMAT, "its header is no JSON object: byte 3");
    expect_error(file_of("", 0), CL_ERR_FORMAT, "its header is no JSON object");

    gguf_bytes b = {0};
    put_u64(&b, UINT64_MAX), put_u64(&b, 0);
    expect_error(b, CL_ERR_FORMAT,
                 "its header has 18446744073709551615 bytes; 8 are left in the file, and 104857600 are allowed");
    b = (gguf_bytes){0};
    put_u64(&b, 3), put(&b, "{}", 2);
    expect_error(b, CL_ERR_FORMAT, "its header has 3 bytes; 2 are left");
}

/* ---- A folder ---- */

enum { CONFIG, TOKENIZER, TOKENIZER_CONFIG, GENERATION, INDEX, SHARD_1, SHARD_2, N_FILES };
static const char *const names[N_FILES] = {"config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "generation_config.json",
                                           "model.safetensors.index.json",
                                           "model-00001-of-00002.safetensors",
                                           "model-00002-of-00002.safetensors"};

typedef struct folder {
    char path[32];
    gguf_bytes files[N_FILES];
} folder;

static void write_file(const folder *f, int i) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->files[i].data, f->files[i].size), (ssize_t)f->files[i].size);
    close(fd);
}

static gguf_bytes text_of(const char *text) {
    gguf_bytes b = {0};
    put(&b, text, strlen(text));
    return b;
}

/* A Gemma, whose norms are added to, with Llama 3's rotation, so that there are tensors which are made on loading. */
static folder good_folder(void) {
    folder f = {.path = "/tmp/safetensors_test.XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    f.files[CONFIG] = text_of(
        "{\"architectures\": [\"Gemma3ForCausalLM\"], \"num_hidden_layers\": 2, \"hidden_size\": 4, \"intermediate_size\": 3,"
        " \"max_position_embeddings\": 99, \"num_attention_heads\": 1, \"head_dim\": 4, \"rms_norm_eps\": 1e-6,"
        " \"vocab_size\": 5, \"eos_token_id\": [1, 2], \"layer_types\": [\"sliding_attention\", \"full_attention\"],"
        " \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4,"
        " \"original_max_position_embeddings\": 64}}");
    f.files[TOKENIZER] = text_of(
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}], \"pre_tokenizer\": null,"
        " \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"},"
        " \"model\": {\"type\": \"BPE\", \"vocab\": {\"<unk>\": 0, \"a\": 2, \"b\": 3, \"ab\": 4}, \"merges\": [\"a b\"]}}");
    f.files[TOKENIZER_CONFIG] =
        text_of("{\"bos_token\": {\"content\": \"<s>\"}, \"add_bos_token\": true, \"chat_template\": \"{{ x }}\"}");
    f.files[GENERATION] =
        text_of("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": null,"
                " \"repetition_penalty\": 1.05, \"eos_token_id\": [1, 2], \"transformers_version\": \"4.51.0\"}");
    f.files[INDEX] = text_of("{\"weight_map\": {\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\","
                             " \"model.norm.weight\": \"model-00002-of-00002.safetensors\"}}");
    f.files[SHARD_1] =
        file_of("{\"model.embed_tokens.weight\": {\"dtype\": \"F16\", \"shape\": [5, 4], \"data_offsets\": [0, 40]}}", 40);
    f.files[SHARD_2] = file_of("{\"model.norm.weight\": " ENTRY("F32", 4, 0, 16) "}", 0);
    for (int i = 0; i < 4; i++) put_f32(&f.files[SHARD_2], (float)i / 4);
    for (int i = 0; i < N_FILES; i++) write_file(&f, i);
    return f;
}

static void remove_folder(folder *f) {
    for (int i = 0; i < N_FILES; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
        unlink(path);
        free(f->files[i].data);
    }
    assert_int_equal(rmdir(f->path), 0);
}

/* Open it and read all that was believed. */
static cl_status try_folder(const folder *f, cl_error *error) {
    cl_model_file *file;
    const cl_status status = cl_model_file_open(f->path, &file, error);
    if (status == CL_OK) {
        read_all(file);
    } else {
        assert_null(file);
        assert_int_equal(error->code, status);
        assert_true(strlen(error->message) > 10);
    }
    cl_model_file_close(&file);
    return status;
}

static void reads_a_folder(void **state) {
    (void)state;
    folder f = good_folder();
    cl_model_file *file;
    cl_error error = {.message = ""};
    if (cl_model_file_open(f.path, &file, &error) != CL_OK) fail_msg("%s", error.message);
    assert_string_equal(cl_model_file_format(file), "safetensors");
    uint64_t u;
    cl_str s;
    assert_true(cl_model_file_get_string(file, "general.architecture", &s) && cl_str_is(s, "gemma3"));
    assert_true(cl_model_file_get_u64(file, "gemma3.block_count", &u) && u == 2);
    assert_true(cl_model_file_get_u64(file, "tokenizer.ggml.bos_token_id", &u) && u == 1);
    assert_true(cl_str_is(cl_model_file_array_string(file, "tokenizer.ggml.tokens", 4), "ab"));
    assert_true(cl_model_file_get_string(file, "tokenizer.chat_template", &s) && cl_str_is(s, "{{ x }}"));
    assert_int_equal(cl_model_file_n_tensors(file), 3);
    const cl_tensor *t = cl_model_file_find_tensor(file, "token_embd.weight");
    assert_true(t && t->type == CL_TENSOR_F16 && t->ne[0] == 4 && t->ne[1] == 5);
    assert_int_equal(((const unsigned char *)t->data)[39], 39);
    t = cl_model_file_find_tensor(file, "output_norm.weight");
    static const float norm[] = {1, 1.25f, 1.5f, 1.75f};
    assert_true(t && t->type == CL_TENSOR_F32 && t->bytes == sizeof norm);
    assert_memory_equal(t->data, norm, sizeof norm);
    cl_sampler_params p;
    cl_sampler_params_init(&p);
    int32_t window = 7;
    assert_true(cl_model_recommended_sampling(&(cl_model){.file = file}, &p, &window));
    assert_true(p.temperature == 0.6f && p.top_k == 20 && p.top_p == 0.95f && p.min_p == 0 && p.repetition_penalty == 1.05f);
    assert_int_equal(window, -1); /* of the whole text */
    /* 64 positions are 10.2 turns of the first pair, which is kept, and 0.01 of the second, which is stretched. */
    t = cl_model_file_find_tensor(file, "rope_freqs.weight");
    static const float factors[] = {1, 8};
    assert_true(t && t->bytes == sizeof factors);
    assert_memory_equal(t->data, factors, sizeof factors);
    cl_model_file_close(&file);
    remove_folder(&f);
}

static void refuses_every_truncated_file(void **state) {
    (void)state;
    folder f = good_folder();
    cl_error error;
    for (int i = 0; i < N_FILES; i++) {
        const size_t whole = f.files[i].size;
        int n_said = 0;
        for (size_t size = 0; size < whole; size++) {
            f.files[i].size = size;
            write_file(&f, i);
            assert_int_equal(try_folder(&f, &error), CL_ERR_FORMAT);
            if (!strstr(error.message, names[i])) fail_msg("'%s' does not say '%s'", error.message, names[i]);
            n_said += strstr(error.message, "the file is cut short") != NULL;
        }
        /* Nearly all: an empty file is called so, and half a literal is wrong JSON. */
        assert_true(n_said >= (int)(whole - whole / 20 - 12));
        f.files[i].size = whole;
        write_file(&f, i);
    }
    assert_int_equal(try_folder(&f, &error), CL_OK);
    remove_folder(&f);
}

static void survives_every_flipped_bit(void **state) {
    (void)state;
    folder f = good_folder();
    cl_error error;
    for (int i = 0; i < N_FILES; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", f.path, names[i]);
        const int fd = open(path, O_WRONLY);
        assert_true(fd >= 0);
        int refused = 0;
        for (size_t bit = 0; bit < 8 * f.files[i].size; bit++) {
            const unsigned char was = f.files[i].data[bit / 8], now = (unsigned char)(was ^ 1 << bit % 8);
            assert_int_equal(pwrite(fd, &now, 1, (off_t)(bit / 8)), 1);
            refused += try_folder(&f, &error) != CL_OK;
            assert_int_equal(pwrite(fd, &was, 1, (off_t)(bit / 8)), 1);
        }
        assert_true(refused > 300); /* and the flips did something */
        close(fd);
    }
    assert_int_equal(try_folder(&f, &error), CL_OK);
    remove_folder(&f);
}

/* A folder of which one file holds something else. */
static void expect_folder_error(int i, gguf_bytes other, cl_status status, const char *part) {
    folder f = good_folder();
    free(f.files[i].data);
    f.files[i] = other;
    write_file(&f, i);
    cl_error error = {.message = ""};
    assert_int_equal(try_folder(&f, &error), status);
    if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
    remove_folder(&f);
}

static void checks_a_folder(void **state) {
    (void)state;
    expect_folder_error(SHARD_2, file_of("{\"model.norm.weight\": " ENTRY("F32", 4, 8, 24) "}", 24), CL_ERR_FORMAT,
                        "model-00002-of-00002.safetensors: tensor model.norm.weight: its data begin at 8");
    expect_folder_error(SHARD_2, file_of("{\"model.embed_tokens.weight\": " ENTRY("F32", 4, 0, 16) "}", 16), CL_ERR_FORMAT,
                        "weight_map has tensor model.embed_tokens.weight in model-00001-of-00002.safetensors, but it is in "
                        "model-00002-of-00002.safetensors");
    expect_folder_error(SHARD_2, file_of("{\"other.weight\": " ENTRY("F32", 4, 0, 16) "}", 16), CL_ERR_FORMAT,
                        "weight_map has tensor other.weight in no file");
    expect_folder_error(SHARD_2, file_of("{}", 0), CL_ERR_FORMAT, "weight_map has 2 tensors, the files hold 1 of them");
    expect_folder_error(INDEX, text_of("{\"weight_map\": {\"a\": \"../x\"}}"), CL_ERR_FORMAT, "weight_map names \"../x\"");
    expect_folder_error(INDEX, text_of("{\"weight_map\": {\"a\": \".\"}}"), CL_ERR_FORMAT, "weight_map names \".\"");
    expect_folder_error(INDEX, text_of("{\"weight_map\": {\"a\": 1}}"), CL_ERR_FORMAT, "the file of a must be a string");
    expect_folder_error(INDEX, text_of("{\"weight_map\": {\"a\": \"b\"}}"), CL_ERR_FILE, "/b: cannot be opened");
    expect_folder_error(TOKENIZER,
                        text_of("{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}, \"normalizer\": null}"),
                        CL_ERR_UNSUPPORTED, "normalizer and pre_tokenizer");
    expect_folder_error(CONFIG, text_of("{\"architectures\": [1]}"), CL_ERR_UNSUPPORTED, "architectures is \"\"");
    expect_folder_error(CONFIG, text_of("{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 1e2}"),
                        CL_ERR_FORMAT, "num_hidden_layers must be an integer");
}

/* weights.c says what is wrong with such a norm. */
static void adds_to_no_norm_of_another_type(void **state) {
    (void)state;
    folder f = good_folder();
    free(f.files[SHARD_2].data);
    f.files[SHARD_2] = file_of("{\"model.norm.weight\": " ENTRY("I8", 4, 0, 4) "}", 4);
    write_file(&f, SHARD_2);
    cl_model_file *file;
    cl_error error = {.message = ""};
    if (cl_model_file_open(f.path, &file, &error) != CL_OK) fail_msg("%s", error.message);
    const cl_tensor *t = cl_model_file_find_tensor(file, "output_norm.weight");
    assert_true(t && t->type == 24 && !t->data);
    cl_model_file_close(&file);
    remove_folder(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tensors),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(survives_every_change),
        cmocka_unit_test(checks_tensors),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(reads_a_folder),
        cmocka_unit_test(refuses_every_truncated_file),
        cmocka_unit_test(survives_every_flipped_bit),
        cmocka_unit_test(checks_a_folder),
        cmocka_unit_test(adds_to_no_norm_of_another_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

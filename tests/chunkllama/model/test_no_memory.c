/*
 * Every allocation fails that is made when a folder with safetensors is loaded, alone or with all later ones: the call reports
 * CL_ERR_NOMEM and leaves nothing, or the model is the one that is loaded otherwise. tests/chunkllama/engine/test_no_memory.c
 * does the same for GGUF.
 */
#define _GNU_SOURCE
#include "tests/support/testing.h"

#include <jansson.h>

#include "chunkllama.h"
#include "chunkllama/common/json_doc.h"
#include "hf_folder.h"
#include "tests/serve/protocol/failing_malloc.h"

static cl_status load(const char *folder, cl_model **m, cl_error *error) {
    cl_model_options options;
    cl_model_options_init(&options);
    options.n_threads = 1;
    options.fingerprint = true;
    return cl_model_load(folder, &options, m, error);
}

/* Write a folder of the corpus. */
static void write_folder(const char *folder, const char *name) {
    static uint8_t data[1 << 16];
    char path[512];
    snprintf(path, sizeof path, HF_CORPUS "/%s", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is not there", path);
    const size_t size = fread(data, 1, sizeof data, file);
    assert_true(fclose(file) == 0 && size > 0 && size < sizeof data);
    hf_folder_write(folder, data, size);
}

/* Tokens of a text and of a chat, which depend on all files but the weights. A model may know no chat format. */
static void make_tokens(const cl_model *m, cl_token_list *t) {
    static const char text[] = "Hello ab <|im_start|>ab</s>";
    static const cl_chat_message message = {"user", "ab", 2};
    *t = (cl_token_list){0};
    assert_int_equal(
        cl_model_tokenize(m, text, strlen(text), CL_TOKENIZE_BEGIN | CL_TOKENIZE_SPECIAL | CL_TOKENIZE_END, t, NULL), CL_OK);
    cl_model_format_chat(m, NULL, &message, 1, t, NULL);
}

static void expect_same(const cl_model *m, const cl_model *expected) {
    cl_token_list a, b;
    make_tokens(m, &a);
    make_tokens(expected, &b);
    assert_true(a.n == b.n && memcmp(a.ids, b.ids, a.n * sizeof *a.ids) == 0);
    cl_token_list_free(&a);
    cl_token_list_free(&b);
    const char *format = cl_model_chat_format(m), *expected_format = cl_model_chat_format(expected);
    assert_true((format == NULL) == (expected_format == NULL));
    if (format) assert_string_equal(format, expected_format);
    assert_int_equal(cl_model_n_vocab(m), cl_model_n_vocab(expected));
    assert_int_equal(cl_model_bos(m), cl_model_bos(expected));
    assert_int_equal(cl_model_eos(m), cl_model_eos(expected));
    for (int32_t id = 0; id < cl_model_n_vocab(m); id++) assert_true(cl_model_is_end(m, id) == cl_model_is_end(expected, id));
}

void *__real_malloc(size_t size);

/*
 * Load with each allocation failing, but for those of jansson, which is tried for memory beforehand, since it does not notice
 * all failures (chunkllama/common/json_doc.c).
 */
static void load_without_memory(const char *folder, bool all) {
    cl_model *expected, *m;
    cl_error error = {.message = ""};
    if (load(folder, &expected, &error) != CL_OK) fail_msg("%s", error.message);
    int n = 0;
    for (bool failed = true; failed;) {
        error = (cl_error){.message = ""};
        fail_malloc(++n, all);
        json_set_alloc_funcs(__real_malloc, free);
        const cl_status status = load(folder, &m, &error);
        failed = mend_malloc();
        if (status == CL_OK) {
            expect_same(m, expected);
            cl_model_free(&m);
            continue;
        }
        assert_null(m);
        if (status != CL_ERR_NOMEM || error.code != CL_ERR_NOMEM || error.message[0] == 0)
            fail_msg("allocation %d of %s: status %d, \"%s\"", n, folder, (int)status, error.message);
    }
    assert_true(n > 50);
    cl_model_free(&expected);
}

static void folders_are_loaded_whole_or_not(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "llama3", "qwen2", "qwen3", "gemma3", "embeddings", "seeing"};
    char folder[HF_FOLDER_PATH];
    hf_folder_create(folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_folder(folder, names[i]);
        load_without_memory(folder, false);
        load_without_memory(folder, true);
    }
    hf_folder_remove(folder);
}

/* A chat with a late system message, which is tried in several forms before it is written. */
static void a_chat_is_written_whole_or_not(void **state) {
    (void)state;
    static const cl_chat_message messages[] = {{"system", "a", 1}, {"user", "b", 1}, {"system", "ab", 2}, {"user", "a", 1}};
    char folder[HF_FOLDER_PATH];
    cl_model *m;
    cl_error error = {.message = ""};
    cl_token_list expected = {0};
    hf_folder_create(folder);
    write_folder(folder, "llama");
    if (load(folder, &m, &error) != CL_OK) fail_msg("%s", error.message);
    assert_int_equal(cl_model_format_chat(m, "mistral", messages, 4, &expected, NULL), CL_OK);
    int n = 0;
    for (bool failed = true; failed;) {
        cl_token_list t = {0};
        fail_malloc(++n, false);
        json_set_alloc_funcs(__real_malloc, free);
        const cl_status status = cl_model_format_chat(m, "mistral", messages, 4, &t, &error);
        failed = mend_malloc();
        if (status == CL_OK)
            assert_true(t.n == expected.n && memcmp(t.ids, expected.ids, t.n * sizeof *t.ids) == 0);
        else
            assert_int_equal(status, CL_ERR_NOMEM);
        cl_token_list_free(&t);
    }
    assert_true(n > 50);
    cl_token_list_free(&expected);
    cl_model_free(&m);
    hf_folder_remove(folder);
}

/* Unlike by jansson's json_copy, which loses a member or an element for which memory is lacking. */
static void json_is_copied_whole_or_not(void **state) {
    (void)state;
    json_t *values[] = {json_object(), json_array()};
    for (int i = 0; i < 20; i++) {
        char name[12];
        snprintf(name, sizeof name, "%d", i);
        json_object_set_new(values[0], name, json_integer(i));
        json_array_append_new(values[1], json_integer(i));
    }
    for (size_t i = 0; i < 2; i++) {
        int n = 0;
        for (bool failed = true; failed;) {
            fail_malloc(++n, false);
            json_t *copy = cl_json_copy(values[i]);
            failed = mend_malloc();
            if (failed ? copy != NULL : !json_equal(copy, values[i])) fail_msg("kind %zu, allocation %d", i, n);
            json_decref(copy);
        }
        assert_true(n > 3);
        json_decref(values[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_loaded_whole_or_not),
        cmocka_unit_test(a_chat_is_written_whole_or_not),
        cmocka_unit_test(json_is_copied_whole_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The public interface of a model, chunkllama.h: its edges, and what it says of the default model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/testing.h"

#include "chunkattn/base/levels.h"
#include "chunkllama/model/model.h"
#include "small_vocab.h"
#include "status.h"

static void null_is_refused_or_ignored(void **state) {
    (void)state;
    cl_error error;
    cl_model *m = NULL;
    cl_token_list tokens = {0};
    size_t size;
    expect_status(cl_model_load(NULL, NULL, &m, &error), &error, CL_ERR_ARG, "path is NULL");
    expect_status(cl_model_load("x.gguf", NULL, NULL, &error), &error, CL_ERR_ARG, "model is NULL");
    expect_status(cl_model_tokenize(NULL, "a", 1, 0, &tokens, &error), &error, CL_ERR_ARG, "model is NULL");
    expect_status(cl_model_detokenize(NULL, NULL, 0, false, NULL, 0, &size, &error), &error, CL_ERR_ARG, "model is NULL");
    expect_status(cl_model_format_chat(NULL, NULL, NULL, 0, &tokens, &error), &error, CL_ERR_ARG, "model is NULL");
    assert_int_equal(cl_model_load(NULL, NULL, &m, NULL), CL_ERR_ARG);
    assert_int_equal(cl_model_n_vocab(NULL), 0);
    assert_int_equal(cl_model_n_ctx(NULL), 0);
    assert_int_equal(cl_model_bos(NULL), -1);
    assert_int_equal(cl_model_eos(NULL), -1);
    assert_false(cl_model_is_end(NULL, 0));
    assert_null(cl_model_chat_format(NULL));
    cl_model_free(&m);
    cl_model_free(NULL);
    cl_token_list_free(&tokens);
    cl_token_list_free(NULL);
}

static void options_are_checked(void **state) {
    (void)state;
    struct {
        cl_model_options known;
        int64_t added;
    } options = {.added = 0};
    cl_error error;
    cl_model *m;
    static const size_t sizes[] = {0, 8, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        options.known.struct_size = sizes[i];
        expect_status(cl_model_load("x.gguf", &options.known, &m, &error), &error, CL_ERR_ARG, "sizeof(cl_model_options)");
        assert_null(m);
    }
    cl_model_options_init(&options.known);
    options.known.n_threads = -1;
    expect_status(cl_model_load("x.gguf", &options.known, &m, &error), &error, CL_ERR_ARG, "n_threads is -1");
    cl_model_options_init(&options.known);
    options.known.level = "mmx";
    expect_status(cl_model_load("x.gguf", &options.known, &m, &error), &error, CL_ERR_ARG, "mmx");
    cl_model_options_init(&options.known);
    for (int level = 0; level < CA_N_LEVELS; level++) {
        options.known.level = ca_level_name(level);
        if (!ca_level_runs(level))
            expect_status(cl_model_load("x.gguf", &options.known, &m, &error), &error, CL_ERR_UNSUPPORTED,
                          ca_level_name(level));
    }
    cl_model_options_init(&options.known);
    options.known.struct_size = sizeof options;
    options.added = 1;
    expect_status(cl_model_load("x.gguf", &options.known, &m, &error), &error, CL_ERR_UNSUPPORTED, "cl_model_options");
    options.added = 0;
    expect_status(cl_model_load("/no/such/x.gguf", &options.known, &m, &error), &error, CL_ERR_FILE, "/no/such/x.gguf");
    assert_null(m);
}

/* What a model wants around a text comes with the flags of both ends alone. */
static void tokens_around_a_text(void **state) {
    (void)state;
    small_vocab v = spm_vocab();
    gguf_bytes bytes;
    cl_tokenizer *tok;
    v.add_bos = v.add_eos = true;
    cl_model_file *file = open_vocab(&v, &bytes);
    assert_int_equal(cl_tokenizer_create(file, &tok, NULL), CL_OK);
    const cl_model m = {.tok = tok};
    for (unsigned flags = 0; flags < 8; flags++) {
        const size_t begins = (flags & CL_TOKENIZE_BEGIN) != 0, ends = (flags & CL_TOKENIZE_END) != 0;
        cl_token_list tokens = {0};
        assert_int_equal(cl_model_tokenize(&m, "", 0, flags, &tokens, NULL), CL_OK);
        assert_int_equal(tokens.n, begins + ends);
        assert_true((!begins || tokens.ids[0] == 1) && (!ends || tokens.ids[begins] == 2));
        cl_token_list_free(&tokens);
    }
    cl_tokenizer_free(&tok);
    cl_model_file_close(&file);
    free(bytes.data);
}

static const char text[] = "Hello, w\xc3\xb6rld!<|im_end|>";

/* Tokens and back, in buffers of every size. */
static void check_text(const cl_model *m) {
    cl_error error;
    cl_token_list plain = {0}, special = {0};
    assert_int_equal(cl_model_tokenize(m, text, sizeof text - 1, CL_TOKENIZE_BEGIN, &plain, NULL), CL_OK);
    assert_int_equal(cl_model_tokenize(m, text, sizeof text - 1, CL_TOKENIZE_BEGIN | CL_TOKENIZE_SPECIAL, &special, NULL),
                     CL_OK);
    assert_true(plain.n > special.n);
    assert_true(cl_model_is_end(m, special.ids[special.n - 1]));
    assert_false(cl_model_is_end(m, plain.ids[0]));
    for (size_t capacity = 0; capacity < sizeof text + 2; capacity++) {
        char got[sizeof text + 2];
        memset(got, '~', sizeof got);
        size_t size;
        assert_int_equal(cl_model_detokenize(m, plain.ids, plain.n, false, capacity ? got : NULL, capacity, &size, NULL),
                         CL_OK);
        assert_int_equal(size, sizeof text - 1);
        const size_t written = capacity < size ? capacity : size;
        assert_memory_equal(got, text, written);
        for (size_t i = written; i < sizeof got; i++) assert_int_equal(got[i], '~');
    }
    size_t with_names, without;
    assert_int_equal(cl_model_detokenize(m, special.ids, special.n, true, NULL, 0, &with_names, NULL), CL_OK);
    assert_int_equal(cl_model_detokenize(m, special.ids, special.n, false, NULL, 0, &without, NULL), CL_OK);
    assert_int_equal(with_names, sizeof text - 1);
    assert_int_equal(without, with_names - strlen("<|im_end|>"));

    const size_t n = plain.n;
    expect_status(cl_model_tokenize(m, text, 5, 8, &plain, &error), &error, CL_ERR_ARG, "flags");
    expect_status(cl_model_tokenize(m, NULL, 5, 0, &plain, &error), &error, CL_ERR_ARG, "text is NULL");
    expect_status(cl_model_tokenize(m, text, 5, 0, NULL, &error), &error, CL_ERR_ARG, "tokens is NULL");
    assert_int_equal(cl_model_tokenize(m, NULL, 0, 0, &plain, NULL), CL_OK);
    assert_int_equal(plain.n, n);
    const int32_t outside[] = {0, cl_model_n_vocab(m)};
    expect_status(cl_model_detokenize(m, outside, 2, false, NULL, 0, &without, &error), &error, CL_ERR_ARG, "tokens[1]");
    expect_status(cl_model_detokenize(m, outside, 1, false, NULL, 3, &without, &error), &error, CL_ERR_ARG, "text is NULL");
    expect_status(cl_model_detokenize(m, outside, 1, false, NULL, 0, NULL, &error), &error, CL_ERR_ARG, "size is NULL");
    cl_token_list_free(&plain);
    cl_token_list_free(&special);
    assert_null(plain.ids);
}

static void check_chat(const cl_model *m) {
    cl_error error;
    cl_token_list own = {0}, named = {0}, other = {0};
    const cl_chat_message messages[] = {{"user", "Hi", 2}, {"user", "there", 5}}, nobody = {NULL, "x", 1},
                          nothing = {"user", NULL, 1};
    assert_string_equal(cl_model_chat_format(m), "chatml");
    assert_int_equal(cl_model_format_chat(m, NULL, messages, 2, &own, NULL), CL_OK);
    assert_int_equal(cl_model_format_chat(m, "chatml", messages, 2, &named, NULL), CL_OK);
    assert_int_equal(own.n, named.n);
    assert_memory_equal(own.ids, named.ids, own.n * sizeof *own.ids);
    const size_t n = own.n;
    expect_status(cl_model_format_chat(m, "latex", messages, 1, &own, &error), &error, CL_ERR_ARG, "latex");
    expect_status(cl_model_format_chat(m, "gemma", messages, 2, &own, &error), &error, CL_ERR_ARG, "messages[1]");
    expect_status(cl_model_format_chat(m, NULL, NULL, 0, &own, &error), &error, CL_ERR_ARG, "messages");
    expect_status(cl_model_format_chat(m, NULL, &nobody, 1, &own, &error), &error, CL_ERR_ARG, "messages[0].role");
    expect_status(cl_model_format_chat(m, NULL, &nothing, 1, &own, &error), &error, CL_ERR_ARG, "messages[0].content");
    assert_int_equal(own.n, n);
    assert_int_equal(cl_model_format_chat(m, NULL, messages, 1, &other, NULL), CL_OK);
    assert_true(other.n < n);
    cl_token_list_free(&own);
    cl_token_list_free(&named);
    cl_token_list_free(&other);
}

static void the_default_model(void **state) {
    (void)state;
    const char *path = getenv("CHUNKLLAMA_MODEL");
    if (!path) {
        printf("skipped: no model; name a GGUF file in CHUNKLLAMA_MODEL\n");
        skip();
    }
    cl_model *m;
    cl_error error;
    if (cl_model_load(path, NULL, &m, &error) != CL_OK) fail_msg("%s", error.message);
    const bool is_default = cl_model_chat_format(m) && strcmp(cl_model_chat_format(m), "chatml") == 0;
    if (is_default) {
        assert_true(cl_model_n_vocab(m) > 256);
        assert_true(cl_model_n_ctx(m) > 0);
        assert_true(cl_model_is_end(m, cl_model_eos(m)));
        assert_false(cl_model_is_end(m, -1));
        check_text(m);
        check_chat(m);
    }
    cl_model_free(&m);
    assert_null(m);
    if (!is_default) {
        printf("skipped: %s is not a model with the chat format chatml\n", path);
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_around_a_text),
        cmocka_unit_test(null_is_refused_or_ignored),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(the_default_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

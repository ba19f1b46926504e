/* Loads a model from a file that may be anything, and uses it as far as it is one. */
#ifndef TESTS_FUZZ_USE_MODEL_H
#define TESTS_FUZZ_USE_MODEL_H

#include "fuzz.h"

#include <string.h>

#include "chunkllama.h"

/* Text to tokens and back. */
static inline void use_text(const cl_model *model, const char *text, unsigned flags) {
    cl_token_list tokens = {0};
    cl_error error;
    char back[256];
    size_t n = 0;
    if (cl_model_tokenize(model, text, strlen(text), flags, &tokens, &error) == CL_OK) {
        for (size_t i = 0; i < tokens.n; i++)
            FUZZ_CHECK(tokens.ids[i] >= 0 && tokens.ids[i] < cl_model_n_vocab(model), "token %d", tokens.ids[i]);
        FUZZ_CHECK(cl_model_detokenize(model, tokens.ids, tokens.n, true, back, sizeof back, &n, &error) == CL_OK, "%s",
                   error.message);
    }
    cl_token_list_free(&tokens);
}

/* A chat in all formats; NULL: the model's own. */
static inline void use_chat(const cl_model *model) {
    static const char *const formats[] = {NULL, "chatml", "llama2", "llama3", "zephyr", "mistral", "gemma"};
    static const cl_chat_message messages[] = {
        {"system", "Be brief.", 9}, {"user", " Hi <s> there ", 14}, {"assistant", "a", 1}, {"user", "b", 1}};
    cl_token_list tokens = {0};
    cl_error error;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        tokens.n = 0;
        cl_model_format_chat(model, formats[i], messages, 4, &tokens, &error);
        for (size_t t = 0; t < tokens.n; t++) cl_model_is_end(model, tokens.ids[t]);
    }
    cl_token_list_free(&tokens);
}

static inline void use_model(const char *path) {
    cl_model *model;
    cl_error error = {.message = ""};
    cl_model_options options;
    cl_model_options_init(&options);
    options.n_threads = 1;
    const cl_status status = cl_model_load(path, &options, &model, &error);
    FUZZ_CHECK((status == CL_OK) == (model != NULL) && (status == CL_OK || (error.code == status && error.message[0])),
               "status");
    if (status != CL_OK) return;
    use_text(model, "Hello, w\xc3\xb6rld! <s>a  b\xff 12345\n", CL_TOKENIZE_BEGIN);
    use_text(model,
             "<|im_start|>user\n</s><unk>\xe2\x96\x81"
             "abab",
             CL_TOKENIZE_BEGIN | CL_TOKENIZE_SPECIAL | CL_TOKENIZE_END);
    use_chat(model);
    FUZZ_CHECK(cl_model_bos(model) < cl_model_n_vocab(model) && cl_model_eos(model) < cl_model_n_vocab(model),
               "special tokens");
    cl_model_free(&model);
}

#endif

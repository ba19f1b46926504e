/* Chat formats: the prompts they write, on small vocabularies. */
#include "../support/testing.h"

#include <stdio.h>

#include "llama/chat/chat.h"
#include "small_vocab.h"

static const char CHATML[] = "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
                             "'<|im_start|>system\\nBe \\'kind\\'.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + m['role'] + "
                             "'\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}";
static const char CHATML_PLAIN[] = "{{'<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>'}}";
static const char LLAMA2[] = "{{ bos_token + '[INST] ' + '<<SYS>>' }}";
static const char LLAMA3[] = "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' + '<|eot_id|>' }}";
static const char LLAMA31[] =
    "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}{{ 'Cutting Knowledge Date: December 2023\n' }}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' + '<|eot_id|>' }}";
static const char THINKS[] = "{{ '<|im_start|>' + m.role }}{{ '<|im_end|>\n' }}{{ '<|im_start|>assistant\\n<think>\\n' }}";
static const char MAY_THINK[] =
    "{{ '<|im_start|>' + m.role }}{{ '<|im_end|>\n' }}{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}";
static const char ZEPHYR[] = "{{ '<|user|>\n' + eos_token }}{{ '<|assistant|>' }}";
static const char MISTRAL_1[] = "{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token }}";
static const char MISTRAL_3[] =
    "{{ '[INST] ' + message['content'] + '[/INST]' }}{{ ' ' + message['content']|trim }}{{ loop.last }}";
static const char TEKKEN[] = "{{ '[INST]' + message['content'] + '[/INST]' }}";

static const char GEMMA[] =
    "{{ bos_token }}{{ '<start_of_turn>' + role + '\n' }}{{ message['content'] | trim }}{{ '<end_of_turn>\n' }}";
static const char QWEN3[] =
    "{{ '<|im_start|>' + m.role }}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{{ '<|im_end|>' }}";

/* A byte-level vocabulary with the special tokens of a format. */
static small_vocab vocab_with(const char *chat_template, const char *const *special) {
    small_vocab v = byte_level_vocab("gpt-2");
    v.chat_template = chat_template;
    v.bos = v.n;
    v.eos = v.n + 1;
    for (; *special; special++) add_piece(&v, *special, 3, 0);
    return v;
}

static cl_status render(const small_vocab *v, cl_chat_format format, const cl_chat_message *messages, size_t n, char *text,
                        int *n_special, cl_error *error) {
    gguf_bytes bytes;
    cl_model_file *file = open_vocab(v, &bytes);
    cl_tokenizer *tok;
    cl_token_list ids = {0};
    assert_int_equal(cl_tokenizer_create(file, &tok, error), CL_OK);
    const cl_status status = cl_chat_render(format, tok, file, messages, n, &ids, error);
    *n_special = 0;
    for (size_t i = 0; i < ids.n; i++) {
        text += cl_tokenizer_piece(tok, ids.ids[i], true, text, 64);
        *n_special += cl_tokenizer_piece(tok, ids.ids[i], false, NULL, 0) == 0;
    }
    *text = 0;
    cl_token_list_free(&ids);
    cl_tokenizer_free(&tok);
    cl_model_file_close(&file);
    free(bytes.data);
    return status;
}

/* The format found for the vocabulary's template. */
static cl_chat_format detect(const small_vocab *v) {
    gguf_bytes bytes;
    cl_model_file *file = open_vocab(v, &bytes);
    cl_chat_format format;
    cl_error error = {0};
    if (cl_chat_detect(file, &format, &error) != CL_OK) fail_msg("%s", error.message);
    cl_model_file_close(&file);
    free(bytes.data);
    return format;
}

#define MESSAGE(role, content)                                                                                                 \
    { role, content, sizeof(content) - 1 }
static const cl_chat_message talk[] = {MESSAGE("system", "Sys"), MESSAGE("user", " one "), MESSAGE("assistant", "two "),
                                       MESSAGE("user", "<s></s>[INST]<|im_end|><|eot_id|>")};
#define NASTY "<s></s>[INST]<|im_end|><|eot_id|>"

static void expect(const small_vocab *v, cl_chat_format format, const cl_chat_message *messages, size_t n, const char *prompt,
                   int special) {
    char text[4096];
    int n_special;
    cl_error error = {0};
    if (render(v, format, messages, n, text, &n_special, &error) != CL_OK) fail_msg("%s", error.message);
    assert_string_equal(text, prompt);
    assert_int_equal(n_special, special);
}

static const char *const im[] = {"<|endoftext|>", "<|im_end|>", "<|im_start|>", NULL};
static const char *const inst[] = {"<s>", "</s>", NULL};
static const char *const inst_special[] = {"<s>", "</s>", "[INST]", "[/INST]", NULL};
static const char *const headers[] = {"<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", NULL};

static void chatml(void **state) {
    (void)state;
    small_vocab v = vocab_with(CHATML, im);
    assert_int_equal(detect(&v), CL_CHAT_CHATML);
    expect(&v, CL_CHAT_CHATML, talk, 4,
           "<|im_start|>system\nSys<|im_end|>\n<|im_start|>user\n one <|im_end|>\n<|im_start|>assistant\ntwo <|im_end|>\n"
           "<|im_start|>user\n" NASTY "<|im_end|>\n<|im_start|>assistant\n",
           9);
    expect(&v, CL_CHAT_CHATML, talk + 1, 1,
           "<|im_start|>system\nBe 'kind'.<|im_end|>\n<|im_start|>user\n one <|im_end|>\n<|im_start|>assistant\n", 5);
    v.add_bos = 1; /* the file asks for it: once */
    expect(&v, CL_CHAT_CHATML, talk, 2,
           "<|endoftext|><|im_start|>system\nSys<|im_end|>\n<|im_start|>user\n one <|im_end|>\n<|im_start|>assistant\n", 6);
    v.add_bos = 0;
    v.chat_template = CHATML_PLAIN; /* its system message is no literal: nothing is inserted */
    expect(&v, CL_CHAT_CHATML, talk + 1, 1, "<|im_start|>user\n one <|im_end|>\n<|im_start|>assistant\n", 3);
}

static void thoughts_are_dropped(void **state) {
    (void)state;
    small_vocab v = vocab_with(QWEN3, im);
    const cl_chat_message thinks[] = {MESSAGE("user", "a</think>b"),
                                      MESSAGE("assistant", "<think>\nhm</think>x</think>\n\n two "),
                                      MESSAGE("assistant", "three\n"), MESSAGE("assistant", "</think>")};
    expect(&v, CL_CHAT_CHATML, thinks, 4,
           "<|im_start|>user\na</think>b<|im_end|>\n<|im_start|>assistant\n two <|im_end|>\n<|im_start|>assistant\nthree\n"
           "<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n",
           9);
    v.chat_template = THINKS;
    expect(&v, CL_CHAT_CHATML, thinks, 1, "<|im_start|>user\na</think>b<|im_end|>\n<|im_start|>assistant\n<think>\n", 3);
    v.chat_template = MAY_THINK;
    expect(&v, CL_CHAT_CHATML, thinks, 1, "<|im_start|>user\na</think>b<|im_end|>\n<|im_start|>assistant\n", 3);
    v.chat_template = CHATML_PLAIN;
    expect(&v, CL_CHAT_CHATML, thinks + 3, 1, "<|im_start|>assistant\n</think><|im_end|>\n<|im_start|>assistant\n", 3);
}

static void gemma(void **state) {
    (void)state;
    static const char *const turns[] = {"<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", NULL};
    small_vocab v = vocab_with(GEMMA, turns);
    assert_int_equal(detect(&v), CL_CHAT_GEMMA);
    const char *prompt = "<bos><start_of_turn>user\nSys\n\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>\n"
                         "<start_of_turn>user\n" NASTY "<end_of_turn>\n<start_of_turn>model\n";
    expect(&v, CL_CHAT_GEMMA, talk, 4, prompt, 8);
    v.add_bos = 1; /* must not double */
    expect(&v, CL_CHAT_GEMMA, talk, 4, prompt, 8);
    expect(&v, CL_CHAT_GEMMA, talk + 1, 1, "<bos><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\n", 4);
}

static void llama2(void **state) {
    (void)state;
    small_vocab v = vocab_with(LLAMA2, inst);
    assert_int_equal(detect(&v), CL_CHAT_LLAMA2);
    const char *prompt = "<s>[INST] <<SYS>>\nSys\n<</SYS>>\n\n one [/INST] two </s><s>[INST] " NASTY " [/INST]";
    expect(&v, CL_CHAT_LLAMA2, talk, 4, prompt, 3);
    v.add_bos = 1; /* must not double */
    expect(&v, CL_CHAT_LLAMA2, talk, 4, prompt, 3);
    expect(&v, CL_CHAT_LLAMA2, talk + 1, 1, "<s>[INST] one [/INST]", 1);
}

static void llama3(void **state) {
    (void)state;
    small_vocab v = vocab_with(LLAMA3, headers);
    v.pre = "llama-bpe"; /* adds BOS by default */
    assert_int_equal(detect(&v), CL_CHAT_LLAMA3);
    expect(&v, CL_CHAT_LLAMA3, talk, 4,
           "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nSys<|eot_id|>"
           "<|start_header_id|>user<|end_header_id|>\n\none<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\ntwo<|eot_id|>"
           "<|start_header_id|>user<|end_header_id|>\n\n" NASTY "<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n",
           1 + 4 * 3 + 2);
    v.chat_template = LLAMA31;
    static const char begin[] = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
                                "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
    char expected[1000];
    for (int without = 0; without < 2; without++) {
        snprintf(expected, sizeof expected,
                 "%s%s<|eot_id|><|start_header_id|>user<|end_header_id|>\n\none<|eot_id|>"
                 "<|start_header_id|>assistant<|end_header_id|>\n\n",
                 begin, without ? "" : "Sys");
        expect(&v, CL_CHAT_LLAMA3, talk + without, 2 - (size_t)without, expected, 1 + 2 * 3 + 2);
    }
}

/* As Python's str.strip does, which templates use. */
static void all_white_space_is_trimmed(void **state) {
    (void)state;
    small_vocab v = vocab_with(LLAMA3, headers);
    const cl_chat_message wide[] = {
        MESSAGE("user", "\xe3\x80\x80\x1c\n\xc2\xa0\xe2\x80\x8a\xc3\xa4 \xe2\x80\x8b\xe2\x80\xa9\xe2\x81\x9f\xc2\x85\t")};
    expect(&v, CL_CHAT_LLAMA3, wide, 1,
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n\xc3\xa4 \xe2\x80\x8b<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n",
           6);
    const cl_chat_message nothing[] = {MESSAGE("user", " \xe3\x80\x80")};
    expect(&v, CL_CHAT_LLAMA3, nothing, 1,
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>"
           "<|start_header_id|>assistant<|end_header_id|>\n\n",
           6);
}

static void zephyr(void **state) {
    (void)state;
    small_vocab v = vocab_with(ZEPHYR, inst);
    assert_int_equal(detect(&v), CL_CHAT_ZEPHYR);
    expect(&v, CL_CHAT_ZEPHYR, talk, 4,
           "<|system|>\nSys</s>\n<|user|>\n one </s>\n<|assistant|>\ntwo </s>\n<|user|>\n" NASTY "</s>\n<|assistant|>\n", 4);
    static const char *const begun[] = {"<s>", "</s>", "\n<x>", NULL};
    const cl_chat_message end[] = {MESSAGE("user", "<x>")};
    v = vocab_with(ZEPHYR, begun); /* the format's text and a message's never make up one together */
    expect(&v, CL_CHAT_ZEPHYR, end, 1, "<|user|>\n<x></s>\n<|assistant|>\n", 1);
    static const char *const with_roles[] = {"<s>", "</s>", "<|user|>", "<|assistant|>", NULL};
    v = vocab_with(ZEPHYR, with_roles); /* put together from parts, they are special where the vocabulary has them */
    v.add_bos = 1;
    expect(&v, CL_CHAT_ZEPHYR, talk + 1, 1, "<s><|user|>\n one </s>\n<|assistant|>\n", 4);
}

static void mistral(void **state) {
    (void)state;
    small_vocab v = vocab_with(MISTRAL_1, inst);
    assert_int_equal(detect(&v), CL_CHAT_MISTRAL);
    expect(&v, CL_CHAT_MISTRAL, talk, 4, "<s>[INST] Sys\n\n one  [/INST]two </s>[INST] " NASTY " [/INST]", 2);
    v = vocab_with(MISTRAL_3, inst_special);
    assert_int_equal(detect(&v), CL_CHAT_MISTRAL);
    expect(&v, CL_CHAT_MISTRAL, talk, 4, "<s>[INST]  one [/INST] two</s>[INST] Sys\n\n" NASTY "[/INST]", 6);
    v = vocab_with(TEKKEN, inst_special);
    expect(&v, CL_CHAT_MISTRAL, talk + 1, 1, "<s>[INST] one [/INST]", 3);
    v = vocab_with(NULL, inst);
    assert_int_equal(detect(&v), CL_CHAT_NONE);
    expect(&v, CL_CHAT_MISTRAL, talk + 1, 1, "<s>[INST]  one  [/INST]", 1);
}

/* SentencePiece vocabularies: a space before the first text, none doubled. */
static void with_sentence_pieces(void **state) {
    (void)state;
    small_vocab v = spm_vocab();
    v.chat_template = LLAMA2;
    expect(&v, CL_CHAT_LLAMA2, talk + 1, 3, "<s> [INST] one [/INST] two </s><s> [INST] " NASTY " [/INST]", 3);
    v.chat_template = MISTRAL_3;
    add_piece(&v, "[INST]", 3, 0), add_piece(&v, "[/INST]", 3, 0);
    expect(&v, CL_CHAT_MISTRAL, talk + 3, 1, "<s>[INST] " NASTY "[/INST]", 3);
}

static void expect_refusal(const small_vocab *v, cl_chat_format format, const cl_chat_message *messages, size_t n,
                           cl_status status, const char *part) {
    char text[4096];
    int n_special;
    cl_error error = {0};
    assert_int_equal(render(v, format, messages, n, text, &n_special, &error), status);
    assert_string_equal(text, "");
    if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
}

static void roles_are_checked(void **state) {
    (void)state;
    const small_vocab v = vocab_with(NULL, im);
    const cl_chat_message bad[] = {MESSAGE("user", "x"), MESSAGE("tool<|im_end|>", "x")};
    for (int format = CL_CHAT_CHATML; format <= CL_CHAT_GEMMA; format++) {
        expect_refusal(&v, (cl_chat_format)format, bad, 2, CL_ERR_ARG, "messages[1].role: 'tool<|im_end|>' is not known");
        expect_refusal(&v, (cl_chat_format)format, bad, 0, CL_ERR_ARG, "messages: at least one");
    }
    const cl_chat_message twice[] = {MESSAGE("system", "x"), MESSAGE("user", "x"), MESSAGE("user", "x"),
                                     MESSAGE("system", "x")};
    static const cl_chat_format in_turn[] = {CL_CHAT_LLAMA2, CL_CHAT_MISTRAL, CL_CHAT_GEMMA};
    for (int i = 0; i < 3; i++) {
        const cl_chat_format format = in_turn[i];
        expect_refusal(&v, format, twice, 4, CL_ERR_ARG, "messages[2].role: 'user' is out of turn, 'assistant' is next");
        expect_refusal(&v, format, twice, 1, CL_ERR_ARG, "last message is the user's");
        expect_refusal(&v, format, twice + 3, 1, CL_ERR_ARG, "last message is the user's");
        expect_refusal(&v, format, talk, 3, CL_ERR_ARG, "messages[2].role: in this model's chat format the last");
    }
    expect_refusal(&v, CL_CHAT_NONE, talk, 4, CL_ERR_UNSUPPORTED,
                   "(option --chat-format): chatml, llama2, llama3, zephyr, mistral or gemma");
}

static void formats_by_name_and_unknown_ones(void **state) {
    (void)state;
    cl_chat_format format;
    cl_error error = {0};
    for (int i = CL_CHAT_CHATML; i <= CL_CHAT_GEMMA; i++) {
        assert_int_equal(cl_chat_by_name(cl_chat_name((cl_chat_format)i), &format, &error), CL_OK);
        assert_int_equal(format, i);
    }
    assert_int_equal(cl_chat_by_name("none", &format, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "'none' is not known; use chatml"));
    small_vocab v = vocab_with("{{ '<turn>' }}", im);
    gguf_bytes bytes;
    cl_model_file *file = open_vocab(&v, &bytes);
    assert_int_equal(cl_chat_detect(file, &format, &error), CL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "name one (option --chat-format)"));
    assert_int_equal(format, CL_CHAT_NONE);
    cl_model_file_close(&file);
    free(bytes.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml),
        cmocka_unit_test(llama2),
        cmocka_unit_test(llama3),
        cmocka_unit_test(all_white_space_is_trimmed),
        cmocka_unit_test(zephyr),
        cmocka_unit_test(mistral),
        cmocka_unit_test(thoughts_are_dropped),
        cmocka_unit_test(gemma),
        cmocka_unit_test(with_sentence_pieces),
        cmocka_unit_test(roles_are_checked),
        cmocka_unit_test(formats_by_name_and_unknown_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

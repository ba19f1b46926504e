/*
 * A chat's body: its messages and tools are written by templates of four kinds, and tokenized. Special tokens come from the
 * template alone, so a prompt has at most those of its messages.
 */
#include "fuzz.h"

#include <string.h>

#include "serve/protocol/json.h"
#include "tests/chunkllama/model/small_vocab.h"

#define FRAME(content) "{% for m in messages %}{{ '<|' + m.role + '|>' }}" content "<|end|>{% endfor %}{{ '<|assistant|>' }}"

#define STRINGS FRAME("{{ m.content }}")
#define PARTS   FRAME("{% for p in m.content %}{{ p.text }}{% endfor %}")
#define CALLS                                                                                                                  \
    FRAME("{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}"                              \
          "{{ c.function.arguments | tojson }}{% endfor %}{{ tools | tojson }}")
#define TURNS                                                                                                                  \
    "{{ bos_token }}{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}"                          \
    "{{ raise_exception('out of turn') }}{% endif %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}<|assistant|>"

static const char *const templates[] = {STRINGS, PARTS, CALLS, TURNS};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

static cl_model model;
static cl_chat *chats[N_TEMPLATES];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static const char *const special[] = {"<s>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"};
    small_vocab v = byte_level_vocab("gpt-2");
    gguf_bytes bytes;
    openai_json_init();
    v.bos = v.n;
    v.eos = v.n + 1;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) add_piece(&v, special[i], 3, 0);
    model.file = open_vocab(&v, &bytes);
    cl_error error = {.message = ""};
    FUZZ_CHECK(cl_tokenizer_create(model.file, &model.tok, &error) == CL_OK, "%s", error.message);
    for (int i = 0; i < N_TEMPLATES; i++)
        FUZZ_CHECK(cl_chat_of_template(templates[i], strlen(templates[i]), model.file, model.tok, &chats[i], &error) == CL_OK,
                   "%s", error.message);
    return 0;
}

/* Each message has two special tokens; one more message may describe tools. Before and after them there is one. */
static void check_prompt(const cl_token_list *tokens, size_t n_messages) {
    size_t n_special = 0;
    for (size_t i = 0; i < tokens->n; i++) {
        FUZZ_CHECK(tokens->ids[i] >= 0 && tokens->ids[i] < cl_tokenizer_n_vocab(model.tok), "token %d", tokens->ids[i]);
        n_special += cl_tokenizer_piece(model.tok, tokens->ids[i], false, NULL, 0) == 0;
    }
    FUZZ_CHECK(n_special <= 2 * (n_messages + 1) + 2, "%zu special tokens of %zu messages", n_special, n_messages);
}

static void use_chat(const json_t *body, const cl_chat *chat) {
    openai_context context = {.model = &model, .model_name = "fuzz", .chat = chat, .n_ctx = 1 << 16};
    openai_request request;
    openai_error error = {0};
    openai_defaults_init(&context.defaults);
    if (openai_request_parse(&context, OPENAI_CHAT, body, &request, &error))
        check_prompt(&request.prompts[0].tokens, json_array_size(json_object_get(body, "messages")));
    else
        FUZZ_CHECK(error.status == 400 && error.message[0], "status %d: %s", error.status, error.message);
    openai_request_free(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    openai_error error = {0};
    json_t *body = openai_json_parse("body", (const char *)data, size, &error);
    for (int i = 0; body && i < N_TEMPLATES; i++) use_chat(body, chats[i]);
    json_decref(body);
    return 0;
}

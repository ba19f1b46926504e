/*
 * A request's body: it is parsed as the server does, in all dialects and for the other endpoints, and answered, whole and
 * streamed, with events that do not depend on it. Whatever is written must be JSON, an error's message too.
 */
#include "fuzz.h"

#include <string.h>

#include "answer.h"
#include "serve/protocol/json.h"
#include "tests/serve/protocol/fake.h"

static openai_context context;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    openai_json_init();
    context = (openai_context){.model = fake_model(), .model_name = "fake", .chat = fake_chat(), .n_ctx = 4096};
    openai_defaults_init(&context.defaults);
    context.local = context.defaults;
    return 0;
}

static void check_error(const openai_dialect *dialect, const openai_error *error) {
    openai_writer w = {0};
    FUZZ_CHECK(error->status >= 400 && error->type && error->message[0], "error");
    dialect->write_error(&w, NULL, error);
    check_written(&w);
}

static void answer(const openai_dialect *dialect, const openai_request *request) {
    openai_result result;
    openai_writer w = {0};
    FUZZ_CHECK(openai_result_init(&result, &context, request), "no memory");
    if (request->stream) dialect->stream_begin(&w, &result);
    for (size_t i = 0; i < request->n_prompts; i++) send_events(&result, dialect, i);
    FUZZ_CHECK(openai_result_done(&result), "not done");
    if (request->stream) dialect->stream_end(&w, &result, NULL);
    check_events(&w, dialect);
    dialect->write_answer(&w, NULL, &result);
    check_written(&w);
    openai_result_free(&result);
}

static void parse_pin(const json_t *body) {
    openai_request request;
    openai_error error = {0};
    if (openai_pin_parse(&context, body, &request, &error))
        FUZZ_CHECK(request.n_prompts == 1 && request.params.pin && request.params.max_tokens == 0 && !request.stream, "pin");
    else
        check_error(&openai_chat, &error);
    openai_request_free(&request);
}

/* Bodies that are answered without the engine. */
static void answer_tokens(const json_t *body) {
    for (int i = 0; i < 6; i++) {
        openai_error error = {0};
        openai_writer w = {0};
        const bool ok = i == 0   ? openai_tokenize(&context, body, &w, &error)
                        : i == 1 ? openai_detokenize(&context, body, &w, &error)
                        : i == 4 ? anthropic_count_tokens(&context, body, &w, &error)
                        : i == 5 ? ollama_show(&context, body, &w, &error)
                                 : (i == 2 ? openai_render_chat : openai_render_completion)(&context, body, &w, &error);
        if (ok) {
            check_written(&w);
        } else {
            check_error(&openai_chat, &error);
            writer_free(&w);
        }
    }
}

static void parse(const openai_dialect *dialect, const json_t *body) {
    openai_request request;
    openai_error error = {0};
    if (dialect->parse(&context, body, &request, &error)) {
        FUZZ_CHECK(request.n_prompts >= 1 || !request.stream, "a stream without a prompt");
        FUZZ_CHECK(request.params.n >= 1 && request.params.n <= OPENAI_MAX_N, "request");
        FUZZ_CHECK(dialect != &openai_embedding || (request.params.pooling && request.dimensions >= 1), "embedding");
        if (request.n_prompts * (size_t)request.params.n <= 64) answer(dialect, &request);
    } else {
        check_error(dialect, &error);
    }
    openai_request_free(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    openai_error error = {0};
    json_t *body = openai_json_parse("body", (const char *)data, size, &error);
    if (!body) {
        check_error(&openai_chat, &error);
        return 0;
    }
    for (size_t i = 0; i < OPENAI_N_DIALECTS; i++) parse(openai_dialects[i], body);
    parse_pin(body);
    answer_tokens(body);
    json_decref(body);
    return 0;
}

/* The dialects of chat completions and completions, whose streams end with "[DONE]", and of embeddings; and the list of all. */
#include "dialect.h"

#include <stdio.h>
#include <string.h>

static bool parse_chat(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    return openai_request_parse(context, OPENAI_CHAT, body, request, error);
}

static bool parse_completion(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    return openai_request_parse(context, OPENAI_COMPLETION, body, request, error);
}

static void stream_begin(openai_writer *w, openai_result *result) {
    (void)w;
    (void)result;
}

static void stream_event(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event) {
    const size_t n = openai_n_chunks(result, event);
    for (size_t k = 0; k < n; k++) {
        writer_begin_event(w, NULL);
        openai_write_chunk(w, result, i, event, k);
        writer_end_event(w);
    }
}

static void stream_end(openai_writer *w, openai_result *result, const openai_error *error) {
    if (error || result->request->include_usage) {
        writer_begin_event(w, NULL);
        error ? openai_write_error_body(w, NULL, error) : openai_write_usage_chunk(w, result);
        writer_end_event(w);
    }
    writer_raw(w, "data: [DONE]\n\n");
}

/* The other fields of all three. */
#define IN_COMMON                                                                                                              \
    .write_error = openai_write_error_body, .stream_begin = stream_begin, .stream_event = stream_event,                        \
    .stream_end = stream_end, .no_memory_body = "{" OPENAI_NO_MEMORY_ERROR "}",                                                \
    .no_memory_end = "data: {" OPENAI_NO_MEMORY_ERROR "}\n\ndata: [DONE]\n\n"

const openai_dialect openai_chat = {
    .path = "/v1/chat/completions",
    .parse = parse_chat,
    .write_answer = openai_write_answer,
    IN_COMMON,
};

const openai_dialect openai_completion = {
    .path = "/v1/completions",
    .parse = parse_completion,
    .write_answer = openai_write_answer,
    IN_COMMON,
};

const openai_dialect openai_embedding = {
    .path = "/v1/embeddings",
    .parse = openai_embedding_parse,
    .write_answer = openai_write_embeddings,
    IN_COMMON,
};

const openai_dialect *const openai_dialects[OPENAI_N_DIALECTS] = {
    &openai_chat,        &openai_completion,       &openai_embedding,    &openai_responses,
    &anthropic_messages, &llama_server_completion, &llama_server_infill, &llama_server_embedding,
    &openai_score,       &openai_rerank,           &ollama_chat,         &ollama_generate,
    &ollama_embed,       &ollama_embeddings,
};

const openai_dialect *openai_dialect_of(const json_t *body) {
    return json_object_get(body, "messages") ? &openai_chat : &openai_completion;
}

const openai_dialect *openai_dialect_read(const json_t *url, const char *param, openai_error *error) {
    const char *path = json_string_value(url);
    char paths[200] = "";
    for (size_t i = 0; i < OPENAI_N_BATCH_DIALECTS; i++) {
        const openai_dialect *d = openai_dialects[i];
        if (path && strcmp(path, d->path) == 0) return d;
        const size_t end = strlen(paths);
        snprintf(paths + end, sizeof paths - end, "%s\"%s\"", end ? ", " : "", d->path);
    }
    openai_refuse(error, param, "must be one of %s", paths);
    return NULL;
}

/*
 * The APIs that clients speak: how each reads a body, and writes answers, errors and streams. The server and the `batch`
 * command know only this table.
 *
 * Streams consist of server-sent events, or of objects on a line each; each function writes whole ones, with their frames. If
 * memory is lacking, the writer fails, and its text is replaced by a constant text.
 */
#ifndef SERVE_PROTOCOL_DIALECT_H
#define SERVE_PROTOCOL_DIALECT_H

#include "openai.h"

typedef struct openai_dialect {
    const char *path; /* of the endpoint, such as "/v1/completions" */
    /*
     * Read and check a request's body, as openai_request_parse does. A request without prompts is answered at once, by
     * write_answer.
     */
    bool (*parse)(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);
    /* Write the body of a refusal, as the value of `key` (NULL: no key). */
    void (*write_error)(openai_writer *w, const char *key, const openai_error *error);
    /* Write the whole answer of a request that is not streamed, as the value of `key` (NULL: no key). */
    void (*write_answer)(openai_writer *w, const char *key, const openai_result *result);
    const char *stream_type; /* the media type of streams; NULL: they are server-sent events */
    /* Write the beginning of a stream, before the first event of the engine. */
    void (*stream_begin)(openai_writer *w, openai_result *result);
    /* Write the part of the stream, possibly empty, for an event of prompt i, which was just added to the result. */
    void (*stream_event)(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event);
    /* Write the end of a stream; error: the reason for an early end, or NULL. */
    void (*stream_end)(openai_writer *w, openai_result *result, const openai_error *error);
    /* The body, and the end of a stream, in place of one for which memory is lacking. */
    const char *no_memory_body, *no_memory_end;
} openai_dialect;

extern const openai_dialect openai_chat, openai_completion, openai_embedding, openai_responses, anthropic_messages;

/* vLLM's scores and Jina's and Cohere's rankings (score.c). */
extern const openai_dialect openai_score, openai_rerank;

/* llama-server's own (llama_server.c) and Ollama's (ollama.h): requests that leave something out take context->local. */
extern const openai_dialect llama_server_completion, llama_server_infill, llama_server_embedding;
extern const openai_dialect ollama_chat, ollama_generate, ollama_embed, ollama_embeddings;

/* All dialects; those that lines of a batch may have come first. */
enum { OPENAI_N_BATCH_DIALECTS = 5, OPENAI_N_DIALECTS = 14 };
extern const openai_dialect *const openai_dialects[OPENAI_N_DIALECTS];

/* The dialect of a body that does not come with a path: a chat if it has `messages`. */
const openai_dialect *openai_dialect_of(const json_t *body);

/*
 * Read the path `url`, called `param` in messages, that a body comes with outside of its endpoint, as in a line of a batch.
 * NULL with *error filled, which lists the paths that there are: there is no such dialect.
 */
const openai_dialect *openai_dialect_read(const json_t *url, const char *param, openai_error *error);

/*
 * Count the tokens of the prompt that a body of anthropic_messages makes, and write the answer of /v1/messages/count_tokens.
 * False with *error filled: the body is wrong, or memory is lacking; then nothing is written.
 */
bool anthropic_count_tokens(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/*
 * Write the text that the chat template makes of a chat, as llama-server's /apply-template does: without the BOS that a
 * completion begins with. False as above.
 */
bool llama_server_apply_template(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/*
 * Write llama-server's facts about the server, its /props: the sampling of requests that leave it out, and the model's
 * template. n_slots: sequences that run at once.
 */
void llama_server_write_props(openai_writer *w, const openai_context *context, int32_t n_slots);

/* Write the model's names and facts as Ollama's /api/tags and /api/ps have them. */
void ollama_write_models(openai_writer *w, const openai_context *context);

/* Write the facts of the model that a body names, as Ollama's /api/show does. False: there is no such model. */
bool ollama_show(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/* The version of Ollama whose API this is, which clients compare with the one that they need. */
#define OLLAMA_VERSION "0.13.0"

#endif

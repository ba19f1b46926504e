/* An event loop instead of a callback; logits that the program changes; and a conversation that goes through a file. */
#include <chunkllama.h>
#include <err.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENTS = 16, ANSWER = 12, MAX_TOKENS = 256 };

typedef struct conversation {
    int32_t tokens[MAX_TOKENS];
    int64_t n;
} conversation;

static cl_error error;

static void check(cl_status status) {
    if (status != CL_OK) errx(1, "%s: %s", cl_status_name(status), error.message);
}

/* On workers of the engine: no token that was drawn already is drawn again. */
static void never_again(void *ctx, const cl_logits *l) {
    (void)ctx;
    for (int64_t i = l->n_prompt; i < l->n_tokens; i++) l->logits[l->tokens[i]] = -INFINITY;
}

/* Continue a conversation, which gets the tokens of the answer. Returns how many of its tokens the cache had. */
static int answer(cl_engine *engine, conversation *c) {
    const cl_engine_event *events[MAX_EVENTS];
    struct pollfd p = {.events = POLLIN};
    int n_cached = 0;
    cl_engine_request request;
    cl_engine_request_init(&request); /* without on_event */
    request.prompt = c->tokens, request.n_prompt = c->n, request.max_tokens = ANSWER;
    request.sampling.temperature = 0, request.on_logits = never_again;
    check(cl_engine_submit(engine, &request, NULL, &error));
    check(cl_engine_poll_fd(engine, &p.fd, &error));
    for (bool last = false; !last;) {
        size_t n;
        if (poll(&p, 1, -1) < 0) err(1, "poll");
        check(cl_engine_poll(engine, events, MAX_EVENTS, &n, &error));
        for (size_t i = 0; i < n; i++) {
            printf("%.*s", (int)events[i]->text_size, events[i]->text);
            if (events[i]->kind == CL_EVENT_TOKEN) c->tokens[c->n++] = events[i]->token.id;
            n_cached = (int)events[i]->n_cached;
            last = events[i]->last;
        }
    }
    printf("\n");
    return n_cached;
}

static int to_file(void *file, const void *bytes, size_t n_bytes) { return fwrite(bytes, 1, n_bytes, file) != n_bytes; }

int main(int argc, char **argv) {
    const char *text = "Once upon a time there was a";
    cl_model *model;
    cl_engine *engine;
    cl_model_options options;
    cl_token_list prompt = {0};
    static conversation c;
    int64_t n_saved, n_loaded;
    cl_model_options_init(&options);
    options.fingerprint = 1; /* which exports and imports need */
    check(cl_model_load(argc > 1 ? argv[1] : "model.gguf", &options, &model, &error));
    check(cl_engine_create(model, NULL, &engine, &error));
    check(cl_model_tokenize(model, text, strlen(text), CL_TOKENIZE_BEGIN, &prompt, &error));
    memcpy(c.tokens, prompt.ids, prompt.n * sizeof *c.tokens);
    c.n = (int64_t)prompt.n;
    cl_token_list_free(&prompt);
    answer(engine, &c);

    FILE *file = tmpfile();
    cl_engine_request so_far;
    cl_engine_request_init(&so_far);
    so_far.prompt = c.tokens, so_far.n_prompt = c.n;
    check(cl_engine_export(engine, &so_far, to_file, file, &n_saved, &error));
    cl_engine_destroy(&engine);

    const size_t n_bytes = (size_t)ftell(file);
    char *bytes = malloc(n_bytes);
    rewind(file);
    if (fread(bytes, 1, n_bytes, file) != n_bytes) errx(1, "the file was not read");
    check(cl_engine_create(model, NULL, &engine, &error));
    check(cl_engine_import(engine, bytes, n_bytes, 0, &n_loaded, &error));
    const int n_cached = answer(engine, &c);
    printf("%d tokens saved, %d loaded, %d cached\n", (int)n_saved, (int)n_loaded, n_cached);
    free(bytes);
    fclose(file);
    cl_engine_destroy(&engine);
    cl_model_free(&model);
    return n_cached == n_loaded ? 0 : 1;
}

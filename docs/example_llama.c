/* Two prompts that begin alike, answered at the same time: the second finds what the first has put into the cache. */
#include <chunkllama.h>
#include <err.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static cl_error error;

static void check(cl_status status) {
    if (status != CL_OK) errx(1, "%s: %s", cl_status_name(status), error.message);
}

static void on_event(void *ended, const cl_engine_event *event) { /* on the engine's thread */
    if (event->text_size > 0) printf("[%d] %.*s\n", (int)event->request, (int)event->text_size, event->text);
    if (!event->last) return;
    printf("[%d] %d of %d prompt tokens were cached\n", (int)event->request, (int)event->n_cached, (int)event->n_prompt);
    sem_post(ended);
}

int main(int argc, char **argv) {
    const char *prompts[] = {"Facts about Europe. The capital of France is", "Facts about Europe. The capital of Italy is"};
    cl_model *model;
    cl_engine *engine;
    sem_t ended;
    sem_init(&ended, 0, 0);
    check(cl_model_load(argc > 1 ? argv[1] : "model.gguf", NULL, &model, &error));
    check(cl_engine_create(model, NULL, &engine, &error));
    for (int i = 0; i < 2; i++) {
        cl_token_list tokens = {0};
        check(cl_model_tokenize(model, prompts[i], strlen(prompts[i]), CL_TOKENIZE_BEGIN, &tokens, &error));
        cl_engine_request request;
        cl_engine_request_init(&request);
        request.prompt = tokens.ids, request.n_prompt = (int64_t)tokens.n, request.max_tokens = 16;
        request.on_event = on_event, request.ctx = &ended, request.sampling.temperature = 0;
        check(cl_engine_submit(engine, &request, NULL, &error)); /* copies the prompt */
        cl_token_list_free(&tokens);
    }
    for (int i = 0; i < 2; i++) sem_wait(&ended);
    cl_engine_destroy(&engine);
    cl_model_free(&model);
}

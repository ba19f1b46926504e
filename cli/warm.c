/* Computes the prompts of a file before a server is ready: see warm.h. */
#include "warm.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "serve/protocol/batch_line.h"

/* The work on one file, and the prompt that is computed. */
typedef struct warm_up {
    const warm_file *file;
    bool pin;
    const openai_context *context;
    const server_keys *keys;
    cl_engine *engine;
    openai_tenants tenants;       /* that lines have named */
    size_t n_lines, n_prompts;    /* read and computed so far */
    int64_t n_tokens, n_computed; /* of the prompts so far, and those of them that were not in the cache */
    sem_t ended;                  /* the prompt's last event has come; the engine writes what follows before */
    cl_engine_finish finish;
    cl_error cause; /* with CL_ENGINE_ERROR */
} warm_up;

/* ---- One prompt ---- */

static void on_event(void *ctx, const cl_engine_event *event) {
    warm_up *w = ctx;
    if (!event->last) return;
    w->finish = event->end.finish;
    if (event->end.error) w->cause = *event->end.error;
    w->n_prompts++;
    w->n_tokens += event->n_prompt;
    w->n_computed += event->n_prompt - event->n_cached;
    sem_post(&w->ended);
}

/* The error of the line that was read last. */
static cl_status fail_line(const warm_up *w, cl_status code, const char *message, cl_error *error) {
    const bool is_budget = w->pin && code == CL_ERR_LIMIT;
    return cl_fail(error, code, "%.120s, line %zu: %.340s%s", w->file->path, w->n_lines, message,
                   is_budget ? " (--pin-budget, --kv-budget)" : "");
}

/* The same, because of an error of the engine. */
static cl_status fail_prompt(const warm_up *w, cl_error *cause, cl_error *error) {
    options_name_field(cause);
    return fail_line(w, cause->code, cause->message, error);
}

/* Compute a prompt, and wait for its end. */
static cl_status compute(warm_up *w, uint32_t domain, const openai_prompt *prompt, cl_error *error) {
    cl_engine_request request;
    cl_error cause;
    cl_engine_request_init(&request);
    request.prompt = prompt->tokens.ids;
    request.n_prompt = (int64_t)prompt->tokens.n;
    request.max_tokens = 0;
    request.domain = domain;
    request.pin = w->pin;
    request.on_event = on_event;
    request.ctx = w;
    if (cl_engine_submit(w->engine, &request, NULL, &cause) != CL_OK) return fail_prompt(w, &cause, error);
    while (sem_wait(&w->ended) != 0) {
    }
    return w->finish == CL_ENGINE_ERROR ? fail_prompt(w, &w->cause, error) : CL_OK;
}

/* ---- The file ---- */

/* A prompt of a tenant without requests would take memory, and nobody would find it. */
static cl_status check_tenant(const warm_up *w, uint32_t domain, cl_error *error) {
    char message[256], list[128];
    const char *named = openai_tenants_name(&w->tenants, domain), *name = named ? named : OPENAI_DEFAULT_TENANT;
    if (server_keys_find_tenant(w->keys, name, &domain)) return CL_OK;
    server_keys_list_tenants(w->keys, list, sizeof list);
    snprintf(message, sizeof message, "no API key belongs to tenant '%s'%s; use one of %s, or add a key with --api-keys", name,
             named ? "" : " (assumed for a line without \"tenant\")", list);
    return fail_line(w, CL_ERR_ARG, message, error);
}

static cl_status compute_line(warm_up *w, const char *text, size_t size, cl_error *error) {
    batch_line line = {0};
    char text_of_error[OPENAI_ERROR_TEXT];
    cl_status status = CL_OK;
    if (!batch_line_parse(&line, w->n_lines, text, size, w->context, &w->tenants)) {
        const bool no_memory = line.error.status >= 500;
        status = fail_line(w, no_memory ? CL_ERR_NOMEM : CL_ERR_ARG, openai_error_text(&line.error, text_of_error), error);
    }
    if (status == CL_OK) status = check_tenant(w, line.request.params.domain, error);
    for (size_t i = 0; status == CL_OK && i < line.request.n_prompts; i++)
        status = compute(w, line.request.params.domain, &line.request.prompts[i], error);
    batch_line_free(&line);
    return status;
}

static cl_status compute_lines(warm_up *w, cl_error *error) {
    char *buffer = NULL;
    size_t capacity = 0;
    ssize_t size;
    cl_status status = CL_OK;
    while (status == CL_OK && (size = getline(&buffer, &capacity, w->file->in)) >= 0) {
        w->n_lines++;
        if (strspn(buffer, " \t\r\n") < (size_t)size) status = compute_line(w, buffer, (size_t)size, error);
    }
    if (status == CL_OK && ferror(w->file->in))
        status = cl_fail(error, CL_ERR_FILE, "cannot read %.200s: %s; name a file with a request on each line", w->file->path,
                         strerror(errno));
    free(buffer);
    if (status == CL_OK && w->n_prompts == 0)
        status =
            cl_fail(error, CL_ERR_ARG, "%s has no requests; write one on each line, or leave the option out", w->file->path);
    return status;
}

static uint64_t tokens_evicted(const warm_up *w) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_kv_stats(w->engine, &stats);
    return stats.tokens_evicted;
}

static void print_result(const warm_up *w, uint64_t n_evicted) {
    printf("%zu prompts of %s are %s: %lld tokens, of which %lld were computed.", w->n_prompts, w->file->path,
           w->pin ? "pinned" : "in the cache", (long long)w->n_tokens, (long long)w->n_computed);
    if (n_evicted > 0)
        printf(" %llu tokens were evicted for others of them; raise --kv-budget to keep all.", (unsigned long long)n_evicted);
    printf("\n");
    fflush(stdout);
}

cl_status warm_open(warm_file *file, const char *path, cl_error *error) {
    if (!path) return CL_OK;
    *file = (warm_file){.path = path, .in = fopen(path, "rb")};
    return file->in ? CL_OK
                    : cl_fail(error, CL_ERR_FILE, "cannot open %.200s: %s; name a file with a request on each line", path,
                              strerror(errno));
}

cl_status warm_compute(warm_file *file, bool pin, const openai_context *context, const server_keys *keys, cl_engine *engine,
                       cl_error *error) {
    warm_up w = {.file = file, .pin = pin, .context = context, .keys = keys, .engine = engine};
    if (!file->in) return CL_OK;
    sem_init(&w.ended, 0, 0);
    printf("Computing the prompts of %s before the server is ready.\n", file->path);
    fflush(stdout);
    const uint64_t n_before = tokens_evicted(&w);
    const cl_status status = compute_lines(&w, error);
    if (status == CL_OK) print_result(&w, tokens_evicted(&w) - n_before);
    openai_tenants_free(&w.tenants);
    sem_destroy(&w.ended);
    return status;
}

void warm_close(warm_file *file) {
    if (file->in) fclose(file->in);
    *file = (warm_file){0};
}

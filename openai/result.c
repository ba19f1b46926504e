/* Collects the engine's events of one request. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "openai.h"

/* The request's own name or a random one, behind its prefix. False if the system has no random bytes. */
static bool set_id(openai_result *result, const openai_request *request) {
    uint64_t id[2] = {0};
    if (request->id) return snprintf(result->id, sizeof result->id, "%s%s", request->id_prefix, request->id) > 0;
    if (getrandom(id, sizeof id, 0) != sizeof id) return false;
    snprintf(result->id, sizeof result->id, "%s%012" PRIx64 "%012" PRIx64, request->id_prefix, id[0] >> 16, id[1] >> 16);
    return true;
}

bool openai_result_init(openai_result *result, const openai_context *context, const openai_request *request) {
    *result = (openai_result){
        .context = context,
        .request = request,
        .created = (int64_t)time(NULL),
        .n_choices = request->n_prompts * (size_t)request->params.n,
        .times.begun = clock_seconds(),
    };
    if (!set_id(result, request)) return false;
    result->choices = calloc(result->n_choices, sizeof *result->choices);
    result->prompt_logprobs = calloc(request->n_prompts, sizeof *result->prompt_logprobs);
    result->usage = calloc(request->n_prompts, sizeof *result->usage);
    if (result->choices && result->prompt_logprobs && result->usage) return true;
    openai_result_free(result);
    return false;
}

static void logprobs_free(openai_logprobs *logprobs) {
    free(logprobs->chosen);
    free(logprobs->top);
    free(logprobs->n_top);
    free(logprobs->ranks);
}

void openai_result_free(openai_result *result) {
    for (size_t i = 0; result->choices && i < result->n_choices; i++) {
        free(result->choices[i].text);
        cl_token_list_free(&result->choices[i].tokens);
        logprobs_free(&result->choices[i].logprobs);
    }
    for (size_t i = 0; result->prompt_logprobs && i < result->request->n_prompts; i++)
        logprobs_free(&result->prompt_logprobs[i]);
    free(result->choices);
    free(result->prompt_logprobs);
    free(result->usage);
    *result = (openai_result){0};
}

/* Resize *array to n elements. Returns false and leaves *array unchanged if memory is lacking. */
static bool resize(void *array, size_t n, size_t size) {
    void **p = array;
    void *grown = realloc(*p, n * size);
    if (grown) *p = grown;
    return grown;
}

static bool add_logprob(openai_logprobs *l, size_t n_top, const cl_engine_event *event) {
    if (l->n == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 16;
        if (!resize(&l->chosen, capacity, sizeof *l->chosen) || !resize(&l->n_top, capacity, sizeof *l->n_top) ||
            !resize(&l->ranks, capacity, sizeof *l->ranks) || (n_top && !resize(&l->top, capacity * n_top, sizeof *l->top)))
            return false;
        l->capacity = capacity;
    }
    l->chosen[l->n] = event->chosen;
    l->n_top[l->n] = event->n_top;
    l->ranks[l->n] = event->rank;
    if (event->n_top) memcpy(l->top + l->n * n_top, event->top, (size_t)event->n_top * sizeof *event->top);
    l->n++;
    return true;
}

static bool add_text(openai_choice *choice, const char *text, size_t size) {
    if (choice->text_size + size + 1 > choice->text_capacity) {
        const size_t capacity = 2 * (choice->text_size + size) + 64;
        if (!resize(&choice->text, capacity, 1)) return false;
        choice->text_capacity = capacity;
    }
    memcpy(choice->text + choice->text_size, text, size);
    choice->text_size += size;
    choice->text[choice->text_size] = '\0';
    return true;
}

static bool add_to_choice(openai_choice *choice, const cl_engine_request *params, const cl_engine_event *event) {
    if (event->finish != CL_ENGINE_RUNNING) choice->finish = event->finish;
    if (event->text_size && !add_text(choice, event->text, event->text_size)) return false;
    if (event->token < 0) return true;
    cl_error ignored;
    if (cl_token_list_add(&choice->tokens, event->token, &ignored) != CL_OK) return false;
    if (event->chosen.id >= 0) choice->sum_logprob += (double)event->chosen.logprob;
    return !params->logprobs || add_logprob(&choice->logprobs, (size_t)params->n_top, event);
}

/* Per token, as OpenAI defines the best choice; a choice without tokens has 0. */
static double mean_logprob(const openai_choice *c) { return c->tokens.n > 0 ? c->sum_logprob / (double)c->tokens.n : 0; }

/* Sort a prompt's choices, the best first and equal ones in the order that they have. */
static void sort_choices(openai_choice *choices, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        const openai_choice c = choices[i];
        int32_t k = i;
        for (; k > 0 && mean_logprob(&c) > mean_logprob(&choices[k - 1]); k--) choices[k] = choices[k - 1];
        choices[k] = c;
    }
}

void openai_result_add(openai_result *result, size_t i, const cl_engine_event *event) {
    const cl_engine_request *params = &result->request->params;
    openai_choice *choices = &result->choices[i * (size_t)params->n];
    bool ok = true;
    if (!event->prompt)
        ok = add_to_choice(&choices[event->choice], params, event);
    else if (event->position > 0)
        ok = add_logprob(&result->prompt_logprobs[i], (size_t)params->n_top, event);
    result->usage[i] = (openai_usage){event->n_prompt, event->n_cached, event->n_completion};
    if (result->request->timings && event->token >= 0 && !event->prompt) openai_times_add(&result->times);
    if (event->last) result->n_done++;
    if (event->last && result->request->n < params->n && !params->beam_search) sort_choices(choices, params->n);
    if (result->failed || (ok && event->finish != CL_ENGINE_ERROR)) return;
    result->failed = true;
    openai_fail_from(&result->error, NULL,
                     ok && event->error ? event->error : &(cl_error){CL_ERR_NOMEM, "out of memory for the answer"});
}

bool openai_result_done(const openai_result *result) { return result->n_done == result->request->n_prompts; }

openai_usage openai_result_usage(const openai_result *result) {
    openai_usage sum = {0};
    for (size_t i = 0; i < result->request->n_prompts; i++) {
        sum.prompt_tokens += result->usage[i].prompt_tokens;
        sum.cached_tokens += result->usage[i].cached_tokens;
        sum.completion_tokens += result->usage[i].completion_tokens;
    }
    return sum;
}

const char *openai_finish_name(cl_engine_finish finish) {
    switch (finish) {
    case CL_ENGINE_STOP: return "stop";
    case CL_ENGINE_LENGTH: return "length";
    case CL_ENGINE_CANCELLED: return "abort";
    case CL_ENGINE_ERROR: return "error";
    default: return NULL;
    }
}

/* Collects the engine's events of one request. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "chunkattn/base/clock.h"
#include "chunkllama/common/hash.h"
#include "openai.h"

bool openai_random_id(char id[OPENAI_RANDOM_ID]) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) return false;
    snprintf(id, OPENAI_RANDOM_ID, "%012" PRIx64 "%012" PRIx64, random[0] >> 16, random[1] >> 16);
    return true;
}

/* Set the ids: the request's own name or a random one, behind its prefix. False if the system has no random bytes. */
static bool set_id(openai_result *result, const openai_request *request) {
    char id[OPENAI_RANDOM_ID];
    const size_t size = sizeof result->call_key;
    if (!openai_random_id(id) || getrandom(&result->call_key, size, 0) != (ssize_t)size) return false;
    snprintf(result->id, sizeof result->id, "%s%s", request->id_prefix, request->id ? request->id : id);
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
    result->embeddings = calloc(request->n_prompts, sizeof *result->embeddings);
    bool ok = result->choices && result->prompt_logprobs && result->usage && result->embeddings;
    for (size_t i = 0; ok && request->splits && i < result->n_choices; i++)
        ok = (result->choices[i].reply = cl_reply_create(&request->reply));
    if (ok) return true;
    openai_result_free(result);
    return false;
}

static void logprobs_free(openai_logprobs *logprobs) {
    free(logprobs->chosen);
    free(logprobs->top);
    free(logprobs->n_top);
    free(logprobs->ranks);
}

static void choice_free(openai_choice *choice) {
    for (size_t i = 0; i < choice->n_calls; i++) {
        free(choice->calls[i].name.data);
        free(choice->calls[i].arguments.data);
    }
    free(choice->calls);
    free(choice->text.data);
    free(choice->reasoning.data);
    free(choice->items);
    cl_reply_free(&choice->reply);
    cl_token_list_free(&choice->tokens);
    logprobs_free(&choice->logprobs);
}

void openai_result_free(openai_result *result) {
    for (size_t i = 0; result->choices && i < result->n_choices; i++) choice_free(&result->choices[i]);
    for (size_t i = 0; result->prompt_logprobs && i < result->request->n_prompts; i++)
        logprobs_free(&result->prompt_logprobs[i]);
    for (size_t i = 0; result->embeddings && i < result->request->n_prompts; i++) free(result->embeddings[i]);
    free(result->choices);
    free(result->prompt_logprobs);
    free(result->usage);
    free(result->deltas);
    free((void *)result->embeddings);
    *result = (openai_result){0};
}

/* Resize *array to n elements. Returns false and leaves *array unchanged if memory is lacking. */
static bool resize(void *array, size_t n, size_t size) {
    void **p = array;
    void *grown = realloc(*p, n * size);
    if (grown) *p = grown;
    return grown;
}

static bool add_logprob(openai_logprobs *l, size_t n_top, const cl_event_token *token) {
    if (l->n == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 16;
        if (!resize(&l->chosen, capacity, sizeof *l->chosen) || !resize(&l->n_top, capacity, sizeof *l->n_top) ||
            !resize(&l->ranks, capacity, sizeof *l->ranks) || (n_top && !resize(&l->top, capacity * n_top, sizeof *l->top)))
            return false;
        l->capacity = capacity;
    }
    l->chosen[l->n] = token->chosen;
    l->n_top[l->n] = token->n_top;
    l->ranks[l->n] = token->rank;
    if (token->n_top) memcpy(l->top + l->n * n_top, token->top, (size_t)token->n_top * sizeof *token->top);
    l->n++;
    return true;
}

/* ---- Text ---- */

static bool add_text(openai_text *t, const char *text, size_t size) {
    if (t->size + size + 1 > t->capacity) {
        const size_t capacity = 2 * (t->size + size) + 64;
        if (!resize(&t->data, capacity, 1)) return false;
        t->capacity = capacity;
    }
    memcpy(t->data + t->size, text, size);
    t->size += size;
    t->data[t->size] = '\0';
    return true;
}

/* Ids differ in all answers, since clients put them into later requests. Mistral's templates accept only nine letters and
 * digits. */
static void set_call_id(const openai_result *result, const openai_choice *choice, openai_call *call) {
    const cl_hash_key key = {result->call_key, UINT64_C(0x9e3779b97f4a7c15)};
    const uint64_t index = (uint64_t)(choice - result->choices) << 32 | (uint64_t)(call - choice->calls);
    const uint64_t id = cl_hash_u64(key, index);
    if (result->request->reply.format->syntax == CL_REPLY_MISTRAL)
        snprintf(call->id, sizeof call->id, "%09" PRIx64, id >> 28);
    else
        snprintf(call->id, sizeof call->id, "%s%016" PRIx64,
                 result->request->call_prefix ? result->request->call_prefix : "call_", id);
}

static bool add_call(const openai_result *result, openai_choice *choice) {
    if (choice->n_calls == choice->calls_capacity) {
        const size_t capacity = 2 * choice->calls_capacity + 2;
        if (!resize(&choice->calls, capacity, sizeof *choice->calls)) return false;
        choice->calls_capacity = capacity;
    }
    openai_call *call = &choice->calls[choice->n_calls++];
    *call = (openai_call){0};
    set_call_id(result, choice, call);
    return true;
}

/* Where the text of a delta belongs in its choice; NULL: memory is lacking. */
static openai_text *find_text(const openai_result *result, openai_choice *choice, const openai_delta *delta) {
    switch (delta->kind) {
    case CL_REPLY_REASONING: return &choice->reasoning;
    case CL_REPLY_CALL: return add_call(result, choice) ? &choice->calls[delta->call].name : NULL;
    case CL_REPLY_ARGUMENTS: return &choice->calls[delta->call].arguments;
    default: return &choice->text;
    }
}

/* Whether the answer leaves a part of a reply out. */
static bool is_left_out(const openai_request *r, const cl_reply_part *part) {
    return part->kind == CL_REPLY_REASONING ? !r->include_reasoning : part->call > 0 && !r->parallel_tool_calls;
}

static bool add_delta(openai_result *result, openai_choice *choice, openai_delta delta) {
    if (result->n_deltas == result->deltas_capacity) {
        const size_t capacity = 2 * result->deltas_capacity + 4;
        if (!resize(&result->deltas, capacity, sizeof *result->deltas)) return false;
        result->deltas_capacity = capacity;
    }
    result->deltas[result->n_deltas++] = delta;
    openai_text *text = find_text(result, choice, &delta);
    return text && add_text(text, delta.text, delta.size) && openai_items_add(choice, delta.kind, delta.call, delta.size);
}

/* Add an event's text, split if the request's replies are. */
static bool add_event_text(openai_result *result, openai_choice *choice, const cl_engine_event *event) {
    const cl_reply_part *parts;
    size_t n;
    const bool last = event->kind == CL_EVENT_END;
    if (!choice->reply)
        return event->text_size == 0 ||
               add_delta(result, choice, (openai_delta){CL_REPLY_CONTENT, 0, event->text, event->text_size});
    choice->reasons = cl_reply_reasons(choice->reply);
    bool ok = cl_reply_add(choice->reply, event->text, event->text_size, last, &parts, &n);
    for (size_t i = 0; ok && i < n; i++) {
        choice->reasons |= parts[i].kind == CL_REPLY_REASONING;
        if (!is_left_out(result->request, &parts[i]))
            ok = add_delta(result, choice, (openai_delta){parts[i].kind, (size_t)parts[i].call, parts[i].text, parts[i].size});
    }
    return ok;
}

/* ---- Events ---- */

static bool add_to_choice(openai_result *result, size_t prompt, openai_choice *choice, const cl_engine_event *event) {
    const cl_engine_request *params = &result->request->params;
    const bool ends = event->kind == CL_EVENT_END;
    if (ends) {
        choice->finish = event->end.finish;
        choice->stop = event->end.finish == CL_ENGINE_STOP && event->end.stop < params->n_stop ? event->end.stop : -1;
    }
    if (!add_event_text(result, choice, event)) return false;
    if (ends) return true;
    result->usage[prompt].reasoning_tokens += choice->reasons;
    choice->reasoning_tokens += choice->reasons;
    cl_error ignored;
    if (cl_token_list_add(&choice->tokens, event->token.id, &ignored) != CL_OK) return false;
    if (event->token.chosen.id >= 0) choice->sum_logprob += (double)event->token.chosen.logprob;
    return !params->logprobs || add_logprob(&choice->logprobs, (size_t)params->n_top, &event->token);
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

/* Copy the embedding of an event. False: memory is lacking. */
static bool add_embedding(float **embedding, const cl_event_end *end) {
    const size_t bytes = (size_t)end->n_embedding * sizeof **embedding;
    *embedding = malloc(bytes);
    if (*embedding) memcpy(*embedding, end->embedding, bytes);
    return *embedding;
}

/* Add the report of an event of prompt i to the prompt or to a choice. False: memory is lacking. */
static bool add_event(openai_result *result, size_t i, openai_choice *choice, const cl_engine_event *event) {
    const size_t n_top = (size_t)result->request->params.n_top;
    if (event->kind == CL_EVENT_PROMPT)
        return event->token.position == 0 || add_logprob(&result->prompt_logprobs[i], n_top, &event->token);
    if (event->kind == CL_EVENT_END && event->end.n_embedding > 0 && !add_embedding(&result->embeddings[i], &event->end))
        return false;
    return add_to_choice(result, i, choice, event);
}

void openai_result_add(openai_result *result, size_t i, const cl_engine_event *event, double at) {
    const cl_engine_request *params = &result->request->params;
    openai_choice *choices = &result->choices[i * (size_t)params->n];
    result->n_deltas = 0;
    /* After a failure a part is missing, so that later ones may not fit. */
    const bool ok = result->failed || add_event(result, i, &choices[event->choice], event);
    openai_usage *usage = &result->usage[i];
    *usage = (openai_usage){event->n_prompt, event->n_cached, event->n_completion, usage->reasoning_tokens, event->n_pinned};
    result->times.latest = at;
    if (event->kind == CL_EVENT_TOKEN) openai_times_add(&result->times, at);
    if (event->last) result->n_done++;
    if (event->last && result->request->n < params->n && !params->beam_search) sort_choices(choices, params->n);
    if (result->failed || (ok && !(event->kind == CL_EVENT_END && event->end.finish == CL_ENGINE_ERROR))) return;
    result->failed = true;
    result->n_deltas = 0;
    openai_fail_from_engine(&result->error, result->request,
                            ok && event->end.error
                                ? event->end.error
                                : &(cl_error){.code = CL_ERR_NOMEM, .message = "out of memory for the answer"});
}

bool openai_result_done(const openai_result *result) { return result->n_done == result->request->n_prompts; }

openai_usage openai_result_usage(const openai_result *result) {
    openai_usage sum = {0};
    for (size_t i = 0; i < result->request->n_prompts; i++) {
        sum.prompt_tokens += result->usage[i].prompt_tokens;
        sum.cached_tokens += result->usage[i].cached_tokens;
        sum.completion_tokens += result->usage[i].completion_tokens;
        sum.reasoning_tokens += result->usage[i].reasoning_tokens;
        sum.pinned_tokens += result->usage[i].pinned_tokens;
    }
    return sum;
}

const char *openai_finish_reason(const openai_choice *choice) {
    return choice->finish == CL_ENGINE_STOP && choice->n_calls > 0 ? "tool_calls" : openai_finish_name(choice->finish);
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

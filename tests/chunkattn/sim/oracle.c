/* Follows the events of a request: see oracle.h. */
#include "oracle.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/model/sampler.h"

typedef struct choice {
    int32_t tokens[SIM_CONTEXT + 1];
    int64_t n_tokens;
    sim_sums sums;              /* of these tokens */
    double sum_logprob;         /* of the completion */
    char text[SIM_CONTEXT + 1]; /* all that may be shown of the completion; terminated */
    size_t n_text, n_reported;  /* bytes of it */
    cl_engine_finish must_end;  /* why, after the last token; CL_ENGINE_RUNNING: it need not end */
    cl_engine_finish finish;
} choice;

struct oracle {
    const cl_engine_request *request;
    int64_t n_scored; /* the position of the prompt's next token whose logprob is due */
    int64_t n_completion, n_cached;
    int32_t n_ended;
    bool done;
    choice choices[]; /* [request->n] */
};

static cl_sampler *sampler; /* of all oracles */

void oracle_prepare(void) {
    if (!sampler) sampler = cl_sampler_create(SIM_VOCAB);
    assert(sampler);
}

oracle *oracle_create(const cl_engine_request *request) {
    oracle *o = calloc(1, sizeof *o + (size_t)request->n * sizeof *o->choices);
    assert(o && request->n_prompt + request->max_tokens <= SIM_CONTEXT);
    o->request = request;
    o->n_scored = request->prompt_logprobs_from;
    for (int32_t i = 0; i < request->n; i++) {
        choice *c = &o->choices[i];
        for (; c->n_tokens < request->n_prompt; c->n_tokens++) {
            c->tokens[c->n_tokens] = request->prompt[c->n_tokens];
            sim_sums_add(&c->sums, c->tokens);
        }
        if (request->max_tokens == 0) c->must_end = CL_ENGINE_LENGTH;
    }
    return o;
}

void oracle_free(oracle *o) { free(o); }
bool oracle_is_done(const oracle *o) { return o->done; }
int64_t oracle_n_completion(const oracle *o) { return o->n_completion; }

const int32_t *oracle_tokens(const oracle *o, int32_t i, int64_t *n) {
    *n = o->choices[i].n_tokens;
    return o->choices[i].tokens;
}

/* ---- Tokens ---- */

/* Whether a token has the logprobs that belong to these logits; NULL: none. */
static bool logprobs_agree(const oracle *o, const cl_event_token *token, const float *logits) {
    cl_sampler_logprob chosen = {.id = -1}, top[CL_ENGINE_MAX_TOP];
    const int32_t n_top = logits ? o->request->n_top : 0;
    if (logits) cl_sampler_logprobs(sampler, logits, token->id, &chosen, n_top, top);
    if (token->chosen.id != chosen.id || token->n_top != n_top) return false;
    if (logits && token->chosen.logprob != chosen.logprob) return false;
    for (int32_t i = 0; i < n_top; i++)
        if (token->top[i].id != top[i].id || token->top[i].logprob != top[i].logprob) return false;
    return true;
}

/* Whether the completion ends with a bad word's tokens but the last. */
static bool is_begun(const cl_engine_request *q, const choice *c, const int32_t *word, int32_t size) {
    for (int32_t k = 0; k + 1 < size; k++) {
        const int64_t i = c->n_tokens - (size - 1) + k;
        if (i < q->n_prompt || c->tokens[i] != word[k]) return false;
    }
    return true;
}

static bool is_allowed(const cl_engine_request *q, int32_t token) {
    for (int32_t i = 0; i < q->n_allowed_tokens; i++)
        if (q->allowed_tokens[i] == token) return true;
    return q->n_allowed_tokens == 0;
}

static bool is_end(const cl_engine_request *q, int32_t token);

/* Whether bad words and min_tokens exclude a token as the next one. */
static bool is_excluded(const cl_engine_request *q, const choice *c, int32_t token) {
    const int32_t *word = q->bad_words;
    for (int32_t i = 0; i < q->n_bad_words; word += q->bad_word_sizes[i++])
        if (word[q->bad_word_sizes[i] - 1] == token && is_begun(q, c, word, q->bad_word_sizes[i])) return true;
    return c->n_tokens - q->n_prompt < q->min_tokens && is_end(q, token);
}

/*
 * The logits [SIM_VOCAB] under the request's rules, of which those that exclude tokens do not count if they leave none. Where
 * no allowed token is possible, the first one is drawn.
 */
static void restrict_logits(const cl_engine_request *q, const choice *c, float *logits) {
    float biased[SIM_VOCAB];
    bool any = false, possible = false;
    for (int32_t id = 0; id < SIM_VOCAB; id++) {
        biased[id] = is_allowed(q, id) ? logits[id] : -INFINITY;
        for (int32_t i = 0; i < q->n_logit_bias; i++)
            if (q->logit_bias[i].token == id) biased[id] += q->logit_bias[i].bias;
        possible = possible || biased[id] > -INFINITY;
        any = any || (biased[id] > -INFINITY && !is_excluded(q, c, id));
    }
    for (int32_t id = 0; id < SIM_VOCAB; id++) logits[id] = any && is_excluded(q, c, id) ? -INFINITY : biased[id];
    if (!possible && q->n_allowed_tokens > 0) logits[q->allowed_tokens[0]] = 0;
}

static bool is_end(const cl_engine_request *q, int32_t token) {
    for (int32_t i = 0; i < q->n_stop_tokens; i++)
        if (q->stop_tokens[i] == token) return true;
    return token == SIM_END && !q->ignore_eos;
}

/* Remove the longest stop string that the text ends with. */
static bool ends_with_stop(const cl_engine_request *q, choice *c) {
    size_t longest = 0;
    for (int32_t i = 0; i < q->n_stop; i++) {
        const size_t n = strlen(q->stop[i]);
        if (n <= c->n_text && n > longest && memcmp(c->text + c->n_text - n, q->stop[i], n) == 0) longest = n;
    }
    if (!q->include_stop) c->n_text -= longest;
    return longest > 0;
}

static void add_token(const cl_engine_request *q, choice *c, int32_t token) {
    c->tokens[c->n_tokens++] = token;
    sim_sums_add(&c->sums, c->tokens);
    bool stops = is_end(q, token);
    if ((!stops || q->include_stop) && token != SIM_END) {
        c->text[c->n_text++] = (char)('a' + token);
        stops = (c->n_tokens > q->n_prompt + q->min_tokens && ends_with_stop(q, c)) || stops;
    }
    if (stops)
        c->must_end = CL_ENGINE_STOP;
    else if (c->n_tokens == q->n_prompt + q->max_tokens)
        c->must_end = CL_ENGINE_LENGTH;
}

static const char *check_token(oracle *o, choice *c, const cl_engine_event *event) {
    const cl_engine_request *q = o->request;
    if (c->must_end) return "a token after the last one";
    if (q->prompt_logprobs && o->n_scored < q->n_prompt) return "a token before the logprobs of the prompt";
    if (event->token.position != c->n_tokens) return "a token at the wrong position";
    float logits[SIM_VOCAB], restricted[SIM_VOCAB];
    sim_logits(&c->sums, c->tokens[c->n_tokens - 1], logits);
    memcpy(restricted, logits, sizeof logits);
    restrict_logits(q, c, restricted);
    const int32_t token =
        q->beam_search ? event->token.id
                       : cl_sampler_draw(sampler, &q->sampling, NULL, restricted,
                                         (cl_sampler_history){c->tokens, q->n_prompt, c->n_tokens}, event->choice, c->n_tokens);
    if (event->token.id != token) return "another token than the one that must be drawn";
    if (!logprobs_agree(o, &event->token, q->logprobs ? logits : NULL)) return "a token with wrong logprobs";
    cl_sampler_logprob chosen;
    cl_sampler_logprobs(sampler, logits, token, &chosen, 0, NULL);
    c->sum_logprob += (double)chosen.logprob;
    add_token(q, c, token);
    o->n_completion++;
    return NULL;
}

static const char *check_prompt_token(oracle *o, const cl_engine_event *event) {
    const cl_engine_request *q = o->request;
    if (!q->prompt_logprobs || event->choice != 0) return "a token of the prompt that nobody asked for";
    if (o->n_completion > 0) return "a token of the prompt after one of a completion";
    if (event->token.position != o->n_scored || event->token.position >= q->n_prompt)
        return "a token of the prompt at the wrong position";
    if (event->token.id != q->prompt[event->token.position]) return "another token than the prompt's";
    sim_sums sums = {0};
    float logits[SIM_VOCAB];
    for (int64_t i = 0; i < event->token.position; i++) sim_sums_add(&sums, q->prompt);
    if (event->token.position > 0) sim_logits(&sums, q->prompt[event->token.position - 1], logits);
    if (!logprobs_agree(o, &event->token, event->token.position > 0 ? logits : NULL))
        return "a token of the prompt with wrong logprobs";
    o->n_scored++;
    return NULL;
}

/* The score of a completion that a beam search has found. */
static double score(const cl_engine_request *q, const choice *c) {
    const int64_t n_ends = c->finish == CL_ENGINE_STOP;
    return c->sum_logprob / pow((double)(c->n_tokens - n_ends), (double)q->length_penalty);
}

/* ---- Text and ends ---- */

static const char *check_text(choice *c, const cl_engine_event *event) {
    if (event->text_size > c->n_text - c->n_reported || memcmp(c->text + c->n_reported, event->text, event->text_size) != 0)
        return "text that is not that of the tokens";
    c->n_reported += event->text_size;
    return NULL;
}

static const char *check_finish(oracle *o, choice *c, const cl_event_end *end) {
    if (end->finish == CL_ENGINE_RUNNING) return "an end without a reason";
    const bool regular = end->finish == CL_ENGINE_STOP || end->finish == CL_ENGINE_LENGTH;
    if (regular && end->finish != c->must_end) return "an end for a wrong reason";
    if (end->finish == CL_ENGINE_CANCELLED && c->must_end && o->request->max_tokens > 0)
        return "a cancelled choice that was complete";
    if (regular && o->request->prompt_logprobs && o->n_scored < o->request->n_prompt)
        return "an end before the logprobs of the prompt";
    if ((end->error != NULL) != (end->finish == CL_ENGINE_ERROR)) return "an error without a message, or the reverse";
    if (end->finish != CL_ENGINE_ERROR && c->n_reported != c->n_text) return "an end without all of the text";
    c->finish = end->finish;
    o->n_ended++;
    if (o->request->beam_search && o->request->max_tokens > 0 && regular && c > o->choices && c[-1].finish != CL_ENGINE_ERROR &&
        score(o->request, c) > score(o->request, c - 1))
        return "a completion that is better than the one before";
    return NULL;
}

static const char *check_counts(oracle *o, const cl_engine_event *event) {
    if (event->n_prompt != o->request->n_prompt) return "a wrong n_prompt";
    if (event->n_completion != o->n_completion) return "a wrong n_completion";
    if (o->n_cached > 0 && event->n_cached != o->n_cached) return "an n_cached that changes";
    o->n_cached = event->n_cached;
    return NULL;
}

const char *oracle_check(oracle *o, const cl_engine_event *event) {
    if (o->done) return "an event after the last one";
    if (event->choice < 0 || event->choice >= o->request->n) return "an event of an unknown choice";
    choice *c = &o->choices[event->choice];
    if (c->finish) return "an event of a choice that has ended";
    const char *wrong = NULL;
    if (event->kind != CL_EVENT_END)
        wrong = event->kind == CL_EVENT_PROMPT ? check_prompt_token(o, event) : check_token(o, c, event);
    if (!wrong) wrong = check_text(c, event);
    if (!wrong && event->kind == CL_EVENT_END) wrong = check_finish(o, c, &event->end);
    if (!wrong) wrong = check_counts(o, event);
    if (!wrong && event->last != (o->n_ended == o->request->n)) wrong = "a last event that is not the last, or the reverse";
    o->done = event->last;
    return wrong;
}

/* Applies rules and penalties to logits, cuts the distribution, and draws a token from the rest. */
#include "sampler.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/philox.h"
#include "chunkllama/linear/linear.h"
#include "chunkllama/linear/linear_kernels.h"

typedef struct candidate {
    float logit; /* never NaN */
    int32_t id;
} candidate;

struct cl_sampler {
    int32_t n_vocab;
    const cl_row_ops *ops; /* static */
    float *edited;         /* [n_vocab] logits under rules and penalties */
    float *copied;         /* [n_vocab] of cl_sampler_copy */
    float *logits;         /* [n_vocab] logits of the candidates, in their order */
    float *weights;        /* [n_vocab] their unnormalised probabilities */
    double *sums;          /* [n_vocab / CL_OPS_WEIGHTS, rounded up] of weights */
    candidate *candidates; /* [n_vocab] */
    candidate *border;     /* [n_vocab] the candidates among which top-p cuts, and logits that rules replace */
    bool has_candidates;   /* whether the weights are those of candidates; otherwise they are those of all tokens */
    int32_t n_weights;     /* of the last draw, which may be repeated; 0: there is nothing to draw from */
    int32_t picked;        /* the index of its weight */
    int32_t *classes;      /* [n_vocab] class of each candidate, for top-p */
    int32_t *counts;       /* [n_vocab] occurrences of each token in the completion; zeros between calls */
    bool *seen;            /* [n_vocab] whether a token occurs at all; false between calls */
};

void cl_sampler_params_init(cl_sampler_params *params) {
    *params = (cl_sampler_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

cl_sampler *cl_sampler_create(int32_t n_vocab) {
    cl_sampler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    const size_t n = (size_t)n_vocab;
    s->n_vocab = n_vocab;
    s->ops = &cl_kernels_find(NULL)->row_ops;
    s->edited = malloc(n * sizeof *s->edited);
    s->copied = malloc(n * sizeof *s->copied);
    s->logits = malloc(n * sizeof *s->logits);
    s->weights = malloc(n * sizeof *s->weights);
    s->sums = malloc((n / CL_OPS_WEIGHTS + 1) * sizeof *s->sums);
    s->candidates = malloc(n * sizeof *s->candidates);
    s->border = malloc(n * sizeof *s->border);
    s->classes = malloc(n * sizeof *s->classes);
    s->counts = calloc(n, sizeof *s->counts);
    s->seen = calloc(n, sizeof *s->seen);
    if (!s->edited || !s->copied || !s->logits || !s->weights || !s->sums || !s->candidates || !s->border || !s->classes ||
        !s->counts || !s->seen)
        cl_sampler_free(&s);
    return s;
}

void cl_sampler_free(cl_sampler **s) {
    if (!*s) return;
    free((*s)->edited);
    free((*s)->copied);
    free((*s)->logits);
    free((*s)->weights);
    free((*s)->sums);
    free((*s)->candidates);
    free((*s)->border);
    free((*s)->classes);
    free((*s)->counts);
    free((*s)->seen);
    free(*s);
    *s = NULL;
}

cl_sampler **cl_samplers_create(int32_t n, int32_t n_vocab) {
    cl_sampler **samplers = calloc((size_t)n, sizeof(cl_sampler *));
    for (int32_t i = 0; samplers && i < n; i++) {
        samplers[i] = cl_sampler_create(n_vocab);
        if (!samplers[i]) cl_samplers_free(&samplers, n);
    }
    return samplers;
}

void cl_samplers_free(cl_sampler ***samplers, int32_t n) {
    for (int32_t i = 0; *samplers && i < n; i++) cl_sampler_free(&(*samplers)[i]);
    free((void *)*samplers);
    *samplers = NULL;
}

/* The logits as a copy that may be changed. They may be that copy already. */
static float *edit(cl_sampler *s, const float *logits) {
    if (logits != s->edited) memcpy(s->edited, logits, (size_t)s->n_vocab * sizeof *logits);
    return s->edited;
}

float *cl_sampler_copy(cl_sampler *s, const float *logits) {
    return memcpy(s->copied, logits, (size_t)s->n_vocab * sizeof *logits);
}

cl_sampler_history cl_sampler_history_of(const int32_t *tokens, int64_t n_prompt, int64_t n, int32_t window) {
    if (window < 0) return (cl_sampler_history){tokens, n_prompt, n};
    const int64_t n_counted = n < window ? n : window;
    return (cl_sampler_history){tokens + n - n_counted, 0, n_counted};
}

/* The logits with penalties for the tokens of the history. */
static const float *penalise(cl_sampler *s, const cl_sampler_params *p, const float *logits, cl_sampler_history h) {
    const bool repetition = p->repetition_penalty != 1;
    if (!repetition && p->presence_penalty == 0 && p->frequency_penalty == 0) return logits;
    const int32_t *history = h.tokens;
    const int64_t n_prompt = h.n_prompt, n_history = h.n;
    float *edited = edit(s, logits);
    const int64_t first = repetition ? 0 : n_prompt;
    for (int64_t i = n_prompt; i < n_history; i++)
        if (history[i] >= 0 && history[i] < s->n_vocab) s->counts[history[i]]++;
    for (int64_t i = first; i < n_history; i++) {
        const int32_t id = history[i];
        if (id < 0 || id >= s->n_vocab || s->seen[id]) continue;
        s->seen[id] = true;
        float x = edited[id];
        x = x > 0 ? x / p->repetition_penalty : x * p->repetition_penalty;
        x -= p->frequency_penalty * (float)s->counts[id];
        if (s->counts[id] > 0) x -= p->presence_penalty;
        edited[id] = x;
    }
    for (int64_t i = first; i < n_history; i++) {
        if (history[i] < 0 || history[i] >= s->n_vocab) continue;
        s->seen[history[i]] = false;
        s->counts[history[i]] = 0;
    }
    return edited;
}

/* ---- Rules ---- */

/* Whether the completion ends with all tokens of a bad word but the last. */
static bool is_begun(const int32_t *word, int32_t size, const int32_t *history, int64_t n_prompt, int64_t n_history) {
    const int64_t n = size - 1;
    return n <= n_history - n_prompt && (n == 0 || memcmp(word, history + n_history - n, (size_t)n * sizeof *word) == 0);
}

/* Add a token to the n in s->classes, unless it is one of them. Returns their number. */
static int32_t add_excluded(cl_sampler *s, int32_t n, int32_t id) {
    if (s->seen[id]) return n;
    s->seen[id] = true;
    s->classes[n] = id;
    return n + 1;
}

/* The tokens that bad words and min_tokens exclude here, in s->classes. Returns their number. */
static int32_t list_excluded(cl_sampler *s, const cl_sampler_rules *r, const int32_t *history, int64_t n_prompt,
                             int64_t n_history) {
    int32_t n = 0;
    const int32_t *word = r->bad_words;
    for (int32_t i = 0; i < r->n_bad_words; word += r->bad_word_sizes[i++])
        if (is_begun(word, r->bad_word_sizes[i], history, n_prompt, n_history))
            n = add_excluded(s, n, word[r->bad_word_sizes[i] - 1]);
    for (int32_t i = 0; i < r->n_ends && n_history - n_prompt < r->min_tokens; i++) n = add_excluded(s, n, r->ends[i]);
    for (int32_t i = 0; i < n; i++) s->seen[s->classes[i]] = false;
    return n;
}

/* Exclude all tokens but the allowed ones. */
static void keep_allowed(cl_sampler *s, const cl_sampler_rules *r, float *logits) {
    const int32_t n = r->n_allowed;
    for (int32_t i = 0; i < n; i++) s->border[i] = (candidate){logits[r->allowed[i]], r->allowed[i]};
    for (int32_t i = 0; i < s->n_vocab; i++) logits[i] = -INFINITY;
    for (int32_t i = 0; i < n; i++) logits[s->border[i].id] = s->border[i].logit;
}

bool cl_sampler_is_empty(const cl_sampler *s, const float *logits) {
    return !(logits[s->ops->argmax(logits, s->n_vocab)] > -INFINITY);
}

const float *cl_sampler_restrict(cl_sampler *s, const cl_sampler_rules *r, const float *logits, const int32_t *history,
                                 int64_t n_prompt, int64_t n_history) {
    const int32_t n_excluded = list_excluded(s, r, history, n_prompt, n_history);
    if (n_excluded == 0 && r->n_allowed == 0 && r->n_bias == 0) return logits;
    float *edited = edit(s, logits);
    if (r->n_allowed > 0) keep_allowed(s, r, edited);
    for (int32_t i = 0; i < r->n_bias; i++) edited[r->bias[i].token] += r->bias[i].bias;
    for (int32_t i = 0; i < n_excluded; i++) {
        const int32_t id = s->classes[i];
        s->border[i] = (candidate){edited[id], id};
        edited[id] = -INFINITY;
    }
    if (!cl_sampler_is_empty(s, edited)) return edited;
    for (int32_t i = 0; i < n_excluded; i++) edited[s->border[i].id] = s->border[i].logit;
    if (r->n_allowed > 0 && cl_sampler_is_empty(s, edited)) edited[r->allowed[0]] = 0;
    return edited;
}

/* ---- Cuts ---- */

/* Whether a ranks before b. */
static bool before(candidate a, candidate b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

/* Move c[i] down in a heap of n whose root ranks last. */
static void sink(candidate *c, int32_t i, int32_t n) {
    const candidate item = c[i];
    for (int32_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && before(c[child], c[child + 1])) child++;
        if (!before(item, c[child])) break;
        c[i] = c[child];
        i = child;
    }
    c[i] = item;
}

static void swap(candidate *a, candidate *b) {
    const candidate t = *a;
    *a = *b;
    *b = t;
}

/* Move the k first-ranking of n candidates to the front, in order. */
static void rank(candidate *c, int32_t n, int32_t k) {
    for (int32_t i = k / 2 - 1; i >= 0; i--) sink(c, i, k);
    for (int32_t i = k; i < n; i++)
        if (before(c[i], c[0])) {
            swap(&c[i], &c[0]);
            sink(c, 0, k);
        }
    for (int32_t i = k - 1; i > 0; i--) {
        swap(&c[i], &c[0]);
        sink(c, 0, i);
    }
}

static double sum_of_weights(const cl_sampler *s) {
    double sum = 0;
    for (int32_t i = 0; i * CL_OPS_WEIGHTS < s->n_weights; i++) sum += s->sums[i];
    return sum;
}

/* Compute the weights of logits [n] relative to the largest logit; returns their sum. */
static double weigh(cl_sampler *s, const float *logits, int32_t n, float max, float inverse_temperature) {
    s->n_weights = n;
    s->ops->weigh(logits, n, max, inverse_temperature, s->weights, s->sums);
    return sum_of_weights(s);
}

/* The same for n candidates. */
static double weigh_candidates(cl_sampler *s, int32_t n, float max, float inverse_temperature) {
    for (int32_t i = 0; i < n; i++) s->logits[i] = s->candidates[i].logit;
    return weigh(s, s->logits, n, max, inverse_temperature);
}

/*
 * Move the fewest likeliest of n candidates with top_p of the total weight to the front, and return their number. One pass sums
 * weights in classes by the distance from the largest logit; only the class in which the target is reached must be ranked.
 */
static int32_t cut_top_p(cl_sampler *s, int32_t n, float top_p, float max, float inverse_temperature) {
    enum { PER_NAT = 32, CLASSES = 64 * PER_NAT };
    const double target = (double)top_p * weigh_candidates(s, n, max, inverse_temperature);
    double mass[CLASSES] = {0}, reached = 0;
    for (int32_t i = 0; i < n; i++) {
        const float distance = (max - s->candidates[i].logit) * inverse_temperature * PER_NAT;
        s->classes[i] = distance < CLASSES - 1 ? (int32_t)distance : CLASSES - 1;
        mass[s->classes[i]] += (double)s->weights[i];
    }
    int32_t last = 0, n_kept = 0, n_border = 0;
    while (last < CLASSES - 1 && reached + mass[last] < target) reached += mass[last++];
    for (int32_t i = 0; i < n; i++) {
        if (s->classes[i] < last)
            s->candidates[n_kept++] = s->candidates[i];
        else if (s->classes[i] == last)
            s->border[n_border++] = s->candidates[i];
    }
    rank(s->border, n_border, n_border);
    for (int32_t i = 0; i < n_border; i++) {
        s->candidates[n_kept++] = s->border[i];
        reached += (double)cl_ops_weight((s->border[i].logit - max) * inverse_temperature);
        if (reached >= target) break;
    }
    return n_kept;
}

/* List the candidates by id: logits of at least `least`, which is finite. Returns their number. */
static int32_t collect(cl_sampler *s, const float *logits, float least) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->candidates[n] = (candidate){logits[i], i};
        n += logits[i] >= least; /* false for NaN */
    }
    return n;
}

/* The same of tokens ids [n] alone. */
static int32_t collect_among(cl_sampler *s, const float *logits, const int32_t *ids, int32_t n, float least) {
    int32_t n_candidates = 0;
    for (int32_t i = 0; i < n; i++)
        if (logits[ids[i]] >= least) s->candidates[n_candidates++] = (candidate){logits[ids[i]], ids[i]};
    return n_candidates;
}

/* The position of a random number, on which it depends besides the seed. */
typedef struct place {
    int64_t position;
    int32_t choice;
    uint32_t attempt; /* 0: the first draw */
} place;

/* A random number in [0, 1) with 53 bits. */
static double uniform(uint64_t seed, place at) {
    uint32_t bits[4] = {(uint32_t)at.position, (uint32_t)((uint64_t)at.position >> 32), (uint32_t)at.choice, at.attempt};
    cl_philox(bits, seed);
    return (double)(((uint64_t)bits[0] << 32 | bits[1]) >> 11) * 0x1p-53;
}

/* ---- Steps ---- */

static const cl_sampler_cuts all_steps = {
    .n_steps = CL_SAMPLER_MAX_STEPS,
    .steps = {CL_SAMPLER_TEMPERATURE, CL_SAMPLER_MIN_P, CL_SAMPLER_TOP_K, CL_SAMPLER_TOP_P},
};

/* The steps of a draw. */
typedef struct plan {
    const cl_sampler_params *params; /* borrowed, as is `steps` */
    const cl_sampler_step *steps;    /* [n_steps] */
    int32_t n_steps, min_keep;
    float max;                 /* the largest logit */
    float temperature;         /* that the logits have so far; in the end that of the draw */
    float inverse_temperature; /* of it */
} plan;

static void set_temperature(plan *p, float temperature) {
    p->temperature = temperature;
    p->inverse_temperature = fminf(1 / temperature, 1e30f);
}

static plan plan_of(const cl_sampler_params *params, const cl_sampler_cuts *cuts, float max) {
    const cl_sampler_cuts *listed = cuts && cuts->n_steps > 0 ? cuts : &all_steps;
    return (plan){params, listed->steps, listed->n_steps, cuts ? cuts->min_keep : 0, max, 1, 1};
}

static bool has_step(const plan *p, cl_sampler_step step) {
    for (int32_t i = 0; i < p->n_steps; i++)
        if (p->steps[i] == step) return true;
    return false;
}

/* Whether a step leaves out tokens. */
static bool cuts_any(const plan *p) {
    return (p->params->min_p > 0 && has_step(p, CL_SAMPLER_MIN_P)) || (p->params->top_k > 0 && has_step(p, CL_SAMPLER_TOP_K)) ||
           (p->params->top_p < 1 && has_step(p, CL_SAMPLER_TOP_P));
}

/* The least logit that min_p leaves. */
static float least_logit(const plan *p) {
    if (!(p->params->min_p > 0)) return -FLT_MAX;
    return fmaxf(-FLT_MAX, fminf(p->max, p->max + p->temperature * logf(p->params->min_p)));
}

static int32_t keep_likeliest(cl_sampler *s, int32_t n, int32_t k) {
    if (k >= n) return n;
    rank(s->candidates, n, k);
    return k;
}

static int32_t cut_min_p(cl_sampler *s, const plan *p, int32_t n) {
    const float least = least_logit(p);
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++) n_kept += s->candidates[i].logit >= least;
    if (n_kept < p->min_keep) return keep_likeliest(s, n, p->min_keep);
    n_kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (s->candidates[i].logit >= least) s->candidates[n_kept++] = s->candidates[i];
    return n_kept;
}

/* As cut_top_p, with at least min_keep candidates. */
static int32_t cut_top_p_to(cl_sampler *s, const plan *p, int32_t n) {
    const double target = (double)p->params->top_p * weigh_candidates(s, n, p->max, p->inverse_temperature);
    double reached = 0;
    int32_t n_kept = 0;
    rank(s->candidates, n, n);
    while (n_kept < n && (n_kept < p->min_keep || reached < target))
        reached += (double)cl_ops_weight((s->candidates[n_kept++].logit - p->max) * p->inverse_temperature);
    return n_kept;
}

/* Take a step over n candidates; returns how many it leaves. */
static int32_t take_step(cl_sampler *s, plan *p, cl_sampler_step step, int32_t n) {
    switch (step) {
    case CL_SAMPLER_TEMPERATURE: set_temperature(p, p->params->temperature); return n;
    case CL_SAMPLER_MIN_P: return p->params->min_p > 0 ? cut_min_p(s, p, n) : n;
    case CL_SAMPLER_TOP_K: return p->params->top_k > 0 ? keep_likeliest(s, n, p->params->top_k) : n;
    case CL_SAMPLER_TOP_P: break;
    }
    if (!(p->params->top_p < 1)) return n;
    return p->min_keep > 1 ? cut_top_p_to(s, p, n) : cut_top_p(s, n, p->params->top_p, p->max, p->inverse_temperature);
}

/*
 * List the candidates that the steps leave of tokens ids [n_ids]; NULL: of all. Returns their number. Where min_p comes first,
 * tokens that it leaves out are not even listed.
 */
static int32_t cut(cl_sampler *s, plan *p, const float *logits, const int32_t *ids, int32_t n_ids) {
    int32_t i = 0;
    if (p->steps[0] == CL_SAMPLER_TEMPERATURE) take_step(s, p, p->steps[i++], 0);
    const bool listed = i < p->n_steps && p->steps[i] == CL_SAMPLER_MIN_P && p->min_keep <= 1;
    const float least = listed ? least_logit(p) : -FLT_MAX;
    int32_t n = ids ? collect_among(s, logits, ids, n_ids, least) : collect(s, logits, least);
    for (i += listed; i < p->n_steps; i++) n = take_step(s, p, p->steps[i], n);
    return n;
}

/*
 * Draw one of the weights; returns its token. That is the one in which a random part of their sum ends; if rounding leaves a
 * remainder, the last one that is not zero. -1: all of them are.
 */
static int32_t pick(cl_sampler *s, uint64_t seed, place at) {
    double part = uniform(seed, at) * sum_of_weights(s);
    int32_t first = 0;
    while (first + CL_OPS_WEIGHTS < s->n_weights && part >= s->sums[first / CL_OPS_WEIGHTS]) {
        part -= s->sums[first / CL_OPS_WEIGHTS];
        first += CL_OPS_WEIGHTS;
    }
    s->picked = -1;
    for (int32_t i = first; i < s->n_weights; i++) {
        if (s->weights[i] == 0) continue;
        s->picked = i;
        part -= (double)s->weights[i];
        if (part < 0) break;
    }
    return s->picked < 0 || !s->has_candidates ? s->picked : s->candidates[s->picked].id;
}

/* Draw among tokens ids [n_ids]; NULL: among all. best: the first of those with the largest logit. */
static int32_t draw(cl_sampler *s, const cl_sampler_params *params, const cl_sampler_cuts *cuts, const float *logits,
                    const int32_t *ids, int32_t n_ids, int32_t best, place at) {
    plan p = plan_of(params, cuts, logits[best]);
    s->n_weights = 0;
    /* With infinite logits, or none, there is nothing to draw from. */
    if (!(params->temperature > 0) || !(fabsf(p.max) < INFINITY)) return best;

    s->has_candidates = ids || cuts_any(&p);
    if (s->has_candidates) {
        const int32_t n = cut(s, &p, logits, ids, n_ids);
        weigh_candidates(s, n, p.max, p.inverse_temperature);
    } else {
        if (has_step(&p, CL_SAMPLER_TEMPERATURE)) set_temperature(&p, params->temperature);
        weigh(s, logits, s->n_vocab, p.max, p.inverse_temperature);
    }
    const int32_t token = pick(s, params->seed, at);
    return token < 0 ? best : token;
}

int32_t cl_sampler_draw(cl_sampler *s, const cl_sampler_params *params, const cl_sampler_cuts *cuts, const float *logits,
                        cl_sampler_history history, int32_t choice, int64_t position) {
    logits = penalise(s, params, logits, history);
    const int32_t best = s->ops->argmax(logits, s->n_vocab);
    return draw(s, params, cuts, logits, NULL, 0, best, (place){position, choice, 0});
}

int32_t cl_sampler_draw_other(cl_sampler *s, const cl_sampler_params *params, int32_t choice, int64_t position,
                              int32_t attempt) {
    if (s->n_weights == 0 || s->picked < 0) return -1;
    const int32_t first = s->picked - s->picked % CL_OPS_WEIGHTS;
    const int32_t end = s->n_weights - first < CL_OPS_WEIGHTS ? s->n_weights : first + CL_OPS_WEIGHTS;
    double sum = 0;
    s->weights[s->picked] = 0;
    for (int32_t i = first; i < end; i++) sum += (double)s->weights[i];
    s->sums[first / CL_OPS_WEIGHTS] = sum;
    return pick(s, params->seed, (place){position, choice, (uint32_t)attempt});
}

/* The first of the tokens ids [n] with the largest logit; the first one if all are NaN or minus infinity. */
static int32_t argmax_among(const float *logits, const int32_t *ids, int32_t n) {
    int32_t best = ids[0];
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (!(logits[ids[i]] > max)) continue;
        best = ids[i];
        max = logits[best];
    }
    return best;
}

int32_t cl_sampler_redraw(cl_sampler *s, const cl_sampler_params *params, const cl_sampler_cuts *cuts, const float *logits,
                          const int32_t *ids, int32_t n_ids, cl_sampler_history history, int32_t choice, int64_t position) {
    logits = penalise(s, params, logits, history);
    const int32_t best = ids ? argmax_among(logits, ids, n_ids) : s->ops->argmax(logits, s->n_vocab);
    return draw(s, params, cuts, logits, ids, n_ids, best, (place){position, choice, UINT32_MAX});
}

void cl_sampler_logprobs(cl_sampler *s, const float *logits, int32_t id, cl_sampler_logprob *chosen, int32_t n_top,
                         cl_sampler_logprob *top) {
    const float max = logits[s->ops->argmax(logits, s->n_vocab)];
    const bool finite = fabsf(max) < INFINITY;
    const int32_t n = collect(s, logits, -FLT_MAX);
    const double log_sum = finite ? (double)max + log(weigh_candidates(s, n, max, 1)) : 0;
    const float x = logits[id];
    *chosen = (cl_sampler_logprob){id, finite && x >= -FLT_MAX ? (float)((double)x - log_sum) : -INFINITY};
    const int32_t k = n_top < n ? n_top : n;
    if (k > 0) rank(s->candidates, n, k);
    for (int32_t i = 0; i < n_top; i++)
        top[i] = i < k ? (cl_sampler_logprob){s->candidates[i].id,
                                              finite ? (float)((double)s->candidates[i].logit - log_sum) : -INFINITY}
                       : (cl_sampler_logprob){-1, -INFINITY};
}

int32_t cl_sampler_rank(const float *logits, int32_t n_vocab, int32_t id) {
    int32_t rank = 1;
    for (int32_t i = 0; i < n_vocab; i++) rank += logits[i] > logits[id];
    return rank;
}

/* Draws and drafts the tokens that a grammar allows: see constraint.h. */
#include "constraint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Scratch ---- */

static bool list_end_tokens(cl_constraint_scratch *sc, const cl_tokenizer *tok) {
    for (int32_t id = 0; id < sc->n_vocab; id++) sc->n_end_tokens += cl_tokenizer_is_end(tok, id);
    sc->end_tokens = calloc((size_t)sc->n_end_tokens + 1, sizeof *sc->end_tokens);
    if (!sc->end_tokens) return false;
    for (int32_t id = 0, n = 0; id < sc->n_vocab; id++)
        if (cl_tokenizer_is_end(tok, id)) sc->end_tokens[n++] = id;
    return true;
}

bool cl_constraint_scratch_init(cl_constraint_scratch *sc, const cl_tokenizer *tok, int32_t n_vocab, int32_t n_workers) {
    *sc = (cl_constraint_scratch){.n_vocab = n_vocab};
    sc->logits = calloc((size_t)n_workers * (size_t)n_vocab, sizeof *sc->logits);
    sc->masks = calloc((size_t)n_workers * cl_mask_words(n_vocab), sizeof *sc->masks);
    return list_end_tokens(sc, tok) && sc->logits && sc->masks;
}

void cl_constraint_scratch_free(cl_constraint_scratch *sc) {
    free(sc->end_tokens);
    free(sc->logits);
    free(sc->masks);
    memset(sc, 0, sizeof *sc);
}

/* ---- Masks ---- */

static bool is_empty(const uint32_t *mask, int32_t n_vocab) {
    uint32_t any = 0;
    for (size_t i = 0; i < cl_mask_words(n_vocab); i++) any |= mask[i];
    return any == 0;
}

static void remove_tokens(uint32_t *mask, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) mask[tokens[i] / 32] &= ~(1u << tokens[i] % 32);
}

static void add_tokens(uint32_t *mask, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) mask[tokens[i] / 32] |= 1u << tokens[i] % 32;
}

/* With ignore_eos an end token is drawn only where nothing else may follow. */
static void remove_end_tokens(const cl_constraint_scratch *sc, uint32_t *mask) {
    int32_t allowed[64], n = 0;
    for (int32_t i = 0; i < sc->n_end_tokens && n < 64; i++)
        if (cl_mask_has(mask, sc->end_tokens[i])) allowed[n++] = sc->end_tokens[i];
    remove_tokens(mask, allowed, n);
    if (is_empty(mask, sc->n_vocab)) add_tokens(mask, allowed, n);
}

/* Copy 32 logits, with minus infinity in place of those that the word of a mask lacks. */
static void apply_word(uint32_t word, const float *restrict logits, float *restrict out) {
    static const uint32_t bits[32] = {1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
                                      1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
                                      1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
                                      1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};
    for (int i = 0; i < 32; i++) { /* in this form compilers use vectors */
        const float x = logits[i];
        out[i] = word & bits[i] ? x : -INFINITY;
    }
}

/* The same for a vocabulary. Most words allow all of their tokens, or none. */
static void apply(const uint32_t *mask, const float *logits, float *out, int32_t n_vocab) {
    const int32_t n_words = n_vocab / 32;
    for (int32_t i = 0; i < n_words;) {
        int32_t end = i + 1;
        while (end < n_words && mask[end] == mask[i] && (mask[i] == 0 || mask[i] == UINT32_MAX)) end++;
        if (mask[i] == UINT32_MAX)
            memcpy(out + 32 * i, logits + 32 * i, (size_t)(32 * (end - i)) * sizeof *out);
        else if (mask[i] == 0)
            for (int32_t k = 32 * i; k < 32 * end; k++) out[k] = -INFINITY;
        else
            apply_word(mask[i], logits + 32 * i, out + 32 * i);
        i = end;
    }
    for (int32_t id = 32 * n_words; id < n_vocab; id++) out[id] = cl_mask_has(mask, id) ? logits[id] : -INFINITY;
}

/* The likeliest token of a mask. */
static int32_t best_of(const uint32_t *mask, const float *logits, int32_t n_vocab) {
    int32_t best = -1;
    for (int32_t id = 0; id < n_vocab; id++)
        if (cl_mask_has(mask, id) && (best < 0 || logits[id] > logits[best])) best = id;
    return best;
}

/* ---- Draws ---- */

enum {
    ATTEMPTS = 8, /* tokens that are drawn without a mask before one is computed: that takes as long as some twenty of them */
    FEW = 512     /* masks with at most so many tokens are lists, so that no draw passes over the whole vocabulary */
};

void cl_constraint_init(cl_constraint *con) { *con = (cl_constraint){.drawn = CL_NO_TOKEN}; }

static bool is_late(const cl_constraint *con) {
    cl_matcher *m = con->matcher;
    return m && m->is_late && m->is_late(m);
}

static bool find_forced(cl_constraint *con) {
    con->first_forced = 0;
    con->n_forced = con->matcher->get_forced(con->matcher, con->forced);
    if (con->n_forced >= 0) return true;
    con->n_forced = 0;
    return false;
}

static bool start(cl_constraint *con, cl_grammar *grammar, double until) {
    if (!con->matcher) con->matcher = grammar->start(grammar);
    if (!con->matcher) return false;
    con->matcher->until = until;
    con->begun = con->begun || find_forced(con);
    return con->begun;
}

/* The tokens of a mask in `few` [max], in ascending order. Returns their number; -1: there are more. */
static int32_t list_few(const uint32_t *mask, int32_t n_vocab, int32_t *few, int32_t max) {
    int32_t n = 0;
    for (int32_t first = 0; first < n_vocab; first += 32)
        for (uint32_t bits = mask[first / 32]; bits; bits &= bits - 1) {
            const int32_t id = first + __builtin_ctz(bits);
            if (id >= n_vocab) break;
            if (n == max) return -1;
            few[n++] = id;
        }
    return n;
}

/* Compute the mask: the token that was drawn (-1: none) if it has it, or one that is drawn from it. */
static int32_t draw_masked(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, const cl_choice *c,
                           const float *logits, int64_t position, int32_t drawn) {
    const cl_engine_request *params = &c->owner->params;
    uint32_t *mask = sc->masks + (size_t)worker * cl_mask_words(sc->n_vocab);
    if (!c->constraint->matcher->get_mask(c->constraint->matcher, mask)) return -1;
    if (params->ignore_eos) remove_end_tokens(sc, mask);
    if (drawn >= 0 && cl_mask_has(mask, drawn)) return drawn;
    const float *from = cl_sampler_restrict(s, &c->owner->rules, logits, c->tokens, params->n_prompt, position);
    int32_t few[FEW];
    const int32_t n_few = list_few(mask, sc->n_vocab, few, FEW);
    if (n_few < 0) {
        float *allowed = sc->logits + (size_t)worker * (size_t)sc->n_vocab;
        apply(mask, from, allowed, sc->n_vocab);
        from = allowed;
    }
    const int32_t token = cl_sampler_redraw(s, &params->sampling, &params->cuts, from, n_few < 0 ? NULL : few, n_few,
                                            cl_choice_history(c, position), c->index, position);
    /* Where no allowed token has a finite logit, the draw goes by ids. */
    return cl_mask_has(mask, token) && from[token] > -INFINITY ? token : best_of(mask, logits, sc->n_vocab);
}

static bool is_end(const cl_constraint_scratch *sc, int32_t token) {
    for (int32_t i = 0; i < sc->n_end_tokens; i++)
        if (sc->end_tokens[i] == token) return true;
    return false;
}

/* The token that would be drawn without a grammar; -1: none has a finite logit. */
static int32_t draw_freely(cl_sampler *s, const cl_choice *c, const float *logits, int64_t position) {
    const cl_engine_request *params = &c->owner->params;
    const float *ruled = cl_sampler_restrict(s, &c->owner->rules, logits, c->tokens, params->n_prompt, position);
    const int32_t token =
        cl_sampler_draw(s, &params->sampling, &params->cuts, ruled, cl_choice_history(c, position), c->index, position);
    return ruled[token] > -INFINITY ? token : -1;
}

bool cl_constraint_foresees(const cl_choice *c) {
    const cl_constraint *con = c->constraint;
    return con && con->matcher && con->matcher->foresee && con->begun && !con->failed && !con->open && con->n_forced == 0;
}

bool cl_constraint_foresee(const cl_constraint_scratch *sc, cl_sampler *s, cl_choice *c, const float *logits, int64_t position,
                           double until) {
    cl_constraint *con = c->constraint;
    con->matcher->until = until;
    con->candidate = draw_freely(s, c, logits, position);
    con->foreseen = con->candidate >= 0 && !is_end(sc, con->candidate);
    return con->foreseen;
}

/* Another token in place of the attempt-th one. A token that was foreseen was drawn by another sampler, perhaps. */
static int32_t draw_other(cl_sampler *s, const cl_choice *c, const float *logits, int64_t position, int32_t attempt,
                          bool foreseen) {
    if (foreseen) draw_freely(s, c, logits, position);
    return cl_sampler_draw_other(s, &c->owner->params.sampling, c->index, position, attempt);
}

/* *added: the matcher has the token already. */
static int32_t draw(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, const cl_choice *c, const float *logits,
                    int64_t position, bool *added) {
    cl_constraint *con = c->constraint;
    bool foreseen = con->foreseen;
    int32_t token = foreseen ? con->candidate : draw_freely(s, c, logits, position);
    con->foreseen = false;
    for (int32_t attempt = 1; token >= 0 && attempt <= ATTEMPTS; attempt++) {
        const bool end = is_end(sc, token); /* whether it may follow, the mask alone knows */
        if (end && !c->owner->params.ignore_eos) return draw_masked(sc, worker, s, c, logits, position, token);
        if (!end && !con->matcher->try_advance(con->matcher, token, added)) return -1;
        if (*added) return token;
        token = draw_other(s, c, logits, position, attempt, foreseen);
        foreseen = false;
    }
    return draw_masked(sc, worker, s, c, logits, position, -1);
}

/* Whether a token ends the choice whatever the grammar says, so that its matcher need not know it. */
static bool ends(const cl_constraint_scratch *sc, const cl_choice *c, int32_t token) {
    return !c->owner->params.ignore_eos && is_end(sc, token);
}

/* The next token, which is forced, or ends reasoning, or is drawn. -1: it is not known yet, or the matcher has failed. */
static int32_t choose(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, cl_choice *c, const float *logits,
                      const int32_t *ending, int32_t n_ending, int64_t position) {
    cl_constraint *con = c->constraint;
    con->added = false;
    if (con->n_forced > 0) {
        con->n_forced--;
        return con->forced[con->first_forced++];
    }
    if (n_ending > 0 && !con->no_end) {
        if (con->matcher->count_valid(con->matcher, ending, n_ending) == n_ending) return *ending;
        con->no_end = !is_late(con);
        if (!con->no_end) return CL_NO_TOKEN;
    }
    return draw(sc, worker, s, c, logits, position, &con->added);
}

/* Let the matcher have the token that was drawn, and find what is forced after it. */
static bool follow(cl_constraint *con, bool *completes) {
    con->added = con->added || con->matcher->advance(con->matcher, con->drawn);
    if (!con->added) return false;
    *completes = con->n_forced == 0 && con->matcher->is_complete(con->matcher);
    return *completes || con->n_forced > 0 || find_forced(con);
}

int32_t cl_constraint_draw(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, cl_choice *c, const float *logits,
                           const int32_t *ending, int32_t n_ending, int64_t position, double until, bool *completes) {
    cl_constraint *con = c->constraint;
    *completes = false;
    bool ok = !con->failed && start(con, c->owner->grammar, until);
    if (ok && con->drawn < 0) con->drawn = choose(sc, worker, s, c, logits, ending, n_ending, position);
    ok = ok && con->drawn >= 0 && (ends(sc, c, con->drawn) || follow(con, completes));
    con->open = !ok && !con->failed && is_late(con);
    if (con->open) return CL_LATE;
    const int32_t token = ok ? con->drawn : CL_NO_TOKEN;
    con->failed = !ok;
    con->no_end = false;
    con->drawn = CL_NO_TOKEN;
    return token;
}

/* ---- Sitting out ---- */

void cl_constraint_sit_out(const cl_constraint_scratch *sc, cl_choice *c, const float *logits) {
    cl_constraint *con = c->constraint;
    con->kept = calloc((size_t)sc->n_vocab, sizeof *con->kept);
    if (con->kept && logits) memcpy(con->kept, logits, (size_t)sc->n_vocab * sizeof *logits);
    if (con->kept) return;
    cl_constraint_end(c);
    con->failed = true;
}

bool cl_constraint_may_go_on(const cl_choice *c) {
    return cl_constraint_sits_out(c) && c->constraint->matcher->has_answer(c->constraint->matcher);
}

void cl_constraint_go_on(cl_choice *c) {
    if (!c->constraint) return;
    free(c->constraint->kept);
    c->constraint->kept = NULL;
}

/* ---- Drafts ---- */

int32_t cl_constraint_n_forced(const cl_choice *c) {
    return c->constraint && !c->constraint->open ? c->constraint->n_forced : 0;
}

int32_t cl_constraint_draft(cl_choice *c, cattn_cache *cache, int32_t n_max) {
    const cl_constraint *con = c->constraint;
    const int32_t n = con->n_forced < n_max ? con->n_forced : n_max;
    const int32_t *tokens = con->forced + con->first_forced;
    if (n < 1 || cattn_seq_append(cache, c->seq, tokens, n, NULL) != CATTN_OK) return 0;
    memcpy(c->tokens + c->n_tokens, tokens, (size_t)n * sizeof *tokens);
    c->n_drafted = n;
    c->drafts_forced = true;
    return n;
}

int32_t cl_constraint_count_valid(cl_choice *c, const int32_t *tokens, int32_t n) {
    cl_constraint *con = c->constraint;
    if (!con || n == 0 || (con->matcher && con->matcher->is_late)) return n;
    return con->matcher && !con->failed ? con->matcher->count_valid(con->matcher, tokens, n) : 0;
}

/* ---- The end ---- */

void cl_constraint_explain(const cl_choice *c, cl_error *error) {
    cl_matcher *m = c->constraint->matcher;
    if (m)
        m->explain(m, error);
    else
        cl_fail(error, CL_ERR_NOMEM, "no memory for the grammar of a choice");
}

void cl_constraint_end(cl_choice *c) {
    cl_matcher *m = c->constraint ? c->constraint->matcher : NULL;
    cl_constraint_go_on(c);
    if (!m) return;
    m->free(m);
    c->constraint->matcher = NULL;
    c->constraint->n_forced = 0;
}

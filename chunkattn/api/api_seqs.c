/* The public functions of sequences: joining, growing, leaving, looking at them, and their K/V as bytes. */
#include <string.h>

#include "backends.h"
#include "checks.h"
#include "chunkattn/base/fail.h"
#include "export.h"
#include "file_tier.h"
#include "public_struct.h"
#include "step.h"

/* ---- Arguments ---- */

void cattn_join_options_init(cattn_join_options *options) { *options = (cattn_join_options){.struct_size = sizeof *options}; }

/* A loop that always runs to its end, so that compilers vectorise it. A join of a long prompt spends most of its time here. */
static bool any_negative(const int32_t *tokens, int64_t n) {
    int32_t bits = 0;
    for (int64_t i = 0; i < n; i++) bits |= tokens[i];
    return bits < 0;
}

static cattn_status check_tokens(const int32_t *tokens, int64_t n, cattn_error *error) {
    cattn_status s;
    if ((s = ca_check_at_least("n_tokens", n, 1, error)) || (s = ca_need(tokens, "tokens", error)) || !any_negative(tokens, n))
        return s;
    int64_t i = 0;
    while (tokens[i] >= 0) i++;
    return ca_fail(error, CATTN_ERR_ARG, (int32_t)i, "tokens[%lld] is %d; tokens are not negative", (long long)i, tokens[i]);
}

/* More than any memory holds. Larger reservations are cut to it, which fail just the same, so that no sum overflows. */
static const int64_t MAX_RESERVE = INT64_C(1) << 48;

static cattn_status check_reserve(const char *name, int64_t *n, cattn_error *error) {
    if (*n > MAX_RESERVE) *n = MAX_RESERVE;
    return ca_check_at_least(name, *n, 0, error);
}

static cattn_status find_running(const cattn_cache *c, cattn_seq id, ca_seq **seq, cattn_error *error) {
    *seq = ca_tree_find(c->tree, id);
    if (*seq) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "seq is %llu, which is %s", (unsigned long long)id, ca_seq_fault(c, id));
}

/* A sequence that a call may change: no step is open, and it is a pin or not, as the call expects. */
static cattn_status find_to_change(const cattn_cache *c, cattn_seq id, bool pin, ca_seq **seq, cattn_error *error) {
    cattn_status s;
    if ((s = ca_check_closed(c, error)) || (s = find_running(c, id, seq, error)) || (*seq)->is_pin == pin) return s;
    return ca_fail(error, CATTN_ERR_ARG, -1,
                   pin ? "pin is %llu, which is a sequence but no pin; use cattn_seq_leave"
                       : "seq is %llu, which is a pin; only cattn_cache_unpin ends it",
                   (unsigned long long)id);
}

static cattn_status find_seq(const cattn_cache *c, cattn_seq id, ca_seq **seq, cattn_error *error) {
    return find_to_change(c, id, false, seq, error);
}

static cattn_status read_join_options(const cattn_join_options *options, cattn_join_options *o, cattn_error *error) {
    cattn_join_options_init(o);
    cattn_status s = options ? CA_STRUCT_READ(cattn_join_options, flags, o, options, error) : CATTN_OK;
    if (s) return s;
    if (o->flags & ~(uint64_t)CATTN_JOIN_NO_TIER)
        return ca_fail(error, CATTN_ERR_ARG, -1, "flags is %#llx; it must be 0 or CATTN_JOIN_NO_TIER",
                       (unsigned long long)o->flags);
    if (o->account >= CATTN_MAX_ACCOUNTS)
        return ca_fail(error, CATTN_ERR_ARG, -1, "account is %u; it must be at most %d", o->account, CATTN_MAX_ACCOUNTS - 1);
    if (o->account_weight != 0 && !(o->account_weight >= 1e-6f && o->account_weight <= 1e6f))
        return ca_fail(error, CATTN_ERR_ARG, -1, "account_weight is %g; it must be 0 or from 1e-6 to 1e6",
                       (double)o->account_weight);
    if ((s = ca_check_at_least("n_extras", o->n_extras, 0, error)) ||
        (s = ca_check_at_least("max_step_rows", o->max_step_rows, -1, error)) ||
        (o->n_extras > 0 && (s = ca_need(o->extras, "extras", error))))
        return s;
    return check_reserve("reserve_tokens", &o->reserve_tokens, error);
}

/* ---- Tokens with extra hashes ---- */

/* The ids of a call's tokens. */
typedef struct token_ids {
    const int32_t *at;
    int32_t *own; /* [n] if they are not the caller's tokens; otherwise NULL */
    int64_t n;
    bool held; /* until end_ids */
} token_ids;

static cattn_status check_extra(const cattn_join_options *o, int64_t index, int64_t n_tokens, cattn_error *error) {
    const cattn_extra *e = &o->extras[index];
    const int32_t i = (int32_t)index;
    const int64_t least = i > 0 ? e[-1].first_pos + e[-1].n_tokens : 0;
    if (e->first_pos < least)
        return ca_fail(error, CATTN_ERR_ARG, i, "extras[%d].first_pos is %lld; it must be at least %lld, behind the one before",
                       i, (long long)e->first_pos, (long long)least);
    if (e->n_tokens < 1 || e->n_tokens > n_tokens - e->first_pos)
        return ca_fail(error, CATTN_ERR_ARG, i,
                       "extras[%d].n_tokens is %lld; it must be at least 1 and, from position %lld on, end within the %lld "
                       "tokens",
                       i, (long long)e->n_tokens, (long long)e->first_pos, (long long)n_tokens);
    return e->hash != 0 ? CATTN_OK : ca_fail(error, CATTN_ERR_ARG, i, "extras[%d].hash is 0, which stands for none", i);
}

/* The hash of a sequence's first token: that of the whole sequence, which is not 0, with its own, which may be 0 for none. */
static uint64_t mix(uint64_t whole, uint64_t own) {
    uint64_t h = (whole ^ (own << 29 | own >> 35) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 31;
    return h != 0 ? h : 1;
}

/* ca_tree_hold_extras, or for a search ca_tree_find_extras, which cannot fail. */
static cattn_status replace(ca_tree *tree, bool hold, int32_t *tokens, int64_t n, uint64_t hash) {
    if (hold) return ca_tree_hold_extras(tree, tokens, n, hash);
    ca_tree_find_extras(tree, tokens, n, hash);
    return CATTN_OK;
}

/*
 * Replace tokens by ids as the options say. All tokens behind the first have its hash in their past, so that of the whole
 * sequence is a part of it.
 */
static cattn_status replace_all(ca_tree *tree, bool hold, const cattn_join_options *o, int32_t *tokens) {
    uint64_t whole = o->extra_hash;
    cattn_status s = CATTN_OK;
    for (int64_t i = 0; s == CATTN_OK && i < o->n_extras; i++) {
        const cattn_extra *e = &o->extras[i];
        const bool first = e->first_pos == 0 && whole != 0;
        if (first) s = replace(tree, hold, tokens, 1, mix(whole, e->hash));
        if (first) whole = 0;
        if (s == CATTN_OK) s = replace(tree, hold, tokens + e->first_pos + first, e->n_tokens - first, e->hash);
    }
    return s == CATTN_OK && whole != 0 ? replace(tree, hold, tokens, 1, mix(whole, 0)) : s;
}

static void end_ids(const cattn_cache *c, const token_ids *ids) {
    if (!ids->own) return;
    ca_alloc beside_budget = c->alloc;
    if (ids->held) ca_tree_end_hold_extras(c->tree, ids->own, ids->n);
    ca_delete(&beside_budget, ids->own, (size_t)ids->n, sizeof *ids->own);
}

/* The ids of tokens [n], until end_ids. hold: the call adds the tokens to the tree; otherwise it only searches. */
static cattn_status begin_ids(const cattn_cache *c, bool hold, const int32_t *tokens, int64_t n, const cattn_join_options *o,
                              token_ids *ids, cattn_error *error) {
    *ids = (token_ids){.at = tokens, .n = n, .held = hold};
    cattn_status s = CATTN_OK;
    if (o->extra_hash == 0 && o->n_extras == 0) return CATTN_OK;
    for (int64_t i = 0; i < o->n_extras; i++)
        if ((s = check_extra(o, i, n, error))) return s;
    ca_alloc beside_budget = c->alloc;
    ids->at = ids->own = ca_new(&beside_budget, (size_t)n, sizeof *ids->own);
    if (ids->own) memcpy(ids->own, tokens, (size_t)n * sizeof *ids->own);
    s = ids->own ? replace_all(c->tree, hold, o, ids->own) : CATTN_ERR_NOMEM;
    if (s == CATTN_OK) return CATTN_OK;
    end_ids(c, ids);
    return ca_fail(error, s, -1, "no memory, or none within budget_bytes, for the extra hashes of %lld tokens", (long long)n);
}

/* ---- What a prompt matches ---- */

/* Check the arguments that describe a prompt, and begin its ids. */
static cattn_status begin_prompt(const cattn_cache *c, bool hold, const int32_t *tokens, int64_t n_tokens,
                                 const cattn_join_options *options, cattn_join_options *o, token_ids *ids, cattn_error *error) {
    cattn_status s;
    if ((s = check_tokens(tokens, n_tokens, error)) || (s = read_join_options(options, o, error))) return s;
    return begin_ids(c, hold, tokens, n_tokens, o, ids, error);
}

cattn_status cattn_cache_match(const cattn_cache *c, const int32_t *tokens, int64_t n_tokens, const cattn_join_options *options,
                               cattn_join_result *result, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_join_options o;
    token_ids ids;
    cattn_status s;
    if ((s = ca_need(result, "result", error)) || (s = begin_prompt(c, false, tokens, n_tokens, options, &o, &ids, error)))
        return s;
    *result = ca_tree_find_prefix(c->tree, ids.at, n_tokens, o.domain);
    end_ids(c, &ids);
    return CATTN_OK;
}

cattn_status cattn_cache_explain(const cattn_cache *c, const int32_t *tokens, int64_t n_tokens,
                                 const cattn_join_options *options, cattn_explanation *explanation, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_join_options o;
    token_ids ids;
    cattn_status s;
    if ((s = ca_need(explanation, "explanation", error)) ||
        (s = begin_prompt(c, false, tokens, n_tokens, options, &o, &ids, error)))
        return s;
    cattn_explanation found;
    ca_tree_explain(c->tree, ids.at, n_tokens, o.domain, !(o.flags & CATTN_JOIN_NO_TIER), &found);
    end_ids(c, &ids);
    return CA_STRUCT_WRITE(cattn_explanation, n_other_matched, explanation, &found, error);
}

/* ---- Joining ---- */

/* Let tokens of a sequence that has joined come from the file tier. They count as matched, since they are not computed. */
static void restore(cattn_cache *c, ca_seq *seq, const int32_t *tokens, cattn_join_result *result) {
    const int64_t n_coming = ca_tree_restore(c->tree, seq, tokens, c->row_seconds);
    if (result && n_coming > result->n_matched) result->n_matched = n_coming;
}

/* A sequence leaves; with a file tier, its chunks are written there. */
static void leave(cattn_cache *c, ca_seq *seq) {
    if (c->tier) ca_tree_write_behind(c->tree, seq);
    ca_tree_leave(c->tree, seq);
    if (c->tier) ca_tree_drop_orphans(c->tree);
}

/* Join with ids. */
static cattn_status join(cattn_cache *c, const token_ids *ids, const cattn_join_options *o, cattn_seq *seq,
                         cattn_join_result *result, cattn_error *error) {
    enum { STEP_ROWS = 64 };
    const int64_t n_rows = ca_min(o->max_step_rows != 0 ? o->max_step_rows : STEP_ROWS, ids->n);
    cattn_status s;
    if ((s = ca_tree_open_account(c->tree, o->account, (double)o->account_weight, error)) ||
        (s = ca_tree_join(c->tree, ids->at, ids->n, o->domain, o->reserve_tokens, ca_step_headroom(c, ids->n, n_rows), seq,
                          result, error)))
        return s;
    ca_seq *joined = ca_tree_find(c->tree, *seq);
    joined->account = (uint16_t)o->account;
    joined->no_tier = o->flags & CATTN_JOIN_NO_TIER;
    if (c->tier && !joined->no_tier) restore(c, joined, ids->at, result);
    return CATTN_OK;
}

cattn_status cattn_seq_join(cattn_cache *c, const int32_t *tokens, int64_t n_tokens, const cattn_join_options *options,
                            cattn_seq *seq, cattn_join_result *result, cattn_error *error) {
    cattn_join_options o;
    token_ids ids;
    cattn_status s;
    if ((s = ca_need(seq, "seq", error))) return s;
    *seq = 0;
    CA_CALL(c, "cache", error);
    if ((s = ca_check_closed(c, error)) || (s = ca_check_length(&c->compute, n_tokens, error)) ||
        (s = begin_prompt(c, true, tokens, n_tokens, options, &o, &ids, error)))
        return s;
    ca_file_tier_poll(c);
    s = join(c, &ids, &o, seq, result, error);
    end_ids(c, &ids);
    ca_cache_note_bytes(c);
    return s;
}

/* ---- Growing ---- */

static cattn_status check_append(const cattn_cache *c, const cattn_append *a, ca_seq **seq, cattn_error *error) {
    cattn_status s;
    if ((s = find_seq(c, a->seq, seq, error)) || (s = check_tokens(a->tokens, a->n_tokens, error))) return s;
    return ca_check_length(&c->compute, (*seq)->n_tokens + a->n_tokens, error);
}

static cattn_status append(cattn_cache *c, const cattn_append *a, cattn_error *error) {
    const cattn_extra extra = {0, a->n_tokens, a->extra_hash};
    const cattn_join_options o = {.extras = &extra, .n_extras = a->extra_hash != 0};
    token_ids ids;
    cattn_status s = begin_ids(c, true, a->tokens, a->n_tokens, &o, &ids, error);
    if (s) return s;
    s = ca_tree_append(c->tree, ca_tree_find(c->tree, a->seq), ids.at, a->n_tokens, error);
    end_ids(c, &ids);
    return s;
}

cattn_status cattn_seq_append(cattn_cache *c, cattn_seq id, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const cattn_append one = {.seq = id, .tokens = tokens, .n_tokens = n_tokens};
    ca_seq *seq;
    cattn_status s;
    if ((s = check_append(c, &one, &seq, error))) return s;
    s = append(c, &one, error);
    ca_cache_note_bytes(c);
    return s;
}

/* Name the append at fault, whose own call does not know its index. */
static cattn_status blame(cattn_status s, int32_t i, cattn_error *error) {
    if (s && error) error->entry = i;
    return s;
}

cattn_status cattn_seqs_append(cattn_cache *c, const cattn_append *appends, int32_t n, int32_t *n_done, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_status s = ca_check_at_least("n", n, 0, error);
    ca_seq *seq;
    if (n_done) *n_done = 0;
    if (s == CATTN_OK && n > 0) s = ca_need(appends, "appends", error);
    for (int32_t i = 0; i < n && s == CATTN_OK; i++) s = blame(check_append(c, &appends[i], &seq, error), i, error);
    for (int32_t i = 0; i < n && s == CATTN_OK; i++) {
        s = blame(append(c, &appends[i], error), i, error);
        if (s == CATTN_OK && n_done) *n_done = i + 1;
    }
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_truncate(cattn_cache *c, cattn_seq id, int64_t n_tokens, cattn_error *error) {
    CA_CALL(c, "cache", error);
    ca_seq *seq;
    cattn_status s = find_seq(c, id, &seq, error);
    if (s) return s;
    if (n_tokens < 1 || n_tokens > seq->n_tokens)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_tokens is %lld; it must be from 1 to the sequence's length, %lld",
                       (long long)n_tokens, (long long)seq->n_tokens);
    s = ca_tree_truncate(c->tree, seq, n_tokens, error);
    if (c->tier) ca_tree_drop_orphans(c->tree);
    ca_cache_note_bytes(c);
    return s;
}

/*
 * Remove the last token and append it again. The truncation reserves a chunk for it if it needs one, so that the append finds
 * it.
 */
static cattn_status renew_last(cattn_cache *c, ca_seq *seq, cattn_error *error) {
    const int64_t n = seq->n_tokens, reserve_to = seq->reserve_to;
    int32_t last;
    uint64_t hash;
    cattn_status s = CATTN_OK;
    ca_seq_tokens(seq, n - 1, 1, &last);
    ca_tree_show_extras(c->tree, &last, &hash, 1);
    if (hash != 0) s = ca_tree_hold_extras(c->tree, &last, 1, hash); /* it may get another id (extras.h), and need room */
    if (s) return ca_fail(error, s, -1, "no memory, or none within budget_bytes, for the extra hash of the last token");
    seq->reserve_to = ca_max(reserve_to, n);
    s = ca_tree_truncate(c->tree, seq, n - 1, error);
    if (s)
        seq->reserve_to = reserve_to;
    else
        s = ca_tree_append(c->tree, seq, &last, 1, error);
    ca_tree_end_hold_extras(c->tree, &last, 1);
    return s;
}

cattn_status cattn_seq_recompute_last(cattn_cache *c, cattn_seq id, cattn_error *error) {
    CA_CALL(c, "cache", error);
    ca_seq *seq;
    cattn_status s = find_seq(c, id, &seq, error);
    if (s) return s;
    if (seq->n_tokens == 1)
        return ca_fail(error, CATTN_ERR_ARG, -1, "the sequence has one token; let it leave, and join with the token again");
    s = renew_last(c, seq, error);
    if (c->tier) ca_tree_drop_orphans(c->tree);
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_fork(cattn_cache *c, cattn_seq id, int64_t reserve_tokens, cattn_seq *fork, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    if ((s = ca_need(fork, "fork", error))) return s;
    *fork = 0;
    CA_CALL(c, "cache", error);
    if ((s = find_seq(c, id, &seq, error)) || (s = check_reserve("reserve_tokens", &reserve_tokens, error))) return s;
    s = ca_tree_fork(c->tree, seq, reserve_tokens, fork, error);
    ca_cache_note_bytes(c);
    return s;
}

cattn_status cattn_seq_reserve(cattn_cache *c, cattn_seq id, int64_t n_tokens, cattn_error *error) {
    CA_CALL(c, "cache", error);
    ca_seq *seq;
    cattn_status s;
    if ((s = find_seq(c, id, &seq, error)) || (s = check_reserve("n_tokens", &n_tokens, error))) return s;
    s = ca_tree_reserve(c->tree, seq, n_tokens, error);
    ca_cache_note_bytes(c);
    return s;
}

/* ---- Leaving and pins ---- */

cattn_status cattn_seq_leave(cattn_cache *c, cattn_seq *id, cattn_error *error) {
    CA_CALL(c, "cache", error);
    ca_seq *seq;
    cattn_status s;
    if ((s = ca_need(id, "seq", error)) || (s = find_seq(c, *id, &seq, error))) return s;
    leave(c, seq);
    ca_cache_note_bytes(c);
    *id = 0;
    return CATTN_OK;
}

static uint64_t chunks_of(const cattn_cache *c, int64_t n_tokens) {
    return (uint64_t)((n_tokens + c->layout.c - 1) >> c->layout.log2_c);
}

static cattn_status check_pin(const cattn_cache *c, const ca_seq *seq, int64_t n_tokens, cattn_error *error) {
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    if (n_tokens < 2 || n_tokens % 2 != 0 || n_tokens > n_ready)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_tokens is %lld; it must be even, from 2 to the %lld tokens that are ready",
                       (long long)n_tokens, (long long)n_ready);
    const uint64_t n_chunks = c->chunks_pinned + chunks_of(c, n_tokens);
    if (n_chunks <= c->pin_bytes / c->layout.chunk_bytes) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_BUDGET, -1,
                   "pin_bytes is %llu, and the pins would cover %llu chunks of %zu bytes: raise it, or unpin others",
                   (unsigned long long)c->pin_bytes, (unsigned long long)n_chunks, c->layout.chunk_bytes);
}

cattn_status cattn_seq_pin(cattn_cache *c, cattn_seq id, int64_t n_tokens, cattn_seq *pin, cattn_error *error) {
    cattn_status s;
    ca_seq *seq;
    if ((s = ca_need(pin, "pin", error))) return s;
    *pin = 0;
    CA_CALL(c, "cache", error);
    if ((s = find_seq(c, id, &seq, error))) return s;
    if (c->sharing == CATTN_PRIVATE)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "sharing is CATTN_PRIVATE, where no sequence could use a pin");
    if ((s = check_pin(c, seq, n_tokens, error)) || (s = ca_tree_pin(c->tree, seq, n_tokens, pin, error))) return s;
    c->chunks_pinned += chunks_of(c, n_tokens);
    if (c->tier) ca_tree_write_behind(c->tree, ca_tree_find(c->tree, *pin));
    ca_cache_note_bytes(c);
    return CATTN_OK;
}

cattn_status cattn_cache_unpin(cattn_cache *c, cattn_seq *pin, cattn_error *error) {
    CA_CALL(c, "cache", error);
    cattn_status s;
    ca_seq *seq;
    if ((s = ca_need(pin, "pin", error)) || (s = find_to_change(c, *pin, true, &seq, error))) return s;
    c->chunks_pinned -= chunks_of(c, seq->n_tokens);
    leave(c, seq);
    *pin = 0;
    return CATTN_OK;
}

cattn_status cattn_seq_get_info(const cattn_cache *c, cattn_seq id, cattn_seq_info *info, cattn_error *error) {
    cattn_status s;
    CA_CALL(c, "cache", error);
    if ((s = ca_need(info, "info", error))) return s;
    ca_seq *seq;
    if ((s = find_running(c, id, &seq, error))) return s;
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    const cattn_seq_info now = {.domain = seq->domain,
                                .n_tokens = seq->n_tokens,
                                .n_ready = n_ready,
                                .n_reserved = seq->reserve_to > seq->n_tokens ? seq->reserve_to - seq->n_tokens : 0,
                                .n_coming = ca_path_n_coming(seq->leaf) - n_ready};
    return CA_STRUCT_WRITE(cattn_seq_info, n_coming, info, &now, error);
}

/* ---- K/V ---- */

static cattn_status check_read(const cattn_cache *c, const ca_seq *seq, int32_t layer, int64_t first, int64_t n,
                               cattn_error *error) {
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    if (layer < 0 || layer >= c->layout.n_layers)
        return ca_fail(error, CATTN_ERR_ARG, -1, "layer is %d; it must be from 0 to %d", layer, c->layout.n_layers - 1);
    if (first >= 0 && n >= 0 && n <= n_ready - first) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1,
                   "first_pos is %lld and n_tokens %lld; they must be tokens of the first %lld, which are ready",
                   (long long)first, (long long)n, (long long)n_ready);
}

cattn_status cattn_seq_read(cattn_cache *c, cattn_seq id, int32_t layer, int64_t first_pos, int64_t n_tokens,
                            const cattn_view *k, const cattn_view *v, cattn_error *error) {
    CA_CALL(c, "cache", error);
    const ca_backend *b = c->compute.backend;
    ca_seq *seq;
    cattn_status s;
    if (!b->read_seq) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_READ, error);
    if ((s = ca_check_closed(c, error)) || (s = find_running(c, id, &seq, error)) ||
        (s = check_read(c, seq, layer, first_pos, n_tokens, error)))
        return s;
    const ca_shape *shape = ca_shape_of(&c->layout, layer);
    if ((k && (s = ca_check_view(&c->compute, "k", k, n_tokens, shape->n_kv_heads, shape->tiles.d_k, error))) ||
        (v && (s = ca_check_view(&c->compute, "v", v, n_tokens, shape->n_kv_heads, shape->tiles.d_v, error))))
        return s;
    if (n_tokens > 0) b->read_seq(c, seq, layer, first_pos, n_tokens, k, v);
    return CATTN_OK;
}

/* ---- Export and import ---- */

uint64_t cattn_cache_export_bytes(const cattn_cache *c, int64_t n_tokens) {
    return c && c->compute.backend->export_seq && n_tokens > 0 ? ca_export_bytes(c, n_tokens) : 0;
}

/* No step is open, and the cache can say what its K/V depend on. */
static cattn_status check_transfer(const cattn_cache *c, cattn_error *error) {
    const cattn_status s = ca_check_closed(c, error);
    if (s) return s;
    if (c->model[0] == 0 && c->model[1] == 0)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "tier_fingerprint of the cache's config is 0; set it to a hash of the model and of the program");
    return CATTN_OK;
}

cattn_status cattn_seq_export(cattn_cache *c, cattn_seq id, int64_t n_tokens,
                              int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, cattn_error *error) {
    ca_seq *seq;
    cattn_status s;
    CA_CALL(c, "cache", error);
    const ca_backend *b = c->compute.backend;
    if (!b->export_seq) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_EXPORT, error);
    if ((s = check_transfer(c, error)) || (s = find_running(c, id, &seq, error))) return s;
    if (!write) return ca_fail(error, CATTN_ERR_ARG, -1, "write is NULL");
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    if (n_tokens < 1 || n_tokens > n_ready)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_tokens is %lld; it must be from 1 to the %lld tokens that are ready",
                       (long long)n_tokens, (long long)n_ready);
    return b->export_seq(c, seq, n_tokens, write, ctx, error);
}

cattn_status cattn_seq_import(cattn_cache *c, const void *bytes, size_t n_bytes, const cattn_join_options *options,
                              cattn_seq *seq, cattn_join_result *result, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(seq, "seq", error))) return s;
    *seq = 0;
    CA_CALL(c, "cache", error);
    const ca_backend *b = c->compute.backend;
    if (!b->import_seq) return ca_backend_refuse(c->compute.cuda_device, CA_LACKS_IMPORT, error);
    if ((s = check_transfer(c, error)) || (s = ca_need(bytes, "bytes", error))) return s;
    cattn_join_options o;
    if ((s = read_join_options(options, &o, error))) return s;
    if (o.extra_hash != 0 || o.n_extras > 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "%s is set, but an export brings its own extra hashes; leave it 0",
                       o.extra_hash != 0 ? "extra_hash" : "n_extras");
    s = b->import_seq(c, bytes, n_bytes, &o, seq, result, error);
    ca_cache_note_bytes(c);
    return s;
}

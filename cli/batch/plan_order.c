/* Orders lines by the tokens of their prompts, cuts shards, and says what prompts have in common with those before them. */
#include <stdlib.h>
#include <string.h>

#include "batch_plan.h"

/* The part of a shard's tokens by which its ends may move to a better place. */
static const double CUT_PLAY = 0.1;

/* What is sorted: a prompt, by its domain, its tokens and its turn. */
typedef struct sort_key {
    const int32_t *tokens; /* [n] borrowed */
    size_t n;
    uint64_t domain;
    size_t turn; /* the line, or its place in the order */
    size_t index;
    int32_t priority;
} sort_key;

/* Sequences are in the order of their bytes: any order will do in which those with a common prefix are neighbours. */
static int compare_tokens(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    if (x->domain != y->domain) return x->domain < y->domain ? -1 : 1;
    const size_t n = x->n < y->n ? x->n : y->n;
    const int order = n > 0 ? memcmp(x->tokens, y->tokens, n * sizeof *x->tokens) : 0;
    if (order != 0) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* By priority, and otherwise as they are. */
static int compare_priorities(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

static size_t n_common(const sort_key *a, const sort_key *b) {
    size_t i = 0;
    if (a->domain != b->domain) return 0;
    while (i < a->n && i < b->n && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

/* ---- Shards ---- */

/* Where part i of n begins, among keys in order; before[k]: the cost of those before k; common[k]: of k - 1 and k. */
static size_t cut(const int64_t *before, const size_t *common, size_t n_keys, int32_t i, int32_t n) {
    if (i == 0 || i == n) return i == 0 ? 0 : n_keys;
    const double total = (double)before[n_keys], ideal = total * i / n, play = CUT_PLAY * total / n;
    size_t best = n_keys;
    double best_distance = total - ideal;
    for (size_t k = 0; k < n_keys; k++) {
        if (before[k + 1] == before[k]) continue; /* one place for each cost, so that cuts ascend and parts do not overlap */
        const double distance = (double)before[k] < ideal ? ideal - (double)before[k] : (double)before[k] - ideal;
        const bool inside = distance <= play;
        const double weight = inside ? (double)common[k] : 1e18 + distance;
        const double best_weight = best < n_keys && best_distance <= play ? (double)common[best] : 1e18 + best_distance;
        if (weight > best_weight || (weight == best_weight && distance >= best_distance)) continue;
        best = k;
        best_distance = distance;
    }
    return best;
}

/* Set the costs of the lines in order, and mark those of the shard, which are keys [*first] to [*end - 1]. */
static bool cut_shard(batch_plan *plan, const sort_key *keys, plan_shard shard, size_t *first, size_t *end) {
    const size_t n = plan->n_lines;
    int64_t *before = calloc(n + 1, sizeof *before);
    size_t *common = calloc(n + 1, sizeof *common);
    const bool ok = before && common;
    for (size_t k = 0; ok && k < n; k++) {
        plan_line *line = &plan->lines[keys[k].index];
        common[k] = k > 0 ? n_common(&keys[k - 1], &keys[k]) : 0;
        line->cost -= (int64_t)common[k];
        before[k + 1] = before[k] + line->cost;
    }
    if (ok) {
        *first = cut(before, common, n, shard.i - 1, shard.n);
        *end = cut(before, common, n, shard.i, shard.n);
    }
    for (size_t k = *first; ok && k < *end; k++) plan->lines[keys[k].index].mine = true;
    free(before);
    free(common);
    return ok;
}

/* ---- The order of computing ---- */

/* Fill plan->order with the lines of the keys. */
static bool fill_order(batch_plan *plan, sort_key *keys, size_t n) {
    plan->order = calloc(n + 1, sizeof *plan->order);
    if (!plan->order) return false;
    for (size_t k = 0; k < n; k++) keys[k].turn = k;
    qsort(keys, n, sizeof *keys, compare_priorities);
    for (size_t k = 0; k < n; k++) plan->order[plan->n_order++] = keys[k].index;
    return true;
}

static bool order_lines(batch_plan *plan, const int32_t *tokens, plan_shard shard) {
    size_t first = 0, end = 0;
    sort_key *keys = calloc(plan->n_lines + 1, sizeof *keys);
    for (size_t i = 0; keys && i < plan->n_lines; i++) {
        const plan_line *line = &plan->lines[i];
        keys[i] = (sort_key){.turn = i, .index = i, .priority = line->priority};
        if (line->n_prompts == 0) continue;
        const plan_prompt *p = &plan->prompts[line->first_prompt];
        keys[i].tokens = tokens + p->first;
        keys[i].n = (size_t)p->n_tokens;
        keys[i].domain = p->domain;
    }
    if (keys) qsort(keys, plan->n_lines, sizeof *keys, compare_tokens);
    const bool ok = keys && cut_shard(plan, keys, shard, &first, &end) && fill_order(plan, keys + first, end - first);
    free(keys);
    return ok;
}

/* ---- What prompts have in common with those before them ---- */

/* As long as a match can be: of an even number of tokens, without the prompt's last one. */
static int32_t match_of(size_t n, const sort_key *key) { return (int32_t)((n < key->n ? n : key->n - 1) & ~(size_t)1); }

/* List the prompts of the shard that share, each with its turn. */
static size_t list_prompts(batch_plan *plan, const int32_t *tokens, sort_key *keys) {
    size_t n = 0, turn = 0;
    for (size_t k = 0; k < plan->n_order; k++) {
        const plan_line *line = &plan->lines[plan->order[k]];
        for (size_t i = line->first_prompt; i < line->first_prompt + (size_t)line->n_prompts; i++) {
            const plan_prompt *p = &plan->prompts[i];
            if (!p->shares || p->n_tokens == 0) continue;
            keys[n++] = (sort_key){tokens + p->first, (size_t)p->n_tokens, p->domain, turn++, i, 0};
        }
    }
    return n;
}

/*
 * Set what each prompt of keys [n], which are in the order of tokens, has in common with an earlier turn: one of its neighbours
 * has most, once those with later turns are taken out of the list. So prompts leave it from the last turn on. common [n + 2]:
 * common[k] is what key k has in common with its neighbour before it. at, before, behind [n + 2]: the key of each turn, and its
 * neighbours; key k stands at k + 1, so that both ends have a place.
 */
static void search_earlier(plan_prompt *prompts, const sort_key *keys, size_t n, size_t *common, size_t *at, size_t *before,
                           size_t *behind) {
    for (size_t k = 1; k <= n; k++) {
        at[keys[k - 1].turn] = k;
        before[k] = k - 1;
        behind[k] = k + 1;
        common[k] = k > 1 ? n_common(&keys[k - 2], &keys[k - 1]) : 0;
    }
    for (size_t turn = n; turn-- > 0;) {
        const size_t k = at[turn], next = behind[k];
        const size_t most = common[k] > common[next] ? common[k] : common[next];
        prompts[keys[k - 1].index].n_common = match_of(most, &keys[k - 1]);
        if (common[k] < common[next]) common[next] = common[k];
        behind[before[k]] = next;
        before[next] = before[k];
    }
}

static bool find_common(batch_plan *plan, const int32_t *tokens) {
    const size_t most = plan->n_prompts + 2;
    sort_key *keys = calloc(most, sizeof *keys);
    size_t *places = calloc(4 * most, sizeof *places);
    const bool ok = keys && places;
    const size_t n = ok ? list_prompts(plan, tokens, keys) : 0;
    if (ok) qsort(keys, n, sizeof *keys, compare_tokens);
    if (ok) search_earlier(plan->prompts, keys, n, places, places + most, places + 2 * most, places + 3 * most);
    free(keys);
    free(places);
    return ok;
}

cl_status plan_order(batch_plan *plan, const int32_t *tokens, bool sharing, plan_shard shard, cl_error *error) {
    if (!order_lines(plan, tokens, shard) || (sharing && !find_common(plan, tokens)))
        return cl_fail(error, CL_ERR_NOMEM, "no memory to order %zu lines", plan->n_lines);
    return CL_OK;
}

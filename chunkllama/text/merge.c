/* Merges symbols in a linked list, with a heap of candidate pairs, by the rules in a hash table. */
#include "merge.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/deadline.h"

/* ---- Merging ---- */

int cl_merge_reserve(cl_merge_space *space, size_t n) {
    space->n_symbols = space->n_heap = 0;
    if (n <= space->capacity) return 0;
    const size_t capacity = n < 64 ? 64 : n + n / 2;
    if (capacity > SIZE_MAX / 2 / sizeof(cl_merge_pair)) return -1;
    cl_merge_free(space);
    space->symbols = malloc(capacity * sizeof *space->symbols);
    /* n - 1 pairs at first; each of at most n - 1 merges removes one and adds at most two. */
    space->heap = malloc(2 * capacity * sizeof *space->heap);
    if (!space->symbols || !space->heap) {
        cl_merge_free(space);
        return -1;
    }
    space->capacity = capacity;
    return 0;
}

void cl_merge_free(cl_merge_space *space) {
    free(space->symbols);
    free(space->heap);
    *space = (cl_merge_space){0};
}

void cl_merge_add(cl_merge_space *space, uint32_t start, uint32_t size, int32_t id) {
    const int32_t i = (int32_t)space->n_symbols++;
    space->symbols[i] = (cl_merge_symbol){start, size, id, i - 1, -1};
    if (i > 0) space->symbols[i - 1].next = i;
}

static bool before(const cl_merge_pair *a, const cl_merge_pair *b) {
    return a->order != b->order ? a->order < b->order : a->left < b->left;
}

static void push(cl_merge_space *space, cl_merge_pair pair) {
    size_t i = space->n_heap++;
    for (; i > 0 && before(&pair, &space->heap[(i - 1) / 2]); i = (i - 1) / 2) space->heap[i] = space->heap[(i - 1) / 2];
    space->heap[i] = pair;
}

static cl_merge_pair pop(cl_merge_space *space) {
    const cl_merge_pair top = space->heap[0], last = space->heap[--space->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < space->n_heap; child = 2 * i + 1) {
        if (child + 1 < space->n_heap && before(&space->heap[child + 1], &space->heap[child])) child++;
        if (!before(&space->heap[child], &last)) break;
        space->heap[i] = space->heap[child];
        i = child;
    }
    space->heap[i] = last;
    return top;
}

static void consider(cl_merge_space *space, int32_t left, int32_t right, cl_merge_lookup lookup, const void *ctx) {
    if (left < 0 || right < 0) return;
    const cl_merge_symbol *l = &space->symbols[left], *r = &space->symbols[right];
    cl_merge_pair pair = {.left = left, .right = right, .size = l->size + r->size};
    if (lookup(ctx, l, r, &pair.order, &pair.id)) push(space, pair);
}

cl_status cl_merge_run(cl_merge_space *space, cl_merge_lookup lookup, const void *ctx, cl_error *error) {
    cl_merge_symbol *s = space->symbols;
    cl_status status = CL_OK;
    for (size_t i = 1; i < space->n_symbols && (status = cl_deadline_look(i, error)) == CL_OK; i++)
        consider(space, (int32_t)i - 1, (int32_t)i, lookup, ctx);
    for (size_t n = 0; status == CL_OK && space->n_heap > 0 && (status = cl_deadline_look(n, error)) == CL_OK; n++) {
        const cl_merge_pair pair = pop(space);
        cl_merge_symbol *l = &s[pair.left], *r = &s[pair.right];
        /* Symbols only grow, so neighbours that are together as large as before are the pair that was found. */
        if (l->size == 0 || l->next != pair.right || l->size + r->size != pair.size) continue;
        l->size = pair.size;
        l->id = pair.id;
        l->next = r->next;
        if (r->next >= 0) s[r->next].prev = pair.left;
        r->size = 0;
        consider(space, l->prev, pair.left, lookup, ctx);
        consider(space, pair.left, l->next, lookup, ctx);
    }
    return status;
}

/* ---- Rules ---- */

static const char MERGES[] = "tokenizer.ggml.merges";
static const char IDS[] = "tokenizer.merge_ids";

/* The slot of a pair, or the empty slot for it. */
static cl_merge_rule *find_slot(const cl_merge_rules *rules, int32_t left, int32_t right) {
    size_t i = cl_hash_u64(rules->key, (uint64_t)(uint32_t)left << 32 | (uint32_t)right) & rules->mask;
    const cl_merge_rule *slots = rules->slots;
    while (slots[i].left >= 0 && (slots[i].left != left || slots[i].right != right)) i = (i + 1) & rules->mask;
    return &rules->slots[i];
}

const cl_merge_rule *cl_merge_rules_get(const cl_merge_rules *rules, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return NULL;
    const cl_merge_rule *rule = find_slot(rules, left, right);
    return rule->left >= 0 ? rule : NULL;
}

static void add(cl_merge_rules *rules, int32_t left, int32_t right, size_t rank, int32_t id) {
    cl_merge_rule *rule = find_slot(rules, left, right);
    if (rule->left < 0) *rule = (cl_merge_rule){left, right, (uint32_t)rank, id};
}

static cl_status reserve(cl_merge_rules *rules, size_t n, cl_error *error) {
    size_t n_slots = 16;
    while (n_slots / 2 < n) n_slots *= 2;
    rules->slots = malloc(n_slots * sizeof *rules->slots);
    rules->mask = n_slots - 1;
    rules->key = cl_hash_new_key();
    if (!rules->slots) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu merges", n);
    for (size_t i = 0; i < n_slots; i++) rules->slots[i].left = -1;
    return CL_OK;
}

static cl_status load_ids(cl_merge_rules *rules, const cl_vocab *v, const void *data, size_t n, cl_error *error) {
    for (size_t i = 0; i < n / 3; i++) {
        int32_t rule[3];
        memcpy(rule, (const char *)data + i * sizeof rule, sizeof rule);
        for (int j = 0; j < 3; j++)
            if (rule[j] < 0 || rule[j] >= v->n)
                return cl_fail(error, CL_ERR_FORMAT, "%s[%zu] has token %d; the vocabulary has %d", IDS, i, rule[j], v->n);
        add(rules, rule[0], rule[1], i, rule[2]);
    }
    return CL_OK;
}

/* Write the bytes of a token's text to buf. False: no text has its characters once it is in the alphabet. */
static bool bytes_of(const cl_vocab *v, cl_str text, char *buf, size_t *size) {
    if (!v->metaspace) return cl_vocab_from_byte_level(text, buf, size);
    *size = cl_metaspace_replace(text.data, text.size, buf);
    return true;
}

/* The token that merges yield; *added: there is none, but an added token has these bytes. */
static int32_t find_word(const cl_vocab *v, const char *data, size_t size, bool *added) {
    const int32_t id = cl_vocab_find(v, data, size);
    if (id < 0 && cl_str_map_get(&v->by_name, data, size) >= 0) *added = true;
    return id;
}

/* Add a rule written "left right", as in the file. buf: scratch for the bytes of both. */
static cl_status add_text(cl_merge_rules *rules, const cl_vocab *v, cl_str text, size_t rank, char *buf, cl_error *error) {
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    if (!space)
        return cl_fail(error, CL_ERR_FORMAT, "%s[%zu]: '%.*s' is not two tokens with a space between", MERGES, rank,
                       (int)(text.size < 60 ? text.size : 60), text.data);
    const cl_str l = {text.data, (size_t)(space - text.data)}, r = {space + 1, text.size - l.size - 1};
    size_t left_size, right_size;
    if (!bytes_of(v, l, buf, &left_size) || !bytes_of(v, r, buf + left_size, &right_size)) return CL_OK; /* it never applies */
    bool added = false;
    const int32_t left = find_word(v, buf, left_size, &added), right = find_word(v, buf + left_size, right_size, &added),
                  id = find_word(v, buf, left_size + right_size, &added);
    if (left >= 0 && right >= 0 && id >= 0)
        add(rules, left, right, rank, id);
    else if (!added || !v->metaspace) /* added tokens are cut out of a text, so SentencePiece never merges them */
        return cl_fail(error, CL_ERR_FORMAT, "%s[%zu]: a part or the result of '%.*s' is not in the vocabulary", MERGES, rank,
                       (int)(text.size < 60 ? text.size : 60), text.data);
    return CL_OK;
}

static cl_status load_texts(cl_merge_rules *rules, const cl_model_file *file, const cl_vocab *v, size_t n, cl_error *error) {
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t size = cl_model_file_array_string(file, MERGES, i).size;
        if (size > longest) longest = size;
    }
    char *buf = malloc(longest + 1);
    cl_status status = buf ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for %zu merges", n);
    for (size_t i = 0; status == CL_OK && i < n; i++)
        status = add_text(rules, v, cl_model_file_array_string(file, MERGES, i), i, buf, error);
    free(buf);
    return status;
}

cl_status cl_merge_rules_load(const cl_model_file *file, const cl_vocab *v, cl_merge_rules *rules, cl_error *error) {
    cl_meta_type type;
    size_t n;
    const void *data;
    if (cl_model_file_get_array(file, IDS, &type, &n, &data)) {
        if (type != CL_META_I32 || n % 3) return cl_fail(error, CL_ERR_FORMAT, "%s: an array of int32 [n][3] is needed", IDS);
        const cl_status status = reserve(rules, n / 3, error);
        return status == CL_OK ? load_ids(rules, v, data, n, error) : status;
    }
    if (!cl_model_file_get_array(file, MERGES, &type, &n, &data) || type != CL_META_STRING)
        return cl_fail(error, CL_ERR_FORMAT, "%s: a tokenizer that merges needs this array of strings", MERGES);
    const cl_status status = reserve(rules, n, error);
    return status == CL_OK ? load_texts(rules, file, v, n, error) : status;
}

void cl_merge_rules_free(cl_merge_rules *rules) {
    free(rules->slots);
    *rules = (cl_merge_rules){0};
}

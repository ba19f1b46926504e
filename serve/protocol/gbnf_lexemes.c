/*
 * Chooses the lexemes of a grammar.
 *
 * llguidance reads a text lexeme by lexeme, and a lexeme takes every character with which it, or another one that began with
 * it, can go on. That is fast for long lexemes, but GBNF means something else where such a character could also come after the
 * lexeme: in ("a" [ \n]*) "\n" the blanks would take all ends of lines. So each maximal part without recursion begins as one
 * lexeme, and all lexemes run through one automaton. Where a lexeme may end, and one of them may go on with a character that
 * may follow the first, the one that goes on is split into its parts. Lexemes of one character are never split, and where all
 * have one character nothing is left to chance, so this ends.
 *
 * Characters are numbered by the intervals between the borders of all classes, within which no rule tells them apart.
 */
#include "gbnf.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_INTERVALS = 2048,
    MAX_STATES = 1 << 18, /* of the automaton of single characters, and ids of its sets */
    MAX_WORK = 100000000, /* steps of the loops below: about a fifth of a second */
    MAX_DEPTH = 1024,     /* of nodes within each other in a lexeme */
    MAX_COPIES = 8,       /* of a repetition with a count; longer ones run as loops, which go on at least as often */
    WORD_BITS = 64,
};

/* A state of the automaton. */
typedef struct state {
    int32_t class_node;  /* goes on to `next` with a character of this class; -1: at once */
    int32_t next, other; /* -1: none */
    int32_t lexeme;      /* the definition to which the state belongs */
    bool accepts;        /* the lexeme may end here */
} state;

/* A set of states: those after some characters, in the pool. */
typedef struct set {
    uint64_t hash;
    int32_t start, n;
} set;

typedef struct chooser {
    gbnf_grammar *g;
    uint32_t *borders; /* [n_intervals] first characters */
    int32_t n_intervals, n_words;
    uint64_t *firsts, *follows; /* [n_nodes][n_words] characters with which a node begins, and that follow it */
    uint64_t *classes;          /* [n_nodes][n_words] of classes: their characters */
    int32_t *definitions;       /* [n_definitions] of lexemes */
    bool *is_listed;            /* [n_nodes] */
    bool *is_visited;           /* [n_nodes] outside of lexemes, or a lexeme where it stands */
    int32_t *todo;              /* [n_nodes] */
    int32_t n_definitions;
    state *states;
    int32_t n_states, states_capacity;
    set *sets;
    int32_t n_sets, sets_capacity;
    int32_t *pool; /* states of the sets */
    int32_t n_pool, pool_capacity;
    int32_t *table;  /* [TABLE] indices of sets + 1 by hash */
    int32_t *stack;  /* [n_states] */
    uint32_t *marks; /* [n_states] */
    uint32_t mark;
    int64_t work;
    cl_error *error;
} chooser;

enum { TABLE = 1 << 16 };

static bool fail(chooser *c, cl_status status, const char *what) {
    cl_fail(c->error, status, "%s", what);
    return false;
}

static bool no_memory(chooser *c) { return fail(c, CL_ERR_NOMEM, "out of memory for the grammar"); }

static bool spend(chooser *c, int64_t steps) {
    c->work += steps;
    return c->work <= MAX_WORK || fail(c, CL_ERR_LIMIT, "the grammar is too complex to be converted; shorten it");
}

/* ---- What nodes are ---- */

/* Set is_regular and is_nullable of a node from its children, or its rule. */
static void derive(gbnf_grammar *g, gbnf_node *n) {
    const gbnf_node *body = n->kind == GBNF_RULE ? &g->nodes[g->rules[n->start].body] : NULL;
    bool regular = n->kind != GBNF_TOKEN, all = true, any = false;
    for (int32_t i = n->child; i >= 0; i = g->nodes[i].next) {
        regular = regular && g->nodes[i].is_regular;
        all = all && g->nodes[i].is_nullable;
        any = any || g->nodes[i].is_nullable;
    }
    n->is_regular = body ? body->is_regular : regular;
    n->is_nullable = body                       ? body->is_nullable
                     : n->kind == GBNF_SEQUENCE ? all
                     : n->kind == GBNF_REPEAT   ? any || n->min == 0
                     : n->kind == GBNF_CHOICE   ? any
                                                : false;
}

/* Rules that contain themselves never become regular, since all nodes begin as not regular and not nullable. */
static bool derive_all(chooser *c) {
    gbnf_grammar *g = c->g;
    for (bool changed = true; changed;) {
        changed = false;
        if (!spend(c, g->n_nodes)) return false;
        for (int32_t i = 0; i < g->n_nodes; i++) {
            gbnf_node *n = &g->nodes[i], before = *n;
            derive(g, n);
            changed = changed || n->is_regular != before.is_regular || n->is_nullable != before.is_nullable;
        }
    }
    return true;
}

/* ---- Sets of characters ---- */

static int compare_borders(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool list_borders(chooser *c) {
    const gbnf_grammar *g = c->g;
    int32_t n = 0;
    c->borders = malloc((2 * (size_t)g->n_ranges + 1) * sizeof *c->borders);
    if (!c->borders) return no_memory(c);
    for (int32_t i = 0; i < g->n_ranges; i++) {
        c->borders[n++] = g->ranges[i].first;
        c->borders[n++] = g->ranges[i].last + 1;
    }
    qsort(c->borders, (size_t)n, sizeof *c->borders, compare_borders);
    for (int32_t i = 0; i < n; i++)
        if (c->n_intervals == 0 || c->borders[i] != c->borders[c->n_intervals - 1])
            c->borders[c->n_intervals++] = c->borders[i];
    c->n_words = c->n_intervals / WORD_BITS + 1;
    return c->n_intervals <= MAX_INTERVALS || fail(c, CL_ERR_LIMIT, "the grammar has too many different characters; use fewer");
}

static uint64_t *of(const chooser *c, uint64_t *sets, int32_t node) { return sets + (size_t)node * (size_t)c->n_words; }

static bool has(const uint64_t *s, int32_t i) { return s[i / WORD_BITS] >> (i % WORD_BITS) & 1; }

/* Add the members of b to a; whether a grew. */
static bool join(const chooser *c, uint64_t *a, const uint64_t *b) {
    bool grew = false;
    for (int32_t i = 0; i < c->n_words; i++) {
        grew = grew || (b[i] & ~a[i]);
        a[i] |= b[i];
    }
    return grew;
}

static int32_t interval_of(const chooser *c, uint32_t character) {
    const uint32_t *found = bsearch(&character, c->borders, (size_t)c->n_intervals, sizeof *c->borders, compare_borders);
    return (int32_t)(found - c->borders); /* borders of ranges are in the list */
}

static void fill_class(chooser *c, int32_t i) {
    const gbnf_node *n = &c->g->nodes[i];
    uint64_t *s = of(c, c->classes, i);
    for (int32_t k = n->start; k < n->start + n->n; k++) {
        const int32_t end = interval_of(c, c->g->ranges[k].last + 1);
        for (int32_t at = interval_of(c, c->g->ranges[k].first); at < end; at++)
            s[at / WORD_BITS] |= UINT64_C(1) << (at % WORD_BITS);
    }
    join(c, of(c, c->firsts, i), s);
}

static bool allocate_sets(chooser *c) {
    const size_t n = (size_t)c->g->n_nodes * (size_t)c->n_words;
    if (!spend(c, (int64_t)n)) return false;
    c->firsts = calloc(n, sizeof *c->firsts);
    c->follows = calloc(n, sizeof *c->follows);
    c->classes = calloc(n, sizeof *c->classes);
    c->definitions = calloc((size_t)c->g->n_nodes, sizeof *c->definitions);
    c->is_listed = calloc((size_t)c->g->n_nodes, sizeof *c->is_listed);
    c->is_visited = calloc((size_t)c->g->n_nodes, sizeof *c->is_visited);
    c->todo = calloc((size_t)c->g->n_nodes, sizeof *c->todo);
    c->table = calloc(TABLE, sizeof *c->table);
    return (c->firsts && c->follows && c->classes && c->definitions && c->is_listed && c->is_visited && c->todo && c->table) ||
           no_memory(c);
}

/* ---- The bytes that begin a lexeme, and those that follow it ---- */

static bool grow_first(chooser *c, int32_t i) {
    const gbnf_grammar *g = c->g;
    const gbnf_node *n = &g->nodes[i];
    uint64_t *first = of(c, c->firsts, i);
    bool grew = n->kind == GBNF_RULE && join(c, first, of(c, c->firsts, g->rules[n->start].body));
    for (int32_t k = n->child; k >= 0; k = g->nodes[k].next) {
        grew = join(c, first, of(c, c->firsts, k)) || grew;
        if (n->kind == GBNF_SEQUENCE && !g->nodes[k].is_nullable) break;
    }
    return grew;
}

/* Add the bytes that follow the children of a node, or its rule. The inside of a lexeme does not count. */
static bool grow_follows(chooser *c, int32_t i) {
    const gbnf_grammar *g = c->g;
    const gbnf_node *n = &g->nodes[i];
    const uint64_t *follow = of(c, c->follows, i);
    bool grew = n->kind == GBNF_RULE && join(c, of(c, c->follows, g->rules[n->start].body), follow);
    if (gbnf_is_lexeme(g, i)) return grew;
    for (int32_t k = n->child; k >= 0; k = g->nodes[k].next) {
        uint64_t *own = of(c, c->follows, k);
        int32_t later = g->nodes[k].next;
        for (; n->kind == GBNF_SEQUENCE && later >= 0; later = g->nodes[later].next) {
            grew = join(c, own, of(c, c->firsts, later)) || grew;
            if (!g->nodes[later].is_nullable) break;
        }
        if (n->kind != GBNF_SEQUENCE || later < 0) grew = join(c, own, follow) || grew;
        if (n->kind == GBNF_REPEAT && n->max != 1) grew = join(c, own, of(c, c->firsts, k)) || grew;
    }
    return grew;
}

/* Children come before their parents, so one pass does most, in this direction or the other. */
static bool find_firsts(chooser *c) {
    const int32_t n = c->g->n_nodes;
    for (int32_t i = 0; i < n; i++)
        if (c->g->nodes[i].kind == GBNF_CLASS) fill_class(c, i);
    for (bool grew = true; grew;) {
        grew = false;
        if (!spend(c, (int64_t)n * (c->n_words + 4))) return false;
        for (int32_t i = 0; i < n; i++) grew = grow_first(c, i) || grew;
    }
    return true;
}

/* The nodes have been visited. */
static bool find_follows(chooser *c) {
    const int32_t n = c->g->n_nodes;
    memset(c->follows, 0, (size_t)n * (size_t)c->n_words * sizeof *c->follows);
    for (bool grew = true; grew;) {
        grew = false;
        if (!spend(c, (int64_t)n * 2 * (c->n_words + 4))) return false;
        for (int32_t i = n - 1; i >= 0; i--) grew = (c->is_visited[i] && grow_follows(c, i)) || grew;
    }
    return true;
}

/* ---- The lexemes ---- */

static void list_lexeme(chooser *c, int32_t node) {
    const int32_t definition = gbnf_definition(c->g, node);
    if (c->is_listed[definition]) return;
    c->is_listed[definition] = true;
    c->definitions[c->n_definitions++] = definition;
}

/* Visit the nodes that the root uses, as far as they are outside of lexemes, and list the lexemes. */
static bool list_lexemes(chooser *c) {
    gbnf_grammar *g = c->g;
    int32_t n = 0;
    c->n_definitions = 0;
    memset(c->is_listed, 0, (size_t)g->n_nodes * sizeof *c->is_listed);
    memset(c->is_visited, 0, (size_t)g->n_nodes * sizeof *c->is_visited);
    c->todo[n++] = g->rules[g->root].body;
    c->is_visited[c->todo[0]] = true;
    while (n > 0) {
        const int32_t i = c->todo[--n];
        const gbnf_node *node = &g->nodes[i];
        const bool is_rule = node->kind == GBNF_RULE;
        if (gbnf_is_lexeme(g, i)) {
            list_lexeme(c, i);
            continue;
        }
        for (int32_t k = is_rule ? g->rules[node->start].body : node->child; k >= 0; k = is_rule ? -1 : g->nodes[k].next) {
            if (c->is_visited[k]) continue;
            c->is_visited[k] = true;
            c->todo[n++] = k;
        }
    }
    return spend(c, g->n_nodes);
}

/* ---- The automaton ---- */

static int32_t add_state(chooser *c, int32_t class_node, int32_t lexeme) {
    if (c->n_states == MAX_STATES) {
        fail(c, CL_ERR_LIMIT, "the grammar is too large to be converted; shorten it");
        return -1;
    }
    if (!gbnf_reserve(&c->states, c->n_states + 1, &c->states_capacity, sizeof *c->states, c->error)) return -1;
    c->states[c->n_states] = (state){.class_node = class_node, .next = -1, .other = -1, .lexeme = lexeme};
    return c->n_states++;
}

static int32_t build(chooser *c, int32_t node, int32_t from, int32_t lexeme, int depth);

/* The states of one pass through the child of a repetition; `from` is left where it may be left out. */
static int32_t build_loop(chooser *c, const gbnf_node *n, int32_t from, int32_t lexeme, int depth) {
    const int32_t start = add_state(c, -1, lexeme), end = start < 0 ? -1 : build(c, n->child, start, lexeme, depth);
    const int32_t after = end < 0 ? -1 : add_state(c, -1, lexeme), back = after < 0 ? -1 : add_state(c, -1, lexeme);
    if (back < 0) return -1;
    c->states[from].next = start;
    if (n->min == 0) c->states[from].other = after;
    c->states[end].next = n->max == 1 ? after : back;
    c->states[back].next = start;
    c->states[back].other = after;
    return after;
}

/* Copies, where their number is known and small: those after the first `min` may be left out. */
static int32_t build_copies(chooser *c, const gbnf_node *n, int32_t from, int32_t lexeme, int depth) {
    const int32_t after = add_state(c, -1, lexeme);
    for (int32_t i = 0; i < n->max && from >= 0 && after >= 0; i++) {
        const int32_t start = add_state(c, -1, lexeme);
        if (start < 0) return -1;
        c->states[from].next = start;
        if (i >= n->min) c->states[from].other = after;
        from = build(c, n->child, start, lexeme, depth);
    }
    if (from < 0 || after < 0) return -1;
    c->states[from].next = after;
    return after;
}

static int32_t build_choice(chooser *c, const gbnf_node *n, int32_t from, int32_t lexeme, int depth) {
    const int32_t after = add_state(c, -1, lexeme);
    for (int32_t k = n->child; k >= 0 && after >= 0; k = c->g->nodes[k].next) {
        const int32_t start = add_state(c, -1, lexeme), end = start < 0 ? -1 : build(c, k, start, lexeme, depth);
        const int32_t more = end < 0 ? -1 : add_state(c, -1, lexeme);
        if (more < 0) return -1;
        c->states[end].next = after;
        c->states[from].next = start;
        c->states[from].other = more;
        from = more; /* a state with two ways can have a third through the next one */
    }
    return after;
}

/* Add the states of a node behind `from`, which goes nowhere yet. Returns the last one, which does not either; -1: failed. */
static int32_t build(chooser *c, int32_t node, int32_t from, int32_t lexeme, int depth) {
    const gbnf_node *n = &c->g->nodes[node];
    if (depth > MAX_DEPTH) {
        fail(c, CL_ERR_LIMIT, "the grammar has too many rules or parentheses within each other; use fewer");
        return -1;
    }
    switch (n->kind) {
    case GBNF_CLASS: {
        const int32_t at = add_state(c, node, lexeme), after = at < 0 ? -1 : add_state(c, -1, lexeme);
        if (after < 0) return -1;
        c->states[from].next = at;
        c->states[at].next = after;
        return after;
    }
    case GBNF_RULE: return build(c, c->g->rules[n->start].body, from, lexeme, depth + 1);
    case GBNF_CHOICE: return build_choice(c, n, from, lexeme, depth + 1);
    case GBNF_REPEAT:
        return n->max > 1 && n->max <= MAX_COPIES ? build_copies(c, n, from, lexeme, depth + 1)
                                                  : build_loop(c, n, from, lexeme, depth + 1);
    default:
        for (int32_t k = n->child; k >= 0 && from >= 0; k = c->g->nodes[k].next) from = build(c, k, from, lexeme, depth + 1);
        return from;
    }
}

/* ---- Its sets of states ---- */

/* Add a state to the set that is being made, and those that it reaches without a character. Only others are kept. */
static bool close_state(chooser *c, int32_t i) {
    int32_t n = 0;
    c->stack[n++] = i;
    while (n > 0) {
        i = c->stack[--n];
        if (i < 0 || c->marks[i] == c->mark) continue;
        c->marks[i] = c->mark;
        const state *s = &c->states[i];
        if (s->class_node >= 0 || s->accepts) {
            if (!gbnf_reserve(&c->pool, c->n_pool + 1, &c->pool_capacity, sizeof *c->pool, c->error)) return false;
            c->pool[c->n_pool++] = i;
        }
        if (s->class_node >= 0) continue;
        c->stack[n++] = s->next;
        c->stack[n++] = s->other;
    }
    return spend(c, 1);
}

static int compare_ids(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* Keep the states from `start` in the pool on as a set, unless there is an equal one. */
static bool keep_set(chooser *c, int32_t start) {
    const int32_t n = c->n_pool - start;
    if (n == 0) return true;
    qsort(c->pool + start, (size_t)n, sizeof *c->pool, compare_ids);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int32_t i = start; i < c->n_pool; i++) hash = (hash ^ (uint32_t)c->pool[i]) * UINT64_C(0x100000001b3);
    size_t at = hash % TABLE;
    for (; c->table[at] > 0; at = (at + 1) % TABLE) {
        const set *other = &c->sets[c->table[at] - 1];
        if (other->hash == hash && other->n == n &&
            memcmp(c->pool + other->start, c->pool + start, (size_t)n * sizeof *c->pool) == 0) {
            c->n_pool = start;
            return spend(c, n);
        }
    }
    if (c->n_sets == TABLE / 2) return fail(c, CL_ERR_LIMIT, "the grammar is too complex to be converted; shorten it");
    if (!gbnf_reserve(&c->sets, c->n_sets + 1, &c->sets_capacity, sizeof *c->sets, c->error)) return false;
    c->sets[c->n_sets++] = (set){hash, start, n};
    c->table[at] = c->n_sets;
    return spend(c, 4 * (int64_t)n);
}

/* The set after one of the characters of an interval. */
static bool advance(chooser *c, int32_t from, int32_t interval) {
    const set s = c->sets[from];
    const int32_t start = c->n_pool;
    c->mark++;
    for (int32_t i = s.start; i < s.start + s.n; i++) {
        const state *at = &c->states[c->pool[i]];
        if (at->class_node >= 0 && has(of(c, c->classes, at->class_node), interval) && !close_state(c, at->next)) return false;
    }
    return spend(c, s.n) && keep_set(c, start);
}

/*
 * Split the lexemes that go on from a set with a character that may follow one which ends there. A lexeme that goes on has more
 * than one character, so it has parts.
 */
static bool split_in(chooser *c, int32_t index, bool *any) {
    const set s = c->sets[index];
    for (int32_t i = s.start; i < s.start + s.n; i++) {
        const state *end = &c->states[c->pool[i]];
        if (!end->accepts) continue;
        const uint64_t *follow = of(c, c->follows, end->lexeme);
        for (int32_t k = s.start; k < s.start + s.n; k++) {
            const state *on = &c->states[c->pool[k]];
            if (on->class_node < 0) continue;
            const uint64_t *with = of(c, c->classes, on->class_node);
            for (int32_t w = 0; w < c->n_words; w++)
                if (with[w] & follow[w]) c->g->nodes[on->lexeme].is_split = *any = true;
        }
        if (!spend(c, (int64_t)s.n * c->n_words)) return false;
    }
    return true;
}

/* Build the automaton of all lexemes. */
static bool build_all(chooser *c) {
    c->n_states = c->n_sets = c->n_pool = 0;
    const int32_t start = add_state(c, -1, -1);
    int32_t from = start;
    for (int32_t i = 0; i < c->n_definitions && from >= 0; i++) {
        const int32_t lexeme = c->definitions[i], first = add_state(c, -1, lexeme);
        const int32_t end = first < 0 ? -1 : build(c, lexeme, first, lexeme, 0), more = end < 0 ? -1 : add_state(c, -1, -1);
        if (more < 0) return false;
        c->states[end].accepts = true;
        c->states[from].next = first;
        c->states[from].other = more;
        from = more;
    }
    if (from < 0) return false;
    free(c->stack);
    free(c->marks);
    c->stack = malloc((2 * (size_t)c->n_states + 2) * sizeof *c->stack);
    c->marks = calloc((size_t)c->n_states, sizeof *c->marks);
    c->mark = 1;
    if (!c->stack || !c->marks) return no_memory(c);
    memset(c->table, 0, TABLE * sizeof *c->table);
    return close_state(c, start) && keep_set(c, 0);
}

/* Run all lexemes through all texts that they have, and split those that would take too much. *any: one was split. */
static bool split_lexemes(chooser *c, bool *any) {
    *any = false;
    if (!list_lexemes(c) || !find_follows(c) || !build_all(c)) return false;
    for (int32_t i = 0; i < c->n_sets; i++) {
        if (!split_in(c, i, any)) return false;
        for (int32_t interval = 0; interval < c->n_intervals; interval++)
            if (!advance(c, i, interval)) return false;
    }
    return true;
}

static void chooser_free(chooser *c) {
    free(c->borders);
    free(c->firsts);
    free(c->follows);
    free(c->classes);
    free(c->definitions);
    free(c->is_listed);
    free(c->is_visited);
    free(c->todo);
    free(c->states);
    free(c->sets);
    free(c->pool);
    free(c->table);
    free(c->stack);
    free(c->marks);
}

cl_status gbnf_choose_lexemes(gbnf_grammar *g, cl_error *error) {
    cl_error cause = {.code = CL_OK};
    chooser c = {.g = g, .error = &cause};
    bool ok = derive_all(&c), any = true;
    /* A grammar that is one lexeme needs no others. */
    if (ok && !gbnf_is_lexeme(g, g->rules[g->root].body)) {
        ok = list_borders(&c) && allocate_sets(&c) && find_firsts(&c);
        while (ok && any) ok = split_lexemes(&c, &any);
    }
    chooser_free(&c);
    return ok ? CL_OK : cl_fail(error, cause.code, "%s", cause.message);
}

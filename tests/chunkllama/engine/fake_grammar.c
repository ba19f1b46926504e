/*
 * A grammar engine for tests, in place of llguidance: small patterns over the toy model's pieces.
 *
 * A pattern is a list of elements: a character stands for itself, '#' for a digit, '.' for any printable ASCII character, and a
 * backslash makes the next character stand for itself. After an element '?' makes it optional and '*' repeats it. '!' fails
 * where the completion gets to it; at the beginning of a pattern it stands for a lack of memory. A pattern that begins with '('
 * is refused.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkllama/engine/grammar.h"
#include "fixture.h"

enum { MAX_ELEMENTS = 60 };

atomic_int *fake_grammar_process;

typedef struct element {
    char c; /* '#' and '.' are classes if `literal` is false */
    bool literal, optional, repeated;
} element;

typedef struct fake_grammar {
    cl_grammar base;
    element elements[MAX_ELEMENTS]; /* [n] */
    int n;
} fake_grammar;

typedef struct fake_matcher {
    cl_matcher base;
    const fake_grammar *g;
    uint64_t at; /* the elements that may come next; bit g->n: the end */
    bool failed;
} fake_matcher;

/* ---- Elements ---- */

static bool fits(const element *e, unsigned char byte) {
    if (e->literal || (e->c != '#' && e->c != '.')) return (unsigned char)e->c == byte;
    return e->c == '#' ? byte >= '0' && byte <= '9' : byte >= 32 && byte < 127;
}

/* Add element i, and those behind it as far as they need not come. */
static uint64_t reach(const fake_grammar *g, uint64_t at, int i) {
    while (true) {
        at |= UINT64_C(1) << i;
        if (i == g->n || !(g->elements[i].optional || g->elements[i].repeated)) return at;
        i++;
    }
}

static uint64_t step(const fake_grammar *g, uint64_t at, unsigned char byte) {
    uint64_t next = 0;
    for (int i = 0; i < g->n; i++)
        if (at >> i & 1 && fits(&g->elements[i], byte)) next = reach(g, next, g->elements[i].repeated ? i : i + 1);
    return next;
}

static bool accepts(const fake_grammar *g, uint64_t at) { return at >> g->n & 1; }

/* Where a token leads to; 0: it is not allowed. */
static uint64_t follow(const fake_grammar *g, uint64_t at, int32_t token) {
    char piece[16];
    if (token == TOY_END) return accepts(g, at) ? UINT64_C(1) << g->n : 0;
    const size_t n = cl_tokenizer_piece(NULL, token, false, piece, sizeof piece);
    if (n == 0) return 0;
    for (size_t i = 0; i < n && at; i++) at = step(g, at, (unsigned char)piece[i]);
    return at;
}

/* The only byte that may come; -1: there are several, or none, or the completion may end. */
static int only_byte(const fake_grammar *g, uint64_t at) {
    int only = -1;
    if (accepts(g, at)) return -1;
    for (int byte = 0; byte < 256; byte++) {
        if (step(g, at, (unsigned char)byte) == 0) continue;
        if (only >= 0) return -1;
        only = byte;
    }
    return only;
}

/* ---- Matchers ---- */

static bool get_mask(cl_matcher *base, uint32_t *mask) {
    const fake_matcher *m = (fake_matcher *)base;
    memset(mask, 0, cl_mask_words(TOY_VOCAB) * sizeof *mask);
    for (int32_t id = 0; id < TOY_VOCAB; id++)
        if (follow(m->g, m->at, id)) mask[id / 32] |= 1u << id % 32;
    return !m->failed;
}

static bool advance(cl_matcher *base, int32_t token) {
    fake_matcher *m = (fake_matcher *)base;
    m->at = follow(m->g, m->at, token);
    for (int i = 0; i < m->g->n; i++)
        if (m->at >> i & 1 && m->g->elements[i].c == '!' && !m->g->elements[i].literal) m->failed = true;
    return !m->failed && m->at;
}

/* The longest piece at the start of the text, and its length. */
static int32_t longest_piece(const char *text, int n, int *n_bytes) {
    int32_t longest = (unsigned char)text[0];
    *n_bytes = 1;
    for (int32_t id = 256; id < TOY_VOCAB; id++) {
        char piece[16];
        const int size = (int)cl_tokenizer_piece(NULL, id, false, piece, sizeof piece);
        if (size <= *n_bytes || size > n || memcmp(piece, text, (size_t)size) != 0) continue;
        longest = id;
        *n_bytes = size;
    }
    return longest;
}

static int32_t get_forced(cl_matcher *base, int32_t *tokens) {
    const fake_matcher *m = (fake_matcher *)base;
    char text[MAX_ELEMENTS];
    int n = 0, byte;
    uint64_t at = m->at;
    while (n < MAX_ELEMENTS && (byte = only_byte(m->g, at)) >= 0) {
        text[n++] = (char)byte;
        at = step(m->g, at, (unsigned char)byte);
    }
    int32_t n_tokens = 0;
    for (int i = 0, size; i < n && n_tokens < CL_FORCED_MAX; i += size)
        tokens[n_tokens++] = longest_piece(text + i, n - i, &size);
    return m->failed ? -1 : n_tokens;
}

static int32_t count_valid(cl_matcher *base, const int32_t *tokens, int32_t n) {
    const fake_matcher *m = (fake_matcher *)base;
    uint64_t at = m->at;
    int32_t n_valid = 0;
    while (n_valid < n && (at = follow(m->g, at, tokens[n_valid]))) n_valid++;
    return n_valid;
}

static bool try_advance(cl_matcher *base, int32_t token, bool *allowed) {
    *allowed = count_valid(base, &token, 1) == 1;
    return !*allowed || advance(base, token);
}

static bool is_complete(cl_matcher *base) {
    const fake_matcher *m = (fake_matcher *)base;
    return m->at == UINT64_C(1) << m->g->n;
}

static cl_status explain(cl_matcher *base, cl_error *error) {
    (void)base;
    return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "fails on request");
}

static void free_matcher(cl_matcher *base) { free(base); }

static cl_matcher *start(cl_grammar *base) {
    const fake_grammar *g = (fake_grammar *)base;
    fake_matcher *m = g->elements[0].c == '!' ? NULL : malloc(sizeof *m);
    if (!m) return NULL;
    *m = (fake_matcher){{get_mask, advance, try_advance, get_forced, count_valid, is_complete, explain, free_matcher, NULL,
                         NULL, NULL, NULL, 0},
                        g,
                        reach(g, 0, 0),
                        false};
    return &m->base;
}

/* ---- Patterns ---- */

static void free_grammar(cl_grammar *base) { free(base); }

static cl_status compile(cl_grammar_library *l, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size,
                         cl_grammar **grammar, cl_error *error) {
    (void)l;
    (void)kind;
    *grammar = NULL;
    if (fake_grammar_process) atomic_store(fake_grammar_process, getpid());
    if (text[0] == '(' || size > MAX_ELEMENTS) return cl_refuse(error, "grammar", "is not a pattern, for domain %u", domain);
    fake_grammar *g = calloc(1, sizeof *g);
    if (!g) return cl_fail(error, CL_ERR_NOMEM, "no memory for a grammar");
    g->base = (cl_grammar){start, free_grammar};
    for (size_t i = 0; i < size; i++) {
        const bool literal = text[i] == '\\' && i + 1 < size;
        if (literal) i++;
        g->elements[g->n++] =
            (element){text[i], literal, i + 1 < size && text[i + 1] == '?', i + 1 < size && text[i + 1] == '*'};
        if (g->elements[g->n - 1].optional || g->elements[g->n - 1].repeated) i++;
    }
    *grammar = &g->base;
    return CL_OK;
}

static void free_library(cl_grammar_library *l) { free(l); }

cl_status cl_grammar_open(const char *path, const cl_tokenizer *tok, int32_t n_vocab, bool is_alone,
                          cl_grammar_library **library, cl_error *error) {
    (void)tok;
    (void)n_vocab;
    (void)is_alone;
    *library = NULL;
    if (strcmp(path, "fake") != 0)
        return cl_fail_field(error, CL_ERR_FILE, "grammar_library", "is '%s', which does not exist", path);
    cl_grammar_library *l = malloc(sizeof *l);
    if (!l) return cl_fail(error, CL_ERR_NOMEM, "no memory for grammars");
    *l = (cl_grammar_library){compile, free_library};
    *library = l;
    return CL_OK;
}

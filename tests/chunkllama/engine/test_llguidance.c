/*
 * The real grammar engine, over a small vocabulary: what masks, forced tokens and drafts say is consistent, text that is no
 * grammar is refused, and hostile grammars end within seconds. CHUNKLLAMA_GRAMMAR_LIBRARY names its shared object; without it
 * nothing is tested but its absence.
 */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/small_vocab.h"
#include "chunkllama/engine/grammar_limits.h"
#include "chunkllama/engine/grammar_process.h"
#include "tests/support/rng.h"
#include "tests/support/texts.h"

enum { WORDS = (MAX_TOKENS + 31) / 32 };

typedef struct scene {
    const char *path; /* NULL: the library is not there */
    gguf_bytes bytes;
    cl_model_file *file;
    cl_tokenizer *tok;
    int32_t n_vocab, im_end, eos, marker;
    cl_grammar_library *library;
} scene;

/* Add the token of a text of two or more characters, and the merge that makes it of the texts a and b. */
static void add_merge(small_vocab *v, const char *text, const char *merge) {
    add_piece(v, text, 1, 0);
    v->merges[v->n_merges++] = merge;
}

static int set_up(void **state) {
    static scene s;
    small_vocab v = byte_level_vocab("smollm");
    add_merge(&v, "na", "n a"), add_merge(&v, "me", "m e"), add_merge(&v, "name", "na me"), add_merge(&v, "tr", "t r");
    add_merge(&v, "ue", "u e"), add_merge(&v, "true", "tr ue"), add_merge(&v, "\":", "\" :"), add_merge(&v, "{\"", "{ \"");
    add_merge(&v, "\",", "\" ,"), add_merge(&v, "12", "1 2"), add_merge(&v, "ab", "a b"), add_merge(&v, "\\\"", "\\ \"");
    s.im_end = add_piece(&v, "<|im_end|>", 3, 0);
    s.eos = add_piece(&v, "<|endoftext|>", 3, 0);
    s.marker = add_piece(&v, "<|marker|>", 3, 0);
    v.eos = s.eos;
    s.file = open_vocab(&v, &s.bytes);
    if (cl_tokenizer_create(s.file, &s.tok, NULL) != CL_OK) abort();
    s.n_vocab = cl_tokenizer_n_vocab(s.tok) + 7; /* models may have more logits than tokens */
    s.path = getenv("CHUNKLLAMA_GRAMMAR_LIBRARY");
    if (s.path && !*s.path) s.path = NULL;
    cl_error error;
    if (s.path && cl_grammar_open(s.path, s.tok, s.n_vocab, false, &s.library, &error) != CL_OK) fail_msg("%s", error.message);
    *state = &s;
    return 0;
}

static int tear_down(void **state) {
    scene *s = *state;
    if (s->library) s->library->free(s->library);
    cl_tokenizer_free(&s->tok);
    cl_model_file_close(&s->file);
    free(s->bytes.data);
    return 0;
}

static cl_status compile(const scene *s, cl_grammar_kind kind, const char *text, cl_grammar **g, cl_error *error) {
    return s->library->compile(s->library, 0, kind, text, strlen(text), g, error);
}

static cl_grammar *must_compile(const scene *s, cl_grammar_kind kind, const char *text) {
    cl_grammar *g;
    cl_error error;
    if (compile(s, kind, text, &g, &error) != CL_OK) fail_msg("%s: %s", text, error.message);
    return g;
}

/* The text of a completion. */
typedef struct completion {
    char text[4096];
    size_t size;
    int32_t tokens[1024];
    int32_t n;
} completion;

static void add(const scene *s, completion *c, int32_t token) {
    c->size += cl_tokenizer_piece(s->tok, token, false, c->text + c->size, sizeof c->text - 1 - c->size);
    c->text[c->size] = 0;
    c->tokens[c->n++] = token;
}

static bool is_end(const scene *s, int32_t token) { return token == s->im_end || token == s->eos; }

/* Check that the mask and the drafts agree on each token, and on both end tokens. */
static void expect_consistent(const scene *s, cl_matcher *m, const uint32_t *mask) {
    for (int32_t id = 0; id < s->n_vocab; id++) {
        const bool allowed = cl_mask_has(mask, id);
        if (is_end(s, id)) assert_int_equal(allowed, cl_mask_has(mask, s->im_end));
        if ((m->count_valid(m, &id, 1) == 1) != allowed) fail_msg("the mask and the drafts disagree on token %d", id);
    }
    assert_false(cl_mask_has(mask, s->marker));
    for (int32_t id = cl_tokenizer_n_vocab(s->tok); id < s->n_vocab; id++) assert_false(cl_mask_has(mask, id));
}

static int32_t random_token(const uint32_t *mask, int32_t n_vocab, rng *r) {
    int32_t n = 0, chosen = -1;
    for (int32_t id = 0; id < n_vocab; id++)
        if (cl_mask_has(mask, id) && rng_below(r, ++n) == 0) chosen = id;
    return chosen;
}

/* Follow a grammar at random, up to n tokens. True: it has ended. */
static bool follow(const scene *s, cl_grammar *g, rng *r, int n, completion *c, int *n_forced) {
    uint32_t mask[WORDS];
    int32_t forced[32];
    cl_matcher *m = g->start(g);
    bool ended = false;
    *c = (completion){.size = 0};
    for (int i = 0; i < n && !ended; i++) {
        const int32_t k = m->get_forced(m, forced);
        assert_true(k >= 0);
        if (k > 0) assert_int_equal(m->count_valid(m, forced, k), k);
        if (k == 0) {
            assert_true(m->get_mask(m, mask));
            expect_consistent(s, m, mask);
            forced[0] = random_token(mask, s->n_vocab, r);
            assert_true(forced[0] >= 0);
        }
        *n_forced += k;
        for (int32_t j = 0; j < (k > 0 ? k : 1) && !ended; j++) {
            ended = is_end(s, forced[j]);
            if (!ended) add(s, c, forced[j]);
            if (!ended && !m->advance(m, forced[j])) fail_msg("the matcher failed");
            if (m->is_complete(m)) ended = true;
        }
    }
    m->free(m);
    return ended;
}

static const struct {
    cl_grammar_kind kind;
    const char *text;
} grammars[] = {
    {CL_GRAMMAR_JSON_SCHEMA, "{}"},
    {CL_GRAMMAR_JSON_SCHEMA, "true"},
    {CL_GRAMMAR_JSON_SCHEMA, " { \"type\": \"object\" } "},
    {CL_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"name\",\"true\"]},\"b\":{\"type\":"
                             "\"boolean\"}},\"required\":[\"name\",\"b\"],\"additionalProperties\":false}"},
    {CL_GRAMMAR_JSON_SCHEMA, "{\"x-guidance\":{\"whitespace_flexible\":false},\"type\":\"object\",\"properties\":{\"name\":{"
                             "\"type\":\"integer\"}},\"required\":[\"name\"],\"additionalProperties\":false}"},
    {CL_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":5},\"minItems\":1}"},
    {CL_GRAMMAR_REGEX, "[a-z]{3}name12*"},
    {CL_GRAMMAR_REGEX, "(true|name|ab)+"},
    {CL_GRAMMAR_REGEX, "\xe2\x82\xac[0-9]+"},
    {CL_GRAMMAR_LARK, "start: \"name\" (\",\" item)* \"ab\"\nitem: /[0-9]+/ | \"true\""},
};
enum { N_GRAMMARS = sizeof grammars / sizeof *grammars };

static void masks_and_drafts_agree(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    rng r = {1};
    int n_forced = 0, n_ended = 0;
    for (int i = 0; i < N_GRAMMARS; i++) {
        cl_grammar *g = must_compile(s, grammars[i].kind, grammars[i].text);
        for (int k = 0; k < 8; k++) {
            completion c;
            n_ended += follow(s, g, &r, 60, &c, &n_forced);
        }
        g->free(g);
    }
    assert_true(n_forced > 100);
    assert_true(n_ended > N_GRAMMARS * 4);
}

/* Of schemas that do not say themselves how JSON is written, whatever else they mention. */
static void white_space_is_bounded(void **state) {
    static const struct {
        const char *text;
        int32_t n_valid; /* of a bracket and two blanks */
    } schemas[] = {
        {"{}", 2},
        {" \t{ \n}", 2},
        {"{\"type\":\"array\"}", 2},
        {"{\"type\":\"array\",\"description\":\"as \\\"x-guidance\\\" says\",\"title\":\"x-guidance\"}", 2},
        {"{\"type\":\"array\",\"items\":{\"properties\":{\"x-guidance\":{\"type\":\"null\"}}}}", 2},
        {"{\"type\":\"array\",\"x-guidance\":{\"whitespace_pattern\":\" {1,5}\"}}", 3},
        {"{\"x-guidance\":{\"whitespace_flexible\":false},\"type\":\"array\"}", 1},
    };
    static const int32_t tokens[] = {'[', ' ', ' '};
    const scene *s = *state;
    if (!s->path) skip();
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        cl_grammar *g = must_compile(s, CL_GRAMMAR_JSON_SCHEMA, schemas[i].text);
        cl_matcher *m = g->start(g);
        const int32_t n = m->count_valid(m, tokens, 3);
        if (n != schemas[i].n_valid) fail_msg("%s: %d", schemas[i].text, n);
        m->free(m);
        g->free(g);
    }
}

/* A matcher answers the same whether others are between, its draft was validated, or it is a later clone. */
static void matchers_depend_on_their_tokens_only(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    rng r = {2};
    for (int i = 0; i < N_GRAMMARS; i++) {
        completion c;
        int n_forced = 0;
        cl_grammar *g = must_compile(s, grammars[i].kind, grammars[i].text);
        follow(s, g, &r, 40, &c, &n_forced);
        cl_matcher *plain = g->start(g), *busy = g->start(g);
        for (int32_t t = 0; t < c.n; t++) {
            uint32_t mask[2][WORDS] = {{0}};
            int32_t forced[2][32] = {{0}};
            const int32_t draft[] = {c.tokens[t], 'x', (int32_t)rng_below(&r, s->n_vocab)};
            busy->count_valid(busy, draft, 3);
            if (t % 2) busy->get_mask(busy, mask[0]);
            assert_int_equal(plain->get_forced(plain, forced[0]), busy->get_forced(busy, forced[1]));
            assert_memory_equal(forced[0], forced[1], sizeof forced[0]);
            assert_true(plain->get_mask(plain, mask[0]) && busy->get_mask(busy, mask[1]));
            assert_memory_equal(mask[0], mask[1], sizeof mask[0]);
            assert_true(plain->advance(plain, c.tokens[t]) && busy->advance(busy, c.tokens[t]));
            assert_int_equal(plain->is_complete(plain), busy->is_complete(busy));
        }
        plain->free(plain);
        busy->free(busy);
        g->free(g);
    }
}

static cl_grammar_library *open_processes(const scene *s, const cl_process_limits *limits) {
    cl_grammar_library *l;
    cl_error error;
    if (cl_grammar_open_processes(cl_grammar_open, s->path, s->tok, s->n_vocab, limits, &l, &error) != CL_OK)
        fail_msg("%s", error.message);
    return l;
}

/* A matcher in a process of its own says the same as one in this process. */
static void processes_answer_alike(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    rng r = {4};
    cl_grammar_library *l = open_processes(s, &cl_process_defaults);
    int n_masks = 0, n_tokens = 0;
    for (int i = 0; i < N_GRAMMARS; i++) {
        completion c;
        int n_forced = 0;
        cl_grammar *g[2] = {must_compile(s, grammars[i].kind, grammars[i].text), NULL};
        assert_int_equal(l->compile(l, 0, grammars[i].kind, grammars[i].text, strlen(grammars[i].text), &g[1], NULL), CL_OK);
        follow(s, g[0], &r, 40, &c, &n_forced);
        cl_matcher *m[2] = {g[0]->start(g[0]), g[1]->start(g[1])};
        for (int32_t t = 0; t < c.n; t++) {
            uint32_t mask[2][WORDS] = {{0}};
            int32_t forced[2][CL_FORCED_MAX] = {{0}};
            bool allowed[2];
            for (int k = 0; k < 2; k++) {
                if (t % 3 == 0) m[k]->get_forced(m[k], forced[k]);
                if (t % 2 == 0) assert_true(m[k]->get_mask(m[k], mask[k]));
                assert_true(m[k]->try_advance(m[k], 'z', &allowed[k]));
                if (!allowed[k]) assert_true(m[k]->try_advance(m[k], c.tokens[t], &allowed[k]));
            }
            assert_memory_equal(forced[0], forced[1], sizeof forced[0]);
            assert_memory_equal(mask[0], mask[1], sizeof mask[0]);
            assert_int_equal(allowed[0], allowed[1]);
            assert_int_equal(m[0]->is_complete(m[0]), m[1]->is_complete(m[1]));
            n_masks += t % 2 == 0;
            n_tokens += allowed[0];
            if (!allowed[0] || m[0]->is_complete(m[0])) break; /* it went another way by a 'z' */
        }
        for (int k = 0; k < 2; k++) {
            m[k]->free(m[k]);
            g[k]->free(g[k]);
        }
    }
    assert_true(n_masks > N_GRAMMARS * 3 && n_tokens > N_GRAMMARS * 6);
    l->free(l);
}

/* Compact JSON of one property has only one beginning, and its tokens are the tokenizer's. */
static void forced_tokens_are_the_tokenizers(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    cl_grammar *g = must_compile(s, CL_GRAMMAR_JSON_SCHEMA, grammars[4].text);
    cl_matcher *m = g->start(g);
    int32_t forced[32];
    completion c = {.size = 0};
    const int32_t n = m->get_forced(m, forced);
    for (int32_t i = 0; i < n; i++) add(s, &c, forced[i]);
    assert_string_equal(c.text, "{\"name\":");
    assert_int_equal(n, 3); /* {" name ": */
    m->free(m);
    g->free(g);
}

static void expect_refusal(const scene *s, cl_grammar_kind kind, const char *text, cl_status status, const char *says) {
    cl_grammar *g;
    cl_error error = {.message = ""};
    assert_int_equal(compile(s, kind, text, &g, &error), status);
    assert_null(g);
    if (strcmp(error.field, "grammar") != 0 || !strstr(error.message, says))
        fail_msg("\"%s\" should say \"%s\"", error.message, says);
}

static void what_is_no_grammar_is_refused(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    expect_refusal(s, CL_GRAMMAR_JSON_SCHEMA, "{", CL_ERR_ARG, "");
    expect_refusal(s, CL_GRAMMAR_JSON_SCHEMA, "{\"type\":\"thing\"}", CL_ERR_ARG, "thing");
    expect_refusal(s, CL_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"(\"}", CL_ERR_ARG, "");
    expect_refusal(s, CL_GRAMMAR_REGEX, "(", CL_ERR_ARG, "");
    expect_refusal(s, CL_GRAMMAR_LARK, "start: nothing", CL_ERR_ARG, "nothing");
    expect_refusal(s, CL_GRAMMAR_LARK, "\xff", CL_ERR_ARG, "UTF-8");
}

/* Definitions, each of which refers to the next by `before`, a reference and `after`, as many as a schema may have. */
static char *schema_chain(const char *before, const char *after) {
    enum { IN_OBJECT = 900 };
    const size_t size = strlen(before) + strlen(after) + 40;
    const int n = (int)((CL_ENGINE_MAX_GRAMMAR - 200) / size);
    char *text = malloc(CL_ENGINE_MAX_GRAMMAR), *at = stpcpy(text, "{\"$ref\":\"#/$defs/0/0\",\"$defs\":{\"0\":{\"0\":");
    for (int i = 1; i <= n; i++) {
        at += sprintf(at, "%s\"$ref\":\"#/$defs/%d/%d\"%s", before, i / IN_OBJECT, i % IN_OBJECT, after);
        at += i % IN_OBJECT == 0 ? sprintf(at, "},\"%d\":{\"0\":", i / IN_OBJECT) : sprintf(at, ",\"%d\":", i % IN_OBJECT);
    }
    strcpy(at, "{}}}}");
    return text;
}

/* An object with as many properties as a schema may have can be written to its end: engine and limit agree. */
static void the_largest_object_is_followed(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    char *const closed =
        numbered("{\"type\":\"object\",\"required\":[\"999\"],\"additionalProperties\":false,\"properties\":{\"0\":{}",
                 ",\"@\":{\"enum\":[0,1]}", CL_LIMIT_MEMBERS - 1, "}}");
    char *const open =
        numbered("{\"type\":\"object\",\"properties\":{\"0\":{}", ",\"@\":{\"type\":\"string\"}", CL_LIMIT_MEMBERS - 1, "}}");
    char *const too_large = numbered("{\"type\":\"object\",\"properties\":{\"0\":{}", ",\"@\":{}", CL_LIMIT_MEMBERS, "}}");
    char *const schemas[] = {closed, open};
    for (int i = 0; i < 20; i++) {
        uint32_t mask[WORDS];
        rng r = {(uint64_t)i + 1};
        cl_grammar *g = must_compile(s, CL_GRAMMAR_JSON_SCHEMA, schemas[i % 2]);
        cl_matcher *m = g->start(g);
        for (int n = 0; n < 60 && !m->is_complete(m); n++) {
            assert_true(m->get_mask(m, mask));
            const int32_t token = random_token(mask, s->n_vocab, &r);
            if (is_end(s, token)) break;
            assert_true(m->advance(m, token));
        }
        m->free(m);
        g->free(g);
    }
    expect_refusal(s, CL_GRAMMAR_JSON_SCHEMA, too_large, CL_ERR_LIMIT, "1001 members; it may have 1000");
    free(closed);
    free(open);
    free(too_large);
}

/* Whether it is refused or not, a hostile grammar is compiled, and followed for some tokens. Work that
 * grows with the numbers in it, or with the powers of its size, would not end while the test may run. */
static void expect_end(const scene *s, cl_grammar_kind kind, char *text, const char *name) {
    cl_grammar *g;
    cl_error error = {.message = "accepted"};
    const cl_status status = compile(s, kind, text, &g, &error);
    if (status == CL_OK) {
        uint32_t mask[WORDS];
        rng r = {3};
        cl_matcher *m = g->start(g);
        bool ok = true;
        for (int i = 0; i < 20 && ok && !m->is_complete(m); i++)
            ok = m->get_mask(m, mask) && m->advance(m, random_token(mask, s->n_vocab, &r));
        if (!ok) m->explain(m, &error);
        if (!ok && !strstr(error.message, "grammar cannot be followed: ")) fail_msg("%s: %s", name, error.message);
        m->free(m);
        g->free(g);
    }
    print_message("%-28s %.90s\n", name, error.message);
    if (error.code == CL_ERR_LIMIT && !strpbrk(error.message, "0123456789")) fail_msg("%s: no limit is named", name);
    free(text);
}

/* Where llguidance says no more than that there is too much. */
static void limits_are_named(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    char *schemas = repeated("{\"anyOf\":[{}", ",{\"properties\":{\"a\":{\"minimum\":1}}}", 6000, "]}"),
         *options = repeated("", "(?:a|b)?", 511, "");
    expect_refusal(s, CL_GRAMMAR_JSON_SCHEMA, schemas, CL_ERR_LIMIT, "more than 50000 schemas");
    expect_refusal(s, CL_GRAMMAR_REGEX, options, CL_ERR_LIMIT, "more than 300000 steps of work at first, or 20000 for a token");
    expect_refusal(s, CL_GRAMMAR_REGEX, "a{1000000000}", CL_ERR_LIMIT, "it takes more than the 2 s that it may");
    free(schemas);
    free(options);
}

static void hostile_grammars_end(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    const cl_grammar_kind json = CL_GRAMMAR_JSON_SCHEMA, regex = CL_GRAMMAR_REGEX, lark = CL_GRAMMAR_LARK;
    expect_end(s, json, repeated("", "{\"items\":", 20000, "1"), "deep schema");
    expect_end(s, json, repeated("", "[", 250000, ""), "deep array");
    expect_end(s, json, repeated("{\"properties\":", "{\"a\":{\"properties\":", 40, "{}"), "unclosed schema");
    expect_end(s, json, repeated("{\"enum\":[0", ",\"abcdefgh\"", 23000, "]}"), "equal strings");
    expect_end(s, json, numbered("{\"enum\":[0", ",\"~abc\"", 26000, "]}"), "different strings");
    expect_end(s, json, repeated("{\"const\":\"", "abcdefghij", 26000, "\"}"), "a long string");
    expect_end(s, json, strdup("{\"type\":\"string\",\"minLength\":1000000000}"), "least length");
    expect_end(s, json, strdup("{\"type\":\"string\",\"maxLength\":1000000000}"), "most length");
    expect_end(s, json, strdup("{\"items\":{\"const\":1},\"minItems\":1000000000,\"type\":\"array\"}"), "long array");
    expect_end(s, json, strdup("{\"type\":\"integer\",\"multipleOf\":999983,\"minimum\":7}"), "multiples of a large number");
    expect_end(s, json, strdup("{\"$ref\":\"#\"}"), "a schema that is itself");
    expect_end(s, json, strdup("{\"allOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}"), "a schema that is twice itself");
    expect_end(s, json, strdup("{\"$ref\":\"https://example.com/x\"}"), "a schema elsewhere");
    expect_end(s, json, schema_chain("{", "}"), "a chain of schemas");
    expect_end(s, json, schema_chain("{\"allOf\":[{", "}]}"), "a chain of all");
    expect_end(s, json, schema_chain("{\"properties\":{\"a\":{", "}},\"required\":[\"a\"]}"), "a chain of objects");
    expect_end(s, json, repeated("{\"allOf\":[{}", ",{\"properties\":{\"a\":{\"minimum\":1}}}", 6000, "]}"), "many of all");
    expect_end(s, json, repeated("{\"anyOf\":[{}", ",{\"properties\":{\"a\":{\"minimum\":1}}}", 6000, "]}"), "many of any");
    expect_end(s, json, repeated("{\"allOf\":[{}", ",{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", 30, "]}"),
               "products of alternatives");
    expect_end(s, json, numbered("{\"properties\":{\"a\":{}", ",\"~\":{\"type\":\"string\"}", 999, "}}"), "many properties");
    expect_end(s, json, numbered("{\"properties\":{\"a\":{}", ",\"~\":{\"type\":\"string\"}", 1000, "}}"),
               "too many properties");
    expect_end(s, json, repeated("{\"type\":\"string\",\"pattern\":\"^", "(a|b|ab)*c?", 370, "$\"}"), "long pattern");
    expect_end(s, json, repeated("{\"patternProperties\":{\"^", "(a|b|ab)*c?", 1600, "$\":{}}}"), "too long pattern");
    expect_end(s, json, strdup("{\"type\":\"string\",\"pattern\":\"^(([a-z])+.)+[A-Z]([a-z])+$\"}"), "ambiguous pattern");
    expect_end(s, json, strdup("{\"type\":\"string\",\"pattern\":\"(?=.*a)(?=.*b)c\"}"), "lookahead");
    expect_end(s, regex, strdup("a{1000000000}"), "large repetition");
    expect_end(s, regex, strdup("((((((((a{100}){100}){100}){100}){100}){100}){100}){100})"), "nested repetition");
    expect_end(s, regex, strdup("b?a{1000000000}"), "large repetition behind a token");
    expect_end(s, regex, strdup("(.*a.{30}|.*b.{30}|.*c.{30})"), "exponential states");
    expect_end(s, regex, repeated("", ".?", 2048, ""), "many anythings");
    expect_end(s, regex, strdup("(x+x+)+y"), "backtracking");
    expect_end(s, regex, repeated("", "(", 4000, "a"), "deep groups");
    expect_end(s, regex, repeated("", "(a|", 300, "b"), "unclosed groups");
    expect_end(s, regex, repeated("", "(?:a|b)?", 511, ""), "many options");
    expect_end(s, regex, repeated("", "[\xc2\xa0-\xf4\x8f\xbf\xbf]{1,1000}", 240, ""), "many classes");
    expect_end(s, lark, repeated("start: ", "(", 60000, "\"a\""), "deep rule");
    expect_end(s, lark, strdup("start: \"a\" start"), "endless text");
    expect_end(s, lark, strdup("start: start start | \"a\" |"), "infinitely ambiguous");
    expect_end(s, lark, strdup("start: a\na: b | \"x\"\nb: a | \"y\""), "circular");
    expect_end(s, lark, numbered("start: r0", "\nr~: r@ \"x\"?", 3500, "\nr3500: \"y\""), "a chain of rules");
    expect_end(s, lark, numbered("start: T0", "\nT~: T@", 700, "\nT700: \"y\""), "a chain of terminals");
    expect_end(s, lark, strdup("start: a{1000000}\na: b{1000000}\nb: \"x\""), "large rule repetition");
    expect_end(s, lark, repeated("start: \"a\"", "\nr: \"a\"", 8000, ""), "rules of one name");
    expect_end(s, lark, repeated("start: ", "/[a-z]+/ | ", 5900, "\"x\""), "many terminals");
    expect_end(s, lark, repeated("start: /", "(a|b|ab)*c?", 370, "/"), "long terminal");
    expect_end(s, lark, repeated("start: /", "(a|b|ab)*c?", 5900, "/"), "too long terminal");
    expect_end(s, lark, numbered("start: T0", "\nT~: T@ T@", 30, "\nT30: /.?/"), "terminals that double");
    expect_end(s, lark, numbered("start: t0", "\nt~: t@ t@", 30, "\nt30: /.?/"), "rules that double");
    expect_end(s, lark, repeated("start: ", "%json {\"enum\":[", 60, "1"), "nested schemas");
}

/* Takes many seconds of any CPU, and gigabytes. */
static const char common_multiple[] = "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":9973}}},"
                                      "{\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":9967}}}]}";

/* Grammars whose cost no limit of their text bounds, with a process whose limits are low: the next one works again. */
static void bombs_end_with_their_processes(void **state) {
    const scene *s = *state;
    if (!s->path) skip();
    cl_process_limits limits = cl_process_defaults;
    limits.compile_s = limits.answer_s = limits.first_s = 0.05;
    limits.question_s = 0;
    limits.compile_wait_s = limits.answer_wait_s = 1e9;
    const struct {
        cl_grammar_kind kind;
        const char *text;
    } bombs[] = {
        {CL_GRAMMAR_JSON_SCHEMA, common_multiple},
        {CL_GRAMMAR_LARK, "start: (\"a\"?){1,50000}"},
        {CL_GRAMMAR_LARK, "start: x{300}\nx: \"a\"{300} | \"a\"?"},
    };
    cl_grammar_library *l = open_processes(s, &limits);
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        cl_grammar *g;
        cl_error error = {.code = CL_OK};
        if (l->compile(l, 0, bombs[i].kind, bombs[i].text, strlen(bombs[i].text), &g, &error) == CL_OK) {
            uint32_t mask[WORDS];
            cl_matcher *m = g->start(g);
            rng r = {5};
            while (m->get_mask(m, mask)) {
                mask[s->eos / 32] &= ~(1u << s->eos % 32);
                mask[s->im_end / 32] &= ~(1u << s->im_end % 32);
                m->advance(m, random_token(mask, s->n_vocab, &r));
            }
            m->explain(m, &error);
            m->free(m);
            g->free(g);
        }
        if (error.code != CL_ERR_LIMIT || strcmp(error.field, "grammar") != 0)
            fail_msg("%.60s: %d, \"%s\"", bombs[i].text, error.code, error.message);
        print_message("%-28.28s %s\n", bombs[i].text, error.message);
        assert_int_equal(l->compile(l, 0, CL_GRAMMAR_REGEX, "a+", 2, &g, &error), CL_OK);
        g->free(g);
    }
    l->free(l);
}

/* llguidance ends its process if memory is lacking, as Rust programs do. */
static void a_lack_of_memory_ends_the_process_alone(void **state) {
    const scene *s = *state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their allocators end the process in a way of their own */
#endif
    if (!s->path) skip();
    cl_process_limits limits = cl_process_defaults;
    limits.memory_bytes = (size_t)1 << 20;
    limits.compile_s = 1e9;
    cl_grammar_library *l = open_processes(s, &limits);
    cl_grammar *g;
    cl_error error;
    assert_int_equal(l->compile(l, 0, CL_GRAMMAR_JSON_SCHEMA, common_multiple, strlen(common_multiple), &g, &error),
                     CL_ERR_LIMIT);
    assert_string_equal(error.message,
                        "grammar cannot be compiled: it needs more than the 1 MiB of memory that it may; simplify it");
    assert_int_equal(l->compile(l, 0, CL_GRAMMAR_REGEX, "a+", 2, &g, &error), CL_OK);
    g->free(g);
    l->free(l);
}

static void a_missing_library_is_named(void **state) {
    const scene *s = *state;
    cl_grammar_library *l;
    cl_error error;
    assert_int_equal(cl_grammar_open("/no/such/library.so", s->tok, s->n_vocab, false, &l, &error), CL_ERR_FILE);
    assert_null(l);
    assert_non_null(strstr(error.message, "/no/such/library.so"));
    assert_int_equal(cl_grammar_open("libm.so.6", s->tok, s->n_vocab, false, &l, &error), CL_ERR_UNSUPPORTED);
    assert_null(l);
    assert_non_null(strstr(error.message, "libm.so.6, which lacks llg_"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(masks_and_drafts_agree),
        cmocka_unit_test(white_space_is_bounded),
        cmocka_unit_test(matchers_depend_on_their_tokens_only),
        cmocka_unit_test(forced_tokens_are_the_tokenizers),
        cmocka_unit_test(what_is_no_grammar_is_refused),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(hostile_grammars_end),
        cmocka_unit_test(the_largest_object_is_followed),
        cmocka_unit_test(processes_answer_alike),
        cmocka_unit_test(bombs_end_with_their_processes),
        cmocka_unit_test(a_lack_of_memory_ends_the_process_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

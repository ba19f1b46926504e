/*
 * The grammar engine llguidance (https://github.com/guidance-ai/llguidance, MIT licence), through its C interface: see
 * grammar.h.
 *
 * Its shared object is loaded at run time. It may be one that cargo built, or the module in its Python package, which has the
 * same functions, and undefined symbols of Python besides: these are found in libpython3, of which nothing is called.
 *
 * The structs are those of llguidance 1.9, whose functions write and read them.
 */
#include "grammar.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/schema/schema.h"
#include "deep_thread.h"
#include "grammar_limits.h"
#include "watchdog.h"

/* ---- The interface of llguidance ---- */

typedef struct llg_tokenizer llg_tokenizer;
typedef struct llg_matcher llg_matcher;
typedef struct llg_cancellation llg_cancellation; /* cancels a call of its matcher, from any thread */

/* Encode bytes [n_bytes]: write at most `capacity` tokens, and return the number that there are. */
typedef size_t llg_encode_fn(const void *ctx, const uint8_t *bytes, size_t n_bytes, uint32_t *tokens, size_t capacity);

typedef struct llg_tokenizer_init {
    size_t struct_size;
    uint32_t n_vocab;
    uint32_t end_token;
    const uint32_t *sizes; /* [n_vocab] of the tokens' bytes, which lie one after the other */
    const uint8_t *bytes;
    const char *json;
    bool only_utf8; /* whether `encode` accepts nothing else */
    llg_encode_fn *encode;
    bool approximate;
    const void *encode_ctx;
    const char *const *slices; /* sets of tokens whose masks are computed once; NULL: llguidance's choice */
    const uint32_t *more_end_tokens;
    uint32_t n_more_end_tokens;
} llg_tokenizer_init;

/* The work that llguidance puts into a grammar before it gives up. */
typedef struct llg_limits {
    size_t row_items;
    uint64_t compile_fuel;
    uint64_t mask_fuel;
    size_t mask_items;
    size_t lexer_states;
    size_t grammar_symbols;
    bool precompute;
    bool verbose_errors;
} llg_limits;

typedef struct llg_matcher_init {
    const llg_tokenizer *tokenizer;
    uint32_t buffer_log_level, stderr_log_level;
    bool forces, backtracks;
    llg_limits limits;
} llg_matcher_init;

/* Its functions, in fields of the same name. */
#define LLG_FUNCTIONS(F)                                                                                                       \
    F(llg_tokenizer *, llg_new_tokenizer_v2, (const llg_tokenizer_init *init, char *message, size_t message_size))             \
    F(void, llg_free_tokenizer, (llg_tokenizer * t))                                                                           \
    F(llg_matcher *, llg_new_matcher, (const llg_matcher_init *init, const char *kind, const char *text))                      \
    F(llg_matcher *, llg_clone_matcher, (const llg_matcher *m))                                                                \
    F(void, llg_free_matcher, (llg_matcher * m))                                                                               \
    F(llg_cancellation *, llg_matcher_get_cancellation_handle, (llg_matcher * m))                                              \
    F(void, llg_cancel, (llg_cancellation * c))                                                                                \
    F(void, llg_free_cancellation_handle, (llg_cancellation * c))                                                              \
    F(bool, llg_matcher_is_error, (const llg_matcher *m))                                                                      \
    F(const char *, llg_matcher_get_error, (llg_matcher * m))                                                                  \
    F(bool, llg_matcher_is_stopped, (const llg_matcher *m))                                                                    \
    F(int32_t, llg_matcher_compute_mask_into, (llg_matcher * m, uint32_t * mask, size_t mask_bytes))                           \
    F(int32_t, llg_matcher_compute_ff_tokens, (llg_matcher * m, uint32_t * tokens, size_t capacity))                           \
    F(int32_t, llg_matcher_consume_token, (llg_matcher * m, uint32_t token))                                                   \
    F(int32_t, llg_matcher_validate_tokens, (llg_matcher * m, const uint32_t *tokens, size_t n))

typedef struct functions {
#define FIELD(type, name, parameters) type(*name) parameters; /* NOLINT(bugprone-macro-parentheses) */
    LLG_FUNCTIONS(FIELD)
#undef FIELD
} functions;

/* ---- Loading ---- */

typedef struct library {
    cl_grammar_library base;
    functions f;
    llg_tokenizer *tokenizer;
    const cl_tokenizer *tok; /* borrowed */
    int32_t n_vocab;
    /* Owned; NULL in a process that does nothing else. llguidance recurses along chains of definitions. */
    cl_deep_thread *compiler;
    cl_watchdog *watchdog; /* of all matchers */
} library;

static const char *const usual_name = "libllguidance.so";

/* The module of the Python package works with each of these. The newest that is installed is taken. */
static const char *const python_names[] = {
    "libpython3.14.so.1.0", "libpython3.13.so.1.0", "libpython3.12.so.1.0",
    "libpython3.11.so.1.0", "libpython3.10.so.1.0", "libpython3.9.so.1.0",
};

/* RTLD_NODELETE: threads may still have thread-local data of the object when it is not needed any more. */
static void *open_object(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

/* For the symbols of Python, which are looked for in all objects that were opened like this. */
static bool open_python(void) {
    for (size_t i = 0; i < sizeof python_names / sizeof *python_names; i++)
        if (dlopen(python_names[i], RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE)) return true;
    return false;
}

/* Open the object, and if it lacks symbols of Python, once more with them. */
static cl_status open_with_python(const char *path, void **object, cl_error *error) {
    *object = open_object(path);
    if (*object) return CL_OK;
    cl_fail_field(error, CL_ERR_FILE, "grammar_library", "cannot be loaded: %s", dlerror());
    if (!strstr(error->message, "undefined symbol: Py") && !strstr(error->message, "undefined symbol: _Py")) return CL_ERR_FILE;
    if (!open_python())
        return cl_fail_field(error, CL_ERR_FILE, "grammar_library",
                             "is %s, a module for Python 3 that needs libpython3, which is not installed: install it, "
                             "or name a library that cargo built",
                             path);
    *object = open_object(path);
    return *object ? CL_OK : cl_fail_field(error, CL_ERR_FILE, "grammar_library", "cannot be loaded: %s", dlerror());
}

static cl_status load(library *l, const char *path, cl_error *error) {
    cl_error cause;
    void *object;
    if (open_with_python(path, &object, &cause) != CL_OK) {
        if (error) *error = cause;
        return cause.code;
    }
    void *found;
#define FIND(type, name, parameters)                                                                                           \
    if (!(found = dlsym(object, #name)))                                                                                       \
        return cl_fail_field(error, CL_ERR_UNSUPPORTED, "grammar_library", "is %s, which lacks %s; it must be llguidance 1.9", \
                             path, #name);                                                                                     \
    memcpy((void *)&l->f.name, (void *)&found, sizeof found);
    LLG_FUNCTIONS(FIND)
#undef FIND
    return CL_OK;
}

bool cl_grammar_find(const char **name) {
    void *object;
    cl_error error;
    *name = usual_name;
    return open_with_python(usual_name, &object, &error) == CL_OK;
}

/* ---- The vocabulary ---- */

/* Begins the bytes of a special token, so that no text of a grammar matches them. */
static const char SPECIAL = '\xff';

/* The bytes of a token as llguidance knows them, of which at most `capacity` are written. Returns their number. */
static size_t bytes_of(const cl_tokenizer *tok, int32_t id, char *bytes, size_t capacity) {
    const size_t n = cl_tokenizer_piece(tok, id, false, bytes, capacity);
    if (n > 0) return n;
    const size_t n_name = cl_tokenizer_piece(tok, id, true, capacity > 1 ? bytes + 1 : NULL, capacity > 1 ? capacity - 1 : 0);
    if (n_name > 0 && capacity > 0) bytes[0] = SPECIAL;
    return n_name > 0 ? 1 + n_name : 0;
}

static size_t encode(const void *tok, const uint8_t *bytes, size_t n_bytes, uint32_t *tokens, size_t capacity) {
    cl_token_list list = {0};
    const bool ok = cl_tokenizer_encode(tok, (const char *)bytes, n_bytes, false, &list, NULL) == CL_OK;
    const size_t n = ok ? list.n : 0; /* without memory nothing is forced */
    for (size_t i = 0; i < n && i < capacity; i++) tokens[i] = (uint32_t)list.ids[i];
    cl_token_list_free(&list);
    return n;
}

/* The arrays of the vocabulary that llguidance reads while it makes a tokenizer. */
typedef struct vocabulary {
    uint32_t *sizes, *end_tokens; /* [n_vocab] each */
    uint32_t n_end_tokens;
    char *bytes;
} vocabulary;

static bool list_vocabulary(vocabulary *v, const library *l) {
    size_t n_bytes = 0, used = 0;
    v->sizes = calloc((size_t)l->n_vocab, sizeof *v->sizes);
    v->end_tokens = calloc((size_t)l->n_vocab, sizeof *v->end_tokens);
    if (!v->sizes || !v->end_tokens) return false;
    for (int32_t id = 0; id < l->n_vocab; id++) {
        v->sizes[id] = (uint32_t)bytes_of(l->tok, id, NULL, 0);
        n_bytes += v->sizes[id];
        if (cl_tokenizer_is_end(l->tok, id)) v->end_tokens[v->n_end_tokens++] = (uint32_t)id;
    }
    v->bytes = malloc(n_bytes + 1);
    if (!v->bytes) return false;
    for (int32_t id = 0; id < l->n_vocab; used += v->sizes[id++]) bytes_of(l->tok, id, v->bytes + used, v->sizes[id]);
    return true;
}

static cl_status make_tokenizer(library *l, const vocabulary *v, cl_error *error) {
    const llg_tokenizer_init init = {
        .struct_size = sizeof init,
        .n_vocab = (uint32_t)l->n_vocab,
        .end_token = v->n_end_tokens > 0 ? v->end_tokens[0] : UINT32_MAX,
        .sizes = v->sizes,
        .bytes = (const uint8_t *)v->bytes,
        .encode = encode,
        .encode_ctx = l->tok,
        .more_end_tokens = v->n_end_tokens > 1 ? v->end_tokens + 1 : NULL,
        .n_more_end_tokens = v->n_end_tokens > 1 ? v->n_end_tokens - 1 : 0,
    };
    char message[256] = "";
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): load() has set it */
    l->tokenizer = l->f.llg_new_tokenizer_v2(&init, message, sizeof message);
    return l->tokenizer ? CL_OK : cl_fail(error, CL_ERR_UNSUPPORTED, "llguidance does not accept the vocabulary: %s", message);
}

/* ---- Limits ---- */

/*
 * Real grammars keep these limits. They differ from llguidance's own:
 *   - row_items: each property of an object takes up to four; objects have CL_LIMIT_MEMBERS properties at most.
 *   - compile_fuel, mask_fuel: a mask of a hostile grammar takes a tenth of a second instead of seconds.
 *   - lexer_states: a state takes one or two kB, in each choice.
 *   - precompute: what it computes beforehand for large patterns takes seconds for hostile ones.
 *   - verbose_errors: messages would contain the text that a model has written so far.
 */
static const llg_limits limits = {
    .row_items = 5 * CL_LIMIT_MEMBERS,
    .compile_fuel = 300000,
    .mask_fuel = 20000,
    .mask_items = 50000,
    .lexer_states = 50000,
    .grammar_symbols = 500000,
    .precompute = false,
    .verbose_errors = false,
};

/* They do not count the bytes of a text that is forced: calls are limited by time, too. */
static const double FIRST_MASK_SECONDS = 2, CALL_SECONDS = 0.25;

/* Of the schemas in a schema, with those that it makes of alternatives and references: llguidance's own, which is no option. */
enum { MAX_SCHEMAS = 50000 };

/* ---- Errors ---- */

/* Words of llguidance's messages where a grammar exceeds a limit. */
static const char *const limit_words[] = {"cancelled", "too big", "too large", "too complex", "too many", "limit", "fuel"};

/* Where llguidance's message does not name the limit, another one does. */
static cl_status fail_limit(const char *what, const char *text, cl_error *error) {
    const bool compiles = strcmp(what, "compiled") == 0;
    if (strstr(text, "cancelled"))
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "cannot be %s: %s takes more than the %g s that it may; simplify it", what,
                             compiles ? "it" : "a step of it", compiles ? FIRST_MASK_SECONDS : CALL_SECONDS);
    if (strstr(text, "schema too large"))
        return cl_fail_field(
            error, CL_ERR_LIMIT, "grammar",
            "cannot be %s: more than %d schemas are in it, with those that alternatives, 'allOf' and references "
            "make; use fewer of them",
            what, MAX_SCHEMAS);
    if (strstr(text, "too many expressions"))
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "cannot be %s: its regular expressions take more than %" PRIu64
                             " steps of work at first, or %" PRIu64 " for a token; use shorter ones, or smaller counts",
                             what, limits.compile_fuel, limits.mask_fuel);
    return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "cannot be %s: %s", what, text);
}

/* Make an error of llguidance's message, whose first paragraph is for people. what: the grammar cannot be "compiled", ... */
static cl_status fail(const char *what, const char *message, cl_error *error) {
    char text[400];
    size_t n = 0;
    for (const char *c = message ? message : "it failed"; *c && n + 1 < sizeof text; c++) {
        if (c[0] == '\n' && c[1] == '<') break;
        text[n++] = *c == '\n' ? ' ' : *c;
    }
    text[n] = 0;
    if (strcmp(text, "NoExtensionBias") == 0) return cl_refuse(error, "grammar", "matches no text");
    bool is_limit = false;
    for (size_t i = 0; i < sizeof limit_words / sizeof *limit_words; i++) is_limit |= strstr(text, limit_words[i]) != NULL;
    if (is_limit) return fail_limit(what, text, error);
    return cl_refuse(error, "grammar", "cannot be %s: %s", what, text);
}

/* ---- Matchers ---- */

typedef struct grammar {
    cl_grammar base;
    const library *l;
    llg_matcher *first;    /* at the beginning; owned */
    pthread_mutex_t mutex; /* guards its cloning */
} grammar;

typedef struct matcher {
    cl_matcher base;
    const library *l;
    llg_matcher *m;                 /* owned */
    llg_cancellation *cancellation; /* of m; owned */
    cl_watched watched;             /* its calls, unless there is no watchdog */
} matcher;

/* Call a function of llguidance with a matcher, within the time limit, and put its value into `value`. */
#define WATCHED(m, value, function, ...)                                                                                       \
    if ((m)->l->watchdog) cl_watched_begin(&(m)->watched);                                                                     \
    (value) = (m)->l->f.function((m)->m __VA_OPT__(, ) __VA_ARGS__);                                                           \
    if ((m)->l->watchdog) cl_watched_end(&(m)->watched)

/* A call of a matcher takes too long. */
static void stop(cl_watched *w) {
    const matcher *m = (matcher *)(void *)((char *)w - offsetof(matcher, watched));
    m->l->f.llg_cancel(m->cancellation);
}

static size_t mask_bytes(const library *l) { return cl_mask_words(l->n_vocab) * sizeof(uint32_t); }

static bool get_mask(cl_matcher *base, uint32_t *mask) {
    matcher *m = (matcher *)base;
    int32_t failed;
    WATCHED(m, failed, llg_matcher_compute_mask_into, mask, mask_bytes(m->l));
    return !failed;
}

static bool advance(cl_matcher *base, int32_t token) {
    matcher *m = (matcher *)base;
    int32_t failed;
    WATCHED(m, failed, llg_matcher_consume_token, (uint32_t)token);
    return !failed;
}

static int32_t get_forced(cl_matcher *base, int32_t *tokens) {
    matcher *m = (matcher *)base;
    int32_t n;
    WATCHED(m, n, llg_matcher_compute_ff_tokens, (uint32_t *)tokens, CL_FORCED_MAX);
    return m->l->f.llg_matcher_is_error(m->m) ? -1 : n;
}

static int32_t count_valid(cl_matcher *base, const int32_t *tokens, int32_t n) {
    matcher *m = (matcher *)base;
    int32_t n_valid;
    WATCHED(m, n_valid, llg_matcher_validate_tokens, (const uint32_t *)tokens, (size_t)n);
    return n_valid > 0 ? n_valid : 0;
}

static bool try_advance(cl_matcher *base, int32_t token, bool *allowed) {
    *allowed = count_valid(base, &token, 1) == 1;
    return !*allowed || advance(base, token);
}

static bool is_complete(cl_matcher *base) {
    const matcher *m = (matcher *)base;
    return m->l->f.llg_matcher_is_stopped(m->m) && !m->l->f.llg_matcher_is_error(m->m);
}

static cl_status explain(cl_matcher *base, cl_error *error) {
    const matcher *m = (matcher *)base;
    return fail("followed", m->l->f.llg_matcher_get_error(m->m), error);
}

static void free_matcher(cl_matcher *base) {
    matcher *m = (matcher *)base;
    if (m->l->watchdog) cl_watchdog_remove(m->l->watchdog, &m->watched);
    m->l->f.llg_free_cancellation_handle(m->cancellation);
    m->l->f.llg_free_matcher(m->m);
    free(m);
}

static cl_matcher *start(cl_grammar *base) {
    grammar *g = (grammar *)base;
    matcher *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->base = (cl_matcher){get_mask, advance, try_advance, get_forced, count_valid, is_complete, explain, free_matcher, NULL,
                           NULL,     NULL,    NULL,        0};
    m->l = g->l;
    pthread_mutex_lock(&g->mutex);
    m->m = g->l->f.llg_clone_matcher(g->first);
    pthread_mutex_unlock(&g->mutex);
    m->cancellation = g->l->f.llg_matcher_get_cancellation_handle(m->m);
    m->watched.stop = stop;
    if (g->l->watchdog) cl_watchdog_add(g->l->watchdog, &m->watched);
    return &m->base;
}

/* ---- Grammars ---- */

static void free_grammar(cl_grammar *base) {
    grammar *g = (grammar *)base;
    g->l->f.llg_free_matcher(g->first);
    pthread_mutex_destroy(&g->mutex);
    free(g);
}

/* {"x-guidance": ...}, which says how JSON is written; for the caller to free. NULL if memory is lacking. */
static char *write_options(void) {
    json_t *options = json_pack("{s{ss}}", "x-guidance", "whitespace_pattern", CL_SCHEMA_SPACE);
    char *text = options ? json_dumps(options, JSON_COMPACT) : NULL;
    json_decref(options);
    return text;
}

/* A terminated copy of a schema that is an object, with further members before its own. NULL if memory is lacking. */
static char *insert_members(const char *members, const char *text, size_t size, bool is_empty) {
    char *copy = malloc(strlen(members) + size + 1);
    const char *rest = (const char *)memchr(text, '{', size) + 1;
    const size_t n_rest = size - (size_t)(rest - text);
    if (!copy) return NULL;
    char *at = stpcpy(copy, members) - 1; /* its brace */
    if (!is_empty) *at++ = ',';
    memcpy(at, rest, n_rest);
    at[n_rest] = 0;
    return copy;
}

/*
 * A terminated copy of a grammar's text. White space is bounded in schemas that do not say themselves how JSON is written, so
 * that no model gets lost in it. NULL if memory is lacking.
 */
static char *copy_text(cl_grammar_kind kind, const char *text, size_t size) {
    json_error_t wrong;
    bool no_memory;
    if (kind != CL_GRAMMAR_JSON_SCHEMA) return strndup(text, size);
    json_t *schema = cl_json_parse(text, size, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &wrong, &no_memory);
    char *options = no_memory ? NULL : write_options(), *copy = NULL;
    if (options && json_is_object(schema) && !json_object_get(schema, "x-guidance"))
        copy = insert_members(options, text, size, json_object_size(schema) == 0);
    else if (options)
        copy = strndup(text, size);
    free(options);
    json_decref(schema);
    return copy;
}

/* A grammar that is compiled on the thread for it. */
typedef struct compilation {
    const library *l;
    const char *kind, *text;
    uint32_t *mask; /* scratch */
    llg_matcher *m;
    _Atomic(llg_cancellation *) cancellation; /* NULL: m is not there yet */
} compilation;

/* The first mask is computed too, so that a grammar which allows nothing, or costs too much, is refused. */
static void run(void *arg) {
    compilation *j = arg;
    const llg_matcher_init init = {.tokenizer = j->l->tokenizer, .limits = limits};
    j->m = j->l->f.llg_new_matcher(&init, j->kind, j->text);
    if (j->l->f.llg_matcher_is_error(j->m)) return;
    atomic_store(&j->cancellation, j->l->f.llg_matcher_get_cancellation_handle(j->m));
    (void)j->l->f.llg_matcher_compute_mask_into(j->m, j->mask, mask_bytes(j->l));
}

static void cancel(void *arg) {
    compilation *j = arg;
    llg_cancellation *c = atomic_load(&j->cancellation);
    if (c) j->l->f.llg_cancel(c);
}

/* Compile a terminated text. */
static cl_status compile_text(const library *l, const char *kind, const char *text, grammar *g, cl_error *error) {
    compilation j = {.l = l, .kind = kind, .text = text, .mask = calloc(1, mask_bytes(l))};
    if (!j.mask) return cl_fail(error, CL_ERR_NOMEM, "no memory for a grammar");
    if (l->compiler)
        cl_deep_thread_call(l->compiler, run, &j, FIRST_MASK_SECONDS, cancel);
    else
        run(&j);
    free(j.mask);
    if (j.cancellation) l->f.llg_free_cancellation_handle(j.cancellation);
    g->first = j.m;
    return l->f.llg_matcher_is_error(g->first) ? fail("compiled", l->f.llg_matcher_get_error(g->first), error) : CL_OK;
}

static cl_status compile(cl_grammar_library *base, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size,
                         cl_grammar **out, cl_error *error) {
    (void)domain;
    static const char *const kinds[] = {
        [CL_GRAMMAR_JSON_SCHEMA] = "json_schema", [CL_GRAMMAR_REGEX] = "regex", [CL_GRAMMAR_LARK] = "lark"};
    const library *l = (library *)base;
    *out = NULL;
    cl_status status = cl_grammar_check(kind, text, size, error);
    if (status != CL_OK) return status;
    char *copy = copy_text(kind, text, size);
    grammar *g = calloc(1, sizeof *g);
    if (!copy || !g) {
        free(copy);
        free(g);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a grammar");
    }
    g->base = (cl_grammar){start, free_grammar};
    g->l = l;
    pthread_mutex_init(&g->mutex, NULL);
    status = compile_text(l, kinds[kind], copy, g, error);
    free(copy);
    if (status == CL_OK)
        *out = &g->base;
    else
        free_grammar(&g->base);
    return status;
}

/* ---- The library ---- */

static void free_library(cl_grammar_library *base) {
    library *l = (library *)base;
    cl_deep_thread_free(&l->compiler);
    cl_watchdog_free(&l->watchdog);
    if (l->tokenizer) l->f.llg_free_tokenizer(l->tokenizer);
    free(l);
}

static cl_status start_threads(library *l, cl_error *error) {
    l->compiler = cl_deep_thread_create();
    l->watchdog = cl_watchdog_create(CALL_SECONDS);
    return l->compiler && l->watchdog ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "the threads of grammars cannot be started");
}

cl_status cl_grammar_open(const char *path, const cl_tokenizer *tok, int32_t n_vocab, bool is_alone, cl_grammar_library **out,
                          cl_error *error) {
    *out = NULL;
    library *l = calloc(1, sizeof *l);
    if (!l) return cl_fail(error, CL_ERR_NOMEM, "no memory for grammars");
    *l = (library){.base = {compile, free_library}, .tok = tok, .n_vocab = n_vocab};
    vocabulary v = {0};
    cl_status status = load(l, path, error);
    if (status == CL_OK && !list_vocabulary(&v, l)) status = cl_fail(error, CL_ERR_NOMEM, "no memory for grammars");
    if (status == CL_OK) status = make_tokenizer(l, &v, error);
    if (status == CL_OK && !is_alone) status = start_threads(l, error);
    free(v.sizes);
    free(v.end_tokens);
    free(v.bytes);
    if (status == CL_OK)
        *out = &l->base;
    else
        free_library(&l->base);
    return status;
}

/*
 * Programs and libraries of different versions: structs that have grown are accepted from older programs. Larger structs of a
 * later version are accepted if the additional bytes are zero, and refused with the struct's name otherwise.
 */
#define CATTN_EXPERIMENTAL
#include "tests/support/testing.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cache.h"
#include "chunkattn/api/public_struct.h"
#include "chunkattn_cuda.h"

/* ---- Layout ---- */

/* No field may be added where an older program has padding, whose bytes may be anything. */
#define NO_PADDING(type, last)                                                                                                 \
    _Static_assert(offsetof(cattn_##type, last) + sizeof((cattn_##type *)0)->last == sizeof(cattn_##type),                     \
                   "cattn_" #type " ends with padding; order the fields so that it has none")
NO_PADDING(config, kv_source);
NO_PADDING(stats, tokens_imported);
NO_PADDING(fit_request, headroom_bytes);
NO_PADDING(fit_result, bytes_available);
NO_PADDING(node_info, idle_seconds);
NO_PADDING(walk_options, node_id);
NO_PADDING(explanation, n_other_matched);
NO_PADDING(join_options, account_weight);
NO_PADDING(rows, is_last);
NO_PADDING(seq_info, n_coming);
NO_PADDING(cuda_device_info, memory_bytes);

/* ---- Calls with structs of any size ---- */

/* Memory whose end is the end of a struct: a page that cannot be accessed follows. */
typedef struct guarded {
    char *page;
    void *at;
} guarded;

enum { PAGE = 4096 };

static guarded guarded_new(const void *from, size_t size) {
    guarded g;
    g.page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.page != MAP_FAILED && size <= PAGE);
    assert_int_equal(mprotect(g.page + PAGE, PAGE, PROT_NONE), 0);
    g.at = g.page + PAGE - size;
    memcpy(g.at, from, size);
    return g;
}

static void guarded_free(guarded *g) { munmap(g->page, 2 * PAGE); }

static void set_size(void *of, size_t size) { memcpy(of, &size, sizeof size); }

/* A running sequence, for the calls below. */
typedef struct world {
    cattn_cache *cache;
    cattn_seq seq;
} world;

static const int32_t some_tokens[] = {1, 2, 3, 4, 5};

static cattn_config small(void) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = 1;
    c.head_dim = 64;
    c.n_threads = 1;
    c.budget_bytes = (uint64_t)4 << 20;
    return c;
}

static cattn_status call_create(world *w, void *config, cattn_error *error) {
    (void)w;
    cattn_cache *cache;
    const cattn_status status = cattn_cache_create(config, &cache, error);
    cattn_cache_destroy(&cache);
    return status;
}

static cattn_status call_join(world *w, void *options, cattn_error *error) {
    cattn_seq seq;
    const cattn_status status = cattn_seq_join(w->cache, some_tokens, 5, options, &seq, NULL, error);
    if (status == CATTN_OK) assert_int_equal(cattn_seq_leave(w->cache, &seq, NULL), CATTN_OK);
    return status;
}

static cattn_status call_fit(world *w, void *request, cattn_error *error) {
    return cattn_cache_can_fit(w->cache, request, NULL, error);
}

static cattn_status call_stats(world *w, void *stats, cattn_error *error) {
    const cattn_status status = cattn_cache_stats(w->cache, stats);
    error->code = status; /* the call has no error */
    return status;
}

static cattn_status call_info(world *w, void *info, cattn_error *error) {
    return cattn_seq_get_info(w->cache, w->seq, info, error);
}

static cattn_status call_fit_result(world *w, void *result, cattn_error *error) {
    cattn_fit_request request;
    cattn_fit_request_init(&request);
    request.n_tokens = 10;
    return cattn_cache_can_fit(w->cache, &request, result, error);
}

static cattn_status call_device(world *w, void *info, cattn_error *error) {
    (void)w;
    return cattn_cuda_device_get_info(0, info, error);
}

static cattn_status call_rows(world *w, void *rows, cattn_error *error) {
    cattn_entry entry = {.seq = w->seq, .max_rows = 5};
    assert_int_equal(cattn_step_begin(w->cache, &entry, 1, 0, NULL), CATTN_OK);
    const cattn_status status = cattn_step_rows(w->cache, rows, error);
    assert_int_equal(cattn_step_abort(w->cache, NULL), CATTN_OK);
    return status;
}

static int no_node(void *ctx, const cattn_node_info *node) { return (void)ctx, (void)node, 0; }

static cattn_status call_walk(world *w, void *options, cattn_error *error) {
    uint64_t cursor = 0;
    return cattn_cache_walk(w->cache, options, &cursor, no_node, NULL, error);
}

static cattn_status call_explain(world *w, void *explanation, cattn_error *error) {
    return cattn_cache_explain(w->cache, some_tokens, 5, NULL, explanation, error);
}

typedef struct struct_case {
    const char *type;
    size_t size, first_size; /* now, and in the first version */
    bool input;
    cattn_status (*call)(world *w, void *of, cattn_error *error);
} struct_case;

#define GROWN(type, last, input, call)                                                                                         \
    { "cattn_" #type, sizeof(cattn_##type), offsetof(cattn_##type, last) + sizeof((cattn_##type *)0)->last, input, call }
#define CASE(type, input, call)                                                                                                \
    { "cattn_" #type, sizeof(cattn_##type), sizeof(cattn_##type), input, call }
static const struct_case struct_cases[] = {
    GROWN(config, tier_fingerprint, true, call_create),
    GROWN(join_options, flags, true, call_join),
    CASE(rows, true, call_rows),
    CASE(fit_request, true, call_fit),
    CASE(walk_options, true, call_walk),
    CASE(stats, false, call_stats),
    CASE(seq_info, false, call_info),
    CASE(fit_result, false, call_fit_result),
    CASE(explanation, false, call_explain),
    CASE(cuda_device_info, false, call_device),
};
enum { N_CASES = sizeof struct_cases / sizeof *struct_cases, BEYOND = 24, MOST = 1024 };

/* A struct as a present caller fills it, followed by zeros. */
static void fill(const struct_case *c, char at[MOST]) {
    memset(at, 0, MOST);
    if (c->call == call_create) {
        const cattn_config config = small();
        memcpy(at, &config, sizeof config);
    } else if (c->call == call_join) {
        cattn_join_options_init((cattn_join_options *)at);
    } else if (c->call == call_fit) {
        cattn_fit_request_init((cattn_fit_request *)at);
        ((cattn_fit_request *)at)->n_tokens = 5;
    } else if (c->call == call_walk) {
        cattn_walk_options_init((cattn_walk_options *)at);
    } else if (c->call == call_rows) {
        ((cattn_rows *)at)->capacity = 5;
    }
    set_size(at, c->size);
}

static world world_new(void) {
    const cattn_config config = small();
    world w = {.cache = create(&config)};
    assert_int_equal(cattn_seq_join(w.cache, some_tokens, 5, NULL, &w.seq, NULL, NULL), CATTN_OK);
    return w;
}

/* Make a call with a struct of `size` bytes, behind which nothing may be accessed. *result: the struct afterwards. */
static cattn_status call_with(const struct_case *c, const char at[MOST], size_t size, char result[MOST], cattn_error *error) {
    world w = world_new();
    guarded g = guarded_new(at, size);
    *error = (cattn_error){.message = ""};
    set_size(g.at, size);
    const cattn_status status = c->call(&w, g.at, error);
    memcpy(result, g.at, size);
    guarded_free(&g);
    cattn_cache_destroy(&w.cache);
    return status;
}

/* Without a device, the call that returns its properties fails with any struct. */
static bool runs(const struct_case *c) {
    int32_t n;
    return c->call != call_device || cattn_cuda_device_count(&n, NULL) == CATTN_OK;
}

static void programs_of_newer_versions_run(void **state) {
    (void)state;
    char at[MOST], got[MOST];
    cattn_error error;
    for (const struct_case *c = struct_cases; c < struct_cases + N_CASES; c++) {
        if (!runs(c)) continue;
        fill(c, at);
        if (!c->input) memset(at + c->size, 0x55, BEYOND);
        if (call_with(c, at, c->size + BEYOND, got, &error)) fail_msg("%s: %s", c->type, error.message);
        for (size_t i = c->size; i < c->size + BEYOND; i++) assert_int_equal(got[i], 0);
    }
}

static void programs_of_the_first_version_run(void **state) {
    (void)state;
    char at[MOST], got[MOST];
    cattn_error error;
    for (const struct_case *c = struct_cases; c < struct_cases + N_CASES; c++) {
        if (!runs(c)) continue;
        fill(c, at);
        if (call_with(c, at, c->first_size, got, &error)) fail_msg("%s: %s", c->type, error.message);
    }
}

static void unknown_fields_that_are_set_are_refused(void **state) {
    (void)state;
    char at[MOST], got[MOST], text[128];
    cattn_error error;
    for (const struct_case *c = struct_cases; c < struct_cases + N_CASES; c++)
        for (size_t byte = c->size; c->input && byte < c->size + BEYOND; byte++) {
            fill(c, at);
            at[byte] = 1;
            assert_int_equal(call_with(c, at, c->size + BEYOND, got, &error), CATTN_ERR_UNSUPPORTED);
            snprintf(text, sizeof text, "field at byte %zu of %s is set; this library is version %s", byte, c->type,
                     cattn_version());
            if (!strstr(error.message, text)) fail_msg("\"%s\" does not say \"%s\"", error.message, text);
        }
}

static void sizes_that_cannot_be_are_refused(void **state) {
    (void)state;
    char at[MOST];
    cattn_error error;
    for (const struct_case *c = struct_cases; c < struct_cases + N_CASES; c++) {
        const size_t sizes[] = {0, 7, c->first_size - 1, SIZE_MAX};
        for (int i = 0; i < 4; i++) {
            world w = world_new();
            fill(c, at);
            set_size(at, sizes[i]);
            assert_int_equal(c->call(&w, at, &error), CATTN_ERR_ARG);
            if (c->call != call_stats && !strstr(error.message, c->type)) fail_msg("%s", error.message);
            cattn_cache_destroy(&w.cache);
        }
    }
}

/* ---- A struct that has grown ---- */

typedef struct grown {
    size_t struct_size;
    int64_t first, second, third; /* the first two are of the first version */
} grown;

static void a_grown_struct_is_read_from_any_version(void **state) {
    (void)state;
    const grown of_caller = {sizeof of_caller, 1, 2, 3};
    grown g = {.third = 42};
    assert_int_equal(CA_STRUCT_READ(grown, second, &g, &of_caller, NULL), CATTN_OK);
    assert_int_equal(g.third, 3);
    const grown older = {offsetof(grown, third), 1, 2, 3};
    g = (grown){.third = 42};
    assert_int_equal(CA_STRUCT_READ(grown, second, &g, &older, NULL), CATTN_OK);
    assert_int_equal(g.second, 2);
    assert_int_equal(g.third, 42);
    assert_int_equal(g.struct_size, sizeof g);
}

static void a_grown_struct_is_written_to_any_version(void **state) {
    (void)state;
    const grown of_library = {0, 1, 2, 3};
    grown g = {.struct_size = sizeof g};
    assert_int_equal(CA_STRUCT_WRITE(grown, second, &g, &of_library, NULL), CATTN_OK);
    assert_int_equal(g.third, 3);
    g = (grown){.struct_size = offsetof(grown, third), .third = 42};
    assert_int_equal(CA_STRUCT_WRITE(grown, second, &g, &of_library, NULL), CATTN_OK);
    assert_int_equal(g.second, 2);
    assert_int_equal(g.third, 42);
    assert_int_equal(g.struct_size, offsetof(grown, third));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_newer_versions_run),          cmocka_unit_test(programs_of_the_first_version_run),
        cmocka_unit_test(unknown_fields_that_are_set_are_refused), cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(a_grown_struct_is_read_from_any_version), cmocka_unit_test(a_grown_struct_is_written_to_any_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

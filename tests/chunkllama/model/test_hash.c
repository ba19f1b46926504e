/* Hash tables of a model file's contents, which may be chosen to collide under any hash that is known beforehand. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "chunkllama/file/model_file_data.h"
#include "chunkllama/text/merge.h"

/*
 * N entries in twice as many slots. Looking for one reads on to the next empty slot, so the longest run of full ones bounds the
 * time: at most 82 in 60000 tables, each with its key; all N if the hash were known.
 */
enum { N = 4096, N_SLOTS = 2 * N, LIMIT = N / 8 };

/* Chosen for a table without a key: all belong in its first 64 slots. */
static bool collides(uint64_t hash) { return ((hash ^ hash >> 32) & (N_SLOTS - 1)) < 64; }

/* Under FNV-1a. */
static void strings_do_not_pile_up(void **state) {
    (void)state;
    static char texts[N][16];
    cl_str_map map;
    assert_int_equal(cl_str_map_init(&map, N), 0);
    assert_int_equal(map.mask, N_SLOTS - 1);
    int n = 0;
    for (int i = 0; n < N; i++) {
        const int size = snprintf(texts[n], sizeof texts[n], "token%d", i);
        uint64_t hash = 0xcbf29ce484222325u;
        for (int j = 0; j < size; j++) hash = (hash ^ (unsigned char)texts[n][j]) * 0x100000001b3u;
        if (!collides(hash)) continue;
        assert_int_equal(cl_str_map_add(&map, texts[n], (size_t)size, n), -1);
        n++;
    }
    for (n = 0; n < N; n++) {
        assert_int_equal(cl_str_map_get(&map, texts[n], strlen(texts[n])), n);
        assert_int_equal(cl_str_map_get(&map, texts[n], strlen(texts[n]) + 1), -1);
    }
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < N_SLOTS; i++) {
        run = map.slots[i].data ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    assert_true(longest < LIMIT);
    cl_str_map_free(&map);
}

/* Under multiplication by the golden ratio. */
static void merges_do_not_pile_up(void **state) {
    (void)state;
    cl_model_file *file = calloc(1, sizeof *file);
    assert_true(file && cl_meta_init(file, NULL) == CL_OK);
    int32_t *ids = cl_meta_put_array(file, "tokenizer.merge_ids", CL_META_I32, (size_t)3 * N);
    const cl_vocab v = {.n = 1024};
    assert_non_null(ids);
    int n = 0;
    for (uint32_t pair = 0; n < N; pair++) {
        const uint64_t left = pair / 1024, right = pair % 1024;
        if (!collides((left << 32 | right) * 0x9e3779b97f4a7c15u)) continue;
        memcpy(ids + 3 * n, (int32_t[]){(int32_t)left, (int32_t)right, n % 1024}, 3 * sizeof *ids);
        n++;
    }
    cl_merge_rules rules;
    cl_error error = {.message = ""};
    if (cl_merge_rules_load(file, &v, &rules, &error) != CL_OK) fail_msg("%s", error.message);
    assert_int_equal(rules.mask, N_SLOTS - 1);
    for (n = 0; n < N; n++) {
        const cl_merge_rule *rule = cl_merge_rules_get(&rules, ids[3 * n], ids[3 * n + 1]);
        assert_true(rule && rule->rank == (uint32_t)n && rule->id == n % 1024);
    }
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < N_SLOTS; i++) {
        run = rules.slots[i].left >= 0 ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    assert_true(longest < LIMIT);
    cl_merge_rules_free(&rules);
    cl_model_file_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_do_not_pile_up),
        cmocka_unit_test(merges_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

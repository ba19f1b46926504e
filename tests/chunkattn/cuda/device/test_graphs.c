/* Graphs by their numbers: what an engine captures in one step and replays in others of the same number. */
#include <stdlib.h>
#include <string.h>

#include "small_cache.h"
#include "tests/support/rng.h"

/* Capture all layers of the open step as its graph, and queue it. */
static void capture(cattn_cache *cache, tensors *t, uint64_t graph) {
    dev_begin_capture();
    run_layers(cache, t);
    assert_true(dev_end_capture(graph) >= 2 * LAYERS && dev_replay(graph));
}

/* Sequences that join, decode and leave at random, behind parts of one prompt. */
typedef struct traffic_kind {
    int n_steps;
    int most, prompt;          /* sequences at once, tokens of the prompt */
    int one_joins, one_leaves; /* in so many steps */
} traffic_kind;

enum { TRAFFIC_STEPS = 30, TRAFFIC_SEQS = 20, TRAFFIC_ROWS = 25 };

typedef struct traffic {
    traffic_kind is;
    rng r;
    cattn_cache *cache;
    cattn_entry entries[TRAFFIC_SEQS];
    int n, n_joined;
    int n_tokens; /* appended so far */
} traffic;

static void add_sequence(traffic *w) {
    const int n_shared = (int)rng_range(&w->r, 0, rng_chance(&w->r, 4) ? w->is.prompt : w->is.prompt / 4);
    const int n_own = (int)rng_range(&w->r, 1, TRAFFIC_ROWS);
    w->entries[w->n++] = (cattn_entry){.seq = join(w->cache, n_shared, n_own, ++w->n_joined), .max_rows = TRAFFIC_ROWS};
}

static void change_sequences(traffic *w) {
    for (int i = 0; i < w->n; i++) append(w->cache, w->entries[i].seq, 7000 + ++w->n_tokens);
    if (w->n > 1 && rng_chance(&w->r, w->is.one_leaves)) {
        cattn_entry *leaves = &w->entries[rng_range(&w->r, 1, w->n - 1)];
        assert_int_equal(cattn_seq_leave(w->cache, &leaves->seq, NULL), CATTN_OK);
        *leaves = w->entries[--w->n];
    }
    if (w->n < w->is.most && rng_chance(&w->r, w->is.one_joins)) add_sequence(w);
}

/* The prompt is written in pieces, so that the device's memory grows with the traffic. */
static void start_traffic(traffic *w, const traffic_kind *is, tensors *t) {
    const cattn_config config = config_of(24);
    *w = (traffic){.is = *is, .r = {3}, .cache = create(&config), .n = 1};
    w->entries[0] = (cattn_entry){.seq = join(w->cache, is->prompt, 1, 0), .max_rows = TRAFFIC_ROWS};
    for (int i = 0; i <= is->prompt / TRAFFIC_ROWS; i++) write_prompt(w->cache, t, w->entries);
}

/* Whatever else happens between two steps of the same number, the launches of one are right for the other. */
static void replay_traffic(const traffic_kind *is, int *n_replayed, int *n_captured) {
    float *want[TRAFFIC_STEPS];
    tensors t = new_tensors();
    for (int replays = 0; replays < 2; replays++) {
        traffic w;
        dev_delay(replays, 5);
        dev_drop_graphs();
        start_traffic(&w, is, &t);
        for (int s = 0; s < is->n_steps; s++) {
            cattn_error error = {0};
            uint64_t graph;
            change_sequences(&w);
            check(cattn_cuda_step_begin(w.cache, w.entries, w.n, 0, dev_stream(0), &graph, &error), &error);
            fill_tensors(w.cache, &t, w.entries, w.n);
            const bool known = replays && dev_replay(graph);
            if (!replays) run_layers(w.cache, &t);
            if (replays && !known) capture(w.cache, &t, graph);
            *n_replayed += known;
            *n_captured += replays && !known;
            assert_int_equal(cattn_step_end(w.cache, NULL), CATTN_OK);
            dev_finish();
            size_t bytes = 0;
            for (int i = 0; i < w.n; i++) bytes += (size_t)w.entries[i].n_rows * HEADS * DIM * sizeof(float);
            if (!replays) memcpy(want[s] = malloc(bytes), t.out, bytes);
            if (!replays) continue;
            assert_memory_equal(want[s], t.out, bytes);
            free(want[s]);
        }
        cattn_cache_destroy(&w.cache);
    }
    free_tensors(&t);
    dev_delay(false, 1);
}

static void steps_of_one_number_have_one_graph(void **state) {
    (void)state;
    /* The second kind grows without states, whose memory would move at the same time as the arrays of a plan within theirs. */
    static const traffic_kind kinds[] = {{30, 5, 1100, 4, 8}, {24, TRAFFIC_SEQS, 10, 1, 1000}};
    int n_replayed = 0, n_captured = 0;
    for (int i = 0; i < 2; i++) replay_traffic(&kinds[i], &n_replayed, &n_captured);
    assert_true(n_replayed > 20 && n_captured > 8);
}

/* A prefill step between decode steps has another number and leaves that of the decode steps alone. */
static void prefill_leaves_the_graphs_of_decode_steps_valid(void **state) {
    (void)state;
    cattn_entry entries[5];
    tensors t = new_tensors();
    cattn_cache *cache = start_decoding(&t, entries);
    for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7000 + i);
    const uint64_t before = step(cache, &t, entries, 4);
    for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7010 + i);
    entries[4] = (cattn_entry){.seq = join(cache, 50, 30, 9), .max_rows = 200};
    assert_true(step(cache, &t, entries, 5) != before);
    assert_int_equal(cattn_seq_leave(cache, &entries[4].seq, NULL), CATTN_OK);
    for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7020 + i);
    assert_true(step(cache, &t, entries, 4) == before);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(steps_of_one_number_have_one_graph),
        DEVICE_TEST(prefill_leaves_the_graphs_of_decode_steps_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Exactness with memcmp: a row's output has the same bits alone or in any batch, in every sharing mode, on one thread or two,
 * with the prompt in one piece or many, with a cold or a warm cache, in any order of joining, behind prefixes that have been
 * evicted, read from the file tier or imported, and after forks, truncations, aborted steps, early leaves and
 * allocations that failed; in a cache or in foreign pages, on the CPU or on a device. Rows that are computed alone agree with
 * double precision.
 *
 *   --rows NAME    which worlds (rows.c)
 *   --worlds N --long N --seed S    the numbers of worlds and of long worlds, and the seed of the first one
 *   --plan FILE    the plan in a file
 */
#include "worlds.h"

#include <getopt.h>
#include <stdlib.h>

#include "rows.h"

enum { LONG_SEEDS = 1000000 };

/* What runs have done, in memory that a child shares with its parent. */
typedef struct shared {
    uint64_t seed; /* of the present world */
    bool is_long;
    int64_t failing; /* the allocation of its round that fails; 0: none */
    int64_t counts[N_COUNTS];
} shared;

typedef struct options {
    const row *row;
    int64_t n_worlds, n_long;
    uint64_t seed;
    const char *plan;
} options;

static shared *state;
static const backend *place;
static plan the_plan;

static void run_plan(const void *p) { world_run(p, place, state->counts); }

static void make_plan(const row *is) {
    row_make(is, &the_plan, state->seed, state->is_long);
    if (state->failing == 0) return;
    plan_round *round = the_plan.rounds;
    *(round->fail_device ? &round->fail_device : &round->fail) = state->failing;
}

/* Run a world, or run it once for every allocation, from the 32nd on for some of them. */
static void run_world(const row *is) {
    int64_t n_faulty;
    state->failing = 0;
    do {
        n_faulty = state->counts[COUNT_FAULTY];
        if (is->each) state->failing += 1 + state->failing / 32;
        make_plan(is);
        run_plan(&the_plan);
    } while (is->each && state->counts[COUNT_FAULTY] > n_faulty);
}

static void run_worlds(const void *arg) {
    const options *o = arg;
    for (int64_t i = 0; i < o->n_worlds + o->n_long; i++) {
        state->is_long = i >= o->n_worlds;
        state->seed = o->seed + (uint64_t)(state->is_long ? LONG_SEEDS + i - o->n_worlds : i);
        run_world(o->row);
    }
}

static int run_rows(const options *o) {
    const bool ok = plan_run(run_worlds, o);
    printf("%s: %lld worlds from seed %llu and %lld long ones", o->row->name, (long long)o->n_worlds,
           (unsigned long long)o->seed, (long long)o->n_long);
    for (int i = 0; i < N_COUNTS; i++)
        if (state->counts[i]) printf(", %lld %s", (long long)state->counts[i], count_names[i]);
    printf("\n");
    if (ok) return !row_is_met(o->row, o->n_worlds, place, state->counts);
    printf("FAILED: repeat it with --rows %s --worlds %d --long %d --seed %llu\n", o->row->name, !state->is_long,
           state->is_long, (unsigned long long)(state->seed - (state->is_long ? LONG_SEEDS : 0)));
    make_plan(o->row);
    plan_report(&world_plan_kind, &the_plan, run_plan);
    return 1;
}

int worlds_main(int argc, char **argv, const backend *b) {
    static const struct option names[] = {{"rows", 1, 0, 'r'}, {"worlds", 1, 0, 'w'}, {"long", 1, 0, 'l'},
                                          {"seed", 1, 0, 's'}, {"plan", 1, 0, 'p'},   {0}};
    options o = {.n_worlds = 1, .seed = 1};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (c == 'r') o.row = row_find(optarg);
        if (c == 'w') o.n_worlds = strtoll(optarg, NULL, 10);
        if (c == 'l') o.n_long = strtoll(optarg, NULL, 10);
        if (c == 's') o.seed = strtoull(optarg, NULL, 10);
        if (c == 'p') o.plan = optarg;
    }
    place = b;
    state = plan_shared(sizeof *state);
    if (o.plan) return plan_run_file(&world_plan_kind, o.plan, &the_plan, run_plan);
    if (o.row) return run_rows(&o);
    fprintf(stderr, "--rows NAME names the worlds: trees, tiers, pages, groups, views, faults, device_trees, device_pages, "
                    "device_faults\n");
    return 2;
}

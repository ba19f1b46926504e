/*
 * Deterministic simulation of the scheduler, the prefix tree and the file tier.
 *
 *   sim --seed N --steps M     run the plans of the seeds N, N + 1, ... until they have taken M steps together
 *   sim --each N --steps M     the same, but run each plan once for every call that can fail, which is its only failure
 *   sim --plan FILE            run the plan in a file
 *
 * A seed determines everything (plan.h). A run that fails is repeated, and its plan is shrunk and printed.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "faults.h"
#include "world.h"

enum { RUN_SECONDS = 20 };  /* of the processor's time; a run that takes longer hangs */
enum { EACH_REQUESTS = 6 }; /* of a plan that is run for every call that can fail */

/* What runs have done so far, in memory that a child shares with its parent. */
typedef struct shared {
    uint64_t seed;    /* of the present run */
    plan_fault fault; /* of the present run, instead of its plan's; n is 0 if these happen */
    int64_t n_runs;
    world_counts counts;
} shared;

static shared *state;

/* ---- Runs ---- */

static void run_plan(const void *plan) {
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value = {RUN_SECONDS, 0}}, NULL);
    world_run(plan, &state->counts);
}

/* The plan of a seed, with the present run's failure. */
static void make_plan(plan *p) {
    plan_make(p, state->seed);
    if (state->fault.n == 0) return;
    p->n_faults = 1;
    p->faults[0] = state->fault;
    p->engine.create_fault = 0;
    if (p->n_requests > EACH_REQUESTS) p->n_requests = EACH_REQUESTS;
}

static void run_seeds(const void *n_steps) {
    static plan p;
    for (; state->counts.steps < *(const int64_t *)n_steps; state->seed++) {
        make_plan(&p);
        run_plan(&p);
        state->n_runs++;
    }
}

/* Run the present plan with the first call of a kind failing, then with the second, and so on: `times` of them, one after
 * another. */
static void fail_each(int64_t kind, int64_t times, int64_t n_steps) {
    static plan p;
    int64_t n_failed;
    state->fault = (plan_fault){.kind = kind, .times = times};
    do {
        n_failed = state->counts.faults + state->counts.disk_faults;
        state->fault.n++;
        make_plan(&p);
        run_plan(&p);
        state->n_runs++;
    } while (state->counts.faults + state->counts.disk_faults > n_failed && state->counts.steps < n_steps);
}

static void run_each(const void *n_steps_) {
    const int64_t n_steps = *(const int64_t *)n_steps_;
    for (; state->counts.steps < n_steps; state->seed++)
        for (int64_t kind = 0; kind < FAULT_KINDS; kind++)
            for (int64_t times = 1; times <= 4; times += 3) fail_each(kind, times, n_steps);
}

/* ---- The program ---- */

static void print_counts(double seconds) {
    const world_counts *c = &state->counts;
    printf("%lld runs, %lld of them with too small a budget; %lld steps, %.0f steps a second\n", (long long)state->n_runs,
           (long long)(state->n_runs - c->engines), (long long)c->steps, (double)c->steps / seconds);
    printf("%lld rows, %lld requests and %lld refused, %lld events; %lld choices cancelled, %lld with errors\n",
           (long long)c->rows, (long long)c->requests, (long long)c->refused, (long long)c->events, (long long)c->cancelled,
           (long long)c->errors);
    printf("%lld preemptions, %lld faults, %lld drafted tokens accepted; %lld tokens found in the cache, %lld evicted\n",
           (long long)c->preemptions, (long long)c->faults, (long long)c->drafts_accepted, (long long)c->cached_tokens,
           (long long)c->evicted_tokens);
    printf("%lld restarts; file tier: %lld tokens restored, %lld records written, %lld refused, %lld faults\n",
           (long long)c->restarts, (long long)c->restored_tokens, (long long)c->records_written, (long long)c->records_refused,
           (long long)c->disk_faults);
    printf("longest wait: %.1f %% of its bound; a tenant's largest lead: %.1f %%\n", (double)c->longest_wait / 10,
           (double)c->largest_lead / 10);
}

static int simulate(uint64_t seed, int64_t n_steps, bool each) {
    const double start = real_seconds();
    state->seed = seed;
    printf("seeds from %llu, %lld steps\n", (unsigned long long)seed, (long long)n_steps);
    const bool ok = plan_run(each ? run_each : run_seeds, &n_steps);
    print_counts(real_seconds() - start);
    if (ok && !each && n_steps >= 250000 && (state->counts.restored_tokens == 0 || state->counts.records_refused == 0)) {
        printf("FAILED: the file tier was not used\n");
        return 1;
    }
    if (ok) return 0;
    static plan p;
    printf("FAILED: repeat it with  sim --%s %llu --steps 1\n", each ? "each" : "seed", (unsigned long long)state->seed);
    make_plan(&p);
    plan_report(&sim_plan_kind, &p, run_plan);
    return 1;
}

static int run_file(const char *path) {
    static plan p;
    const double start = real_seconds();
    state->n_runs = 1;
    const int status = plan_run_file(&sim_plan_kind, path, &p, run_plan);
    if (status == 0) print_counts(real_seconds() - start);
    return status;
}

int main(int argc, char **argv) {
    uint64_t seed = 1;
    int64_t n_steps = 20000;
    bool each = false;
    const char *path = NULL;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && (strcmp(argv[i], "--seed") == 0 || strcmp(argv[i], "--each") == 0)) {
            each = argv[i][2] == 'e';
            seed = strtoull(argv[i + 1], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--steps") == 0)
            n_steps = strtoll(argv[i + 1], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--plan") == 0)
            path = argv[i + 1];
        else {
            fprintf(stderr, "usage: sim [--seed N | --each N] [--steps N] | --plan FILE\n");
            return 2;
        }
    }
    state = plan_shared(sizeof *state);
    return path ? run_file(path) : simulate(seed, n_steps, each);
}

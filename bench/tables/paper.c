/* `cattn-bench paper`: the whole evaluation in one run, with an index of the results. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/shared/bench_options.h"
#include "chunkattn/base/clock.h"

enum { MAX_ARGUMENTS = 12, MAX_PATH = 4096, MAX_NUMBER = 24 };

/* seconds: the approximate time with 2 threads of a desktop CPU, used only to estimate the time left. */
typedef struct paper_part {
    const char *name;
    int (*run)(int argc, char **argv);
    double seconds;
    bool needs_model;
} paper_part;

static const paper_part parts[] = {
    {"machine", bench_machine, 3, false},  {"table1", bench_table1, 120, false}, {"table2", bench_table2, 10, true},
    {"table3", bench_table3, 90, false},   {"fig3", bench_fig3, 90, false},      {"fig4", bench_fig4, 90, false},
    {"prefill", bench_prefill, 60, false}, {"kernel", bench_kernel, 20, false},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

typedef struct outcome {
    bool skipped;
    int status; /* exit status */
    double seconds;
} outcome;

typedef struct paper {
    const bench_common *common;
    const char *model; /* NULL: none */
    outcome outcomes[N_PARTS];
} paper;

static bool skips(const paper *p, int i) { return parts[i].needs_model && !p->model; }

/* The expected seconds of the parts from i on, scaled by how much longer than expected the earlier ones took. */
static double estimate_left(const paper *p, int i) {
    double expected = 0, taken = 0, left = 0;
    for (int k = 0; k < i; k++) {
        if (p->outcomes[k].skipped) continue;
        expected += parts[k].seconds;
        taken += p->outcomes[k].seconds;
    }
    for (int k = i; k < N_PARTS; k++)
        if (!skips(p, k)) left += parts[k].seconds;
    return expected > 0 ? left * taken / expected : left;
}

static void run_part(paper *p, int i) {
    const bench_common *c = p->common;
    char threads[MAX_NUMBER];
    snprintf(threads, sizeof threads, "%d", (int)c->threads);
    /* Copies, since getopt may reorder them. */
    char *argv[MAX_ARGUMENTS] = {(char *)parts[i].name, "--out", (char *)c->dir, "--threads", threads};
    int argc = 5;
    if (c->quick) argv[argc++] = "--quick";
    if (parts[i].needs_model) {
        argv[argc++] = "--model";
        argv[argc++] = (char *)p->model;
    }
    const double start = clock_seconds();
    p->outcomes[i].status = parts[i].run(argc, argv);
    p->outcomes[i].seconds = clock_seconds() - start;
}

static void run_parts(paper *p) {
    const double start = clock_seconds();
    for (int i = 0; i < N_PARTS; i++) {
        if (skips(p, i)) {
            p->outcomes[i].skipped = true;
            fprintf(stderr, "[%d/%d] %s: skipped, it needs --model\n", i + 1, N_PARTS, parts[i].name);
            continue;
        }
        fprintf(stderr, "[%d/%d] %s: %.0f s elapsed, about %.0f s left\n", i + 1, N_PARTS, parts[i].name,
                clock_seconds() - start, estimate_left(p, i));
        run_part(p, i);
        if (p->outcomes[i].status != 0) fprintf(stderr, "[%d/%d] %s: failed\n", i + 1, N_PARTS, parts[i].name);
    }
    fprintf(stderr, "[%d/%d] done: %.0f s; the index is %s/README.md\n", N_PARTS, N_PARTS, clock_seconds() - start,
            p->common->dir);
}

/* ---- The index ---- */

static void path_of(const paper *p, const char *name, const char *ending, char *path) {
    snprintf(path, MAX_PATH, "%s/%s.%s", p->common->dir, name, ending);
}

static void add_links(const paper *p, const char *name, FILE *index) {
    static const char *const endings[] = {"md", "jsonl"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char path[MAX_PATH];
        path_of(p, name, endings[i], path);
        if (access(path, R_OK) == 0) fprintf(index, " [%s](%s.%s)", endings[i], name, endings[i]);
    }
}

static bool write_index(const paper *p) {
    char path[MAX_PATH];
    path_of(p, "README", "md", path);
    FILE *f = fopen(path, "we");
    if (f) {
        fprintf(
            f,
            "# The kernel evaluation\n\nBy `cattn-bench paper%s`, %d threads%s.\n\n| part | seconds | files |\n|---|--:|---|\n",
            p->common->quick ? " --quick" : "", (int)p->common->threads,
            p->common->quick ? "; tiny shapes, so the figures mean nothing" : "");
        for (int i = 0; i < N_PARTS; i++) {
            const outcome *o = &p->outcomes[i];
            fprintf(f, "| %s | %.1f |%s", parts[i].name, o->seconds, o->skipped ? " skipped" : o->status ? " failed:" : "");
            if (!o->skipped) add_links(p, parts[i].name, f);
            fputs(" |\n", f);
        }
    }
    if (f && fclose(f) == 0) return true;
    fprintf(stderr, "cattn-bench paper: %s: %s\n", path, strerror(errno));
    return false;
}

int bench_paper(int argc, char **argv) {
    bench_common common;
    paper p = {.common = &common, .model = getenv("CHUNKLLAMA_MODEL")};
    option_list list = {0};
    bench_common_options(&common, &list);
    const option_row rows[] = {
        {"model", OPTION_TEXT, &p.model, 0, 0, "GGUF file for table2; without it CHUNKLLAMA_MODEL, and without that no table2",
         0},
    };
    options_add(&list, rows, sizeof rows / sizeof *rows);
    const options_result read = options_read(argc, argv, &list, "the whole evaluation in one run, written to a folder");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!common.dir) {
        fputs("cattn-bench paper: --out must name a folder\n", stderr);
        return 2;
    }
    if (!bench_common_start(&common, argv[0])) return 1;
    bench_common_stop(&common); /* the folder and the limits exist; each part starts its own threads */
    run_parts(&p);
    bool ok = write_index(&p);
    for (int i = 0; i < N_PARTS; i++) ok = ok && p.outcomes[i].status == 0;
    return ok ? 0 : 1;
}

/* cattn-bench: measures the machine and libchunkattn's kernels. One file a subcommand. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"kernel", bench_kernel, "latency of one decode step over one layer, method by method"},
    {"machine", bench_machine, "read bandwidth and arithmetic peaks of this machine"},
    {"paper", bench_paper, "the whole evaluation in one run, written to a folder"},
    {"table1", bench_table1, "what one layer computes and moves, by formula and measured"},
    {"table2", bench_table2, "tokens that the requests of a workload share"},
    {"table3", bench_table3, "the paper's Table 3: a decode step by prompt length and shared part"},
    {"fig3", bench_fig3, "the paper's Figure 3: decode throughput while completions diverge"},
    {"fig4", bench_fig4, "the paper's Figure 4: decode throughput by batch and by shared length"},
    {"memory", bench_memory, "throughput and latency of an engine where K/V memory is short"},
    {"never_worse", bench_never_worse, "what sharing costs where nothing is shared, with confidence intervals"},
    {"prefill", bench_prefill, "a causal prefill of one sequence, against the arithmetic peak"},
    {"retention", bench_retention, "prefill that retained prefixes save, by retention policy and cache size"},
    {"render", bench_render, "make the page of stored results again, without measuring"},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
    fputs("usage: cattn-bench COMMAND [OPTION...]\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-12s%s\n", commands[i].name, commands[i].help);
    fputs("\ncattn-bench COMMAND --help lists a command's options.\n", out);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return 0;
    }
    for (int i = 0; argc > 1 && i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    if (argc > 1) fprintf(stderr, "cattn-bench: there is no command \"%s\"\n", argv[1]);
    print_help(stderr);
    return 2;
}

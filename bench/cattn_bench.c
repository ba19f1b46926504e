/* cattn-bench: measures the machine and libchunkattn's kernels. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"
#include "chunkattn/base/cpu.h"

static const char *paper_model;
static const option_row paper_options[] = {{"model", OPTION_TEXT, &paper_model, 0, 0,
                                            "GGUF file for table2; without it CHUNKLLAMA_MODEL, and without that no table2", 0},
                                           {0}};
static const bench_command command_paper = {
    .name = "paper", .about = "the whole evaluation in one run, written to a folder", .options = {paper_options}};

static const bench_command *const commands[] = {&command_kernel,   &command_level,   &command_machine, &command_paper,
                                                &command_table1,   &command_table2,  &command_table3,  &command_fig3,
                                                &command_fig4,     &command_prefill, &command_memory,  &command_never_worse,
                                                &command_retention};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

bool bench_fail(const bench *b, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "cattn-bench %s: ", b->command->name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

static options_result read_options(bench *b, int argc, char **argv) {
    const option_row common[] = {
        {"threads", OPTION_INT, &b->threads, 1, 1024, "threads", 0},
        {"quick", OPTION_FLAG, &b->quick, 0, 0, "tiny shapes, to show that it works; the figures mean nothing", 0},
        {"json", OPTION_FLAG, &b->json, 0, 0, "print lines of JSON, not a table", 0},
        {"out", OPTION_TEXT, &b->dir, 0, 0, "folder for lines of JSON as files", 'o'},
        {0}};
    for (int i = 0; i < 3 && b->command->options[i]; i++) options_add(&b->options, b->command->options[i]);
    options_add(&b->options, common);
    return options_read(argc, argv, &b->options, b->command->about);
}

/* Make the folder, start the threads, and measure the limits. */
static bool start(bench *b) {
    if (b->dir && mkdir(b->dir, 0777) != 0 && errno != EEXIST)
        return bench_fail(b, "--out %s cannot be made: %s", b->dir, strerror(errno));
    b->limits = limits_of((int)b->threads, b->quick);
    b->pool = ca_pool_create((int)b->threads);
    return b->limits && (b->pool || bench_fail(b, "the threads cannot be started; lower --threads"));
}

static int run(const bench_command *command, int argc, char **argv);

/* Run a command as `paper` with these options. */
static int run_part(const bench *b, const bench_command *command) {
    char threads[24];
    snprintf(threads, sizeof threads, "%" PRId64, b->threads);
    char *argv[10] = {(char *)command->name, "--out", (char *)b->dir, "--threads", threads}; /* getopt may reorder them */
    int argc = 5;
    if (b->quick) argv[argc++] = "--quick";
    if (b->json) argv[argc++] = "--json";
    if (command->needs_model) {
        argv[argc++] = "--model";
        argv[argc++] = (char *)paper_model;
    }
    return run(command, argc, argv);
}

static int run_paper(const bench *b) {
    int status = 0;
    if (!b->dir) return bench_fail(b, "--out must name a folder"), 2;
    if (!paper_model) paper_model = getenv("CHUNKLLAMA_MODEL");
    for (int i = 0; i < N_COMMANDS; i++) {
        if (!commands[i]->in_paper) continue;
        const bool skipped = commands[i]->needs_model && !paper_model;
        fprintf(stderr, "%s%s\n", commands[i]->name, skipped ? ": skipped, it needs --model" : "");
        if (!skipped) status |= run_part(b, commands[i]);
    }
    return status;
}

/* argv[0] is the subcommand's name; the result is the exit status. */
static int run(const bench_command *command, int argc, char **argv) {
    bench b = {.command = command, .threads = ca_cpu_count()};
    const options_result read = read_options(&b, argc, argv);
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (command == &command_paper) return run_paper(&b);
    if (command->prepare && !command->prepare(&b)) return 2;
    bool ok = start(&b) && results_begin(&b);
    if (ok) {
        ok = command->measure(&b);
        ok = results_end(&b) && ok;
    }
    ca_pool_destroy(&b.pool);
    return ok ? 0 : 1;
}

static void print_help(FILE *out) {
    fputs("usage: cattn-bench COMMAND [OPTION...]\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-12s%s\n", commands[i]->name, commands[i]->about);
    fputs("\ncattn-bench COMMAND --help lists a command's options.\n", out);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return 0;
    }
    for (int i = 0; argc > 1 && i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0) return run(commands[i], argc - 1, argv + 1);
    if (argc > 1) fprintf(stderr, "cattn-bench: there is no command \"%s\"\n", argv[1]);
    print_help(stderr);
    return 2;
}

/* The commands of chunkllama: the functions that run them, and the list of their names and help texts (main.c). */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdint.h>

typedef struct cli_options cli_options;

typedef struct cli_command {
    const char *name;                   /* one or two words */
    const char *arguments;              /* what may stand after the options, for the usage line; "": nothing */
    const char *summary;                /* one line */
    const char *details;                /* further sentences for the command's --help; may be "" */
    int (*run)(const cli_options *opt); /* returns the exit status of the process */
} cli_command;

/* Indices in `commands`, and bits in the options' sets of commands. */
typedef enum cli_command_id {
    CMD_RUN,
    CMD_CHAT,
    CMD_BATCH,
    CMD_SERVE,
    CMD_EXPLAIN,
    CMD_INFO,
    CMD_TOKENIZE,
    CMD_LOGITS,
    CMD_PERPLEXITY,
    CMD_BENCH,
    CMD_BENCH_SERVE,
    CMD_BENCH_GRAMMAR,
    CMD_DOCTOR,
    CMD_TIER,
    N_COMMANDS
} cli_command_id;

extern const cli_command commands[N_COMMANDS];

/* The command that argv[1], or argv[1] and argv[2], name, and the number of these words; N_COMMANDS: there is none. */
cli_command_id command_find(int argc, char **argv, int *n_words);

int cmd_run(const cli_options *opt);
int cmd_chat(const cli_options *opt);
int cmd_batch(const cli_options *opt);
int cmd_serve(const cli_options *opt);
int cmd_info(const cli_options *opt);
int cmd_explain(const cli_options *opt);
int cmd_tokenize(const cli_options *opt);
int cmd_logits(const cli_options *opt);
int cmd_perplexity(const cli_options *opt);
int cmd_bench(const cli_options *opt);
int cmd_bench_serve(const cli_options *opt);
int cmd_bench_grammar(const cli_options *opt);
int cmd_doctor(const cli_options *opt);
int cmd_tier(const cli_options *opt);

#endif

/* The subcommands of chunkllama. Each takes parsed options and returns the process's exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdint.h>

typedef struct options options;

typedef struct command {
    const char *name;      /* one word, or two */
    const char *arguments; /* for the usage line: what stands after the options; "" when nothing may */
    const char *summary;   /* one line */
    const char *details;   /* more for its --help; "" when the summary says all */
    int (*run)(const options *opt);
} command;

/* Positions in the list below, and bits in the options table. */
typedef enum command_id {
    CMD_RUN,
    CMD_CHAT,
    CMD_BATCH,
    CMD_SERVE,
    CMD_INFO,
    CMD_TOKENIZE,
    CMD_LOGITS,
    CMD_PERPLEXITY,
    CMD_BENCH,
    CMD_BENCH_SERVE,
    N_COMMANDS
} command_id;

extern const command commands[N_COMMANDS];

int cmd_run(const options *opt);
int cmd_chat(const options *opt);
int cmd_batch(const options *opt);
int cmd_serve(const options *opt);
int cmd_info(const options *opt);
int cmd_tokenize(const options *opt);
int cmd_logits(const options *opt);
int cmd_perplexity(const options *opt);
int cmd_bench(const options *opt);
int cmd_bench_serve(const options *opt);

#endif

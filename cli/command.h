/* The commands of chunkllama: the functions that run them, and the list of their names and help texts (main.c). */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdint.h>

typedef struct options options;

typedef struct command {
    const char *name;               /* one or two words */
    const char *arguments;          /* what may stand after the options, for the usage line; "": nothing */
    const char *summary;            /* one line */
    const char *details;            /* further sentences for the command's --help; may be "" */
    int (*run)(const options *opt); /* returns the exit status of the process */
} command;

/* Indices in `commands`, and bits in the options' sets of commands. */
typedef enum command_id {
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
    N_COMMANDS
} command_id;

extern const command commands[N_COMMANDS];

/* The command that argv[1], or argv[1] and argv[2], name, and the number of these words; N_COMMANDS: there is none. */
command_id command_find(int argc, char **argv, int *n_words);

int cmd_run(const options *opt);
int cmd_chat(const options *opt);
int cmd_batch(const options *opt);
int cmd_serve(const options *opt);
int cmd_info(const options *opt);
int cmd_explain(const options *opt);
int cmd_tokenize(const options *opt);
int cmd_logits(const options *opt);
int cmd_perplexity(const options *opt);
int cmd_bench(const options *opt);
int cmd_bench_serve(const options *opt);
int cmd_bench_grammar(const options *opt);
int cmd_doctor(const options *opt);

#endif

/*
 * The options of all subcommands: one table, from which flags, environment variables, checks and help come.
 *
 * An option --kv-type is set by the environment variable CHUNKLLAMA_KV_TYPE too; the command line wins.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"

typedef enum option_type {
    OPT_FLAG,   /* bool: --name; in the environment 1, 0, true or false */
    OPT_INT,    /* int64_t */
    OPT_SIZE,   /* int64_t: bytes, with K, M or G (powers of 1024) */
    OPT_REAL,   /* double */
    OPT_STRING, /* const char * */
    OPT_UTF8,   /* const char *: a text that goes into JSON, which knows nothing else */
    OPT_CHOICE, /* int32_t: index in choices */
} option_type;

struct options {
    /* files */
    const char *model, *input, *output, *summary, *file, *tokens;
    /* the machine and the cache */
    int64_t threads;
    bool pin_threads;
    const char *level;
    int32_t sharing, kv_type, retention; /* cattn_sharing, cattn_type, cattn_retention */
    int32_t speculate;                   /* 0: off */
    const char *draft_model;
    int64_t kv_budget, chunk_size, ctx, max_seqs, max_step_rows, prefill_piece;
    /* prompts and sampling */
    const char *prompt, *system, *chat_format;
    bool raw;
    int64_t max_tokens;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, seed;
    const char *stop;
    bool ignore_eos;
    int64_t logprobs;
    /* serve */
    const char *host, *api_key, *cors_origin, *model_name;
    int64_t port;
    /* tokenize, logits, info, perplexity, bench */
    bool jsonl, special, bos, last, tensors, json, shared; /* json: bench serve, too */
    int64_t chunks, tg;
    const char *pp, *batch;
    /* bench serve */
    const char *url, *extra_body;
    double rate, time_limit;
    int64_t requests, prompt_tokens, shared_tokens, completion_tokens, prefixes, vocab, max_concurrency, warm_up;
    bool text, warm_prefixes;

    /* what stands after the options */
    const char *const *args;
    int32_t n_args;
};

typedef struct option {
    const char *name;
    char letter; /* 0: none */
    option_type type;
    size_t offset;              /* in struct options */
    const char *fallback;       /* parsed like a value; NULL: a string that is NULL, a flag that is off */
    double min, max;            /* of numbers */
    const char *const *choices; /* ends with NULL */
    const char *value;          /* what stands for the value in the help */
    const char *help;
    uint32_t commands; /* set of 1 << command_id */
} option;

extern const option option_table[];
extern const size_t option_table_size;

/* The command's option of this name or letter; NULL if it has none. */
const option *option_find(command_id cmd, const char *name, size_t size);
const option *option_find_letter(command_id cmd, char letter);

/* "CHUNKLLAMA_KV_TYPE" for kv-type. */
void option_env_name(const option *o, char *buf, size_t size);

typedef enum options_status { OPTIONS_OK, OPTIONS_HELP, OPTIONS_WRONG } options_status;

/*
 * Fill *opt from argv (what stands behind the subcommand's name), else the environment, else the table's defaults.
 * OPTIONS_HELP: --help or -h is among them. OPTIONS_WRONG: message says what is wrong and hints at a fix. Borrows argv.
 */
options_status options_parse(command_id cmd, int argc, char **argv, options *opt, char *message, size_t message_size);

/* Print the help of one command, or the list of commands. */
void options_print_help(command_id cmd);
void options_print_commands(void);

/* The name of those given that is closest to a mistyped one; NULL when none is close. names ends with NULL. */
const char *closest_name(const char *wrong, const char *const *names);

#endif

/*
 * The options of all commands: one table (options.c) defines their flags, environment variables, keys in a file, checks and
 * help texts.
 *
 * An option such as --kv-type may also be set by an environment variable, here CHUNKLLAMA_KV_TYPE, or by the key kv-type of the
 * file of --config. The command line counts before the environment, and that before the file.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"
#include "command.h"

typedef enum cli_option_type {
    OPT_FLAG,   /* bool: --name; in the environment 1, 0, true or false */
    OPT_INT,    /* int64_t; "auto" stands for OPTION_UNSET, where it is the default */
    OPT_SIZE,   /* int64_t, bytes; K, M and G are powers of 1024 */
    OPT_REAL,   /* double; "auto" stands for NAN, where it is the default */
    OPT_STRING, /* const char *, any bytes */
    OPT_UTF8,   /* const char *, valid UTF-8, because it is written as JSON */
    OPT_CHOICE, /* int32_t, an index in `choices` */
} cli_option_type;

#define OPTION_UNSET INT64_MIN

/* Where options of sampling come from that are left out. */
typedef enum cli_sampling_defaults { SAMPLING_OF_MODEL, SAMPLING_OF_OPENAI } cli_sampling_defaults;

/*
 * The values for one command; fields of other commands' options are 0. Strings are borrowed from argv, the environment and
 * `owned`. Free with options_free.
 */
struct cli_options {
    const char *config;
    /* files */
    const char *model, *input, *output, *summary, *file, *tokens;
    const char *shard;
    bool resume;
    /* the machine and the cache */
    int64_t threads;
    bool pin_threads;
    const char *level, *device;
    int32_t sharing, kv_type, retention; /* cattn_sharing, cattn_type, cattn_retention */
    int32_t pooling;                     /* cl_engine_pooling */
    bool parse_special;
    int32_t speculate; /* 0: off */
    const char *draft_model;
    const char *grammar_library;
    const char *kv_tier;
    int64_t kv_tier_size;
    int64_t kv_budget, chunk_size, ctx, max_seqs, max_step_rows, prefill_segment;
    /* prompts and sampling */
    const char *prompt, *system, *chat_template, *chat_kwargs, *chat_format;
    bool raw, no_history;
    int64_t max_tokens;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, seed;
    int32_t sampling_defaults; /* cli_sampling_defaults */
    const char *stop;
    bool ignore_eos;
    bool open_objects;
    int64_t logprobs;
    /* serve */
    const char *host, *unix_socket, *unix_socket_mode, *tls_cert, *tls_key, *api_key, *api_keys, *cors_origin, *allowed_hosts,
        *model_name;
    int64_t port, max_queued_requests, max_queued_tokens;
    double timeout, queue_timeout, shutdown_timeout, target_itl; /* seconds */
    const char *pin, *warm, *memory_pressure, *files_dir;
    int64_t max_file_bytes, request_memory;
    int64_t pin_budget;
    bool grammars_in_process;
    bool sandbox, no_page;
    int64_t metrics_tenants;
    int32_t log_level, log_format; /* log_level; 1: JSON */
    bool log_prompts;
    double log_load; /* seconds */
    /* tokenize, logits, info, perplexity, bench */
    bool jsonl, special, bos, last, tensors, shared;
    bool json; /* also of bench serve */
    int64_t passages, tg, streams, rounds;
    const char *pp, *batch;
    /* bench serve */
    const char *url, *extra_body; /* url: also of explain */
    double rate, time_limit;
    int64_t requests, prompt_tokens, shared_tokens, completion_tokens, prefixes, vocab, max_concurrency, warm_up;
    bool text, warm_prefixes;
    /* explain */
    const char *tenant, *path;
    /* tier */
    bool remove;

    /* the arguments that are not options */
    const char *const *args; /* [n_args], borrowed from argv */
    int32_t n_args;

    char **owned; /* [n_owned] texts that other fields point to */
    size_t n_owned;
};

typedef struct cli_option {
    const char *name; /* without "--" */
    char letter;      /* the short form's; 0: none */
    cli_option_type type;
    size_t offset;              /* of the field in struct options */
    const char *fallback;       /* the default, parsed like a value; NULL: a string is NULL, a flag is off */
    double min, max;            /* of numbers */
    const char *const *choices; /* of OPT_CHOICE, ends with NULL */
    const char *value;          /* the placeholder of the value in the help */
    const char *help;
    uint32_t commands; /* the commands that have the option: a set of 1 << cli_command_id */
} cli_option;

extern const cli_option option_table[];
extern const size_t option_table_size;

/* The command's option of this name [size] or letter, static; NULL: there is none. */
const cli_option *option_find(cli_command_id cmd, const char *name, size_t size);
const cli_option *option_find_letter(cli_command_id cmd, char letter);

/* Whether the option's value is the path of a file or a folder. */
bool option_names_path(const cli_option *o);

/* Write the name of the option's environment variable, such as "CHUNKLLAMA_KV_TYPE", to buf [size]. */
void option_env_name(const cli_option *o, char *buf, size_t size);

typedef enum cli_options_status { OPTIONS_OK, OPTIONS_HELP, OPTIONS_WRONG } cli_options_status;

/*
 * Fill *opt from the command line, otherwise from the environment, otherwise from the file of --config, otherwise from the
 * table's defaults.
 *
 * argv: [argc] what follows the command's name, borrowed while *opt is used; its elements are reordered.
 * Returns OPTIONS_HELP if --help or -h is among argv, and OPTIONS_WRONG with the reason and the fix in message.
 */
cli_options_status options_parse(cli_command_id cmd, int argc, char **argv, cli_options *opt, char *message,
                                 size_t message_size);
void options_free(cli_options *opt);

/* ---- Flags of other programs (options_peers.c) ---- */

typedef enum peer_form {
    PEER_FLAG,     /* no value */
    PEER_VALUE,    /* a value */
    PEER_OPTIONAL, /* a value, if the next argument is on, off or auto, or it follows '=' */
    PEER_WORDS,    /* values up to the next flag */
    PEER_HUB,      /* the name of a model on the hub of Hugging Face, which is refused with model_download_advice */
    PEER_HUB_FILE, /* the file that is meant of such a model */
    PEER_URL,      /* a model's address, which is refused alike */
} peer_form;

typedef struct peer_option {
    const char *flags;  /* with their dashes, separated by blanks */
    const char *option; /* ours with the same meaning, without dashes; NULL: there is none */
    const char *holds;  /* values, separated by blanks, that request what holds here, or our option's default; NULL: none */
    const char *answer; /* why it is refused, and what to use instead; NULL: it is accepted */
    peer_form form;
} peer_option;

/* The peer's option with this flag [size]; NULL: there is none. */
const peer_option *peer_find(const char *flag, size_t size);

/* Whether the value is this program's behaviour already. */
bool peer_holds(const peer_option *peer, const char *value);

/* ---- Names of models (options_model.c) ---- */

/* Whether it is a GGUF file, or a folder with a configuration. */
bool model_is_here(const char *path);

/*
 * Whether it has the form OWNER/NAME or OWNER/NAME:TYPE of models on the hub of Hugging Face, also behind the hub's address,
 * and then also OWNER/NAME/FILE.
 */
bool model_is_hub_name(const char *model);

/* Whether no file can be meant: it has that form, or it is an address. */
bool model_is_elsewhere(const char *model);

/*
 * Write the shell commands that download a model, of the hub or at an address, and use it.
 *
 * file: the file of a model on the hub that is meant; NULL: what the name says.
 * use:  the second command up to the model's path, such as "chunkllama serve -m".
 */
void model_download_advice(const char *model, const char *file, const char *use, char *buf, size_t size);

/* Print the help of one command, or the list of commands. */
void options_print_help(cli_command_id cmd);
void options_print_commands(void);

/* Print the manual page of a command, or with N_COMMANDS that of the program (man.c). */
void man_print(cli_command_id cmd);

/* Print what completes the commands in bash, zsh or fish (completion.c). False: it is another shell. */
bool completion_print(const char *shell);

/*
 * Print what may stand in place of the last of main's arguments: a line for each word, with a tab and its description; "*"
 * alone stands for the names of files.
 */
void completion_offer(int argc, char **argv);

/* Write "--name: " before the message of an error in an option's value. Returns the error's code. */
cl_status option_fail(const char *name, cl_error *error);

/* Let an error of a field of cl_engine_config name the option that sets it. Returns the error's code. */
cl_status options_name_field(cl_error *error);

/* The one of `names`, which ends with NULL, that is closest to the mistyped name `wrong`; NULL: none is close. */
const char *closest_name(const char *wrong, const char *const *names);

#endif

/* chunkllama: picks the subcommand, parses its options, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chunkattn.h"
#include "command.h"
#include "options.h"

const command commands[N_COMMANDS] = {
    [CMD_RUN] =
        {"run", "[PROMPT]", "answer one prompt, word by word, on standard output",
         "The prompt is the argument, or --prompt, --file, or standard input. It is put in the model's chat format unless "
         "--raw is given.",
         cmd_run},
    [CMD_CHAT] =
        {"chat", "", "talk with the model",
         "Each turn's conversation so far is matched in the prefix tree, so only what is new is computed. /clear starts "
         "anew, /quit or the end of the input ends; an interrupt (Ctrl-C) ends an answer.",
         cmd_chat},
    [CMD_BATCH] = {"batch", "", "answer a file of requests, with what their prompts share computed once",
                   "Each input line is OpenAI's batch form {\"custom_id\", \"url\", \"body\"} or the short form {\"id\", "
                   "\"messages\" or \"prompt\", parameters}. Answers come in the order of the input; a bad line gets an error "
                   "record, the others go on, and the exit status is 1. The output is written anew. Parameters in a line win "
                   "over the options below.",
                   cmd_batch},
    [CMD_SERVE] = {"serve", "", "serve the model to OpenAI clients over HTTP", "An interrupt or SIGTERM ends it.", cmd_serve},
    [CMD_INFO] = {"info", "[FILE]", "tell what is in a model file", "The file is the argument or --model.", cmd_info},
    [CMD_TOKENIZE] = {"tokenize", "[TEXT]", "print the token ids of a text as a JSON array",
                      "The text is the argument, or --file, or standard input.", cmd_tokenize},
    [CMD_LOGITS] = {"logits", "", "write the logits of a sequence of tokens as a NumPy file",
                    "The file holds float32 of shape [positions][vocabulary]; one position with --last.", cmd_logits},
    [CMD_PERPLEXITY] =
        {"perplexity", "", "measure how well the model predicts a text",
         "The text is cut into chunks of --ctx tokens; the second half of each counts, given all before it in the "
         "chunk.",
         cmd_perplexity},
    [CMD_BENCH] = {"bench", "", "measure the throughput of prefill and decode",
                   "One line for each of --pp and --batch: PP and TG tokens of each of B sequences, N_KV tokens in the cache, "
                   "seconds and tokens a second of prefill (T_PP, S_PP), decode (T_TG, S_TG) and both (T, S).",
                   cmd_bench},
    [CMD_BENCH_SERVE] =
        {"bench serve", "", "put load on an OpenAI endpoint and measure latency and throughput",
         "The endpoint may be this program's or another's. Requests come as a Poisson process with --rate, all with the same "
         "number of tokens, or from --input. Normalized latency is each request's time from its arrival to its end, "
         "queueing included, over its completion tokens; the table, --json and --output FILE give its mean and percentiles and "
         "those of "
         "the time to the first token (TTFT), the time per token after it (TPOT) and from one output to the next (ITL). "
         "Ends with status 1 when a request failed.",
         cmd_bench_serve},
};

/* The command that argv[1], or argv[1] and argv[2], name; N_COMMANDS: none. n_words: how many. */
static command_id find_command(int argc, char **argv, int *n_words) {
    command_id found = N_COMMANDS;
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        const char *name = commands[cmd].name;
        const size_t first = strcspn(name, " ");
        if (strlen(argv[1]) != first || memcmp(name, argv[1], first) != 0) continue;
        const bool two = name[first] != 0;
        if (two && (argc < 3 || strcmp(name + first + 1, argv[2]) != 0)) continue;
        found = cmd;
        *n_words = two ? 2 : 1;
    }
    return found;
}

static int unknown_command(const char *name) {
    const char *names[N_COMMANDS + 1] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *close = closest_name(name, names);
    if (close)
        fprintf(stderr, "chunkllama: unknown command '%s'; did you mean %s?\n", name, close);
    else
        fprintf(stderr, "chunkllama: unknown command '%s'; chunkllama --help lists them\n", name);
    return 2;
}

/* The exit status of a command that ended with `status`: what it printed may have been lost on its way. */
static int see_written(command_id cmd, int status) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "chunkllama %s: cannot write all to standard output: %s\n", commands[cmd].name,
            errno ? strerror(errno) : "an earlier write failed; its disk may be full");
    return status ? status : 1;
}

/* Whoever starts us may have closed them: the next file opened would be one of them, and get what is printed. */
static void open_standard_files(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    open_standard_files();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        options_print_commands();
        return argc < 2 ? 2 : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("chunkllama %s\n", cattn_version());
        return 0;
    }
    int n_words = 0;
    const command_id cmd = find_command(argc, argv, &n_words);
    if (cmd == N_COMMANDS) return unknown_command(argv[1]);

    options opt;
    char message[512];
    switch (options_parse(cmd, argc - 1 - n_words, argv + 1 + n_words, &opt, message, sizeof message)) {
    case OPTIONS_HELP: options_print_help(cmd); return 0;
    case OPTIONS_WRONG: fprintf(stderr, "chunkllama %s: %s\n", commands[cmd].name, message); return 2;
    case OPTIONS_OK: break;
    }
    return see_written(cmd, commands[cmd].run(&opt));
}

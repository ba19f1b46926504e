/* chunkllama: picks the subcommand, parses its options, runs it. */
#include <stdio.h>
#include <string.h>

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
                   "record and the others go on. Parameters in a line win over the options below.",
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
};

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

int main(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        options_print_commands();
        return argc < 2 ? 2 : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("chunkllama %s\n", cattn_version());
        return 0;
    }
    command_id cmd = 0;
    while (cmd < N_COMMANDS && strcmp(commands[cmd].name, argv[1]) != 0) cmd++;
    if (cmd == N_COMMANDS) return unknown_command(argv[1]);

    options opt;
    char message[512];
    switch (options_parse(cmd, argc - 2, argv + 2, &opt, message, sizeof message)) {
    case OPTIONS_HELP: options_print_help(cmd); return 0;
    case OPTIONS_WRONG: fprintf(stderr, "chunkllama %s: %s\n", argv[1], message); return 2;
    case OPTIONS_OK: break;
    }
    return commands[cmd].run(&opt);
}

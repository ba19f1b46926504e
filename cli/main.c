/* chunkllama: finds the command, parses its options, and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chunkattn.h"
#include "command.h"
#include "options.h"

const cli_command commands[N_COMMANDS] = {
    [CMD_RUN] =
        {"run", "[PROMPT]", "answer one prompt on standard output",
         "The prompt is the argument, --prompt, --file or standard input. It becomes a chat message in the model's chat "
         "format unless --raw is set.",
         cmd_run},
    [CMD_CHAT] =
        {"chat", "", "talk with the model",
         "The conversation so far is in the prefix tree, so each turn computes only its new tokens. /help lists the commands, "
         "such as /clear, /save and /regen; /exit or the end of the input ends the program; an interrupt (Ctrl-C) ends an "
         "answer.",
         cmd_chat},
    [CMD_BATCH] =
        {"batch", "", "answer a file of requests, computing shared prefixes once",
         "Each input line has OpenAI's batch form {\"custom_id\", \"url\", \"body\"} or the short form {\"id\", "
         "\"messages\" or \"prompt\", parameters}; beside these, \"tenant\" names whose request it is, and only "
         "requests of the same tenant share K/V. Lines are computed in the order of common prefixes, and answers are "
         "written in the order of the input. A line that fails gets an error as its answer and makes the exit "
         "status 1; the others are answered. An interrupt (Ctrl-C) or SIGTERM stops the job and keeps what is done. An "
         "existing output file is overwritten unless --resume continues it. Parameters in a line "
         "override the options below.",
         cmd_batch},
    [CMD_SERVE] = {"serve", "[MODEL]", "serve the model over HTTP, as OpenAI, Anthropic and Ollama do",
                   "The model is the argument or --model. An interrupt (Ctrl-C) or SIGTERM ends it.", cmd_serve},
    [CMD_INFO] = {"info", "[MODEL]", "print what is in a model file", "The model is the argument or --model.", cmd_info},
    [CMD_EXPLAIN] =
        {"explain", "[FILE]", "say how much of a request's prompt a server has in its cache, and why not more",
         "The request is a JSON object as for /v1/chat/completions, /v1/completions or --path, in the file or on standard "
         "input. The server only looks the prompt up. It must be a `chunkllama serve`; with several tenants, --api-key must be "
         "one of the tenant default.",
         cmd_explain},
    [CMD_TOKENIZE] = {"tokenize", "[TEXT]", "print the token ids of a text as a JSON array",
                      "The text is the argument, --file or standard input.", cmd_tokenize},
    [CMD_LOGITS] = {"logits", "", "write the logits of a sequence of tokens as a NumPy file",
                    "The file holds float32 logits [positions][vocabulary]; with --last only those of the last position.",
                    cmd_logits},
    [CMD_PERPLEXITY] =
        {"perplexity", "", "measure how well the model predicts a text",
         "The text is cut into passages of --ctx tokens. The tokens in the second half of each passage count, each predicted "
         "from all tokens before it in the passage.",
         cmd_perplexity},
    [CMD_BENCH] =
        {"bench", "", "measure the throughput of prefill and decode",
         "It prints a line for each combination of --pp and --batch: PP prompt tokens and TG generated tokens of each of "
         "B sequences, N_KV tokens in the cache, and the seconds and tokens per second of prefill (T_PP, S_PP), "
         "decode (T_TG, S_TG) and both (T, S).",
         cmd_bench},
    [CMD_BENCH_SERVE] =
        {"bench serve", "", "put load on an OpenAI endpoint and measure latency and throughput",
         "The endpoint may be this server or any other. Requests arrive as a Poisson process of --rate; they are "
         "synthetic, all with the same numbers of tokens, or come from --input. The results are means and percentiles of "
         "normalized latency (the time from a request's arrival to its end, divided by its completion tokens), of the "
         "time to the first token (TTFT), of the time per token after it (TPOT) and of the time from one output to the "
         "next (ITL). The exit status is 1 if a request failed.",
         cmd_bench_serve},
    [CMD_BENCH_GRAMMAR] =
        {"bench grammar", "", "measure what grammars add to a step",
         "Sequences of random text decode together, in pairs of runs without and with each of some grammars. It prints the "
         "time to submit a request, in which its grammar is compiled, the median time of a step without and with the grammar, "
         "both in ms, the median of what it adds, and the tokens of a step: more than --streams where tokens are forced, each "
         "of which also adds a row.",
         cmd_bench_grammar},
    [CMD_DOCTOR] = {"doctor", "[MODEL]", "say what this machine offers, and how many users there is room for",
                    "Each line is ok, or a warning with what to do. With a model, it also says how many users with a shared "
                    "prompt --kv-budget has room for. The exit status is 1 if there is a warning.",
                    cmd_doctor},
    [CMD_TIER] =
        {"tier", "[DIR]", "list the files of --kv-tier, and remove those that no server uses",
         "The folder is the argument or --kv-tier. A file belongs to one model, build, CPU and set of options, so after an "
         "upgrade a server begins another one. To remove what is left over, run this with --remove while the servers run "
         "that use the folder: their files stay.",
         cmd_tier},
};

cli_command_id command_find(int argc, char **argv, int *n_words) {
    cli_command_id found = N_COMMANDS;
    for (cli_command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
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

/* Print the manual page of the program, or of the command that the arguments name; only the build calls this. */
static int print_man(int argc, char **argv) {
    int n_words = 0;
    man_print(argc < 2 ? N_COMMANDS : command_find(argc, argv, &n_words));
    return 0;
}

static int print_completion(const char *shell) {
    if (completion_print(shell)) return 0;
    fprintf(stderr, "chunkllama completion: the shell is '%s'; it must be bash, zsh or fish\n", shell);
    return 2;
}

/* Say what may stand in the place of a word that is no command. */
static int unknown_command(const char *word) {
    const char *names[N_COMMANDS + 1] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *close = closest_name(word, names);
    if (word[0] == '-')
        fprintf(stderr, "chunkllama: %s comes before a command; options follow it, as in chunkllama run -m FILE\n", word);
    else if (model_is_here(word) || model_is_elsewhere(word))
        fprintf(stderr, "chunkllama: '%s' is a model, no command; name it by -m, as in chunkllama run -m '%s'\n", word, word);
    else if (close)
        fprintf(stderr, "chunkllama: unknown command '%s'; did you mean %s?\n", word, close);
    else
        fprintf(stderr, "chunkllama: unknown command '%s'; chunkllama --help lists all commands\n", word);
    return 2;
}

/* Print the help of the command whose name follows the first argument, or the list of commands. */
static int print_help(int argc, char **argv) {
    int n_words = 0;
    const cli_command_id cmd = argc > 2 ? command_find(argc - 1, argv + 1, &n_words) : N_COMMANDS;
    if (argc > 2 && cmd == N_COMMANDS) return unknown_command(argv[2]);
    if (argc > 2)
        options_print_help(cmd);
    else
        options_print_commands();
    return argc < 2 ? 2 : 0;
}

/* The exit status of a command that returned `status`, which becomes 1 if standard output could not be written. */
static int check_output(cli_command_id cmd, int status) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "chunkllama %s: cannot write all to standard output: %s\n", commands[cmd].name,
            errno ? strerror(errno) : "an earlier write failed; the disk may be full");
    return status ? status : 1;
}

/*
 * Open the standard files that the caller has closed. Otherwise the next file that is opened would have the number of one of
 * them, and what the program prints would be written to it.
 */
static void open_standard_files(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    open_standard_files();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return print_help(argc, argv);
    if (strcmp(argv[1], "--version") == 0) {
        printf("chunkllama %s\n", cattn_version());
        return 0;
    }
    if (strcmp(argv[1], "man") == 0) return print_man(argc - 1, argv + 1);
    if (strcmp(argv[1], "completion") == 0) return print_completion(argc > 2 ? argv[2] : "");
    if (strcmp(argv[1], "complete") == 0) {
        completion_offer(argc - 1, argv + 1);
        return 0;
    }
    int n_words = 0;
    const cli_command_id cmd = command_find(argc, argv, &n_words);
    if (cmd == N_COMMANDS) return unknown_command(argv[1]);

    cli_options opt;
    char message[1024];
    switch (options_parse(cmd, argc - 1 - n_words, argv + 1 + n_words, &opt, message, sizeof message)) {
    case OPTIONS_HELP: options_print_help(cmd); return 0;
    case OPTIONS_WRONG:
        fprintf(stderr, "chunkllama %s: %s\n", commands[cmd].name, message);
        options_free(&opt);
        return 2;
    case OPTIONS_OK: break;
    }
    const int status = check_output(cmd, commands[cmd].run(&opt));
    options_free(&opt);
    return status;
}

/*
 * Completes command lines: `chunkllama completion SHELL` prints a script for the shell, which calls `chunkllama complete WORDS`
 * each time for what may stand in place of the last word.
 */
#include <stdio.h>
#include <string.h>

#include "options.h"

static const struct {
    const char *name, *script;
} shells[] = {
    {"bash", "# bash completion for chunkllama\n"
             "_chunkllama() {\n"
             "  local found\n"
             "  mapfile -t found < <(\"${COMP_WORDS[0]}\" complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
             "  if [[ ${found[*]} == '*' ]]; then\n"
             "    compopt -o filenames\n"
             "    mapfile -t COMPREPLY < <(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\")\n"
             "  else\n"
             "    COMPREPLY=(\"${found[@]%%$'\\t'*}\")\n"
             "  fi\n"
             "}\n"
             "complete -F _chunkllama chunkllama\n"},
    {"zsh", "#compdef chunkllama\n"
            "_chunkllama() {\n"
            "  local -a found\n"
            "  found=(${(f)\"$(\"$words[1]\" complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"})\n"
            "  if [[ $found == '*' ]]; then\n"
            "    _files\n"
            "  else\n"
            "    found=(\"${(@)found/$'\\t'/:}\")\n"
            "    _describe chunkllama found\n"
            "  fi\n"
            "}\n"
            "if [[ $funcstack[1] == _chunkllama ]]; then _chunkllama \"$@\"; else compdef _chunkllama chunkllama; fi\n"},
    {"fish", "# fish completion for chunkllama\n"
             "function __chunkllama_complete\n"
             "    set -l words (commandline -opc) (commandline -ct)\n"
             "    set -l found ($words[1] complete $words[2..-1] 2>/dev/null)\n"
             "    if test \"$found\" = '*'\n"
             "        __fish_complete_path (commandline -ct)\n"
             "    else\n"
             "        printf '%s\\n' $found\n"
             "    end\n"
             "end\n"
             "complete -c chunkllama -f -a '(__chunkllama_complete)'\n"},
};
enum { N_SHELLS = sizeof shells / sizeof *shells };

bool completion_print(const char *shell) {
    for (int i = 0; i < N_SHELLS; i++) {
        if (strcmp(shells[i].name, shell) != 0) continue;
        fputs(shells[i].script, stdout);
        return true;
    }
    return false;
}

/* Offer a word with its description, if it begins with the text so far. */
static void offer(const char *word, const char *description, const char *begun) {
    if (strncmp(word, begun, strlen(begun)) == 0) printf("%s\t%s\n", word, description);
}

/* Offer the commands of one word, or the second words of those that begin with the word `first`. */
static void offer_commands(const char *first, const char *begun) {
    const size_t size = first ? strlen(first) : 0;
    for (cli_command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        const char *name = commands[cmd].name;
        if (first ? strncmp(name, first, size) == 0 && name[size] == ' ' : !strchr(name, ' '))
            offer(name + size + (first != NULL), commands[cmd].summary, begun);
    }
}

static void offer_options(cli_command_id cmd, const char *begun) {
    char flag[64];
    for (size_t i = 0; i < option_table_size; i++) {
        const cli_option *o = &option_table[i];
        snprintf(flag, sizeof flag, "--%s", o->name);
        if (o->commands >> cmd & 1) offer(flag, o->help, begun);
    }
    offer("--help", "print the options", begun);
}

/* The option whose value stands behind a word; NULL: none. */
static const cli_option *option_before(cli_command_id cmd, const char *word) {
    const cli_option *o = word[0] != '-'   ? NULL
                          : word[1] == '-' ? option_find(cmd, word + 2, strlen(word + 2))
                                           : option_find_letter(cmd, word[1]);
    return o && o->type != OPT_FLAG ? o : NULL;
}

/* Offer what may be the last word of a command's arguments [n]. "*" stands for the names of files. */
static void offer_arguments(cli_command_id cmd, int n, char **args) {
    const char *begun = args[n - 1];
    const cli_option *o = n > 1 ? option_before(cmd, args[n - 2]) : NULL;
    for (int i = 0; o && o->choices && o->choices[i]; i++) offer(o->choices[i], "", begun);
    if (!o && *begun == '-')
        offer_options(cmd, begun);
    else if (o ? option_names_path(o) : *commands[cmd].arguments)
        printf("*\n");
}

void completion_offer(int argc, char **argv) {
    int n_words = 0;
    const char *begun = argc > 1 ? argv[argc - 1] : "";
    if (argc <= 2) {
        offer_commands(NULL, begun);
        offer("completion", "print what completes commands in a shell", begun);
        offer("--help", "list the commands", begun);
        offer("--version", "print the version", begun);
        return;
    }
    if (argc == 3) offer_commands(argv[1], begun);
    for (int i = 0; argc == 3 && strcmp(argv[1], "completion") == 0 && i < N_SHELLS; i++) offer(shells[i].name, "", begun);
    const cli_command_id cmd = command_find(argc, argv, &n_words);
    if (cmd < N_COMMANDS && argc - 1 > n_words) offer_arguments(cmd, argc - 1 - n_words, argv + 1 + n_words);
}

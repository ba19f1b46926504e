/* Writes what completes commands, options and their values in a shell, from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "options.h"

static bool has(command_id cmd, size_t row) { return option_table[row].commands >> cmd & 1; }

static bool is_path(const option *o) { return strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0; }

static void print_choices(const option *o) {
    for (size_t i = 0; o->choices && o->choices[i]; i++) printf("%s%s", i ? " " : "", o->choices[i]);
}

/* Print text within single quotes of the shell. `special` are characters that get a backslash. */
static void print_quoted(const char *text, const char *special, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'')
            printf("%s", quote);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
    }
}

/* ---- bash ---- */

static void print_bash_values(command_id cmd) {
    for (size_t i = 0; i < option_table_size; i++) {
        const option *o = &option_table[i];
        if (!has(cmd, i) || o->type == OPT_FLAG) continue;
        printf("    '%s:--%s'", commands[cmd].name, o->name);
        if (o->letter) printf("|'%s:-%c'", commands[cmd].name, o->letter);
        printf(")\n      ");
        if (is_path(o)) {
            printf("compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")");
        } else if (o->choices) {
            printf("mapfile -t COMPREPLY < <(compgen -W '");
            print_choices(o);
            printf("' -- \"$cur\")");
        }
        printf("%sreturn ;;\n", is_path(o) || o->choices ? "\n      " : "");
    }
}

static void print_bash_options(command_id cmd) {
    printf("    '%s') words='--help", commands[cmd].name);
    for (size_t i = 0; i < option_table_size; i++)
        if (has(cmd, i)) printf(" --%s", option_table[i].name);
    printf("' ;;\n");
}

static void print_first_words(void) {
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++)
        if (!strchr(commands[cmd].name, ' ')) printf("%s ", commands[cmd].name);
}

static void print_bash(void) {
    printf("# bash completion for chunkllama\n"
           "_chunkllama() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]} words=\n"
           "  COMPREPLY=()\n"
           "  if ((COMP_CWORD == 1)); then\n"
           "    mapfile -t COMPREPLY < <(compgen -W '");
    print_first_words();
    printf("completion --help --version' -- \"$cur\")\n    return\n  fi\n"
           "  if ((COMP_CWORD > 2)); then\n"
           "    case \"$cmd ${COMP_WORDS[2]}\" in\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++)
        if (strchr(commands[cmd].name, ' ')) printf("    '%s') cmd='%s' ;;\n", commands[cmd].name, commands[cmd].name);
    printf("    esac\n  fi\n"
           "  case \"$cmd:$prev\" in\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) print_bash_values(cmd);
    printf("  esac\n"
           "  case $cmd in\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) print_bash_options(cmd);
    printf("    completion) words='bash zsh fish' ;;\n"
           "  esac\n"
           "  ((COMP_CWORD == 2)) && case $cmd in\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        const char *second = strchr(commands[cmd].name, ' ');
        if (second) printf("    %.*s) words+='%s' ;;&\n", (int)(second - commands[cmd].name), commands[cmd].name, second);
    }
    printf("  esac\n"
           "  if [[ $cur == -* || $cmd == completion || $cmd == bench ]]; then\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "  else\n"
           "    compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "  fi\n"
           "}\n"
           "complete -F _chunkllama chunkllama\n");
}

/* ---- zsh ---- */

static void print_zsh_options(command_id cmd) {
    printf("    '%s') _arguments -s '(-h --help)'{-h,--help}'[print the options]'", commands[cmd].name);
    for (size_t i = 0; i < option_table_size; i++) {
        const option *o = &option_table[i];
        if (!has(cmd, i)) continue;
        printf(" \\\n      ");
        if (o->letter) printf("'(-%c --%s)'{-%c,--%s}", o->letter, o->name, o->letter, o->name);
        printf(o->letter ? "'[" : "'--%s[", o->name);
        print_quoted(o->help, "[]:\\", "'\\''");
        printf("]");
        if (o->type != OPT_FLAG) printf(":%s:", o->value);
        if (is_path(o)) printf("_files");
        if (o->choices) {
            printf("(");
            print_choices(o);
            printf(")");
        }
        printf("'");
    }
    printf(" \\\n      '*:file:_files' ;;\n");
}

static void print_zsh(void) {
    printf("#compdef chunkllama\n"
           "_chunkllama() {\n"
           "  local cmd=$words[2]\n"
           "  if ((CURRENT == 2)); then\n"
           "    compadd -- ");
    print_first_words();
    printf("completion --help --version\n    return\n  fi\n"
           "  if ((CURRENT == 3)) && [[ $cmd == completion ]]; then\n    compadd -- bash zsh fish\n    return\n  fi\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        const char *second = strchr(commands[cmd].name, ' ');
        if (!second) continue;
        const int n = (int)(second - commands[cmd].name);
        printf("  if [[ $cmd == %.*s ]]; then\n"
               "    ((CURRENT == 3)) && compadd -- %s\n"
               "    [[ $words[3] == %s ]] && ((CURRENT > 3)) && cmd='%s'\n  fi\n",
               n, commands[cmd].name, second + 1, second + 1, commands[cmd].name);
    }
    printf("  local first=1\n"
           "  [[ $cmd == *' '* ]] && first=2\n"
           "  shift $first words\n"
           "  ((CURRENT -= first))\n"
           "  case $cmd in\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) print_zsh_options(cmd);
    printf("  esac\n}\n"
           "if [[ $funcstack[1] == _chunkllama ]]; then _chunkllama \"$@\"; else compdef _chunkllama chunkllama; fi\n");
}

/* ---- fish ---- */

static void print_fish(void) {
    printf("# fish completion for chunkllama\n"
           "function __chunkllama_command\n"
           "    set -l words (commandline -opc)\n"
           "    set -l two \"$words[2] $words[3]\"\n"
           "    if contains -- $two");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++)
        if (strchr(commands[cmd].name, ' ')) printf(" '%s'", commands[cmd].name);
    printf("\n        echo $two\n    else\n        echo \"$words[2]\"\n    end\nend\n");
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        const char *name = commands[cmd].name, *second = strchr(name, ' ');
        printf("complete -c chunkllama -s h -l help -d 'print the options'\n"
               "complete -c chunkllama -f -n 'test \"$(__chunkllama_command)\" = \"%.*s\"' -a '%s' -d '",
               second ? (int)(second - name) : 0, name, second ? second + 1 : name);
        print_quoted(commands[cmd].summary, "", "\\'");
        printf("'\n");
    }
    for (command_id cmd = 0; cmd < N_COMMANDS; cmd++)
        for (size_t i = 0; i < option_table_size; i++) {
            const option *o = &option_table[i];
            if (!has(cmd, i)) continue;
            printf("complete -c chunkllama -n 'test \"$(__chunkllama_command)\" = \"%s\"' -l %s", commands[cmd].name, o->name);
            if (o->letter) printf(" -s %c", o->letter);
            if (o->type != OPT_FLAG) printf(is_path(o) ? " -r -F" : " -x");
            if (o->choices) {
                printf(" -a '");
                print_choices(o);
                printf("'");
            }
            printf(" -d '");
            print_quoted(o->help, "\\", "\\'");
            printf("'\n");
        }
    printf("complete -c chunkllama -s h -l help -d 'print the options'\n"
           "complete -c chunkllama -f -n 'test \"$(__chunkllama_command)\" = completion' -a 'bash zsh fish'\n");
}

bool completion_print(const char *shell) {
    static const struct {
        const char *shell;
        void (*print)(void);
    } all[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].shell, shell) != 0) continue;
        all[i].print();
        return true;
    }
    return false;
}

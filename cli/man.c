/* Writes the manual pages, one for the program and one for each command, from the tables of commands and options. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "chunkattn.h"
#include "options.h"

/* Print text so that roff takes no character of it as its own. */
static void print_text(const char *text) {
    if (*text == '.' || *text == '\'') printf("\\&");
    for (; *text; text++) {
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else
            putchar(*text);
    }
}

static void print_line(const char *text) {
    print_text(text);
    putchar('\n');
}

/* Print the name of a command's page, such as "chunkllama-bench-serve". */
static void print_name(cli_command_id cmd, bool upper) {
    char name[64];
    snprintf(name, sizeof name, "chunkllama-%s", commands[cmd].name);
    for (char *c = name; *c; c++) *c = *c == ' ' ? '-' : upper ? (char)toupper((unsigned char)*c) : *c;
    print_text(name);
}

static void print_option(const cli_option *o) {
    char env[64];
    option_env_name(o, env, sizeof env);
    printf(".TP\n");
    if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
    printf("\\fB\\-\\-");
    print_text(o->name);
    printf("\\fR");
    if (*o->value) printf(" \\fI%s\\fR", o->value);
    printf("\n");
    print_text(o->help);
    printf(".\n");
    if (o->fallback) {
        printf("The default is ");
        print_text(o->fallback);
        printf(".\n");
    }
    printf("Also ");
    print_text(env);
    printf(" in the environment.\n");
}

static void print_command(cli_command_id cmd) {
    const cli_command *c = &commands[cmd];
    printf(".TH ");
    print_name(cmd, true);
    printf(" 1 \"\" \"ChunkLlama %s\" \"User Commands\"\n.SH NAME\n", cattn_version());
    print_name(cmd, false);
    printf(" \\- ");
    print_line(c->summary);
    printf(".SH SYNOPSIS\n.B chunkllama %s\n[\\fIoptions\\fR]", c->name);
    if (*c->arguments) printf(" ");
    print_line(c->arguments);
    printf(".SH DESCRIPTION\n");
    print_line(*c->details ? c->details : c->summary);
    printf(".SH OPTIONS\n"
           "Each may also be set by an environment variable, or by the key of its name in the file of \\fB\\-\\-config\\fR.\n"
           "The command line counts before the environment, and that before the file.\n");
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].commands >> cmd & 1) print_option(&option_table[i]);
    printf(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrint the options.\n"
           ".SH SEE ALSO\n.BR chunkllama (1)\n");
}

static void print_program(void) {
    printf(".TH CHUNKLLAMA 1 \"\" \"ChunkLlama %s\" \"User Commands\"\n", cattn_version());
    printf(
        ".SH NAME\nchunkllama \\- inference that stores, computes and reads a shared prompt prefix once\n"
        ".SH SYNOPSIS\n.B chunkllama\n\\fICOMMAND\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n"
        "It runs Llama\\-like models on CPUs: in a shell, over files of requests, and as a server with the APIs of OpenAI and\n"
        "Anthropic.\n.SH COMMANDS\n");
    for (cli_command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        printf(".TP\n.BR ");
        print_name(cmd, false);
        printf(" (1)\n");
        print_line(commands[cmd].summary);
    }
    printf(".TP\n.B chunkllama completion bash|zsh|fish\nprint what completes these commands in the shell\n"
           ".TP\n.B chunkllama \\-\\-version\nprint the version\n"
           ".SH FILES\nThe file of \\fB\\-\\-config\\fR is TOML. Its keys are names of options without their dashes, at the "
           "top level\n"
           "for all commands, and in the table of a command, such as [serve] or [bench\\-serve], for that one.\n"
           ".SH EXIT STATUS\n0: all was done. 1: something failed, and a message says what. 2: the command line, the "
           "environment or\n"
           "the file is wrong.\n");
}

void man_print(cli_command_id cmd) {
    if (cmd == N_COMMANDS)
        print_program();
    else
        print_command(cmd);
}

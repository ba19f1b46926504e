/* Prints help texts from the tables, and finds the closest match to a mistyped name. */
#include <stdio.h>
#include <string.h>

#include "options.h"

/* Print text in lines of at most `width` columns. All lines but the first are indented by `indent` blanks. */
static void print_wrapped(const char *text, int indent, int width) {
    int column = 0;
    for (const char *word = text; *word;) {
        const int size = (int)strcspn(word, " ");
        if (column && column + 1 + size > width) {
            printf("\n%*s", indent, "");
            column = 0;
        }
        column += printf("%s%.*s", column ? " " : "", size, word);
        word += size;
        word += strspn(word, " ");
    }
    printf("\n");
}

static void print_option(const cli_option *o) {
    enum { LEFT = 30, WIDTH = 118 - LEFT };
    char left[64], env[64], text[512];
    const char letter[] = {'-', o->letter, ',', ' ', 0};
    snprintf(left, sizeof left, "  %s--%s%s%s", o->letter ? letter : "    ", o->name, *o->value ? " " : "", o->value);
    option_env_name(o, env, sizeof env);
    size_t used = (size_t)snprintf(text, sizeof text, "%s", o->help);
    used += (size_t)snprintf(text + used, sizeof text - used, " [");
    if (o->fallback) used += (size_t)snprintf(text + used, sizeof text - used, "default %s, ", o->fallback);
    snprintf(text + used, sizeof text - used, "%s]", env);
    printf("%-*s", LEFT, left);
    if (strlen(left) >= LEFT) printf("\n%*s", LEFT, "");
    print_wrapped(text, LEFT, WIDTH);
}

void options_print_help(cli_command_id cmd) {
    const cli_command *c = &commands[cmd];
    printf("usage: chunkllama %s [options]%s%s\n\n", c->name, *c->arguments ? " " : "", c->arguments);
    print_wrapped(c->summary, 0, 118);
    if (*c->details) print_wrapped(c->details, 0, 118);
    printf("\noptions (each may also be set by the environment variable in brackets, or in the file of\n--config; the command "
           "line counts first, then the environment):\n");
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].commands >> cmd & 1) print_option(&option_table[i]);
    printf("  -h, --help                  print this help\n");
}

void options_print_commands(void) {
    printf("usage: chunkllama COMMAND [options]\n\n"
           "Inference with Llama-like models that stores, computes and reads a shared prompt prefix once.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++) printf("  %-14s%s\n", commands[i].name, commands[i].summary);
    printf("\nchunkllama COMMAND --help explains a command; chunkllama --version prints the version;\n"
           "chunkllama completion bash, zsh or fish prints what completes the commands in that shell.\n");
}

/* The number of edits (insert, delete, replace, swap neighbours) that turn a into b; MAX if either is longer than MAX. */
static int distance(const char *a, const char *b) {
    enum { MAX = 32 };
    const int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > MAX || nb > MAX) return MAX;
    int d[MAX + 1][MAX + 1];
    for (int i = 0; i <= na; i++) {
        for (int j = 0; j <= nb; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *closest_name(const char *wrong, const char *const *names) {
    const char *best = NULL;
    int best_distance = 0;
    for (; *names; names++) {
        /* An abbreviation is close, whatever its length. */
        const int n = strncmp(*names, wrong, strlen(wrong)) == 0 ? 1 : distance(wrong, *names);
        if (n <= 1 + (int)strlen(wrong) / 4 && (!best || n < best_distance)) {
            best = *names;
            best_distance = n;
        }
    }
    return best;
}

/* Command-line options from tables. */
#include "bench_options.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_add(option_list *list, const option_row *rows) {
    for (; rows->name; rows++) {
        assert(list->n < OPTIONS_MAX);
        list->rows[list->n++] = *rows;
    }
}

static void print_help(const char *command, const option_list *list, const char *about) {
    printf("cattn-bench %s: %s\n\n", command, about);
    for (int i = 0; i < list->n; i++) {
        const option_row *r = &list->rows[i];
        char letter[8] = "    ";
        if (r->letter) snprintf(letter, sizeof letter, "-%c, ", r->letter);
        const char *argument = r->kind == OPTION_INT ? " N" : r->kind == OPTION_TEXT ? " TEXT" : "";
        printf("  %s--%s%-*s  %s", letter, r->name, (int)(18 - strlen(r->name)), argument, r->help);
        if (r->kind == OPTION_INT) printf(" (default %" PRId64 ")", *(const int64_t *)r->value);
        if (r->kind == OPTION_TEXT && *(const char **)r->value) printf(" (default %s)", *(const char **)r->value);
        printf("\n");
    }
}

static bool read_int(const char *command, const option_row *r, const char *text) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < r->min || value > r->max) {
        fprintf(stderr, "cattn-bench %s: --%s is \"%s\"; it must be a whole number from %" PRId64 " to %" PRId64 "\n", command,
                r->name, text, r->min, r->max);
        return false;
    }
    *(int64_t *)r->value = value;
    return true;
}

/* The list in the form of getopt_long: --help is the last option, and `letters` has the rows' letters. */
static void make_tables(const option_list *list, struct option *table, char *letters) {
    for (int i = 0; i < list->n; i++) {
        const option_row *r = &list->rows[i];
        table[i].name = r->name;
        table[i].has_arg = r->kind == OPTION_FLAG ? no_argument : required_argument;
        if (!r->letter) continue;
        *letters++ = r->letter;
        if (r->kind != OPTION_FLAG) *letters++ = ':';
    }
    table[list->n].name = "help";
}

/* Append the first n_bytes of a text to the command line, which is cut off at its end. */
static void append(option_list *list, const char *text, size_t n_bytes) {
    const size_t length = strlen(list->command);
    snprintf(list->command + length, OPTIONS_COMMAND - length, "%.*s", (int)n_bytes, text);
}

/* Append a text without the folders of its paths, which commas separate. */
static void append_paths(option_list *list, const char *text) {
    while (true) {
        const char *end = text + strcspn(text, ","), *name = end;
        while (name > text && name[-1] != '/') name--;
        append(list, name, (size_t)(end - name));
        if (!*end) return;
        append(list, ",", 1);
        text = end + 1;
    }
}

static void add_to_command(option_list *list, const option_row *r) {
    char text[128];
    if (r->kind == OPTION_INT)
        snprintf(text, sizeof text, " --%s %" PRId64, r->name, *(const int64_t *)r->value);
    else
        snprintf(text, sizeof text, " --%s%s", r->name, r->kind == OPTION_TEXT ? " " : "");
    append(list, text, strlen(text));
    if (r->kind == OPTION_TEXT) append_paths(list, *(const char **)r->value);
}

/* Whether an option only says where and how results are written. */
static bool is_output(const option_row *r) { return strcmp(r->name, "out") == 0 || strcmp(r->name, "json") == 0; }

options_result options_read(int argc, char **argv, option_list *list, const char *about) {
    struct option table[OPTIONS_MAX + 1] = {0};
    char letters[2 * OPTIONS_MAX + 1] = "";
    make_tables(list, table, letters);
    int index;
    snprintf(list->command, sizeof list->command, "cattn-bench %s", argv[0]);
    optind = 0; /* start again: `paper` reads several command lines in one process */
    for (int c; (c = getopt_long(argc, argv, letters, table, &index)) != -1;) {
        if (c == '?') { /* getopt has printed what is wrong */
            fprintf(stderr, "cattn-bench %s --help lists the options\n", argv[0]);
            return OPTIONS_WRONG;
        }
        if (c)
            for (index = 0; list->rows[index].letter != c;) index++;
        if (index == list->n) {
            print_help(argv[0], list, about);
            return OPTIONS_HELP;
        }
        const option_row *r = &list->rows[index];
        switch (r->kind) {
        case OPTION_FLAG: *(bool *)r->value = true; break;
        case OPTION_TEXT: *(const char **)r->value = optarg; break;
        case OPTION_INT:
            if (!read_int(argv[0], r, optarg)) return OPTIONS_WRONG;
            break;
        }
        if (!is_output(r)) add_to_command(list, r);
    }
    if (optind < argc) {
        fprintf(stderr, "cattn-bench %s: \"%s\" is not an option; cattn-bench %s --help lists them\n", argv[0], argv[optind],
                argv[0]);
        return OPTIONS_WRONG;
    }
    return OPTIONS_RUN;
}

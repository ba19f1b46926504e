#include "options.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ROWS = 32 };

static void print_help(const char *command, const option_row *rows, int n, const char *about) {
    printf("cattn-bench %s: %s\n\n", command, about);
    for (int i = 0; i < n; i++) {
        const option_row *r = &rows[i];
        char argument[48] = "", standard[64] = "";
        if (r->kind == OPTION_INT) {
            snprintf(argument, sizeof argument, " N");
            snprintf(standard, sizeof standard, " (default %" PRId64 ")", *(const int64_t *)r->value);
        } else if (r->kind == OPTION_TEXT) {
            const char *text = *(const char **)r->value;
            snprintf(argument, sizeof argument, " TEXT");
            if (text) snprintf(standard, sizeof standard, " (default %s)", text);
        }
        printf("  --%s%-*s  %s%s\n", r->name, (int)(18 - snprintf(NULL, 0, "%s", r->name)), argument, r->help, standard);
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

options_result options_read(int argc, char **argv, const option_row *rows, int n, const char *about) {
    assert(n < MAX_ROWS - 1);
    struct option table[MAX_ROWS] = {0};
    for (int i = 0; i < n; i++) {
        table[i].name = rows[i].name;
        table[i].has_arg = rows[i].kind == OPTION_FLAG ? no_argument : required_argument;
    }
    table[n].name = "help";
    int index;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", table, &index)) != -1;) {
        if (c == '?') { /* getopt has said what is wrong */
            fprintf(stderr, "cattn-bench %s --help lists the options\n", argv[0]);
            return OPTIONS_WRONG;
        }
        if (index == n) {
            print_help(argv[0], rows, n, about);
            return OPTIONS_HELP;
        }
        const option_row *r = &rows[index];
        switch (r->kind) {
        case OPTION_FLAG: *(bool *)r->value = true; break;
        case OPTION_TEXT: *(const char **)r->value = optarg; break;
        case OPTION_INT:
            if (!read_int(argv[0], r, optarg)) return OPTIONS_WRONG;
            break;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "cattn-bench %s: \"%s\" is not an option; cattn-bench %s --help lists them\n", argv[0], argv[optind],
                argv[0]);
        return OPTIONS_WRONG;
    }
    return OPTIONS_RUN;
}

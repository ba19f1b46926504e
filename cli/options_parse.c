/* Sets the options from the command line, otherwise from the environment, otherwise from the defaults. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama/common/str.h"
#include "options.h"

/* Where to write why the options are wrong. */
typedef struct message {
    char *text; /* [size] */
    size_t size;
} message;

__attribute__((format(printf, 2, 3))) static options_status wrong(message m, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(m.text, m.size, format, args);
    va_end(args);
    return OPTIONS_WRONG;
}

static bool belongs(const option *o, command_id cmd) { return o->commands >> cmd & 1; }

const option *option_find(command_id cmd, const char *name, size_t size) {
    for (size_t i = 0; i < option_table_size; i++) {
        const option *o = &option_table[i];
        if (belongs(o, cmd) && strlen(o->name) == size && memcmp(o->name, name, size) == 0) return o;
    }
    return NULL;
}

const option *option_find_letter(command_id cmd, char letter) {
    for (size_t i = 0; i < option_table_size; i++)
        if (belongs(&option_table[i], cmd) && letter && option_table[i].letter == letter) return &option_table[i];
    return NULL;
}

void option_env_name(const option *o, char *buf, size_t size) {
    snprintf(buf, size, "CHUNKLLAMA_%s", o->name);
    for (char *c = buf; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* Parse a whole number, of sizes with an optional K, M or G. False: the text is something else. */
static bool parse_int(const option *o, const char *text, int64_t *value) {
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (end == text || errno || isspace((unsigned char)*text)) return false;
    int64_t scaled = n;
    if (o->type == OPT_SIZE && *end) {
        const char *const units = "KMG", *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit || __builtin_mul_overflow(n, INT64_C(1) << 10 * (unit - units + 1), &scaled)) return false;
        end++;
    }
    *value = scaled;
    return *end == 0;
}

static bool parse_real(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == 0 && !isnan(*value) && !isspace((unsigned char)*text);
}

static options_status parse_choice(const option *o, const char *text, const char *source, int32_t *value, message m) {
    size_t used = 0;
    char list[128] = "";
    for (int32_t i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *value = i;
            return OPTIONS_OK;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", o->choices[i]);
    }
    const char *close = closest_name(text, o->choices);
    if (close) return wrong(m, "%s is '%s', which is none of %s; did you mean %s?", source, text, list, close);
    return wrong(m, "%s is '%s'; it must be one of %s", source, text, list);
}

static options_status parse_utf8(const char *text, const char *source, const char **value, message m) {
    const size_t valid = cl_utf8_valid(text, strlen(text));
    *value = text;
    if (!text[valid]) return OPTIONS_OK;
    return wrong(m, "%s is not UTF-8 at byte %zu, 0x%02x; write it in UTF-8", source, valid, (unsigned char)text[valid]);
}

static bool names_path(const option *o) { return strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0; }

/* Set the option's field. `source` names the flag or the environment variable in messages. */
static options_status assign(const option *o, const char *text, const char *source, options *opt, message m) {
    void *field = (char *)opt + o->offset;
    double number = 0;
    switch (o->type) {
    case OPT_FLAG: {
        const bool on = !strcmp(text, "1") || !strcmp(text, "true"), off = !strcmp(text, "0") || !strcmp(text, "false");
        if (!on && !off) return wrong(m, "%s is '%s'; a flag is 1, 0, true or false", source, text);
        *(bool *)field = on;
        return OPTIONS_OK;
    }
    case OPT_STRING:
        if (!*text && names_path(o)) return wrong(m, "%s is empty; name a %s, or leave the option out", source, o->value);
        *(const char **)field = text;
        return OPTIONS_OK;
    case OPT_UTF8: return parse_utf8(text, source, field, m);
    case OPT_CHOICE: return parse_choice(o, text, source, field, m);
    case OPT_INT:
    case OPT_SIZE: {
        int64_t n;
        if (!parse_int(o, text, &n))
            return wrong(m, "%s is '%s', which is not a whole number%s", source, text,
                         o->type == OPT_SIZE ? " with K, M, G or nothing after it" : "");
        *(int64_t *)field = n;
        number = (double)n;
        break;
    }
    case OPT_REAL:
        if (!parse_real(text, &number)) return wrong(m, "%s is '%s', which is not a number", source, text);
        *(double *)field = number;
        break;
    }
    if (number < o->min || number > o->max)
        return wrong(m, "%s is %s; it must be from %.16g to %.16g", source, text, o->min, o->max);
    return OPTIONS_OK;
}

enum { MAX_OPTIONS = 128 };

/* The rows of the table that the command line has set. */
typedef struct rows_set {
    bool row[MAX_OPTIONS];
} rows_set;

static options_status parse_defaults(command_id cmd, options *opt, message m) {
    options_status status = OPTIONS_OK;
    for (size_t i = 0; i < option_table_size && status == OPTIONS_OK; i++) {
        const option *o = &option_table[i];
        if (belongs(o, cmd) && o->fallback) status = assign(o, o->fallback, o->name, opt, m);
    }
    return status;
}

/*
 * Set the options that the command line has not set. A variable that the command line overrides is not even parsed, since it
 * may have another purpose: Kubernetes sets CHUNKLLAMA_PORT to a URL if a Service is named chunkllama.
 */
static options_status parse_environment(command_id cmd, const rows_set *set, options *opt, message m) {
    options_status status = OPTIONS_OK;
    for (size_t i = 0; i < option_table_size && status == OPTIONS_OK; i++) {
        const option *o = &option_table[i];
        if (!belongs(o, cmd) || set->row[i]) continue;
        char name[64];
        option_env_name(o, name, sizeof name);
        const char *text = getenv(name);
        if (text && *text) status = assign(o, text, name, opt, m);
    }
    return status;
}

static options_status unknown(command_id cmd, const char *flag, message m) {
    const char *names[64];
    size_t n = 0;
    for (size_t i = 0; i < option_table_size && n + 2 < sizeof names / sizeof names[0]; i++)
        if (belongs(&option_table[i], cmd)) names[n++] = option_table[i].name;
    names[n++] = "help";
    names[n] = NULL;
    char name[64];
    const char *start = flag + (flag[1] == '-' ? 2 : 1);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    const char *close = closest_name(name, names);
    if (close) return wrong(m, "unknown option %s; did you mean --%s?", flag, close);
    return wrong(m, "unknown option %s; chunkllama %s --help lists all options", flag, commands[cmd].name);
}

/* Set the option at argv[*i], whose value follows '=' or is the next argument; *i is then advanced to that. */
static options_status parse_flag(command_id cmd, int argc, char **argv, int *i, rows_set *set, options *opt, message m) {
    const char *flag = argv[*i], *value = strchr(flag, '=');
    const size_t size = value ? (size_t)(value - flag) : strlen(flag);
    const option *o = flag[1] == '-' ? option_find(cmd, flag + 2, size - 2)
                      : size == 2    ? option_find_letter(cmd, flag[1])
                                     : NULL;
    if (!o) return unknown(cmd, flag, m);
    set->row[o - option_table] = true;
    char source[64];
    snprintf(source, sizeof source, "--%s", o->name);
    if (value) return assign(o, value + 1, source, opt, m);
    if (o->type == OPT_FLAG) return assign(o, "1", source, opt, m);
    if (*i + 1 == argc) return wrong(m, "%s needs a value: %s", source, o->value);
    return assign(o, argv[++*i], source, opt, m);
}

options_status options_parse(command_id cmd, int argc, char **argv, options *opt, char *text, size_t text_size) {
    const message m = {text, text_size};
    rows_set set = {0};
    assert(option_table_size <= MAX_OPTIONS);
    *opt = (options){0};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return OPTIONS_HELP;
    options_status status = parse_defaults(cmd, opt, m);
    int n_args = 0, i = 0; /* the arguments that are not options are moved to the front of argv */
    for (; i < argc && status == OPTIONS_OK; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (argv[i][0] == '-' && argv[i][1])
            status = parse_flag(cmd, argc, argv, &i, &set, opt, m);
        else
            argv[n_args++] = argv[i];
    }
    while (i < argc) argv[n_args++] = argv[i++];
    if (status == OPTIONS_OK) status = parse_environment(cmd, &set, opt, m);
    if (status == OPTIONS_OK && n_args && !*commands[cmd].arguments)
        status = wrong(m, "unexpected argument '%s': chunkllama %s takes only options", argv[0], commands[cmd].name);
    opt->args = (const char *const *)argv;
    opt->n_args = n_args;
    return status;
}

/* Reads the value of an option from text, whether it comes from a flag, the environment, a file or the table of defaults. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"
#include "options_parse.h"

cli_options_status options_wrong(cli_message m, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(m.text, m.size, format, args);
    va_end(args);
    return OPTIONS_WRONG;
}

/* Parse a whole number, of sizes with an optional K, M or G. False: the text is something else. */
static bool parse_int(const cli_option *o, const char *text, int64_t *value) {
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

static cli_options_status parse_choice(const cli_option *o, const char *text, const char *source, int32_t *value,
                                       cli_message m) {
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
    if (close) return options_wrong(m, "%s is '%s', which is none of %s; did you mean %s?", source, text, list, close);
    return options_wrong(m, "%s is '%s'; it must be one of %s", source, text, list);
}

static cli_options_status parse_utf8(const char *text, const char *source, const char **value, cli_message m) {
    const size_t valid = cl_utf8_valid(text, strlen(text));
    *value = text;
    if (!text[valid]) return OPTIONS_OK;
    return options_wrong(m, "%s is not UTF-8 at byte %zu, 0x%02x; write it in UTF-8", source, valid,
                         (unsigned char)text[valid]);
}

bool option_names_path(const cli_option *o) { return strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0; }

/* Leave a number unset whose default is "auto", if that is the text. */
static bool leave_unset(const cli_option *o, const char *text, void *field) {
    if (!o->fallback || strcmp(o->fallback, "auto") != 0 || strcmp(text, "auto") != 0) return false;
    if (o->type == OPT_REAL) *(double *)field = NAN;
    if (o->type == OPT_INT) *(int64_t *)field = OPTION_UNSET;
    return o->type == OPT_REAL || o->type == OPT_INT;
}

cli_options_status option_assign(const cli_option *o, const char *text, const char *source, cli_options *opt, cli_message m) {
    void *field = (char *)opt + o->offset;
    double number = 0;
    if (leave_unset(o, text, field)) return OPTIONS_OK;
    switch (o->type) {
    case OPT_FLAG: {
        const bool on = !strcmp(text, "1") || !strcmp(text, "true"), off = !strcmp(text, "0") || !strcmp(text, "false");
        if (!on && !off) return options_wrong(m, "%s is '%s'; a flag is 1, 0, true or false", source, text);
        *(bool *)field = on;
        return OPTIONS_OK;
    }
    case OPT_STRING:
        if (!*text && option_names_path(o))
            return options_wrong(m, "%s is empty; name a %s, or leave the option out", source, o->value);
        *(const char **)field = text;
        return OPTIONS_OK;
    case OPT_UTF8: return parse_utf8(text, source, field, m);
    case OPT_CHOICE: return parse_choice(o, text, source, field, m);
    case OPT_INT:
    case OPT_SIZE: {
        int64_t n;
        if (!parse_int(o, text, &n))
            return options_wrong(m, "%s is '%s', which is not a whole number%s", source, text,
                                 o->type == OPT_SIZE ? " with K, M, G or nothing after it" : "");
        *(int64_t *)field = n;
        number = (double)n;
        break;
    }
    case OPT_REAL:
        if (!parse_real(text, &number)) return options_wrong(m, "%s is '%s', which is not a number", source, text);
        *(double *)field = number;
        break;
    }
    if (number < o->min || number > o->max)
        return options_wrong(m, "%s is %s; it must be from %.16g to %.16g", source, text, o->min, o->max);
    return OPTIONS_OK;
}

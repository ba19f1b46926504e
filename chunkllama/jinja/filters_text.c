/* The filters of strings. */
#include "builtins.h"
#include "print.h"

static cj_value changed_case(cj_run *r, const cj_args *a, cj_case how) {
    return cj_string(cj_change_case(r, cj_arg_str(r, a, 0), how));
}
static cj_value upper(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_UPPER); }
static cj_value lower(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_LOWER); }
static cj_value title(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_WORDS); }
static cj_value capitalize(cj_run *r, const cj_args *a) { return changed_case(r, a, CJ_CAPITALIZE); }

static cj_value string(cj_run *r, const cj_args *a) { return cj_string(cj_arg_str(r, a, 0)); }

static cj_value trim(cj_run *r, const cj_args *a) {
    const cj_text t = cj_arg_str(r, a, 0);
    if (!cj_has(a, 1) || a->at[1].kind == CJ_NONE) return cj_string(cj_strip(t, NULL, CJ_LEFT | CJ_RIGHT));
    const cj_text chars = cj_arg_text(r, a, 1);
    return cj_string(cj_strip(t, &chars, CJ_LEFT | CJ_RIGHT));
}

static cj_value replace(cj_run *r, const cj_args *a) {
    const int64_t count = cj_has(a, 3) && a->at[3].kind != CJ_NONE ? cj_arg_int(r, a, 3, -1) : -1;
    return cj_string(cj_replace(r, cj_arg_str(r, a, 0), cj_arg_str(r, a, 1), cj_arg_str(r, a, 2), count));
}

static cj_value indent(cj_run *r, const cj_args *a) {
    const cj_text t = cj_arg_text(r, a, 0);
    const bool first = cj_arg_bool(a, 2, false), blank = cj_arg_bool(a, 3, false);
    cj_builder b = {.r = r}, spaces = {.r = r};
    cj_text width;
    if (cj_has(a, 1) && a->at[1].kind == CJ_STRING) {
        width = a->at[1].text;
    } else {
        const int64_t n = cj_arg_int(r, a, 1, 4);
        cj_put_times(&spaces, cj_foreign_of(" "), n > 0 ? (size_t)n : 0);
        width = cj_built(&spaces);
    }
    for (size_t at = 0, line = 0; line == 0 || at <= t.size; line++) {
        size_t end = at, size = 0;
        while (end < t.size && (size = cj_line_break(t, end)) == 0) end += cj_char_size(t.data[end]);
        if (line > 0) cj_put_char(&b, '\n');
        if (line == 0 ? first : blank || end > at) cj_put(&b, width);
        cj_put(&b, cj_part(t, at, end));
        if (end == t.size) break;
        at = end + size;
    }
    return cj_string(cj_built(&b));
}

static cj_value center(cj_run *r, const cj_args *a) {
    const cj_text t = cj_arg_str(r, a, 0);
    const int64_t width = cj_arg_int(r, a, 1, 80), n = (int64_t)cj_n_chars(t);
    if (width <= n) return cj_string(t);
    const size_t total = (size_t)(width - n), left = total / 2 + (total & (size_t)width & 1); /* as Python divides it */
    cj_builder b = {.r = r};
    cj_put_times(&b, cj_foreign_of(" "), left);
    cj_put(&b, t);
    cj_put_times(&b, cj_foreign_of(" "), total - left);
    return cj_string(cj_built(&b));
}

static cj_value truncate(cj_run *r, const cj_args *a) {
    const cj_text t = cj_arg_text(r, a, 0);
    const int64_t length = cj_arg_int(r, a, 1, 255);
    const bool cuts_words = cj_arg_bool(a, 2, false);
    const cj_text end = cj_has(a, 3) ? cj_arg_text(r, a, 3) : cj_foreign_of("...");
    const int64_t leeway = cj_has(a, 4) && a->at[4].kind != CJ_NONE ? cj_arg_int(r, a, 4, 5) : 5;
    const int64_t n = (int64_t)cj_n_chars(t), n_end = (int64_t)cj_n_chars(end);
    if (length < n_end || leeway < 0) cj_fail(r, CL_ERR_ARG, "filter 'truncate' needs a length of at least its end's");
    if (n <= leeway || n - leeway <= length) return cj_string(t);
    cj_text kept = cj_part(t, 0, cj_offset(t, (size_t)(length - n_end)));
    if (!cuts_words) {
        const size_t space = cj_rfind(r, kept, cj_foreign_of(" "));
        if (space != SIZE_MAX) kept = cj_part(kept, 0, space);
    }
    return cj_string(cj_join2(r, kept, end));
}

static cj_value escape(cj_run *r, const cj_args *a) { return cj_string(cj_escape(r, cj_arg_str(r, a, 0))); }

static cj_value safe(cj_run *r, const cj_args *a) {
    cj_text t = cj_arg_str(r, a, 0);
    t.markup = true;
    return cj_string(t);
}

static cj_value wordcount(cj_run *r, const cj_args *a) {
    const cj_text t = cj_arg_str(r, a, 0);
    cj_step_bytes(r, t.size);
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < t.size; at += cj_char_size(t.data[at])) {
        const int32_t c = cj_char(t, at);
        const bool word = c == '_' || cj_is_alpha(c) || cj_is_digit(c);
        n += word && !inside;
        inside = word;
    }
    return cj_int(n);
}

static cj_value urlencode(cj_run *r, const cj_args *a) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~/",
                      hex[] = "0123456789ABCDEF";
    const cj_text t = cj_arg_text(r, a, 0);
    cj_builder b = {.r = r};
    for (size_t at = 0; at < t.size; at++) {
        const unsigned char c = (unsigned char)t.data[at];
        if (c != 0 && strchr(safe, c))
            cj_put(&b, cj_part(t, at, at + 1));
        else
            cj_put(&b, cj_foreign((cl_str){(char[]){'%', hex[c >> 4], hex[c & 15]}, 3}));
    }
    return cj_string(cj_built(&b));
}

static cj_value format(cj_run *r, const cj_args *a) {
    if (a->n == 0) cj_fail(r, CL_ERR_ARG, "filter 'format' needs a string");
    cj_list *list = cj_list_new(r, a->n);
    for (size_t i = 1; i < a->n; i++) cj_list_add(r, list, a->at[i]);
    cj_value values = cj_sequence(CJ_TUPLE, list);
    if (a->n_named > 0) {
        if (a->n > 1) cj_fail(r, CL_ERR_ARG, "filter 'format' takes arguments by position or by name, not both");
        values = (cj_value){.kind = CJ_DICT, .dict = cj_dict_new(r)};
        for (size_t i = 0; i < a->n_named; i++) cj_dict_set(r, values.dict, cj_string(a->names[i]), a->named[i]);
    }
    return cj_string(cj_percent(r, cj_str_of(r, &a->at[0]), &values));
}

/* ---- JSON ---- */

static cj_value tojson(cj_run *r, const cj_args *a) {
    cj_builder b = {.r = r}, spaces = {.r = r};
    cj_json_style style = {.ascii = cj_arg_bool(a, 1, false), .sorted = cj_arg_bool(a, 4, false)};
    cj_text indent;
    if (cj_has(a, 2) && a->at[2].kind == CJ_STRING) {
        indent = a->at[2].text;
        style.indent = &indent;
    } else if (cj_has(a, 2) && a->at[2].kind != CJ_NONE) {
        const int64_t n = cj_arg_int(r, a, 2, 0);
        cj_put_times(&spaces, cj_foreign_of(" "), n > 0 ? (size_t)n : 0);
        indent = cj_built(&spaces);
        style.indent = &indent;
    }
    style.item = cj_foreign_of(style.indent ? "," : ", ");
    style.colon = cj_foreign_of(": ");
    if (cj_has(a, 3) && a->at[3].kind != CJ_NONE) {
        const cj_list *pair = cj_elements(r, &a->at[3]);
        if (pair->n != 2 || pair->at[0].kind != CJ_STRING || pair->at[1].kind != CJ_STRING)
            cj_fail(r, CL_ERR_ARG, "the separators of filter 'tojson' must be two strings");
        style.item = pair->at[0].text;
        style.colon = pair->at[1].text;
    }
    cj_put_json(&b, &a->at[0], &style);
    return cj_string(cj_built(&b));
}

const cj_builtin cj_filters_of_text[] = {
    {"upper", upper, "s", 1},
    {"lower", lower, "s", 1},
    {"title", title, "s", 1},
    {"capitalize", capitalize, "s", 1},
    {"string", string, "s", 1},
    {"safe", safe, "value", 1},
    {"trim", trim, "value chars", 1},
    {"replace", replace, "s old new count", 3},
    {"indent", indent, "s width first blank", 1},
    {"center", center, "value width", 1},
    {"truncate", truncate, "s length killwords end leeway", 1},
    {"escape", escape, "-", 1},
    {"e", escape, "-", 1},
    {"wordcount", wordcount, "s", 1},
    {"urlencode", urlencode, "value", 1},
    {"format", format, NULL, 0},
    {"tojson", tojson, "x ensure_ascii indent separators sort_keys", 1},
    {0},
};

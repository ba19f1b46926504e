/* The functions that a template sees, and the methods of dicts. */
#define _GNU_SOURCE /* localtime_r */
#include "builtins.h"

#include <time.h>

/* ---- Functions ---- */

enum { MAX_RANGE = 100000 }; /* Jinja's sandbox has the same limit */

static cj_value range(cj_run *r, const cj_args *a) {
    const bool one = !cj_has(a, 1);
    const int64_t start = one ? 0 : cj_arg_int(r, a, 0, 0), stop = cj_arg_int(r, a, one ? 0 : 1, 0),
                  stride = cj_arg_int(r, a, 2, 1);
    if (stride == 0) cj_fail(r, CL_ERR_ARG, "the step of range must not be 0");
    /* In 128 bits, where nothing overflows. */
    const __int128 distance = stride > 0 ? (__int128)stop - start : (__int128)start - stop;
    const __int128 step = stride > 0 ? stride : -(__int128)stride, n = distance > 0 ? (distance - 1) / step + 1 : 0;
    if (n > MAX_RANGE) cj_fail(r, CL_ERR_LIMIT, "range has more than the allowed %d elements", MAX_RANGE);
    cj_step_elements(r, (size_t)n);
    cj_list *list = cj_list_new(r, (size_t)n);
    for (int64_t i = 0; i < n; i++) cj_list_add(r, list, cj_int((int64_t)(start + (__int128)i * stride)));
    return cj_sequence(CJ_RANGE, list);
}

/* The dict of arguments with names. */
static cj_dict *make_dict(cj_run *r, const cj_args *a) {
    cj_dict *dict = cj_dict_new(r);
    if (a->n > 0) cj_fail(r, CL_ERR_UNSUPPORTED, "dict and namespace do not support an argument without a name");
    for (size_t i = 0; i < a->n_named; i++) cj_dict_set(r, dict, cj_string(a->names[i]), a->named[i]);
    return dict;
}

static cj_value dict(cj_run *r, const cj_args *a) { return (cj_value){.kind = CJ_DICT, .dict = make_dict(r, a)}; }

static cj_value namespace(cj_run *r, const cj_args *a) { return (cj_value){.kind = CJ_NAMESPACE, .dict = make_dict(r, a)}; }

_Noreturn static void raise_exception_(cj_run *r, const cj_args *a) {
    char message[400];
    const cj_text text = cj_arg_str(r, a, 0);
    cj_fail(r, CL_ERR_ARG, "%s", cl_str_show((cl_str){text.data, text.size}, message, sizeof message));
}

static cj_value raise_exception(cj_run *r, const cj_args *a) { raise_exception_(r, a); }

static cj_value strftime_now(cj_run *r, const cj_args *a) {
    const cj_text format = cj_arg_text(r, a, 0);
    const time_t now = (time_t)r->now;
    struct tm local;
    char pattern[512] = "|", text[1024]; /* a mark at the front tells an empty result from one that is too long */
    if (format.size + 2 > sizeof pattern || memchr(format.data, 0, format.size))
        cj_fail(r, CL_ERR_LIMIT, "the format of strftime_now is longer than 500 bytes");
    for (size_t i = 0; i < format.size; i++)
        if (format.data[i] == '%' && ++i < format.size && strchr("fzZ", format.data[i]))
            cj_fail(r, CL_ERR_UNSUPPORTED, "'%%%c' of strftime_now is not supported", format.data[i]);
    cj_steps(r, CJ_SLOW * (format.size + 1)); /* each letter may stand for a date */
    memcpy(pattern + 1, format.data, format.size);
    if (!localtime_r(&now, &local)) cj_fail(r, CL_ERR_ARG, "the time is out of range");
    const size_t size = strftime(text, sizeof text, pattern, &local);
    if (size == 0) cj_fail(r, CL_ERR_LIMIT, "the text of strftime_now is longer than 1000 bytes");
    cj_builder b = {.r = r};
    const size_t valid = cl_utf8_valid(text + 1, size - 1); /* the locale's names may be in another encoding */
    cj_put(&b, cj_foreign((cl_str){text + 1, valid}));
    return cj_string(cj_built(&b));
}

const cj_builtin cj_functions[] = {
    {"range", range, "- - -", 1},
    {"dict", dict, NULL, 0},
    {"namespace", namespace, NULL, 0},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
    {0},
};

/* ---- Methods of dicts ---- */

static cj_value view(cj_run *r, const cj_args *a, const char *name, bool pairs) {
    const cj_dict *d = a->at[0].dict;
    cj_list *list = cj_list_new(r, d->n);
    cj_step_elements(r, d->n);
    for (size_t i = 0; i < d->n; i++) cj_list_add(r, list, pairs ? cj_pair(r, d->at[i].key, d->at[i].value) : d->at[i].key);
    list->name = name;
    return cj_sequence(CJ_VIEW, list);
}

static cj_value keys(cj_run *r, const cj_args *a) { return view(r, a, "dict_keys", false); }
static cj_value items(cj_run *r, const cj_args *a) { return view(r, a, "dict_items", true); }

static cj_value get(cj_run *r, const cj_args *a) {
    cj_check_hashable(r, &a->at[1]);
    const cj_value *v = cj_dict_get(r, a->at[0].dict, &a->at[1]);
    return v ? *v : cj_has(a, 2) ? a->at[2] : cj_none();
}

const cj_builtin cj_dict_methods[] = {
    {"keys", keys, "-", 1},
    {"items", items, "-", 1},
    {"get", get, "- - -", 2},
    {0},
};

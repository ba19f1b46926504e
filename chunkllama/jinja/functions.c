/* The functions that a template sees, and the methods of dicts, loops and cyclers. */
#define _GNU_SOURCE /* localtime_r */
#include "builtins.h"
#include "print.h"

#include <stdio.h>
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
    list->start = start;
    list->stop = stop;
    list->stride = stride;
    for (int64_t i = 0; i < n; i++) cj_list_add(r, list, cj_int(start + i * stride));
    return cj_sequence(CJ_RANGE, list);
}

/* The dict that Python's dict(...) makes. */
static cj_dict *make_dict(cj_run *r, const cj_args *a) {
    cj_dict *dict = cj_dict_new(r);
    if (a->n > 1) cj_fail(r, CL_ERR_ARG, "dict takes at most 1 argument without a name");
    const cj_value *from = a->n == 1 ? &a->at[0] : NULL;
    if (from && (from->kind == CJ_DICT || from->kind == CJ_NAMESPACE)) {
        for (size_t i = 0; i < from->dict->n; i++) cj_dict_set(r, dict, from->dict->at[i].key, from->dict->at[i].value);
    } else if (from) {
        if (from->kind == CJ_UNDEFINED) cj_fail_undefined(r, from);
        const cj_list *pairs = cj_elements(r, from);
        for (size_t i = 0; i < pairs->n; i++) {
            const cj_list *pair = cj_elements(r, &pairs->at[i]);
            if (pair->n != 2) cj_fail(r, CL_ERR_ARG, "dict needs pairs of a key and a value");
            cj_dict_set(r, dict, pair->at[0], pair->at[1]);
        }
    }
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
    /* A mark at the front tells an empty result from one that is too long. %f, %z and %Z are what Python makes of a time
       without fractions and zone. */
    char pattern[512] = "|", text[1024];
    size_t n = 1;
    for (size_t i = 0; i < format.size; i++) {
        const char c = format.data[i], next = i + 1 < format.size ? format.data[i + 1] : 0;
        if (n + 8 > sizeof pattern || c == 0) cj_fail(r, CL_ERR_LIMIT, "the format of strftime_now is longer than 500 bytes");
        if (c == '%' && (next == 'f' || next == 'z' || next == 'Z')) {
            if (next == 'f') n += (size_t)sprintf(pattern + n, "000000");
            i++;
            continue;
        }
        pattern[n++] = c;
        if (c == '%' && next) pattern[n++] = format.data[++i];
    }
    pattern[n] = 0;
    if (!localtime_r(&now, &local)) cj_fail(r, CL_ERR_ARG, "the time is out of range");
    const size_t size = strftime(text, sizeof text, pattern, &local);
    if (size == 0) cj_fail(r, CL_ERR_LIMIT, "the text of strftime_now is longer than 1000 bytes");
    cj_builder b = {.r = r};
    const size_t valid = cl_utf8_valid(text + 1, size - 1); /* the locale's names may be in another encoding */
    cj_put(&b, cj_foreign((cl_str){text + 1, valid}));
    return cj_string(cj_built(&b));
}

static cj_value make_cycler(cj_run *r, cj_kind kind, const cj_value *items, size_t n) {
    cj_cycler *cycler = CJ_NEW(r, cj_cycler);
    cj_value *copy = cj_alloc(r, n, sizeof *copy);
    for (size_t i = 0; i < n; i++) copy[i] = items[i];
    *cycler = (cj_cycler){.items = copy, .n = n};
    return (cj_value){.kind = kind, .cycler = cycler};
}

static cj_value joiner(cj_run *r, const cj_args *a) {
    const cj_value separator = cj_has(a, 0) ? a->at[0] : cj_string(cj_foreign_of(", "));
    return make_cycler(r, CJ_JOINER, &separator, 1);
}

static cj_value cycler(cj_run *r, const cj_args *a) {
    if (a->n == 0 || a->n_named > 0) cj_fail(r, CL_ERR_ARG, "cycler needs at least one item, and no names");
    return make_cycler(r, CJ_CYCLER, a->at, a->n);
}

const cj_builtin cj_functions[] = {
    {"range", range, "- - -", 1},
    {"dict", dict, NULL, 0},
    {"namespace", namespace, NULL, 0},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
    {"joiner", joiner, "sep", 0},
    {"cycler", cycler, NULL, 0},
    {0},
};

/* ---- Methods of dicts ---- */

static cj_value view(cj_run *r, const cj_args *a, const char *name, bool pairs) {
    const cj_dict *d = a->at[0].dict;
    cj_list *list = cj_list_new(r, d->n);
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

/* ---- Methods of loops and cyclers ---- */

static cj_value cycle(cj_run *r, const cj_args *a) {
    if (a->n < 2) cj_fail(r, CL_ERR_ARG, "loop.cycle needs items");
    return a->at[1 + a->at[0].loop->index % (a->n - 1)];
}

static cj_value changed(cj_run *r, const cj_args *a) {
    cj_loop *loop = a->at[0].loop;
    cj_list *list = cj_list_new(r, a->n);
    for (size_t i = 1; i < a->n; i++) cj_list_add(r, list, a->at[i]);
    const cj_value now = cj_sequence(CJ_TUPLE, list);
    const bool same = loop->changed.kind == CJ_TUPLE && cj_equal(r, &loop->changed, &now);
    loop->changed = now;
    return cj_bool(!same);
}

const cj_builtin cj_loop_methods[] = {
    {"cycle", cycle, NULL, 0},
    {"changed", changed, NULL, 0},
    {0},
};

static cj_value next(cj_run *r, const cj_args *a) {
    (void)r;
    cj_cycler *c = a->at[0].cycler;
    const cj_value v = c->items[c->at];
    c->at = (c->at + 1) % c->n;
    return v;
}

static cj_value reset(cj_run *r, const cj_args *a) {
    (void)r;
    a->at[0].cycler->at = 0;
    return cj_none();
}

const cj_builtin cj_cycler_methods[] = {
    {"next", next, "-", 1},
    {"reset", reset, "-", 1},
    {0},
};

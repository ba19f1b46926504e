/* The methods of strings. */
#include "builtins.h"
#include "print.h"

static cj_text self(const cj_args *a) { return a->at[0].text; }

static cj_value part_of(cj_text t, size_t begin, size_t end) { return cj_string(cj_part(t, begin, end)); }

/* ---- Case and white space ---- */

static cj_value upper(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_UPPER)); }
static cj_value lower(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_LOWER)); }
static cj_value title(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_TITLE)); }
static cj_value capitalize(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_CAPITALIZE)); }
static cj_value swapcase(cj_run *r, const cj_args *a) { return cj_string(cj_change_case(r, self(a), CJ_SWAP)); }

static cj_value stripped(cj_run *r, const cj_args *a, unsigned sides) {
    if (!cj_has(a, 1) || a->at[1].kind == CJ_NONE) return cj_string(cj_strip(self(a), NULL, sides));
    const cj_text chars = cj_arg_text(r, a, 1);
    cj_step_bytes(r, self(a).size);
    return cj_string(cj_strip(self(a), &chars, sides));
}

static cj_value strip(cj_run *r, const cj_args *a) { return stripped(r, a, CJ_LEFT | CJ_RIGHT); }
static cj_value lstrip(cj_run *r, const cj_args *a) { return stripped(r, a, CJ_LEFT); }
static cj_value rstrip(cj_run *r, const cj_args *a) { return stripped(r, a, CJ_RIGHT); }

/* fill: one character. */
static cj_value padded(cj_run *r, cj_text t, int64_t width, cj_text fill, bool left) {
    const int64_t n = (int64_t)cj_n_chars(t);
    cj_builder b = {.r = r};
    if (cj_n_chars(fill) != 1) cj_fail(r, CL_ERR_ARG, "the fill character must be exactly one character long");
    if (!left) cj_put(&b, t);
    if (width > n) cj_put_times(&b, fill, (size_t)(width - n));
    if (left) cj_put(&b, t);
    return cj_string(cj_built(&b));
}

static cj_text fill_of(cj_run *r, const cj_args *a) { return cj_has(a, 2) ? cj_arg_text(r, a, 2) : cj_foreign_of(" "); }
static cj_value ljust(cj_run *r, const cj_args *a) { return padded(r, self(a), cj_arg_int(r, a, 1, 0), fill_of(r, a), false); }
static cj_value rjust(cj_run *r, const cj_args *a) { return padded(r, self(a), cj_arg_int(r, a, 1, 0), fill_of(r, a), true); }

static cj_value center(cj_run *r, const cj_args *a) {
    const int64_t width = cj_arg_int(r, a, 1, 0), n = (int64_t)cj_n_chars(self(a)), total = width - n;
    if (total <= 0) return cj_string(self(a));
    const cj_value left = padded(r, self(a), n + total / 2 + (total & width & 1), fill_of(r, a), true);
    return padded(r, left.text, width, fill_of(r, a), false);
}

static cj_value zfill(cj_run *r, const cj_args *a) {
    const cj_text t = self(a);
    const size_t sign = t.size > 0 && (t.data[0] == '-' || t.data[0] == '+');
    const cj_value digits =
        padded(r, cj_part(t, sign, t.size), cj_arg_int(r, a, 1, 0) - (int64_t)sign, cj_foreign_of("0"), true);
    return cj_string(cj_join2(r, cj_part(t, 0, sign), digits.text));
}

/* ---- Finding ---- */

/* The part of a string that the arguments `start` and `end` from the i-th on choose; *before: its offset. */
static cj_text chosen_part(cj_run *r, const cj_args *a, size_t i, size_t *before) {
    int64_t bounds[2];
    const int64_t n = cj_has(a, i) ? (int64_t)cj_n_chars(self(a)) : 0;
    *before = 0;
    if (!cj_has(a, i)) return self(a);
    for (size_t k = 0; k < 2; k++) {
        const bool given = cj_has(a, i + k) && a->at[i + k].kind != CJ_NONE;
        bounds[k] = given ? cj_arg_int(r, a, i + k, 0) : k == 0 ? 0 : n;
        if (bounds[k] < 0) bounds[k] = bounds[k] + n < 0 ? 0 : bounds[k] + n;
    }
    if (bounds[1] > n) bounds[1] = n;
    *before = bounds[0] > n ? SIZE_MAX : cj_offset(self(a), (size_t)bounds[0]);
    if (bounds[0] > bounds[1]) { /* not even an empty string is in it */
        *before = SIZE_MAX;
        return cj_part(self(a), 0, 0);
    }
    return cj_part(self(a), *before, cj_offset(self(a), (size_t)bounds[1]));
}

/* The index of the character at which a string is found, or -1. */
static int64_t found_at(cj_run *r, const cj_args *a, bool from_end) {
    size_t before;
    const cj_text t = chosen_part(r, a, 2, &before), part = cj_arg_text(r, a, 1);
    cj_step_bytes(r, t.size);
    if (before == SIZE_MAX) return -1;
    const size_t at = from_end ? cj_rfind(r, t, part) : cj_find(t, part, 0);
    return at == SIZE_MAX ? -1 : (int64_t)cj_n_chars(cj_part(self(a), 0, before + at));
}

static cj_value find(cj_run *r, const cj_args *a) { return cj_int(found_at(r, a, false)); }
static cj_value rfind(cj_run *r, const cj_args *a) { return cj_int(found_at(r, a, true)); }

static cj_value index_(cj_run *r, const cj_args *a) {
    const int64_t i = found_at(r, a, false);
    if (i < 0) cj_fail(r, CL_ERR_ARG, "the substring is not found");
    return cj_int(i);
}

static cj_value rindex_(cj_run *r, const cj_args *a) {
    const int64_t i = found_at(r, a, true);
    if (i < 0) cj_fail(r, CL_ERR_ARG, "the substring is not found");
    return cj_int(i);
}

static cj_value count(cj_run *r, const cj_args *a) {
    size_t before;
    const cj_text t = chosen_part(r, a, 2, &before), part = cj_arg_text(r, a, 1);
    return cj_int(before == SIZE_MAX ? 0 : (int64_t)cj_count(r, t, part));
}

static bool has_affix(cj_text t, cj_text affix, bool at_end) {
    if (affix.size > t.size) return false;
    return cj_text_equal(at_end ? cj_part(t, t.size - affix.size, t.size) : cj_part(t, 0, affix.size), affix);
}

static cj_value with_affix(cj_run *r, const cj_args *a, bool at_end) {
    size_t before;
    const cj_text t = chosen_part(r, a, 2, &before);
    if (a->at[1].kind != CJ_TUPLE) return cj_bool(before != SIZE_MAX && has_affix(t, cj_arg_text(r, a, 1), at_end));
    const cj_args affixes = {.at = a->at[1].list->at, .n = a->at[1].list->n};
    bool any = false;
    for (size_t i = 0; i < affixes.n && !any; i++) any = has_affix(t, cj_arg_text(r, &affixes, i), at_end);
    return cj_bool(before != SIZE_MAX && any);
}

static cj_value startswith(cj_run *r, const cj_args *a) { return with_affix(r, a, false); }
static cj_value endswith(cj_run *r, const cj_args *a) { return with_affix(r, a, true); }

static cj_value removeprefix(cj_run *r, const cj_args *a) {
    const cj_text t = self(a), affix = cj_arg_text(r, a, 1);
    return has_affix(t, affix, false) ? part_of(t, affix.size, t.size) : cj_string(t);
}

static cj_value removesuffix(cj_run *r, const cj_args *a) {
    const cj_text t = self(a), affix = cj_arg_text(r, a, 1);
    return has_affix(t, affix, true) ? part_of(t, 0, t.size - affix.size) : cj_string(t);
}

static cj_value replace(cj_run *r, const cj_args *a) {
    return cj_string(cj_replace(r, self(a), cj_arg_text(r, a, 1), cj_arg_text(r, a, 2), cj_arg_int(r, a, 3, -1)));
}

/* ---- Cutting ---- */

/* Words that white space separates; after max of them the rest is one. */
static void split_words(cj_run *r, cj_text t, int64_t max, cj_list *list) {
    t = cj_strip(t, NULL, CJ_LEFT);
    while (t.size > 0) {
        size_t end = 0;
        while (end < t.size && !cj_is_space(cj_char(t, end))) end += cj_char_size(t.data[end]);
        if (max == 0) end = t.size;
        cj_list_add(r, list, part_of(t, 0, end));
        if (max-- == 0) return;
        t = cj_strip(cj_part(t, end, t.size), NULL, CJ_LEFT);
    }
}

static void rsplit_words(cj_run *r, cj_text t, int64_t max, cj_list *list) {
    t = cj_strip(t, NULL, CJ_RIGHT);
    while (t.size > 0) {
        size_t begin = t.size;
        while (begin > 0 && !cj_is_space(cj_char(t, cj_char_before(t, begin)))) begin = cj_char_before(t, begin);
        if (max == 0) begin = 0;
        cj_list_add(r, list, part_of(t, begin, t.size));
        if (max-- == 0) return;
        t = cj_strip(cj_part(t, 0, begin), NULL, CJ_RIGHT);
    }
}

static void split_at(cj_run *r, cj_text t, cj_text separator, int64_t max, cj_list *list) {
    for (;;) {
        const size_t at = max == 0 ? SIZE_MAX : cj_find(t, separator, 0);
        cj_list_add(r, list, part_of(t, 0, at == SIZE_MAX ? t.size : at));
        if (at == SIZE_MAX) return;
        t = cj_part(t, at + separator.size, t.size);
        max--;
    }
}

static void rsplit_at(cj_run *r, cj_text t, cj_text separator, int64_t max, cj_list *list) {
    for (;;) {
        const size_t at = max == 0 ? SIZE_MAX : cj_rfind(r, t, separator);
        cj_list_add(r, list, part_of(t, at == SIZE_MAX ? 0 : at + separator.size, t.size));
        if (at == SIZE_MAX) return;
        t = cj_part(t, 0, at);
        max--;
    }
}

static void turn_around(cj_list *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        const cj_value v = list->at[i];
        list->at[i] = list->at[list->n - 1 - i];
        list->at[list->n - 1 - i] = v;
    }
}

static cj_value split_from(cj_run *r, const cj_args *a, bool from_end) {
    cj_list *list = cj_list_new(r, 0);
    const int64_t max = cj_arg_int(r, a, 2, -1);
    cj_step_bytes(r, self(a).size);
    if (!cj_has(a, 1) || a->at[1].kind == CJ_NONE) {
        (from_end ? rsplit_words : split_words)(r, self(a), max, list);
    } else {
        const cj_text separator = cj_arg_text(r, a, 1);
        if (separator.size == 0) cj_fail(r, CL_ERR_ARG, "the separator is empty");
        (from_end ? rsplit_at : split_at)(r, self(a), separator, max, list);
    }
    if (from_end) turn_around(list);
    return cj_sequence(CJ_LIST, list);
}

static cj_value split(cj_run *r, const cj_args *a) { return split_from(r, a, false); }
static cj_value rsplit(cj_run *r, const cj_args *a) { return split_from(r, a, true); }

static cj_value splitlines(cj_run *r, const cj_args *a) {
    const cj_text t = self(a);
    const bool keeps = cj_arg_bool(a, 1, false);
    cj_list *list = cj_list_new(r, 0);
    cj_step_bytes(r, t.size);
    for (size_t at = 0; at < t.size;) {
        size_t end = at, size = 0;
        while (end < t.size && (size = cj_line_break(t, end)) == 0) end += cj_char_size(t.data[end]);
        cj_list_add(r, list, part_of(t, at, keeps ? end + size : end));
        at = end + size;
    }
    return cj_sequence(CJ_LIST, list);
}

static cj_value partition_at(cj_run *r, const cj_args *a, bool from_end) {
    const cj_text t = self(a), separator = cj_arg_text(r, a, 1);
    if (separator.size == 0) cj_fail(r, CL_ERR_ARG, "the separator is empty");
    const size_t at = from_end ? cj_rfind(r, t, separator) : cj_find(t, separator, 0);
    cj_list *list = cj_list_new(r, 3);
    const cj_value nothing = part_of(t, 0, 0);
    const bool found = at != SIZE_MAX;
    cj_list_add(r, list, found ? part_of(t, 0, at) : from_end ? nothing : cj_string(t));
    cj_list_add(r, list, found ? part_of(t, at, at + separator.size) : nothing);
    cj_list_add(r, list, found ? part_of(t, at + separator.size, t.size) : from_end ? cj_string(t) : nothing);
    return cj_sequence(CJ_TUPLE, list);
}

static cj_value partition(cj_run *r, const cj_args *a) { return partition_at(r, a, false); }
static cj_value rpartition(cj_run *r, const cj_args *a) { return partition_at(r, a, true); }

static cj_value join(cj_run *r, const cj_args *a) {
    if (!cj_is_iterable(&a->at[1])) cj_fail(r, CL_ERR_ARG, "can only join an iterable, not '%s'", cj_type(&a->at[1]));
    const cj_list *list = cj_elements(r, &a->at[1]);
    const cj_args elements = {.at = list->at, .n = list->n};
    cj_builder b = {.r = r};
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) cj_put(&b, self(a));
        cj_put(&b, cj_arg_text(r, &elements, i));
    }
    return cj_string(cj_built(&b));
}

static cj_value format(cj_run *r, const cj_args *a) {
    cj_args others = *a;
    others.at++;
    others.n--;
    return cj_string(cj_format(r, self(a), &others));
}

/* ---- Kinds of characters ---- */

static cj_value all_chars(cj_run *r, const cj_args *a, bool (*is)(int32_t c)) {
    const cj_text t = self(a);
    cj_step_bytes(r, t.size);
    for (size_t at = 0; at < t.size; at += cj_char_size(t.data[at]))
        if (!is(cj_char(t, at))) return cj_bool(false);
    return cj_bool(t.size > 0);
}

static bool is_alnum(int32_t c) { return cj_is_alpha(c) || cj_is_digit(c); }
static cj_value isalpha_(cj_run *r, const cj_args *a) { return all_chars(r, a, cj_is_alpha); }
static cj_value isdigit_(cj_run *r, const cj_args *a) { return all_chars(r, a, cj_is_digit); }
static cj_value isalnum_(cj_run *r, const cj_args *a) { return all_chars(r, a, is_alnum); }
static cj_value isspace_(cj_run *r, const cj_args *a) { return all_chars(r, a, cj_is_space); }
static cj_value isupper_(cj_run *r, const cj_args *a) { return (void)r, cj_bool(cj_is_case(self(a), CJ_UPPER)); }
static cj_value islower_(cj_run *r, const cj_args *a) { return (void)r, cj_bool(cj_is_case(self(a), CJ_LOWER)); }

const cj_builtin cj_str_methods[] = {
    {"upper", upper, "-", 1},
    {"lower", lower, "-", 1},
    {"casefold", lower, "-", 1},
    {"title", title, "-", 1},
    {"capitalize", capitalize, "-", 1},
    {"swapcase", swapcase, "-", 1},
    {"strip", strip, "- -", 1},
    {"lstrip", lstrip, "- -", 1},
    {"rstrip", rstrip, "- -", 1},
    {"ljust", ljust, "- - -", 2},
    {"rjust", rjust, "- - -", 2},
    {"center", center, "- - -", 2},
    {"zfill", zfill, "- -", 2},
    {"find", find, "- - - -", 2},
    {"rfind", rfind, "- - - -", 2},
    {"index", index_, "- - - -", 2},
    {"rindex", rindex_, "- - - -", 2},
    {"count", count, "- - - -", 2},
    {"startswith", startswith, "- - - -", 2},
    {"endswith", endswith, "- - - -", 2},
    {"removeprefix", removeprefix, "- -", 2},
    {"removesuffix", removesuffix, "- -", 2},
    {"replace", replace, "- - - -", 3},
    {"split", split, "- sep maxsplit", 1},
    {"rsplit", rsplit, "- sep maxsplit", 1},
    {"splitlines", splitlines, "- keepends", 1},
    {"partition", partition, "- -", 2},
    {"rpartition", rpartition, "- -", 2},
    {"join", join, "- -", 2},
    {"format", format, NULL, 0},
    {"isalpha", isalpha_, "-", 1},
    {"isdigit", isdigit_, "-", 1},
    {"isdecimal", isdigit_, "-", 1},
    {"isnumeric", isdigit_, "-", 1},
    {"isalnum", isalnum_, "-", 1},
    {"isspace", isspace_, "-", 1},
    {"isupper", isupper_, "-", 1},
    {"islower", islower_, "-", 1},
    {0},
};

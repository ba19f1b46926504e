/* The filters of numbers: int, float, abs, round. */
#include "builtins.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "eval.h"

/* A string as Python's int() and float() accept it: no white space around, and '_' only between digits. NULL: it is neither. */
static char *number_text(cj_run *r, cj_text t, bool *hex) {
    t = cj_strip(t, NULL, CJ_LEFT | CJ_RIGHT);
    char *copy = cj_alloc(r, t.size + 1, 1);
    size_t n = 0;
    *hex = false;
    for (size_t i = 0; i < t.size; i++) {
        const char c = t.data[i];
        *hex |= c == 'x' || c == 'X' || c == '(';
        if ((unsigned char)c <= ' ' || (unsigned char)c >= 0x7f) return NULL;
        if (c != '_') {
            copy[n++] = c;
            continue;
        }
        if (i == 0 || i + 1 == t.size || t.data[i - 1] == '_' || t.data[i + 1] == '_') return NULL;
    }
    copy[n] = 0;
    return n > 0 ? copy : NULL;
}

static bool read_float(cj_run *r, cj_text t, double *f) {
    bool hex;
    char *end, *text = number_text(r, t, &hex);
    if (!text || hex) return false; /* strtod reads hexadecimal numbers and nan(...), Python does not */
    *f = strtod(text, &end);
    return *end == 0;
}

/* Whether the digits of an integer, after its sign, have a prefix such as 0x that fits the base; *base is then the prefix's. */
static bool skip_prefix(const char **at, int *base) {
    const char kind = (*at)[0] == '0' ? (*at)[1] | 0x20 : 0;
    const int named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (named == 0 || (*base != 0 && *base != named)) return false;
    *base = named;
    *at += 2;
    return true;
}

static bool read_int(cj_run *r, cj_text t, int base, int64_t *i) {
    bool hex;
    char *text = number_text(r, t, &hex);
    if (!text) return false;
    const char *at = text;
    const bool minus = *at == '-';
    if (*at == '-' || *at == '+') at++;
    if (!skip_prefix(&at, &base) && base == 0) {
        if (*at == '0' && strspn(at, "0") < strlen(at)) return false;
        base = 10;
    }
    if (*at == 0 || *at == '-' || *at == '+') return false;
    if (base == 16 && at[0] == '0' && (at[1] | 0x20) == 'x') return false; /* strtoll would skip a second prefix */
    char *end;
    errno = 0;
    const unsigned long long size = strtoull(at, &end, base);
    if (*end) return false;
    if (errno == ERANGE || size > (unsigned long long)INT64_MAX + minus)
        cj_fail(r, CL_ERR_LIMIT, "an integer is beyond 64 bits");
    *i = minus ? (int64_t)(0 - size) : (int64_t)size;
    return true;
}

static bool float_to_int(cj_run *r, double f, int64_t *i) {
    if (isnan(f) || isinf(f)) return false;
    if (fabs(f) >= 0x1p63) cj_fail(r, CL_ERR_LIMIT, "an integer is beyond 64 bits");
    *i = (int64_t)f;
    return true;
}

static cj_value int_(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    int64_t i;
    double f;
    const int64_t base = cj_arg_int(r, a, 2, 10);
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (base != 0 && (base < 2 || base > 36)) return cj_has(a, 1) ? a->at[1] : cj_int(0);
    bool found = cj_is_int(v, &i);
    if (v->kind == CJ_STRING) found = read_int(r, v->text, (int)base, &i);
    if (v->kind == CJ_STRING && !found) found = read_float(r, v->text, &f) && float_to_int(r, f, &i);
    if (v->kind == CJ_FLOAT) {
        if (isinf(v->real)) cj_fail(r, CL_ERR_ARG, "infinity is no integer");
        found = float_to_int(r, v->real, &i);
    }
    return found ? cj_int(i) : cj_has(a, 1) ? a->at[1] : cj_int(0);
}

static cj_value float_(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    double f = 0;
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    const bool found = cj_is_number(v) || (v->kind == CJ_STRING && read_float(r, v->text, &f));
    if (!found) return cj_has(a, 1) ? a->at[1] : cj_float(0);
    return cj_float(v->kind == CJ_STRING ? f : cj_to_double(v));
}

static cj_value abs_(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    int64_t i;
    if (v->kind == CJ_FLOAT) return cj_float(fabs(v->real));
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (!cj_is_int(v, &i)) cj_fail(r, CL_ERR_ARG, "filter 'abs' needs a number, not '%s'", cj_type(v));
    const cj_value positive = cj_int(i);
    return i < 0 ? cj_negative(r, &positive) : positive;
}

/* Round to digits after the point as Python does: the nearest decimal number, of two the even one. */
static double round_float(double f, int64_t digits) {
    char text[400];
    if (digits > 22 || !isfinite(f)) return f;
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    if (digits < -308) return copysign(0, f);
    const double power = pow(10, (double)-digits);
    return nearbyint(f / power) * power;
}

/* The nearest multiple of 10**n, of two the even one. */
static int64_t round_int(cj_run *r, int64_t i, int64_t n) {
    if (n > 18) return 0;
    int64_t power = 1;
    while (n-- > 0) power *= 10;
    const int64_t rest = ((i % power) + power) % power, times = i / power - (i % power < 0);
    const bool up = rest > power - rest || (rest == power - rest && times % 2 != 0);
    int64_t result;
    if (__builtin_mul_overflow(times + up, power, &result)) cj_fail(r, CL_ERR_LIMIT, "an integer is beyond 64 bits");
    return result;
}

static cj_value round_(cj_run *r, const cj_args *a) {
    const cj_value *v = &a->at[0];
    const int64_t digits = cj_arg_int(r, a, 1, 0);
    const cj_text method = cj_has(a, 2) ? cj_arg_text(r, a, 2) : cj_foreign_of("common");
    int64_t i;
    if (v->kind == CJ_UNDEFINED) cj_fail_undefined(r, v);
    if (!cj_is_number(v)) cj_fail(r, CL_ERR_ARG, "filter 'round' needs a number, not '%s'", cj_type(v));
    if (cj_text_is(method, "common")) {
        if (!cj_is_int(v, &i)) return cj_float(round_float(v->real, digits));
        return cj_int(digits >= 0 ? i : round_int(r, i, -digits));
    }
    if (!cj_text_is(method, "ceil") && !cj_text_is(method, "floor"))
        cj_fail(r, CL_ERR_ARG, "the method of filter 'round' is \"common\", \"ceil\" or \"floor\"");
    if (digits > 300 || digits < -300) cj_fail(r, CL_ERR_ARG, "the precision of filter 'round' is too large");
    const double power = pow(10, (double)digits), scaled = cj_to_double(v) * power;
    const double cut = cj_text_is(method, "ceil") ? ceil(scaled) : floor(scaled);
    if (!isfinite(cut)) cj_fail(r, CL_ERR_ARG, "a number is too large");
    return cj_float(cut / power);
}

const cj_builtin cj_filters_of_numbers[] = {
    {"int", int_, "value default base", 1},
    {"float", float_, "value default", 1},
    {"abs", abs_, "-", 1},
    {"round", round_, "value precision method", 1},
    {0},
};

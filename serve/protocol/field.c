/* Names fields of JSON objects, and reads them by type. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "parse.h"

field_path path_of(const char *format, ...) {
    field_path path;
    va_list args;
    va_start(args, format);
    vsnprintf(path.text, sizeof path.text, format, args);
    va_end(args);
    return path;
}

const json_t *field_get(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* Whether a value is null, false, 0 or empty. */
static bool requests_nothing(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0;
    case JSON_TRUE: return false;
    default: return true;
    }
}

const json_t *field_get_requested(const json_t *object, const char *name) {
    const json_t *value = field_get(object, name);
    return value && !requests_nothing(value) ? value : NULL;
}

const char *field_kind(const json_t *value) {
    cl_str number;
    if (cl_json_is_number(value, &number)) return "a number beyond 64 bits";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

size_t field_text_size(const json_t *value) {
    size_t size = json_string_length(value), i;
    const char *name;
    json_t *element;
    json_array_foreach(value, i, element) size += field_text_size(element);
    json_object_foreach((json_t *)value, name, element) size += strlen(name) + field_text_size(element);
    return size;
}

bool field_check_text(const json_t *object, const char *name, size_t max, openai_error *error) {
    const size_t size = field_text_size(json_object_get(object, name));
    return size <= max || openai_refuse(error, name, "has %zu bytes of text; it may have at most %zu: shorten it", size, max);
}

bool field_name(const json_t *value, const char *param, const char **name, openai_error *error) {
    if (!json_is_string(value)) return openai_refuse(error, param, "must be a string, not %s", field_kind(value));
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value))
        return openai_refuse(error, param, "contains a zero character; send it without");
    *name = text;
    return true;
}

bool field_bool(const json_t *object, const char *name, bool *value, openai_error *error) {
    const json_t *field = field_get(object, name);
    if (!field) return true;
    if (!json_is_boolean(field)) return openai_refuse(error, name, "must be true or false, not %s", field_kind(field));
    *value = json_is_true(field);
    return true;
}

/* Whether a value is a whole number that no integer type holds, as 1e19. */
static bool is_huge(const json_t *value) {
    const double x = json_real_value(value); /* 0 if it is none */
    return x >= 0x1p63 || x < -0x1p63;
}

/* Whether a value is a number above all that an integer of 64 bits holds. */
static bool is_beyond(const json_t *value) {
    cl_str number;
    return cl_json_is_number(value, &number) ? number.data[0] != '-' : json_real_value(value) >= 0x1p63;
}

bool field_is_integer(const json_t *value, int64_t *integer) {
    const double x = json_real_value(value);
    if (json_is_integer(value))
        *integer = json_integer_value(value);
    else if (json_is_real(value) && !is_huge(value) && floor(x) == x)
        *integer = (int64_t)x;
    else
        return false;
    return true;
}

bool field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *value, openai_error *error) {
    const json_t *field = field_get(object, name);
    const bool saturates = max == INT32_MAX;
    int64_t x;
    if (!field) return true;
    if (saturates && is_beyond(field)) {
        *value = max;
        return true;
    }
    if (is_huge(field))
        return openai_refuse(error, name, "is %g; it must be an integer from %lld to %lld", json_real_value(field),
                             (long long)min, (long long)max);
    if (!field_is_integer(field, &x)) return openai_refuse(error, name, "must be an integer, not %s", field_kind(field));
    if (saturates && x > max) x = max;
    if (x < min || x > max)
        return openai_refuse(error, name, "is %lld; it must be from %lld to %lld", (long long)x, (long long)min,
                             (long long)max);
    *value = x;
    return true;
}

bool field_int32(const json_t *object, const char *name, int32_t min, int32_t max, int32_t *value, openai_error *error) {
    int64_t x = *value;
    if (!field_int(object, name, min, max, &x, error)) return false;
    *value = (int32_t)x;
    return true;
}

bool field_float(const json_t *object, const char *name, double min, double max, float *value, openai_error *error) {
    const json_t *field = field_get(object, name);
    if (!field) return true;
    if (!json_is_number(field)) return openai_refuse(error, name, "must be a number, not %s", field_kind(field));
    const double x = json_number_value(field);
    if (!(x >= min && x <= max)) return openai_refuse(error, name, "is %g; it must be from %g to %g", x, min, max);
    *value = (float)x;
    return true;
}

bool field_agree(const json_t *object, const char *const *names, size_t n, openai_error *error) {
    const json_t *given = NULL;
    const char *name = "";
    for (size_t i = 0; i < n; i++) {
        const json_t *value = field_get(object, names[i]);
        if (!value) continue;
        if (given && json_number_value(value) != json_number_value(given))
            return openai_refuse(error, names[i], "and '%s' contradict each other; send one of them", name);
        given = value;
        name = names[i];
    }
    return true;
}

bool field_token(const json_t *value, const char *param, const cl_model *model, int32_t *id, openai_error *error) {
    const int32_t n_vocab = cl_tokenizer_n_vocab(model->tok);
    int64_t x = -1;
    if (is_huge(value))
        return openai_refuse(error, param, "is %g; token ids of this model are from 0 to %d", json_real_value(value),
                             n_vocab - 1);
    if (!field_is_integer(value, &x))
        return openai_refuse(error, param, "must be an integer, a token id, not %s", field_kind(value));
    if (x < 0 || x >= n_vocab)
        return openai_refuse(error, param, "is %lld; token ids of this model are from 0 to %d", (long long)x, n_vocab - 1);
    *id = (int32_t)x;
    return true;
}

bool field_object(const json_t *object, const char *name, const json_t **value, openai_error *error) {
    *value = field_get(object, name);
    return !*value || cl_json_is_object(*value) || openai_refuse(error, name, "must be an object, not %s", field_kind(*value));
}

bool field_array(const json_t *object, const char *name, const char *what, size_t max, const json_t **array,
                 openai_error *error) {
    *array = field_get(object, name);
    if (*array && !json_is_array(*array))
        return openai_refuse(error, name, "must be an array of %s, not %s", what, field_kind(*array));
    if (json_array_size(*array) > max)
        return openai_refuse(error, name, "has %zu %s; at most %zu are allowed: send fewer", json_array_size(*array), what,
                             max);
    return true;
}

/*
 * Mutates JSON by its grammar, for targets whose input is JSON: values are replaced, copied and removed as a whole, so that
 * most inputs stay valid. Bytes that are no JSON, such as zero bytes between two texts, are skipped.
 */
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

enum { MAX_VALUES = 4096, MAX_DEPTH = 256 };

/* The bytes [begin, end) of a value, or of the name of a field. */
typedef struct span {
    size_t begin, end;
} span;

static span values[MAX_VALUES];
static size_t n_values;

static void add_value(size_t begin, size_t end) {
    if (n_values < MAX_VALUES) values[n_values++] = (span){begin, end};
}

static size_t string_end(const uint8_t *data, size_t size, size_t at) {
    for (at++; at < size && data[at] != '"'; at++)
        if (data[at] == '\\') at++;
    return at < size ? at + 1 : size;
}

static bool is_word(uint8_t c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '-' || c == '+' || c == '.';
}

static void find_values(const uint8_t *data, size_t size) {
    size_t open[MAX_DEPTH], depth = 0;
    n_values = 0;
    for (size_t at = 0; at < size;) {
        const size_t begin = at;
        if (data[at] == '"') {
            at = string_end(data, size, at);
            add_value(begin, at);
        } else if (is_word(data[at])) {
            while (at < size && is_word(data[at])) at++;
            add_value(begin, at);
        } else {
            if ((data[at] == '{' || data[at] == '[') && depth < MAX_DEPTH) open[depth++] = at;
            if ((data[at] == '}' || data[at] == ']') && depth > 0) add_value(open[--depth], at + 1);
            at++;
        }
    }
}

/* Replace a span by text [n]; the size is unchanged if the result would be too long. text may be part of the data. */
static size_t replace(uint8_t *data, size_t size, size_t max_size, span s, const void *text, size_t n) {
    static uint8_t copy[1 << 16];
    if (n > sizeof copy || size - (s.end - s.begin) + n > max_size) return size;
    memcpy(copy, text, n);
    memmove(data + s.begin + n, data + s.end, size - s.end);
    memcpy(data + s.begin, copy, n);
    return size - (s.end - s.begin) + n;
}

static const char *const literals[] = {
    "0",
    "1",
    "-1",
    "2",
    "7",
    "16",
    "64",
    "127",
    "128",
    "255",
    "256",
    "1024",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "0.5",
    "-0.0",
    "1e-320",
    "1e308",
    "1e19",
    "true",
    "false",
    "null",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud83d\\ude00\"",
    "\"a\\u0000b\"",
    "[]",
    "{}",
    "[[]]",
    "[null]",
    "{\"\":0}",
};
enum { N_LITERALS = sizeof literals / sizeof *literals };

/* Remove a span with one comma next to it and, if it is a field's value, with the field's name. */
static size_t remove_value(uint8_t *data, size_t size, span s) {
    while (s.begin > 0 && (data[s.begin - 1] == ' ' || data[s.begin - 1] == '\n')) s.begin--;
    if (s.begin > 0 && data[s.begin - 1] == ':') {
        for (size_t i = 0; i < n_values; i++)
            if (values[i].end <= s.begin && values[i].end + 2 >= s.begin) s.begin = values[i].begin;
    }
    if (s.end < size && data[s.end] == ',')
        s.end++;
    else if (s.begin > 0 && data[s.begin - 1] == ',')
        s.begin--;
    return replace(data, size, size, s, "", 0);
}

/* Put a copy of a value behind it; if it is a field's value, the next mutations may give the copy a name. */
static size_t repeat_value(uint8_t *data, size_t size, size_t max_size, span s) {
    static const uint8_t comma[] = ",";
    const size_t n = s.end - s.begin, longer = replace(data, size, max_size, (span){s.end, s.end}, data + s.begin, n);
    return longer == size ? size : replace(data, longer, max_size, (span){s.end, s.end}, comma, 1);
}

/* Change the bytes of a value as libFuzzer does, with its dictionary. */
static size_t change_value(uint8_t *data, size_t size, size_t max_size, span s) {
    static uint8_t text[1 << 12];
    size_t n = s.end - s.begin;
    const bool quoted = n >= 2 && data[s.begin] == '"';
    if (quoted) s.begin++, s.end--, n -= 2;
    if (n > sizeof text / 2) return size;
    memcpy(text, data + s.begin, n);
    n = LLVMFuzzerMutate(text, n, sizeof text);
    return replace(data, size, max_size, s, text, n);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    srand(seed);
    find_values(data, size);
    if (n_values == 0 || rand() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
    const span s = values[(size_t)rand() % n_values], other = values[(size_t)rand() % n_values];
    const char *literal = literals[rand() % N_LITERALS];
    switch (rand() % 6) {
    case 0: return replace(data, size, max_size, s, literal, strlen(literal));
    case 1: return replace(data, size, max_size, s, data + other.begin, other.end - other.begin);
    case 2: return remove_value(data, size, s);
    case 3: return repeat_value(data, size, max_size, s);
    default: return change_value(data, size, max_size, s);
    }
}

/* Parses JSON with jansson, within limits, and tells invalid text from memory that is lacking. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"

/* ---- Limits ---- */

/* What a text contains, counted before jansson builds its values, which may take a hundred times the bytes of the text. */
typedef struct contents {
    size_t n_values; /* at least the number of values and of names of fields */
    size_t n_containers;
    size_t depth, max_depth;
} contents;

/* The end of the string that begins after its quote at `at`: the closing quote, or `end` if there is none. */
static const char *skip_string(const char *at, const char *end) {
    for (const char *quote = at; (quote = memchr(quote, '"', (size_t)(end - quote))); quote++) {
        const char *escape = quote;
        while (escape > at && escape[-1] == '\\') escape--;
        if ((quote - escape) % 2 == 0) return quote;
    }
    return end;
}

/* Count the values in text [size]. If it is not valid JSON, so that the counts mean nothing, jansson refuses it later. */
static contents count(const char *text, size_t size) {
    contents c = {.n_values = 1};
    const char *end = text + size;
    for (const char *at = text; at < end; at++) {
        switch (*at) {
        case '"': at = skip_string(at + 1, end); break;
        case '[':
        case '{':
            c.n_containers++;
            c.n_values++;
            if (++c.depth > c.max_depth) c.max_depth = c.depth;
            break;
        case ']':
        case '}': c.depth -= c.depth > 0; break;
        case ':':
        case ',': c.n_values++; break;
        default: break;
        }
    }
    return c;
}

/* used: with those of this text. */
static bool check_limits(const char *what, const contents *c, const openai_json_used *used, openai_error *error) {
    const struct limit {
        const char *what;
        size_t n, max;
    } limits[] = {
        {"values and names of fields", used->n_values, OPENAI_JSON_MAX_VALUES},
        {"objects and arrays", used->n_containers, OPENAI_JSON_MAX_CONTAINERS},
        {"levels of nested objects and arrays", c->max_depth, OPENAI_JSON_MAX_DEPTH},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].n > limits[i].max)
            return openai_fail(error, NULL, "the %s has %zu %s; at most %zu are allowed: send fewer", what, limits[i].n,
                               limits[i].what, limits[i].max);
    return true;
}

/* ---- Memory ---- */

/* Whether an allocation of jansson failed on this thread. Jansson reports some of these failures as invalid text. */
static _Thread_local bool allocation_failed;

static void *allocate(size_t size) {
    void *memory = malloc(size);
    if (!memory) allocation_failed = true;
    return memory;
}

void openai_json_init(void) { json_set_alloc_funcs(allocate, free); }

static json_t *no_memory(openai_error *error) {
    openai_fail_memory(error);
    return NULL;
}

/*
 * Whether the memory that jansson needs is available. If jansson 2.14 cannot enlarge its buffer for a string, it does not
 * notice, and reads beyond the buffer; this check prevents that.
 */
static bool has_memory(size_t size, const contents *c) {
    /* 4 * size is for strings: a buffer of up to 2 * size, its predecessor of half that size, and the strings themselves. */
    void *probe = malloc(4 * size + 64 * c->n_values + 256 * c->n_containers);
    free(probe);
    return probe;
}

/* ---- Texts ---- */

/* A text that jansson accepts if it is JSON. */
static json_t *parse(const char *what, const char *text, size_t size, openai_json_used *used, openai_error *error) {
    json_error_t at;
    const contents c = count(text, size);
    used->n_values += c.n_values;
    used->n_containers += c.n_containers;
    if (!check_limits(what, &c, used, error)) return NULL;
    if (!has_memory(size, &c)) return no_memory(error);
    allocation_failed = false;
    json_t *json = json_loadb(text, size, JSON_ALLOW_NUL, &at);
    if (allocation_failed) {
        json_decref(json);
        return no_memory(error);
    }
    if (!json)
        openai_fail(error, NULL, "the %s is not valid JSON: %s at line %d, column %d (byte %d)", what, at.text, at.line,
                    at.column, at.position);
    return json;
}

/* Any text; its counts are added to *used. */
static json_t *parse_any(const char *what, const char *text, size_t size, openai_json_used *used, openai_error *error) {
    size_t mended_size;
    bool lacks_memory;
    char *mended = cl_json_mended(text, size, &mended_size, &lacks_memory);
    if (lacks_memory) return no_memory(error);
    json_t *json = parse(what, mended ? mended : text, mended ? mended_size : size, used, error);
    free(mended);
    return json;
}

json_t *openai_json_parse(const char *what, const char *text, size_t size, openai_error *error) {
    return parse_any(what, text, size, &(openai_json_used){0}, error);
}

json_t *openai_json_parse_field(const char *field, const json_t *string, openai_json_used *used, openai_error *error) {
    openai_json_used own = {0};
    json_t *json = parse_any(field, json_string_value(string), json_string_length(string), used ? used : &own, error);
    if (!json && error->status < 500) snprintf(error->param, sizeof error->param, "%s", field);
    return json;
}

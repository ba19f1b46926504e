/* Writes JSON with jansson, and remembers whether memory was lacking for a part of it. */
#include "writer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "chunkllama/common/str.h"

void writer_fail(openai_writer *w) { w->failed = true; }

/* Append bytes [size] to the text of `writer`. -1: memory is or was lacking. */
static int append(const char *bytes, size_t size, void *writer) {
    openai_writer *w = writer;
    const size_t needed = w->size + size + 1;
    if (needed > w->capacity) {
        char *grown = w->failed ? NULL : realloc(w->text, 2 * needed);
        w->failed = !grown;
        if (!grown) return -1;
        w->text = grown;
        w->capacity = 2 * needed;
    }
    memcpy(w->text + w->size, bytes, size);
    w->size += size;
    w->text[w->size] = '\0';
    return 0;
}

void writer_raw(openai_writer *w, const char *text) { append(text, strlen(text), w); }

void writer_begin_event(openai_writer *w, const char *name) {
    if (name) {
        writer_raw(w, "event: ");
        writer_raw(w, name);
        writer_raw(w, "\n");
    }
    writer_raw(w, "data: ");
}

void writer_end_event(openai_writer *w) { writer_raw(w, "\n\n"); }

/* ---- Values ---- */

/* Put a value into the container that is open, or append it to the text. False: memory is lacking. */
static bool put(openai_writer *w, const char *name, size_t size, json_t *value) {
    json_t *container = w->depth > 0 ? w->open[w->depth - 1] : NULL;
    if (name) return json_object_setn_nocheck(container, name, size, value) == 0;
    if (container) return json_array_append(container, value) == 0;
    const size_t begin = w->size;
    /* jansson 2.14 ignores some failures of append, which therefore notes them itself. */
    if (json_dump_callback(value, append, w, JSON_ENCODE_ANY | (w->spaced ? 0 : JSON_COMPACT)) != 0 || w->failed) return false;
    w->size = begin + cl_json_restore(w->text + begin, w->size - begin);
    return true;
}

/* Put a value whose reference is stolen; NULL: memory was lacking for it. */
static void add(openai_writer *w, const char *name, size_t size, json_t *value) {
    if (w->failed || !value || !put(w, name, size, value)) w->failed = true;
    json_decref(value);
}

void writer_value(openai_writer *w, const char *key, json_t *value) { add(w, key, key ? strlen(key) : 0, value); }

void writer_open(openai_writer *w, const char *key, char bracket) {
    assert(w->depth < WRITER_MAX_DEPTH);
    json_t *container = bracket == '{' ? json_object() : json_array();
    w->failed |= !container;
    if (w->depth > 0) writer_value(w, key, container);
    w->open[w->depth++] = container;
}

void writer_close(openai_writer *w) {
    json_t *container = w->open[--w->depth];
    if (w->depth == 0) writer_value(w, NULL, container);
}

void writer_joined(openai_writer *w, const char *key, const char *first, size_t n_first, const char *second, size_t n_second) {
    size_t n_before = 0, n_after = 0;
    char *before = cl_utf8_mended(first, n_first, &n_before), *after = cl_utf8_mended(second, n_second, &n_after);
    writer_value(w, key, before && after ? json_pack("s%+%", before, n_before, after, n_after) : NULL);
    free(before);
    free(after);
}

void writer_bytes(openai_writer *w, const char *key, const char *bytes, size_t size) {
    json_t *text = json_stringn(bytes, size); /* fails if the bytes are not UTF-8, which is rare */
    text ? writer_value(w, key, text) : writer_joined(w, key, bytes, size, NULL, 0);
}

void writer_string(openai_writer *w, const char *key, const char *text) {
    text ? writer_bytes(w, key, text, strlen(text)) : writer_null(w, key);
}

void writer_named_real(openai_writer *w, const char *name, size_t size, double value) { add(w, name, size, json_real(value)); }

void writer_integers(openai_writer *w, const char *key, const int32_t *values, size_t n) {
    writer_open(w, key, '[');
    for (size_t i = 0; i < n; i++) writer_integer(w, NULL, values[i]);
    writer_close(w);
}

void writer_byte_values(openai_writer *w, const char *key, const char *bytes, size_t size) {
    writer_open(w, key, '[');
    for (size_t i = 0; i < size; i++) writer_integer(w, NULL, (unsigned char)bytes[i]);
    writer_close(w);
}

void writer_begin_typed_event(openai_writer *w, const char *type) {
    writer_begin_event(w, type);
    writer_open(w, NULL, '{');
    writer_string(w, "type", type);
}

void writer_end_typed_event(openai_writer *w) {
    writer_close(w);
    writer_end_event(w);
}

/* ---- The end ---- */

void writer_free(openai_writer *w) {
    if (w->depth > 0) json_decref(w->open[0]);
    free(w->text);
    *w = (openai_writer){0};
}

char *writer_end(openai_writer *w, size_t *size) {
    writer_raw(w, ""); /* so that an empty text is not NULL */
    char *text = w->failed ? NULL : w->text;
    if (size) *size = w->size;
    if (text) w->text = NULL;
    writer_free(w);
    return text;
}

json_t *writer_short_real(float value) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return json_real(strtod(text, NULL));
}

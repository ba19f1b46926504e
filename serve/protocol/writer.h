/*
 * Writes JSON with jansson. All JSON of answers is written with it.
 *
 * No function reports that memory is lacking: the writer remembers it, ignores all later calls, and writer_end returns NULL in
 * place of the text. So no caller checks anything in between, and no text that lacks a part is ever sent.
 */
#ifndef SERVE_PROTOCOL_WRITER_H
#define SERVE_PROTOCOL_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WRITER_MAX_DEPTH = 16 }; /* of objects and arrays */

/* All zero: an empty text. */
typedef struct openai_writer {
    char *text; /* [size], owned, with a zero behind it; NULL while it is empty */
    size_t size, capacity;
    json_t *open[WRITER_MAX_DEPTH]; /* [depth] the containers that are open; the first is owned, and owns the others */
    int depth;
    bool spaced; /* put a space after each comma and colon between values, as Python does; set it before the first value */
    bool failed; /* memory was lacking, so the text is not whole */
} openai_writer;

/* Note that memory was lacking elsewhere, so that the text will not be whole. */
void writer_fail(openai_writer *w);

/* Append text that is not a JSON value, such as the frame of a stream's event. No object or array may be open. */
void writer_raw(openai_writer *w, const char *text);

/* Frame a server-sent event, whose data is one value that is written in between. name: its type; NULL: none. */
void writer_begin_event(openai_writer *w, const char *name);
void writer_end_event(openai_writer *w);

/* The same for an event whose data is an object with its type as the first member; the other members are written in between. */
void writer_begin_typed_event(openai_writer *w, const char *type);
void writer_end_typed_event(openai_writer *w);

/*
 * ---- Values ----
 *
 * key is the value's name in the object that is open; NULL in an array and outside of all values. If an object already has
 * the name, the value replaces the previous one.
 */

/* Open an object or an array: bracket is '{' or '['. */
void writer_open(openai_writer *w, const char *key, char bracket);

/* Close the object or array that was opened last. */
void writer_close(openai_writer *w);

/* A value of jansson's, whose reference is stolen; NULL: memory was lacking for it. */
void writer_value(openai_writer *w, const char *key, json_t *value);

/* A string of any bytes [size]; each broken part that is not UTF-8 becomes U+FFFD. */
void writer_bytes(openai_writer *w, const char *key, const char *bytes, size_t size);

/* One string of two parts, each as in writer_bytes. */
void writer_joined(openai_writer *w, const char *key, const char *first, size_t n_first, const char *second, size_t n_second);

/* An array of integers [n], or of the bytes [size] as numbers. */
void writer_integers(openai_writer *w, const char *key, const int32_t *values, size_t n);
void writer_byte_values(openai_writer *w, const char *key, const char *bytes, size_t size);

/* A string of terminated text as in writer_bytes; NULL becomes null. */
void writer_string(openai_writer *w, const char *key, const char *text);

static inline void writer_integer(openai_writer *w, const char *key, int64_t value) {
    writer_value(w, key, json_integer(value));
}

/* value must be finite. It is written with as many digits as it takes to read the same value again. */
static inline void writer_real(openai_writer *w, const char *key, double value) { writer_value(w, key, json_real(value)); }

/* The number for which a float stands: 0.1, though the float is 0.100000001. NULL if memory is lacking. */
json_t *writer_short_real(float value);

/* A real whose name is bytes [size] of UTF-8, which may contain zeros. */
void writer_named_real(openai_writer *w, const char *name, size_t size, double value);

static inline void writer_null(openai_writer *w, const char *key) { writer_value(w, key, json_null()); }

/* Drop the text so far. A writer that has failed stays so. */
static inline void writer_clear(openai_writer *w) { w->size = 0; }

/* ---- The end; the writer is empty afterwards ---- */

/* The text [*size] and a zero, for the caller to free; NULL if memory was lacking for any part of it. */
char *writer_end(openai_writer *w, size_t *size);

void writer_free(openai_writer *w);

#endif

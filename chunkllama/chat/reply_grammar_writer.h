/* The functions that the files which write grammars of replies share. */
#ifndef CHUNKLLAMA_CHAT_REPLY_GRAMMAR_WRITER_H
#define CHUNKLLAMA_CHAT_REPLY_GRAMMAR_WRITER_H

#include "reply_call.h"
#include "reply_grammar.h"

typedef struct reply_writer {
    const cl_reply_grammar *g;
    reply_text out;
    bool no_memory;
    cl_status status;   /* of the schemas */
    size_t schema_work; /* cl_schema_options.work */
    cl_error *error;
} reply_writer;

/* Append text of the grammar; a literal, which is quoted; a marker, with its special tokens; the name of a rule. */
void reply_put(reply_writer *w, const char *text);
void reply_put_literal(reply_writer *w, const char *text);
void reply_put_marker(reply_writer *w, const char *marker);
void reply_put_rule(reply_writer *w, const char *name, size_t i);

/* Append the rule of a JSON schema as its client sent it, or an empty one. The tool is i. */
void reply_put_schema(reply_writer *w, const json_t *schema, size_t i);

/* Whether a marker has special tokens. */
bool reply_has_special(reply_writer *w, const char *marker);

/* Whether a schema requires a property. */
bool reply_requires(const json_t *schema, const char *property);

/* ---- Calls with tags around each argument (reply_grammar_tags.c) ---- */

/* Append the text of tool i's call, the body of its rule, and rules for its arguments. */
void reply_put_tagged_call(reply_writer *w, const json_t *function, size_t i);

/* ---- Calls with values that are almost JSON: Gemma's and Python's (reply_grammar_literal.c) ---- */

/* Append the text of tool i's call, the body of its rule, and rules for its arguments. */
void reply_put_literal_call(reply_writer *w, const json_t *function, size_t i);

/* Append the rules of the values. */
void reply_put_literal_values(reply_writer *w);

#endif

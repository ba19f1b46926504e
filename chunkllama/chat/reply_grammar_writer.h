/* The functions that the files which write grammars of replies share. */
#ifndef CHUNKLLAMA_CHAT_REPLY_GRAMMAR_WRITER_H
#define CHUNKLLAMA_CHAT_REPLY_GRAMMAR_WRITER_H

#include "reply_call.h"
#include "reply_grammar.h"

typedef struct reply_writer {
    const cl_reply_grammar *g;
    reply_text out;
    int32_t begin, end, think, answer, args, quote; /* the markers that are special tokens; -1: they are text */
    bool no_memory;
    cl_status status;   /* of the schemas */
    size_t schema_work; /* cl_schema_options.work */
    cl_error *error;
} reply_writer;

/* Append text of the grammar; a literal, which is quoted; a marker with its special token, or -1; the name of a rule. */
void reply_put(reply_writer *w, const char *text);
void reply_put_literal(reply_writer *w, const char *text);
void reply_put_marker(reply_writer *w, const char *marker, int32_t id);
void reply_put_rule(reply_writer *w, const char *name, size_t i);

/* ---- Calls with values that are almost JSON: FunctionGemma's and Python's (reply_grammar_literal.c) ---- */

/* Append the text of tool i's call, the body of its rule, and rules for its arguments. */
void reply_put_literal_call(reply_writer *w, const json_t *function, size_t i);

/* Append the rules of the values. */
void reply_put_literal_values(reply_writer *w);

#endif

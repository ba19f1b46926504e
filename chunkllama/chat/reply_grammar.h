/*
 * Writes the grammar of the replies that call tools, in Lark's notation as llguidance reads it, so that names are those of
 * tools and arguments follow their JSON schemas. cl_reply_add finds the calls in each reply that it allows.
 */
#ifndef CHUNKLLAMA_CHAT_REPLY_GRAMMAR_H
#define CHUNKLLAMA_CHAT_REPLY_GRAMMAR_H

#include "chunkllama.h"
#include "chunkllama/text/tokenizer.h"
#include "reply.h"

typedef struct cl_reply_grammar {
    const cl_reply_format *format;
    const cl_tokenizer *tok;
    const json_t *tools;  /* that may be called, as in cl_reply_options; NULL: none, and there must be `answer` */
    bool required;        /* a reply consists of calls; otherwise of text, with or without calls */
    bool parallel;        /* several calls are allowed */
    bool reasons;         /* the reply may begin with reasoning, */
    bool in_reasoning;    /* or goes on with reasoning that the prompt has begun */
    const char *answer;   /* the grammar of a reply without calls, behind its reasoning; NULL: any text. `required`
                             overrides it */
    cl_grammar_kind kind; /* of `answer`: a JSON schema comes from cl_schema_rewrite; others go without tools */
    bool open;            /* cl_schema_options.open of the tools' schemas */
    char *weaker;         /* [CL_SCHEMA_WEAKER_BYTES] as cl_schema_rewrite fills it */
} cl_reply_grammar;

/*
 * Write a grammar to *text, terminated, for the caller to free. Schemas that are not `strict` are followed as far as grammars
 * can, others exactly, or they are refused. In the forms of FunctionGemma and Python arguments follow the names, types and
 * enums of the schema's properties, and nothing else of it. In those with tags, each argument follows the schema of its
 * property, but for strings, which follow their enum alone.
 *
 * CL_ERR_ARG and CL_ERR_LIMIT name the tool whose schema cannot be followed; CL_ERR_NOMEM.
 */
cl_status cl_reply_grammar_write(const cl_reply_grammar *grammar, char **text, cl_error *error);

/* Set *id to the special token that a text alone stands for in a template; -1: it stands for none. */
cl_status cl_reply_special_token(const cl_tokenizer *tok, const char *text, int32_t *id, cl_error *error);

/* Append the special tokens that are in a marker. */
cl_status cl_reply_special_tokens(const cl_tokenizer *tok, const char *marker, cl_token_list *ids, cl_error *error);

#endif

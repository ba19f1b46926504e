/*
 * Reads one tool call, byte by byte, in each of the syntaxes in which models write them, and writes its arguments as JSON.
 *
 * A reader is given the bytes behind the marker of a call. The call begins when its name and the beginning of its arguments
 * have been read; until then the reader's owner keeps the bytes, because they may turn out to be no call.
 */
#ifndef CHUNKLLAMA_CHAT_REPLY_CALL_H
#define CHUNKLLAMA_CHAT_REPLY_CALL_H

#include "reply.h"

/* ---- JSON text (reply_json.c) ---- */

/* Text that grows. Zero-initialise, free `data`. */
typedef struct reply_text {
    char *data; /* [size] */
    size_t size, capacity;
    bool no_memory; /* an allocation failed, and a part is missing */
} reply_text;

void reply_text_add(reply_text *t, const char *bytes, size_t size);

/* Append one byte of text as part of a JSON string: escaped if it must be. */
void reply_text_add_escaped(reply_text *t, char byte);

/* The role of a byte in the text that is read. */
typedef enum reply_verdict {
    REPLY_MORE,  /* it belongs to the text, which goes on */
    REPLY_WHOLE, /* it belongs to the text, which ends with it */
    REPLY_BROKEN /* it does not belong to the text */
} reply_verdict;

typedef enum reply_json_state {
    JSON_AT_VALUE,
    JSON_AT_FIRST_ITEM, /* a value or ] */
    JSON_AT_FIRST_KEY,  /* a key or } */
    JSON_AT_KEY,
    JSON_AT_COLON,
    JSON_AFTER_VALUE, /* a comma or the end of the object or array */
    JSON_IN_STRING,
    JSON_IN_ESCAPE,
    JSON_IN_LITERAL,
    JSON_IN_NUMBER
} reply_json_state;

/* A position in the text of one JSON object. Zero-initialise. */
typedef struct reply_json {
    reply_json_state state;
    int32_t depth;                             /* of open objects and arrays */
    uint8_t in_object[CL_REPLY_MAX_DEPTH / 8]; /* a bit for each of them */
    bool in_key;                               /* the string is a key */
    const char *literal;                       /* the rest of true, false or null */
    uint8_t n_hex;                             /* digits that are left of \uXXXX */
    uint8_t number;                            /* where in a number */
} reply_json;

/* Read one byte of an object, which begins with {. A control character in a string counts as part of it. */
reply_verdict reply_json_read(reply_json *j, char byte);

/* ---- Calls (reply_call.c) ---- */

typedef enum reply_call_state {
    CALL_OPEN, /* the beginning of the form */
    CALL_KEY,
    CALL_KEY_STRING,
    CALL_COLON,
    CALL_VALUE,
    CALL_NAME,
    CALL_SKIP, /* a string that does not count, such as an id */
    CALL_ARGUMENTS,
    CALL_AFTER_VALUE,
    CALL_TAG, /* Mistral's [ARGS] and [CALL_ID] */
    CALL_ID,
    CALL_WORD,      /* `word`, then the name */
    CALL_HEADER,    /* between the name and the marker of the arguments */
    CALL_PARAMETER, /* tags: between parameters */
    CALL_PARAMETER_KEY,
    CALL_PARAMETER_VALUE
} reply_call_state;

/* Zero-initialise with the options. The texts are freed by reply_call_free. */
typedef struct reply_call {
    const cl_reply_options *options;
    bool must_know; /* the name must be a tool's */
    enum {
        CALL_FORM_JSON,
        CALL_FORM_MISTRAL,
        CALL_FORM_NAMED,
        CALL_FORM_TAGS,
        CALL_FORM_GEMMA,
        CALL_FORM_PYTHON,
        CALL_FORM_RECIPIENT
    } form;
    reply_call_state state;
    bool begun; /* name and the arguments so far may be reported */
    bool has_arguments, named;
    const json_t *function; /* of the tool that is called; NULL: no tool has the name */
    reply_text name;        /* the owner empties it once it is reported */
    reply_text arguments;   /* JSON text that was not reported yet; the owner empties it once the call has begun */
    reply_text key;         /* that is being read; of a parameter or tag; the text behind a name */
    reply_text value;       /* of a parameter that may be something else than a string */
    reply_json json;        /* of the arguments */
    const char *word;       /* that is expected, of which n_matched bytes were read */
    size_t n_matched;       /* also of the end of a value */
    bool is_string;         /* in a string, in the forms without JSON */
    const json_t *schema;   /* tags: of the parameter; NULL: it has none */
    unsigned kinds;         /* tags: of values that it allows */
    bool newline;           /* tags: it is held back, because a value does not include its last one */
    bool value_begun;       /* tags: so that a newline is not the first one, which is not included either */
    size_t n_parameters;
    char quote; /* Python: the quote that ends the string */
    bool escaped;
} reply_call;

void reply_call_init(reply_call *c, const cl_reply_options *options, bool must_know);
void reply_call_free(reply_call *c);

/*
 * Read the next byte. REPLY_BROKEN: there is no call, or, if it has begun, it ends before this byte. REPLY_WHOLE before it has
 * begun: what was read is a marker of content.
 */
reply_verdict reply_call_read(reply_call *c, char byte);

/* Whether memory was lacking. */
bool reply_call_failed(const reply_call *c);

/* ---- Functions that the forms of calls share (reply_call.c), and the forms apart from JSON and Mistral's ---- */

static inline bool reply_is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

/* Go on in a state. */
reply_verdict reply_call_go(reply_call *c, reply_call_state state);

/* Add a byte to the name. */
reply_verdict reply_call_add_to_name(reply_call *c, char byte);

/* The name is whole; go on in state `next`. */
reply_verdict reply_call_end_name(reply_call *c, reply_call_state next);

/* Begin the arguments with a byte, which must be the brace of an object. */
reply_verdict reply_call_begin_arguments(reply_call *c, char byte);

/* Add JSON text to the arguments, which are whole with it if the verdict says so. */
reply_verdict reply_call_add_json(reply_call *c, const char *text, size_t size);

/* Whether a schema of one of a function's parameters allows strings (reply_call_tags.c). */
bool reply_may_be_string(const json_t *function, const json_t *schema);

/* Read a byte behind the name of the form. */
reply_verdict reply_tags_read(reply_call *c, char byte);   /* reply_call_tags.c */
reply_verdict reply_gemma_read(reply_call *c, char byte);  /* reply_call_literal.c */
reply_verdict reply_python_read(reply_call *c, char byte); /* reply_call_literal.c */

#endif

/*
 * Splits the text that a model writes into reasoning, content and tool calls, while it arrives.
 *
 * Models write tool calls as text, each family in its own form, between markers such as <tool_call>. Text that looks like the
 * beginning of a call, or of a marker, is held back until it is known what it is; a call begins when its name is known. What
 * turns out to be no call, because it is malformed, is content, as it stands. If a call turns out to be malformed once it has
 * begun, its arguments end there, and the rest is content. So nothing is lost and nothing appears twice, except markers, what
 * separates calls, and the white space beside them. Behind a call, the beginning of the marker of its end counts as the marker
 * if the reply ends there. How the text is cut into pieces does not matter.
 */
#ifndef CHUNKLLAMA_CHAT_REPLY_H
#define CHUNKLLAMA_CHAT_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/str.h"

/* ---- Formats (reply_formats.c) ---- */

/* How a call is written after its marker. */
typedef enum cl_reply_syntax {
    CL_REPLY_JSON,      /* {"name": ..., "arguments": {...}}, one or several, also as an array; or tags around each argument */
    CL_REPLY_NAMED,     /* NAME, text up to a marker, and {...} (gpt-oss, Kimi, DeepSeek) */
    CL_REPLY_TAGS,      /* NAME, and tags around each argument (GLM, MiniMax); or JSON */
    CL_REPLY_FUNCTION,  /* NAME>{...}</function>, behind <function= (Functionary 3.1) */
    CL_REPLY_RECIPIENT, /* NAME and {...} on the next line, behind >>> or where the reply begins; behind "all" content (3.2) */
    CL_REPLY_BARE,      /* JSON, also without the marker, if it is all that the model writes; the name must be a tool's */
    CL_REPLY_MISTRAL,   /* NAME[ARGS]{...}, or the array [{"name", "arguments"}, ...] of earlier models */
    CL_REPLY_PYTHON,    /* [NAME(key='text', key=1), ...], without a marker as all that the model writes, of tools' names */
    CL_REPLY_GEMMA,     /* call:NAME{key:QUOTEtextQUOTE,...} */
    CL_REPLY_N_SYNTAXES
} cl_reply_syntax;

enum { CL_REPLY_MAX_MARKER = 64 };

/* What models of any family write around JSON calls at times, instead of their template's markers. */
#define CL_REPLY_CALLS_BEGIN "<tool_calls>"
#define CL_REPLY_CALLS_END   "</tool_calls>"

/* The texts of a form in which each argument has tags of its own. Between them there may be white space. */
typedef struct cl_reply_tags {
    const char *begin, *named; /* around the function's name; named "": white space or a tag ends it */
    const char *key, *value;   /* before an argument's key, and between it and the value: a string as it is, or JSON */
    const char *value_end;
    const char *end; /* behind the last argument */
    bool lines;      /* a line end at the beginning and the end of a value does not count */
} cl_reply_tags;

/*
 * How the models of a family write. Markers are terminated; arrays of them are at most 63 bytes long, and pointers refer to
 * static text: "" where there is none. Lists end with NULL.
 */
typedef struct cl_reply_format {
    const char *name; /* of the family, static */
    cl_reply_syntax syntax;
    bool array;                            /* several calls are elements of one array */
    bool single;                           /* a reply has one call */
    bool tagged;                           /* of CL_REPLY_JSON: the template shows tags instead of JSON */
    const cl_reply_tags *tags;             /* of CL_REPLY_JSON, _FUNCTION and _TAGS */
    const char *function, *arguments, *id; /* the keys in JSON calls; id: NULL: none */
    const char *open, *close;              /* of CL_REPLY_NAMED: around each call, inside of begin and end */
    const char *prefix;                    /* of CL_REPLY_NAMED: before the name; may be left out */
    bool numbered;                         /* of CL_REPLY_NAMED: the name ends with :, and the call's number */
    const char *between;       /* of CL_REPLY_NAMED: text behind the name; its last marker is before the arguments */
    const char *quote;         /* of CL_REPLY_GEMMA: before and behind a string */
    const char *const *begins; /* with which a call begins at times, instead of `begin` */
    const char *const *around; /* around content, which are left out; the first one begins an answer. NULL: none */
    const char *resume;        /* between reasoning and what follows */
    bool rethinks;             /* reasoning may begin anywhere */
    char begin[CL_REPLY_MAX_MARKER], end[CL_REPLY_MAX_MARKER];    /* around each call; end "": none */
    char think[CL_REPLY_MAX_MARKER], answer[CL_REPLY_MAX_MARKER]; /* around reasoning, e.g. <think>, </think>; "": none */
    char stop[CL_REPLY_MAX_MARKER]; /* a special token behind the last call, with which the client would go on; "": none */
} cl_reply_format;

/*
 * Find the format that a chat template (Jinja) makes its model write. has_tools: the template itself writes tools; otherwise
 * they are described to the model in the form of Hermes and Qwen, <tool_call>{"name": ..., "arguments": ...}</tool_call>. True:
 * the template writes tools, but is of no known family; it gets that form, too, and should be probed.
 */
bool cl_reply_format_find(cl_str template, bool has_tools, cl_reply_format *format);

/* The call of which cl_reply_format_probe gets the text: its name, and its one argument and that one's value, a string. */
#define CL_REPLY_PROBE_NAME  "probe_name"
#define CL_REPLY_PROBE_KEY   "probe_key"
#define CL_REPLY_PROBE_VALUE "probe_value"

/*
 * Correct a format's markers, and the name of the arguments, by the text that the template makes of a chat in which the model
 * makes that call. Leaves the format unchanged if the text has no call in JSON.
 */
void cl_reply_format_probe(cl_str text, cl_reply_format *format);

/*
 * Marker i of all those that replies in the format may contain; NULL: there are no more. Where a marker is a special token of
 * the vocabulary, the text of a reply must show it.
 */
const char *cl_reply_format_marker(const cl_reply_format *format, size_t i);

/* ---- Replies (reply.c) ---- */

typedef enum cl_reply_kind {
    CL_REPLY_CONTENT,
    CL_REPLY_REASONING,
    CL_REPLY_CALL,     /* a call begins; the text is its name */
    CL_REPLY_ARGUMENTS /* more of a call's arguments, JSON text */
} cl_reply_kind;

typedef struct cl_reply_part {
    cl_reply_kind kind;
    int32_t call;     /* the call's index in the reply, from 0; of other kinds 0 */
    const char *text; /* [size] owned by the reply, until the next call of cl_reply_add */
    size_t size;
} cl_reply_part;

enum {
    CL_REPLY_MAX_CALLS = 128, /* further ones are content */
    CL_REPLY_MAX_NAME = 256,  /* bytes */
    CL_REPLY_MAX_HEADER = 96, /* bytes between the name and the arguments */
    CL_REPLY_MAX_DEPTH = 128, /* levels of nested objects and arrays in arguments */
    CL_REPLY_MAX_HELD = 65536 /* bytes of a call before its name */
};

typedef struct cl_reply_options {
    const cl_reply_format *format;
    const json_t *tools; /* OpenAI's array of tools: calls are split off; NULL: calls are content */
    bool required;       /* a grammar makes the reply consist of calls, so a call that is cut before its name is no content */
    bool constrained;    /* a grammar makes calls of these tools follow their schemas, if they begin as the format says; text
                            that begins like another form of calls is content */
    bool reasoning;      /* split reasoning off; otherwise it is content, with its markers */
    bool in_reasoning;   /* the prompt ends inside of reasoning */
} cl_reply_options;

typedef struct cl_reply cl_reply;

/* A reply without text; NULL if memory is lacking. Borrows format and tools until cl_reply_free. */
cl_reply *cl_reply_create(const cl_reply_options *options);
void cl_reply_free(cl_reply **reply);

/* Whether text that follows is split off as reasoning, unless it ends that. */
bool cl_reply_reasons(const cl_reply *reply);

/*
 * Add text [size], and set *parts [*n] to what can be said of it and of the text that was held back. last: no text follows, so
 * that nothing is held back any more. False: memory was lacking, now or before.
 */
bool cl_reply_add(cl_reply *reply, const char *text, size_t size, bool last, const cl_reply_part **parts, size_t *n);

#endif

/*
 * Renders chat templates: the subset of Jinja 2 that published templates are written in, as Transformers renders them
 * (ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, `tojson` without HTML escapes, and the
 * functions raise_exception and strftime_now).
 *
 * A template is foreign code, and so are its variables. It can only compute text from them: no file, no network, no memory
 * beyond a limit, no time beyond a limit. Each byte of the text carries its origin: it is the template's *own* (a literal of
 * the template, or a value in `own` below), or it comes from the caller, also after slicing, joining, replacing, changing case
 * or writing as JSON. The text that Jinja itself writes, such as the digits of a number and the braces of JSON, counts as the
 * caller's.
 *
 * Different from Jinja: integers have 64 bits, and a larger one of the caller can only be written; statements, filters, tests,
 * functions and methods that no published template uses, such as `with` and `raw`, recursive loops, template inheritance,
 * `include` and `import`, do not exist.
 */
#ifndef CHUNKLLAMA_JINJA_JINJA_H
#define CHUNKLLAMA_JINJA_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"
#include "chunkllama/text/prompt.h"

/* A compiled template. Immutable; any number of threads may render it at the same time. */
typedef struct cl_jinja cl_jinja;

/*
 * Compile a template, text [size], which is borrowed for the call. Free *t with cl_jinja_free; it is NULL after an error.
 *
 * CL_ERR_FORMAT: it is not UTF-8 or not Jinja; CL_ERR_UNSUPPORTED: it uses what this subset lacks; CL_ERR_LIMIT: it is too
 * large or nested too deeply; CL_ERR_NOMEM. Messages about the text begin with the line ("line 12: ...").
 */
cl_status cl_jinja_compile(const char *text, size_t size, cl_jinja **t, cl_error *error);

/* NULL is ignored; *t becomes NULL. */
void cl_jinja_free(cl_jinja **t);

typedef struct cl_jinja_options {
    int64_t now;              /* seconds since 1970 for strftime_now, which writes local time */
    size_t max_bytes;         /* of the rendered text, and of any text on the way to it */
    size_t max_memory;        /* bytes of all values while rendering */
    int64_t max_steps;        /* about 20 ns each: evaluations, and what is read, compared and written for them (run.h) */
    int64_t *n_steps;         /* is set to the steps that were taken; NULL: they are of no interest */
    int32_t max_depth;        /* nested evaluations, calls of macros, and levels of a value that is compared or written */
    const char *const *roles; /* [until NULL] the values of messages[i].role that are the template's own; NULL: none */
} cl_jinja_options;

/* now: 0; 16 MiB of text, 256 MiB of memory, 20 million steps (some 0.5 s), 400 levels; the roles of chats. */
void cl_jinja_options_init(cl_jinja_options *options);

/*
 * Render a template and append its text to *out, with the parts that are the template's own.
 *
 * variables: an object; the names that the template sees. Their strings are the caller's.
 * own:       an object, or NULL; further names, which hide variables of the same name. Their strings are the template's own,
 *            such as bos_token.
 *
 * All are borrowed for the call, and not changed. After an error *out is as it was.
 *
 * CL_ERR_ARG: the template refuses its variables (raise_exception, with its message), or does with them what Jinja does not
 * allow; CL_ERR_LIMIT names the limit; CL_ERR_NOMEM; the errors of the thread's deadline (chunkllama/common/deadline.h).
 * Messages begin with the line ("line 12: ...").
 */
cl_status cl_jinja_render(const cl_jinja *t, const json_t *variables, const json_t *own, const cl_jinja_options *options,
                          cl_prompt *out, cl_error *error);

#endif

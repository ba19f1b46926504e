/*
 * JSON schemas of clients, written as llguidance can follow them.
 *
 *   - An object with `properties` that does not say which others it may have, has no others. So it is in llama.cpp and vLLM,
 * since models, small ones above all, would go on with properties that nobody reads. What counts are the properties of one
 * object in all of allOf, $ref and the branches of anyOf and oneOf together.
 *   - Keywords that llguidance lacks are expressed by others, exactly or more strictly: oneOf, not, if, contains, ... What
 * cannot be expressed is refused, or left out.
 *   - An unknown `format` is an annotation, as JSON Schema says.
 *   - \d, \w and \s of patterns are ASCII's (regex.h).
 *
 * The result has no annotations, and every $ref of it names an entry of its $defs.
 */
#ifndef CHUNKLLAMA_SCHEMA_SCHEMA_H
#define CHUNKLLAMA_SCHEMA_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "chunkllama/common/error.h"

/* The white space of JSON, at most 20 characters: a blank, or line breaks with an indent. Small models would go on with it. */
#define CL_SCHEMA_SPACE " |\\n{1,2}[ \\t]{0,18}"

enum {
    CL_SCHEMA_MAX_WORK = 500000,    /* values and 32 bytes of their texts count each time they are looked at or written */
    CL_SCHEMA_MAX_DEPTH = 200,      /* subschemas, one in the other */
    CL_SCHEMA_MAX_MULTIPLE = 10000, /* the greatest multipleOf, in units of its last digit */
    CL_SCHEMA_WEAKER_BYTES = 1024,  /* all keywords fit */
};

typedef struct cl_schema_options {
    bool open;    /* an object that does not say which other properties it may have, may have any */
    bool lenient; /* leave out what cannot be expressed, and what is no JSON Schema; types may have the names of Python */
    size_t *work; /* the work for schemas before this one, to which this one's is added; NULL: it is the only one */
} cl_schema_options;

/*
 * Write a schema to *out, a new reference. weaker: [CL_SCHEMA_WEAKER_BYTES] a terminated list of keywords with commas
 * between them, which gets those that are left out or followed less strictly.
 *
 * CL_ERR_ARG names the keyword and the place of what is wrong, or cannot be expressed; CL_ERR_LIMIT; CL_ERR_NOMEM. *out is NULL
 * then. schema is borrowed, and lent to *out in parts, so neither may be changed before the other is freed.
 */
cl_status cl_schema_rewrite(const json_t *schema, const cl_schema_options *options, json_t **out, char *weaker,
                            cl_error *error);

/* Whether a schema has this type alone. */
static inline bool cl_schema_is_type(const json_t *schema, const char *name) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, name) == 0;
}

#endif

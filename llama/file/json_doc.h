/* A JSON file, and its fields with messages that name file, field and what is allowed. */
#ifndef LLAMA_FILE_JSON_DOC_H
#define LLAMA_FILE_JSON_DOC_H

#include <jansson.h>
#include <stdbool.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

/* Reading stops mattering at the first failure: the functions below then do nothing. Free with json_doc_close. */
typedef struct json_doc {
    char path[512]; /* for messages */
    json_t *root;   /* an object; NULL: the file is not there */
    cl_error *error;
    cl_status status;
} json_doc;

enum {
    JSON_DOC_REQUIRED = 1, /* it must be there */
    JSON_DOC_REALS = 2     /* its integers are read as reals, so that they may be of any size */
};

/* folder/name; where it is not there and not required, root is NULL and nothing has failed. how: JSON_DOC_*, or-ed. */
void json_doc_open(json_doc *doc, const char *folder, const char *name, unsigned how, cl_error *error);
void json_doc_close(json_doc *doc);

/* The first failure stays. */
#define json_doc_fail(doc, code, fmt, ...)                                                                                     \
    ((doc)->status == CL_OK ? (doc)->status = cl_fail((doc)->error, code, "%s: " fmt, (doc)->path, __VA_ARGS__) : (doc)->status)

/*
 * A field of an object; null counts as absent. The value, or NULL (and for a required field, or one of another type, a
 * failure). `where` names the object in messages: "" or "model.".
 */
typedef enum json_kind {
    JSON_KIND_INT,
    JSON_KIND_NUMBER,
    JSON_KIND_BOOL,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT
} json_kind;
const json_t *json_doc_field(json_doc *doc, const json_t *object, const char *where, const char *name, json_kind kind,
                             bool required);

/* The values of optional fields; what `otherwise` is where they are absent. */
bool json_doc_bool(json_doc *doc, const json_t *object, const char *where, const char *name, bool otherwise);
double json_doc_number(json_doc *doc, const json_t *object, const char *where, const char *name, double otherwise);
str json_doc_string(json_doc *doc, const json_t *object, const char *where, const char *name); /* empty where absent */

static inline str json_str(const json_t *string) { return (str){json_string_value(string), json_string_length(string)}; }

#endif

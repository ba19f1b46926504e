/* A JSON file, and its fields with messages that name file, field and what is allowed. */
#ifndef LLAMA_FILE_JSON_DOC_H
#define LLAMA_FILE_JSON_DOC_H

#include <jansson.h>
#include <stdbool.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

/* Reading stops mattering at the first failure: the functions below then do nothing. Free with cl_json_doc_close. */
typedef struct cl_json_doc {
    char path[512]; /* for messages */
    json_t *root;   /* an object; NULL: the file is not there */
    cl_error *error;
    cl_status status;
} cl_json_doc;

enum {
    CL_JSON_DOC_REQUIRED = 1, /* it must be there */
    CL_JSON_DOC_REALS = 2     /* its integers are read as reals, so that they may be of any size */
};

/* folder/name; where it is not there and not required, root is NULL and nothing has failed. how: JSON_DOC_*, or-ed. */
void cl_json_doc_open(cl_json_doc *doc, const char *folder, const char *name, unsigned how, cl_error *error);
void cl_json_doc_close(cl_json_doc *doc);

/* The first failure stays. */
#define json_doc_fail(doc, code, fmt, ...)                                                                                     \
    ((doc)->status == CL_OK ? (doc)->status = cl_fail((doc)->error, code, "%s: " fmt, (doc)->path, __VA_ARGS__) : (doc)->status)

/*
 * A field of an object; null counts as absent. The value, or NULL (and for a required field, or one of another type, a
 * failure). `where` names the object in messages: "" or "model.".
 */
typedef enum cl_json_kind {
    CL_JSON_KIND_INT,
    CL_JSON_KIND_NUMBER,
    CL_JSON_KIND_BOOL,
    CL_JSON_KIND_STRING,
    CL_JSON_KIND_ARRAY,
    CL_JSON_KIND_OBJECT
} cl_json_kind;
const json_t *cl_json_doc_field(cl_json_doc *doc, const json_t *object, const char *where, const char *name, cl_json_kind kind,
                                bool required);

/* The values of optional fields; what `otherwise` is where they are absent. */
bool cl_json_doc_bool(cl_json_doc *doc, const json_t *object, const char *where, const char *name, bool otherwise);
double cl_json_doc_number(cl_json_doc *doc, const json_t *object, const char *where, const char *name, double otherwise);
cl_str cl_json_doc_string(cl_json_doc *doc, const json_t *object, const char *where, const char *name); /* empty where absent */

static inline cl_str cl_json_str(const json_t *string) {
    return (cl_str){json_string_value(string), json_string_length(string)};
}

#endif

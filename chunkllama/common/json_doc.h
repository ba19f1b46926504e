/* A JSON file whose fields are read with messages that name the file, the field and what is allowed. */
#ifndef CHUNKLLAMA_COMMON_JSON_DOC_H
#define CHUNKLLAMA_COMMON_JSON_DOC_H

#include <jansson.h>
#include <stdbool.h>

#include "error.h"
#include "str.h"

/*
 * As json_loadb, but says whether memory was lacking: then *no_memory is true, `wrong` is undefined and the value NULL. Free
 * the value with json_decref.
 */
json_t *cl_json_parse(const char *text, size_t size, size_t flags, json_error_t *wrong, bool *no_memory);

/* A copy of an object or array, which shares its values; NULL if memory is lacking, which json_copy does not always notice. */
json_t *cl_json_copy(const json_t *value);

/* After the first failure the functions below do nothing, so it is enough to check `status` at the end. */
typedef struct cl_json_doc {
    char path[512];   /* for messages */
    json_t *root;     /* an object, owned; NULL: the file does not exist */
    cl_error *error;  /* borrowed; filled by the first failure */
    cl_status status; /* of the first failure; CL_OK: none */
} cl_json_doc;

enum {
    CL_JSON_DOC_REQUIRED = 1, /* the file must exist */
    CL_JSON_DOC_REALS = 2     /* integers are read as reals, so that they may have any size */
};

/*
 * Open folder/name. how: CL_JSON_DOC_*, or-ed. If the file does not exist and is not required, root is NULL and status CL_OK.
 * Call cl_json_doc_close after use and after a failure.
 */
void cl_json_doc_open(cl_json_doc *doc, const char *folder, const char *name, unsigned how, cl_error *error);
void cl_json_doc_close(cl_json_doc *doc);

/* Record a failure, unless there is one; the value is the status of the first one. */
#define cl_json_doc_fail(doc, code, fmt, ...)                                                                                  \
    ((doc)->status == CL_OK ? (doc)->status = cl_fail((doc)->error, code, "%s: " fmt, (doc)->path, __VA_ARGS__) : (doc)->status)

/*
 * The value of an object's field, borrowed from the document; null counts as absent. NULL if the field is absent or of another
 * kind; the latter is a failure, and so is the absence of a required field. where: the object in messages, such as "" or
 * "model.".
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

/* The values of optional fields; if they are absent, `otherwise` or an empty string. */
bool cl_json_doc_bool(cl_json_doc *doc, const json_t *object, const char *where, const char *name, bool otherwise);
double cl_json_doc_number(cl_json_doc *doc, const json_t *object, const char *where, const char *name, double otherwise);
cl_str cl_json_doc_string(cl_json_doc *doc, const json_t *object, const char *where, const char *name);

static inline cl_str cl_json_str(const json_t *string) {
    return (cl_str){json_string_value(string), json_string_length(string)};
}

#endif

/* Reads JSON files strictly: a member must not occur twice, and nothing may follow the object. */
#include "json_doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file_bytes.h"

/*
 * If jansson 2.14 cannot enlarge its buffer for a string, it does not notice, and reads beyond the buffer; other failures it
 * reports as invalid text. So the memory that it takes for a file is tried first: a buffer of up to 2 * size, its predecessor
 * of half that size, the strings, and as much for all else.
 */
json_t *cl_json_parse(const char *text, size_t size, size_t flags, json_error_t *wrong, bool *no_memory) {
    void *probe = malloc(8 * size);
    free(probe);
    *no_memory = !probe;
    json_t *root = probe ? json_loadb(text, size, flags, wrong) : NULL;
    if (probe && !root) *no_memory = wrong->text[0] == 0; /* it reports some failures without a text */
    return root;
}

json_t *cl_json_copy(const json_t *value) {
    const bool is_object = json_is_object(value);
    json_t *copy = is_object ? json_object() : json_array();
    const int failed = is_object ? json_object_update(copy, (json_t *)value) : json_array_extend(copy, (json_t *)value);
    if (!failed) return copy;
    json_decref(copy);
    return NULL;
}

void cl_json_doc_open(cl_json_doc *doc, const char *folder, const char *name, unsigned how, cl_error *error) {
    *doc = (cl_json_doc){.error = error};
    const int n = snprintf(doc->path, sizeof doc->path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof doc->path) {
        doc->status =
            cl_fail(error, CL_ERR_ARG, "%.100s...: a path of %d bytes; the limit is %zu", folder, n, sizeof doc->path - 1);
        return;
    }
    if (!(how & CL_JSON_DOC_REQUIRED) && access(doc->path, F_OK) != 0) return;
    cl_file_bytes bytes;
    cl_error cause;
    doc->status = cl_file_bytes_open(doc->path, &bytes, error);
    if (doc->status != CL_OK) return;
    if (cl_file_bytes_fetch(&bytes, bytes.size, &cause) != CL_OK) {
        cl_json_doc_fail(doc, cause.code, "%s", cause.message);
        cl_file_bytes_close(&bytes);
        return;
    }
    const size_t reals = how & CL_JSON_DOC_REALS ? JSON_DECODE_INT_AS_REAL : 0;
    json_error_t wrong;
    bool no_memory;
    doc->root = cl_json_parse((const char *)bytes.data, bytes.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | reals, &wrong,
                              &no_memory);
    if (no_memory)
        cl_json_doc_fail(doc, CL_ERR_NOMEM, "no memory to parse its %zu bytes", bytes.size);
    else if (!doc->root)
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "line %d, column %d: %s%s", wrong.line, wrong.column, wrong.text,
                         json_error_code(&wrong) == json_error_premature_end_of_input ? CL_CUT_SHORT : "");
    else if (!json_is_object(doc->root))
        cl_json_doc_fail(doc, CL_ERR_FORMAT, "%s", "it must be an object");
    cl_file_bytes_close(&bytes);
}

void cl_json_doc_close(cl_json_doc *doc) {
    json_decref(doc->root);
    doc->root = NULL;
}

static bool is_kind(const json_t *value, cl_json_kind kind) {
    switch (kind) {
    case CL_JSON_KIND_INT: return json_is_integer(value);
    case CL_JSON_KIND_NUMBER: return json_is_number(value);
    case CL_JSON_KIND_BOOL: return json_is_boolean(value);
    case CL_JSON_KIND_STRING: return json_is_string(value);
    case CL_JSON_KIND_ARRAY: return json_is_array(value);
    case CL_JSON_KIND_OBJECT: return json_is_object(value);
    }
    return false;
}

const json_t *cl_json_doc_field(cl_json_doc *doc, const json_t *object, const char *where, const char *name, cl_json_kind kind,
                                bool required) {
    static const char *const kinds[] = {"an integer", "a number", "true or false", "a string", "an array", "an object"};
    if (doc->status != CL_OK) return NULL;
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value)) {
        if (required) cl_json_doc_fail(doc, CL_ERR_FORMAT, "%s%s is missing; it must be %s", where, name, kinds[kind]);
        return NULL;
    }
    if (is_kind(value, kind)) return value;
    cl_json_doc_fail(doc, CL_ERR_FORMAT, "%s%s must be %s", where, name, kinds[kind]);
    return NULL;
}

bool cl_json_doc_bool(cl_json_doc *doc, const json_t *object, const char *where, const char *name, bool otherwise) {
    const json_t *value = cl_json_doc_field(doc, object, where, name, CL_JSON_KIND_BOOL, false);
    return value ? json_is_true(value) : otherwise;
}

double cl_json_doc_number(cl_json_doc *doc, const json_t *object, const char *where, const char *name, double otherwise) {
    const json_t *value = cl_json_doc_field(doc, object, where, name, CL_JSON_KIND_NUMBER, false);
    return value ? json_number_value(value) : otherwise;
}

cl_str cl_json_doc_string(cl_json_doc *doc, const json_t *object, const char *where, const char *name) {
    const json_t *value = cl_json_doc_field(doc, object, where, name, CL_JSON_KIND_STRING, false);
    return value ? cl_json_str(value) : (cl_str){"", 0};
}

/* Checks texts of grammars against limits: see grammar_limits.h. */
#include "grammar_limits.h"

#include <math.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"
#include "grammar_counts.h"

static cl_status fail_memory(cl_error *error) { return cl_fail(error, CL_ERR_NOMEM, "no memory for a grammar"); }

static cl_status check_pattern(double size, cl_error *error) {
    if (size <= CL_LIMIT_PATTERN) return CL_OK;
    return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has a regular expression of %.6g bytes; it may have %d: simplify it",
                         size, CL_LIMIT_PATTERN);
}

static cl_status check_nested(double product, cl_error *error) {
    if (product <= CL_LIMIT_COUNTS) return CL_OK;
    return cl_fail_field(
        error, CL_ERR_LIMIT, "grammar",
        "has repetitions in each other whose counts multiply to %.6g; at most %d is allowed: use smaller counts, or *", product,
        CL_LIMIT_COUNTS);
}

/* ---- JSON schemas ---- */

/* The largest counts so far. */
typedef struct counts {
    size_t n_members;       /* of the largest object */
    size_t n_pattern_bytes; /* of all patterns */
    double pattern;         /* bytes of the longest pattern */
    double nested;          /* product of counts that stand in each other in a pattern */
    double multiple;        /* of all multipleOf of one value; 0: there is none */
    double multiples;       /* the sum of all */
    const json_t *schema;   /* that is read */
    size_t n_visits;        /* of its parts, for multiples */
    bool no_memory;
} counts;

static void count_pattern(counts *c, const char *text, size_t size) {
    c->pattern = fmax(c->pattern, (double)size);
    c->n_pattern_bytes += size;
    const double nested = cl_nested_counts_of_regex(text, size);
    if (nested > c->nested) c->nested = nested;
}

enum { MAX_VISITS = 100000, MAX_DEPTH = 100 }; /* beyond them, schemas in schemas are not looked at */
enum { BYTES_OF_VISIT = 32 };                  /* of a reference */

/* The part of the schema that a reference such as "#/$defs/a" names, if it has no escapes; NULL: there is none. */
static const json_t *resolve(counts *c, const json_t *reference) {
    const json_t *schema = c->schema;
    const char *at = json_is_string(reference) ? json_string_value(reference) : "";
    c->n_visits += json_string_length(reference) / BYTES_OF_VISIT;
    if (*at++ != '#') return NULL;
    while (schema && *at == '/') {
        const size_t n = strcspn(++at, "/");
        schema = json_object_getn(schema, at, n);
        at += n;
    }
    return schema;
}

static double multiple_of(counts *c, const json_t *schema, int depth);

static double join(double a, double b) { return cl_common_multiple(a, b, CL_LIMIT_MULTIPLE); }

/* Of schemas that hold together, or of the largest one. */
static double multiple_of_array(counts *c, const json_t *schemas, bool together, int depth) {
    const json_t *schema;
    double multiple = 0;
    size_t i;
    json_array_foreach(schemas, i, schema) {
        const double next = multiple_of(c, schema, depth);
        multiple = together ? join(multiple, next) : fmax(multiple, next);
    }
    return multiple;
}

/*
 * The least common multiple of all multipleOf that hold for one value: of a schema, of those that it combines by allOf or names
 * by $ref, and of its largest alternative. 0: there is none.
 */
static double multiple_of(counts *c, const json_t *schema, int depth) {
    const json_t *number = json_object_get(schema, "multipleOf");
    double multiple = json_is_number(number) ? join(0, json_number_value(number)) : 0;
    if (!json_is_object(schema) || depth == MAX_DEPTH || ++c->n_visits > MAX_VISITS) return multiple;
    multiple = join(multiple, multiple_of(c, resolve(c, json_object_get(schema, "$ref")), depth + 1));
    multiple = join(multiple, multiple_of_array(c, json_object_get(schema, "allOf"), true, depth + 1));
    multiple = join(multiple, multiple_of_array(c, json_object_get(schema, "anyOf"), false, depth + 1));
    return join(multiple, multiple_of_array(c, json_object_get(schema, "oneOf"), false, depth + 1));
}

/* Keys that have a regular expression as their value. */
static bool is_pattern(const char *key) { return strcmp(key, "pattern") == 0 || strcmp(key, "whitespace_pattern") == 0; }

/* Nesting is bounded by jansson's parser. */
static void count(json_t *value, counts *c) {
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_object(value) && json_object_size(value) > c->n_members) c->n_members = json_object_size(value);
    c->multiple = fmax(c->multiple, multiple_of(c, value, 0));
    const json_t *own = json_object_get(value, "multipleOf");
    if (json_is_number(own)) c->multiples += join(0, json_number_value(own));
    json_object_foreach(value, key, member) {
        if (is_pattern(key) && json_is_string(member)) count_pattern(c, json_string_value(member), json_string_length(member));
        if (strcmp(key, "patternProperties") == 0)
            for (void *at = json_object_iter(member); at; at = json_object_iter_next(member, at))
                count_pattern(c, json_object_iter_key(at), strlen(json_object_iter_key(at)));
        count(member, c);
    }
    json_array_foreach(value, i, member) count(member, c);
}

static void count_schema(json_t *schema, counts *c) {
    c->schema = schema;
    count(schema, c);
    json_decref(schema);
}

static cl_status check_counts(const counts *c, cl_error *error) {
    if (c->no_memory) return fail_memory(error);
    if (c->n_members > CL_LIMIT_MEMBERS)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has an object of %zu members; it may have %d: simplify it",
                             c->n_members, CL_LIMIT_MEMBERS);
    if (c->n_pattern_bytes > CL_LIMIT_PATTERNS)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has patterns of %zu bytes; they may have %d: simplify them",
                             c->n_pattern_bytes, CL_LIMIT_PATTERNS);
    if (c->multiple > CL_LIMIT_MULTIPLE)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "has multipleOf with a common multiple above %d for one value: use smaller numbers, or check the "
                             "value in your program",
                             CL_LIMIT_MULTIPLE);
    if (c->multiples > CL_LIMIT_MULTIPLES)
        return cl_fail_field(
            error, CL_ERR_LIMIT, "grammar",
            "has multipleOf with a sum above %d: use smaller or fewer ones, or check the values in your program",
            CL_LIMIT_MULTIPLES);
    const cl_status status = check_nested(c->nested, error);
    return status == CL_OK ? check_pattern(c->pattern, error) : status;
}

static cl_status check_schema(const char *text, size_t size, cl_error *error) {
    json_error_t problem;
    counts c = {0};
    json_t *schema =
        cl_json_parse(text, size, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &problem, &c.no_memory);
    if (!schema && !c.no_memory)
        return cl_refuse(error, "grammar", "is not a schema in JSON: %s in line %d, column %d", problem.text, problem.line,
                         problem.column);
    count_schema(schema, &c);
    return check_counts(&c, error);
}

/* ---- Lark grammars ---- */

/* Count what is in the schema behind a %json, which the grammar goes on behind. */
static void count_json(void *ctx, const char *json, size_t size) {
    counts *c = ctx;
    json_error_t problem;
    bool no_memory;
    const size_t flags = JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    count_schema(cl_json_parse(json, size, flags, &problem, &no_memory), c);
    c->no_memory |= no_memory;
}

static cl_status check_lark(const char *text, size_t size, cl_error *error) {
    counts c = {0};
    cl_lark_counts lark;
    if (size > CL_LIMIT_LARK_BYTES)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has %zu bytes; in Lark it may have %d: simplify it", size,
                             CL_LIMIT_LARK_BYTES);
    if (!cl_count_lark(text, size, count_json, &c, &lark)) return fail_memory(error);
    if (lark.n_same > CL_MAX_SAME)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "has %zu definitions of one name; it may have %d: use other names",
                             lark.n_same, CL_MAX_SAME);
    if (lark.too_deep)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "has definitions that are in each other more than %d times: simplify it", CL_MAX_DEPTH);
    c.pattern = fmax(c.pattern, lark.pattern);
    c.nested = fmax(c.nested, lark.nested);
    return check_counts(&c, error);
}

cl_status cl_grammar_check(cl_grammar_kind kind, const char *text, size_t size, cl_error *error) {
    if (cl_utf8_valid(text, size) < size || memchr(text, 0, size))
        return cl_refuse(error, "grammar", "is not UTF-8, or contains a zero character");
    if (kind == CL_GRAMMAR_JSON_SCHEMA) return check_schema(text, size, error);
    if (kind == CL_GRAMMAR_LARK) return check_lark(text, size, error);
    const cl_status status = check_pattern((double)size, error);
    return status == CL_OK ? check_nested(cl_nested_counts_of_regex(text, size), error) : status;
}

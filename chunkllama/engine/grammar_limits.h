/*
 * Limits of grammars' texts beyond those of their engine. Its time grows with the square of some numbers: of the properties of
 * an object in a JSON schema, and of the bytes of a regular expression. A terminal of a Lark grammar is a regular expression in
 * which other terminals stand, and may be exponentially longer than its text. Numbers that multiply each other
 * (grammar_counts.h) multiply the time and the memory of a compilation, which nothing in the engine interrupts.
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_LIMITS_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_LIMITS_H

#include <stddef.h>

#include "chunkllama/common/error.h"
#include "chunkllama/schema/schema.h"

enum {
    CL_LIMIT_MEMBERS = 1000,         /* members of an object in a schema */
    CL_LIMIT_PATTERN = 4 * 1024,     /* bytes of one regular expression, with the terminals that stand in it */
    CL_LIMIT_PATTERNS = 16 * 1024,   /* bytes of all patterns in a schema */
    CL_LIMIT_LARK_BYTES = 64 * 1024, /* bytes of a Lark grammar */
    CL_LIMIT_MULTIPLE =
        CL_SCHEMA_MAX_MULTIPLE, /* least common multiple of all multipleOf of one value, of which each unit is a state */
    CL_LIMIT_MULTIPLES = 50000, /* sum of the multipleOf of all values */
    CL_LIMIT_COUNTS = 100000,   /* product of counts that stand in each other */
};

/*
 * Check the text [size] of a grammar. CL_ERR_ARG: it is not UTF-8, or not JSON where it must be; CL_ERR_LIMIT names the limit
 * and the number; CL_ERR_NOMEM.
 */
cl_status cl_grammar_check(cl_grammar_kind kind, const char *text, size_t size, cl_error *error);

#endif

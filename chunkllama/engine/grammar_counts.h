/*
 * Numbers in the text of a grammar that multiply each other, and with them the time of its compilation: counts of repetitions
 * that stand in each other, such as 50,000 in (x{1,100}){500}, the multipleOf of one value, and terminals of Lark, which are
 * regular expressions in which others stand.
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_COUNTS_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_COUNTS_H

#include <stdbool.h>
#include <stddef.h>

/* The largest product of counts in each other of a regular expression; 1: none are. */
double cl_nested_counts_of_regex(const char *text, size_t size);

/* What is counted in a Lark grammar, also through the rules and terminals that are named in it; recursion is not followed. */
typedef struct cl_lark_counts {
    double nested;  /* as of a regular expression */
    double pattern; /* bytes of the longest regular expression or terminal, with the terminals that stand in it */
    size_t n_same;  /* definitions of the name that has most */
    bool too_deep;  /* definitions are in each other, more than CL_MAX_DEPTH */
} cl_lark_counts;

/* Grammars that stand in each other may define a name several times, and each use of it is one of all of these. */
enum { CL_MAX_SAME = 64 }; /* if there are more, nothing else is counted */
/* Each of such definitions is a call within the last one, for which a thread's stack may have 128 KiB (musl). */
enum { CL_MAX_DEPTH = 300 };

/* on_json is called with what follows each %json, up to the end of its definition. False: memory is lacking. */
bool cl_count_lark(const char *text, size_t size, void (*on_json)(void *ctx, const char *json, size_t size), void *ctx,
                   cl_lark_counts *counts);

/*
 * The least common multiple of `multiple` (0: none yet) and the digits of a number, such as 25 of 0.25, or a number beyond
 * `limit`.
 */
double cl_common_multiple(double multiple, double number, double limit);

#endif

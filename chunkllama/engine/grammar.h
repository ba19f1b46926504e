/*
 * The seam to a grammar engine, which knows which tokens may follow in a completion that must match a grammar.
 *
 *   library   the engine with a vocabulary; one for each cl_engine
 *   grammar   the compiled form of a request's text
 *   matcher   the place of one completion in its grammar
 *
 * The engine behind it is llguidance (grammar_llguidance.c). Another one takes its place by another cl_grammar_open. What a
 * choice does with its matcher is in constraint.h: tokens are only added that have been drawn, so nothing is taken back.
 *
 * A mask is a set of tokens: bit id % 32 of word id / 32 is token id's.
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_H

#include "chunkllama/text/tokenizer.h"

enum { CL_FORCED_MAX = 32 }; /* most tokens of a run of forced ones */

/*
 * A matcher is used by one thread at a time. It is a function of its grammar and of the tokens that it was given: what it
 * answers depends on nothing else. After a function has failed, only explain and free may be called.
 *
 * A matcher may be late: a function that needs an answer which does not come by the time `until` fails like any other, but
 * is_late is true then. The same call is to be made again, until it is not late, before any other but free.
 */
typedef struct cl_matcher cl_matcher;
struct cl_matcher {
    /*
     * Write the mask of the tokens that may come next, among them all end tokens where the completion may end. At least one
     * bit is set. False: it failed.
     */
    bool (*get_mask)(cl_matcher *m, uint32_t *mask);
    /* Add the next token, which must be in the mask or forced. False: it failed, which the next call may be the first to say.
     */
    bool (*advance)(cl_matcher *m, int32_t token);
    /* Add the next token, which is no end token, if it may come; *allowed says whether. False: it failed. */
    bool (*try_advance)(cl_matcher *m, int32_t token, bool *allowed);
    /*
     * The tokens [CL_FORCED_MAX] that must come next, since only one text is possible, as far as there is room for them;
     * returns their number, or -1: it failed.
     */
    int32_t (*get_forced)(cl_matcher *m, int32_t *tokens);
    /* How many of the tokens [n] may come next, one after the other. 0 if it fails. */
    int32_t (*count_valid)(cl_matcher *m, const int32_t *tokens, int32_t n);
    /* Whether the completion matches and nothing can follow, not even an end token. */
    bool (*is_complete)(cl_matcher *m);
    /* Say in *error why a function has failed; returns its code. */
    cl_status (*explain)(cl_matcher *m, cl_error *error);
    void (*free)(cl_matcher *m);
    /*
     * Say that the next function called with each of these n matchers, which are all of one library and different, is
     * try_advance with the token beside it, so that many questions may be asked at once, and their answers are awaited as
     * long as any of them may be. The array is scratch from then on. NULL: that would be no faster.
     */
    void (*foresee)(cl_matcher **matchers, const int32_t *tokens, int32_t n);
    /* Whether the function that was called last is to be called again. NULL: a matcher is never late. */
    bool (*is_late)(cl_matcher *m);
    /* Whether the answer is there that it needs, so that it will not be late. */
    bool (*has_answer)(cl_matcher *m);
    /* Wait until one of these n >= 1 matchers, which are late and of one library, gets its answer, or until a time. */
    void (*wait)(cl_matcher *const *matchers, int32_t n, double until);
    double until; /* by clock_seconds(); INFINITY unless the caller sets it */
};

/* Any number of threads. */
typedef struct cl_grammar cl_grammar;
struct cl_grammar {
    /* A matcher at the grammar's beginning, a clone of the one that was compiled. NULL if memory is lacking. */
    cl_matcher *(*start)(cl_grammar *g);
    /* No matcher of it may be left. */
    void (*free)(cl_grammar *g);
};

/* Any number of threads. */
typedef struct cl_grammar_library cl_grammar_library;
struct cl_grammar_library {
    /*
     * Compile the text [size] of a grammar for a request of a domain, which is borrowed for the call. Ends within a few
     * seconds, whatever the text is. CL_ERR_ARG says what is wrong with it; CL_ERR_LIMIT: it is too complex; CL_ERR_NOMEM.
     * *grammar is NULL then.
     */
    cl_status (*compile)(cl_grammar_library *l, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size,
                         cl_grammar **grammar, cl_error *error);
    /* No grammar of it may be left. */
    void (*free)(cl_grammar_library *l);
};

/*
 * Load the engine's shared object, as cl_engine_config.grammar_library names it, for a model of n_vocab tokens. tok is borrowed
 * until the library is freed. is_alone: the process does nothing else, so it starts no thread, and its limits end what takes
 * too long. CL_ERR_FILE: it cannot be loaded; CL_ERR_UNSUPPORTED: it is not the engine, or too old a version; CL_ERR_NOMEM.
 * *library is NULL then.
 */
typedef cl_status cl_grammar_open_fn(const char *path, const cl_tokenizer *tok, int32_t n_vocab, bool is_alone,
                                     cl_grammar_library **library, cl_error *error);
cl_grammar_open_fn cl_grammar_open;

/* Whether the system's search for libraries finds the engine's shared object under its usual name, which is *name then. */
bool cl_grammar_find(const char **name);

/* The words of a mask. */
static inline size_t cl_mask_words(int32_t n_vocab) { return ((size_t)n_vocab + 31) / 32; }
static inline bool cl_mask_has(const uint32_t *mask, int32_t token) { return mask[token / 32] >> (token % 32) & 1; }

#endif

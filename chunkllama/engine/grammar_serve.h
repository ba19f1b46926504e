/* What runs in the process of a grammar: it compiles one grammar and answers for its matchers, as grammar_wire.h says. */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_SERVE_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_SERVE_H

#include "grammar.h"

/*
 * Limits of such a process, and of all together. The CPU time of a grammar's answers, for all of its choices, is limited for
 * each step and over the life of the process, and that of a domain's grammars for each step: so what one tenant can take from
 * the others is bounded, however many choices and grammars it has. A step is what the engine asks at once, which has its
 * answers perhaps during later steps of the engine. Waiting times are by the clock on the wall: a process may hang without
 * using CPU time.
 */
typedef struct cl_process_limits {
    size_t memory_bytes;      /* by which its data may grow */
    size_t all_memory_bytes;  /* by which all processes may grow, together, and what is compiled at the time */
    double compile_s;         /* CPU time of a compilation with the first mask */
    double answer_s, first_s; /* CPU time of the answers of a step, and of all answers, beside the next */
    double domain_s;          /* the same of the answers of a step to all grammars of a domain */
    double question_s;        /* CPU time that each question adds to the three */
    double compile_wait_s, answer_wait_s;
} cl_process_limits;

extern const cl_process_limits cl_process_defaults;

enum { CL_EXIT_TIME = 64 }; /* the exit status of a process whose grammar has used up its CPU time */

/* Serve requests from a socket until the other side closes it. */
void cl_grammar_serve(int fd, cl_grammar_library *library, int32_t n_vocab, const cl_process_limits *limits);

#endif

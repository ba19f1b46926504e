/*
 * What the engine and the process of a grammar send each other over a stream socket, in the layout of this machine: the engine
 * a request, the process the reply to it, and so on. The process also has the engine's code in it, so both have the same
 * structs. What a reply says is not trusted: its numbers are checked before they are used.
 *
 *   request   cl_wire_request, then `size` bytes: the text of the grammar, or n questions
 *   question  cl_wire_question, then its tokens
 *   reply     for the text, a cl_error, or n answers; then cl_wire_reply
 *   answer    cl_wire_answer, then a cl_error if it failed, then a mask if it has one
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_WIRE_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_WIRE_H

#include <stdint.h>

#include "grammar.h"

enum { CL_WIRE_TEXT_KINDS = CL_GRAMMAR_LARK + 1, CL_WIRE_QUESTIONS = CL_WIRE_TEXT_KINDS };

typedef struct cl_wire_request {
    uint32_t kind; /* a cl_grammar_kind: compile; or CL_WIRE_QUESTIONS */
    uint32_t n;    /* questions */
    uint64_t size;
} cl_wire_request;

/* What a question asks of its matcher, in this order. */
enum {
    CL_ASK_VALID = 1, /* how many of the tokens checked may come next, one after the other */
    CL_ASK_TRY = 2,   /* to add the token checked if it may come; otherwise for the mask */
    CL_ASK_MASK = 4,
    CL_ASK_STATE = 8, /* whether the completion is complete, and which tokens are forced */
    CL_ASK_END = 16,  /* to be freed; there is no answer */
};

typedef struct cl_wire_question {
    uint32_t matcher; /* its number; a new one is started at the grammar's beginning */
    uint32_t asks;
    uint32_t n_added, n_checked; /* tokens that are added first, and that are asked about */
} cl_wire_question;

typedef struct cl_wire_reply {
    uint64_t memory_bytes; /* by which the process has grown */
    double cpu_s;          /* that it took for this reply */
} cl_wire_reply;

typedef struct cl_wire_answer {
    uint8_t failed, allowed, has_mask, is_complete; /* 0: no. A bool may hold no other byte than 0 or 1 */
    int32_t n_valid, n_forced;
    int32_t forced[CL_FORCED_MAX];
} cl_wire_answer;

/* Read or write all bytes, however long it takes. False: the other side has closed the socket. */
bool cl_wire_read(int fd, void *bytes, size_t size);
bool cl_wire_write(int fd, const void *bytes, size_t size);

/* Whether there is something to read, or the other side has closed the socket, before the time `until` and the deadline. */
bool cl_wire_wait(int fd, double until);

/*
 * The same on a socket that does not block, but only until the time `until`, by clock_seconds(), or the calling thread's
 * deadline. False also if it has passed, which *late says.
 */
bool cl_wire_read_until(int fd, void *bytes, size_t size, double until, bool *late);
bool cl_wire_write_until(int fd, const void *bytes, size_t size, double until, bool *late);

#endif

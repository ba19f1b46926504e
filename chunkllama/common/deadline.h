/*
 * The time by which a thread must be done with what it does for a request: reading it, rendering its chat, splitting it into
 * tokens and compiling its grammar, together. The code that runs a request on a thread sets the thread's deadline, and each
 * loop whose length a client chooses looks at it. A thread without a deadline has no limit.
 */
#ifndef CHUNKLLAMA_COMMON_DEADLINE_H
#define CHUNKLLAMA_COMMON_DEADLINE_H

#include <stdatomic.h>

#include "error.h"

typedef struct cl_deadline {
    double limit_s;          /* seconds that it may take; for messages */
    double at;               /* when they are over, by clock_seconds() */
    const atomic_bool *stop; /* if it becomes true, the deadline has passed; NULL: only time counts */
} cl_deadline;

/* The deadline of the calling thread from now on; NULL: none. Borrowed until the next call. */
void cl_deadline_set(const cl_deadline *deadline);

/* Whether the calling thread has a deadline that has passed. */
bool cl_deadline_passed(void);

/* The seconds that the calling thread's deadline allows; there must be one. */
double cl_deadline_limit(void);

/* CL_OK, or, if the deadline has passed, an error that says so: CL_ERR_LIMIT, or CL_ERR_BUSY if it was stopped. */
cl_status cl_deadline_check(cl_error *error);

/* The same at every 4096th turn of a loop, which a turn of up to a microsecond need not look at more often. */
static inline cl_status cl_deadline_look(size_t turn, cl_error *error) {
    return turn % 4096 == 4095 ? cl_deadline_check(error) : CL_OK;
}

#endif

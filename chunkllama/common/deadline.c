/* The calling thread's deadline: see deadline.h. */
#include "deadline.h"

#include "chunkattn/base/clock.h"

static _Thread_local const cl_deadline *current;

void cl_deadline_set(const cl_deadline *deadline) { current = deadline; }

static bool is_stopped(void) { return current && current->stop && atomic_load_explicit(current->stop, memory_order_relaxed); }

bool cl_deadline_passed(void) { return current && (is_stopped() || clock_seconds() >= current->at); }

double cl_deadline_limit(void) { return current->limit_s; }

cl_status cl_deadline_check(cl_error *error) {
    if (!cl_deadline_passed()) return CL_OK;
    if (is_stopped()) return cl_fail(error, CL_ERR_BUSY, "the request was stopped while it was prepared: send it again later");
    return cl_fail(error, CL_ERR_LIMIT, "the request takes longer to prepare than the %g s that it may: shorten it",
                   current->limit_s);
}

/* What a cache and foreign pages are set up with, and the check of views that both get. */
#ifndef CHUNKATTN_API_SETUP_H
#define CHUNKATTN_API_SETUP_H

#include "chunkattn.h"
#include "chunkattn/attn/attn.h"
#include "chunkattn/base/threads.h"
#include "chunkattn/cache/plan.h"

/*
 * *level is the highest level that the caller (`highest`; NULL: any), CATTN_LEVEL and the CPU allow.
 * CATTN_ERR_ARG for an unknown name; CATTN_ERR_UNSUPPORTED where the CPU lacks the caller's level.
 */
cattn_status ca_setup_level(const char *highest, int *level, cattn_error *error);

/* *parallel: the caller's, or that of new threads in *threads, which is left alone otherwise. */
cattn_status ca_setup_threads(const cattn_config *config, ca_pool **threads, cattn_parallel *parallel, cattn_error *error);

/* How a plan is made, for a layer without a window. */
ca_plan_config ca_setup_plan(const cattn_config *config, const ca_attn *attn);

/* Check a view of n_rows rows; `name` is the argument's, for the message. */
cattn_status ca_check_view(const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads, int32_t dim,
                           cattn_error *error);

#endif

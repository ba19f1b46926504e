/* Names options in errors: of their values, and of the engine's fields that they set. */
#include <string.h>

#include "options.h"

/* The options that set fields of cl_engine_config. */
static const struct {
    const char *field, *option;
} names[] = {
    {"chunk_size", "--chunk-size"},
    {"grammar_library", "--grammar-library"},
    {"kv_budget_bytes", "--kv-budget"},
    {"kv_tier_bytes", "--kv-tier-size"},
    {"kv_tier_dir", "--kv-tier"},
    {"kv_type", "--kv-type"},
    {"max_queued_requests", "--max-queued-requests"},
    {"max_queued_tokens", "--max-queued-tokens"},
    {"max_seqs", "--max-seqs"},
    {"max_step_rows", "--max-step-rows"},
    {"n_ctx", "--ctx"},
    {"pin_bytes", "--pin-budget"},
    {"prefill_segment", "--prefill-segment"},
    {"retention", "--retention"},
    {"sharing", "--sharing"},
    {"target_itl_s", "--target-itl"},
};

cl_status options_name_field(cl_error *error) {
    const cl_error cause = *error;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].field, cause.field) == 0)
            cl_fail(error, cause.code, "%s%s", names[i].option, cause.message + strlen(cause.field));
    return cause.code;
}

cl_status option_fail(const char *name, cl_error *error) {
    const cl_error cause = *error;
    return cl_fail(error, cause.code, "--%s: %s", name, cause.message);
}

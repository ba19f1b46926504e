/* Names options in errors: of their values, and of the library's fields that they set. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "options.h"

/* Fields of cl_engine_config and cattn_config, and their values, in the words of the command line. */
static const struct {
    const char *field, *option;
} names[] = {
    {"CATTN_PRIVATE", "private"},
    {"CATTN_RETAIN_NONE", "none"},
    {"budget_bytes", "--kv-budget"},
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
    {"prefill_piece", "--prefill-piece"},
    {"retention", "--retention"},
    {"sharing", "--sharing"},
    {"target_itl_s", "--target-itl"},
    {"tier_bytes", "--kv-tier-size"},
    {"tier_dir", "--kv-tier"},
};

/* The length of the word that a text begins with, up to what cannot be in a name. */
static size_t word_size(const char *text) {
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("_/.-", text[n]))) n++;
    return n;
}

/* The option in place of a word [n], static, or NULL. A path is one word, so its parts stay what they are. */
static const char *option_of(const char *word, size_t n) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].field) == n && memcmp(names[i].field, word, n) == 0) return names[i].option;
    return NULL;
}

void options_name_fields(cl_error *error) {
    const cl_error cause = *error;
    size_t used = 0;
    for (const char *at = cause.message; *at && used < sizeof error->message;) {
        const size_t n_word = word_size(at), n = n_word ? n_word : 1;
        const char *option = option_of(at, n);
        used += (size_t)snprintf(error->message + used, sizeof error->message - used, "%.*s",
                                 option ? (int)strlen(option) : (int)n, option ? option : at);
        at += n;
    }
}

cl_status option_fail(const char *name, cl_error *error) {
    const cl_error cause = *error;
    return cl_fail(error, cause.code, "--%s: %s", name, cause.message);
}

/* Counts the tokens of a choice's reasoning, and forces its end: see reasoning.h. */
#include "reasoning.h"

#include <string.h>

enum { MOST_WAIT = 3 }; /* tokens for which an unfinished character delays the end: it lacks at most so many bytes */

cl_reasoning cl_reasoning_begin(const cl_engine_request *params) { return (cl_reasoning){.inside = params->in_reasoning}; }

/* How many bytes of the mark end the text once a byte follows the n that did. */
static uint8_t match(const char *mark, uint8_t n, char byte) {
    for (uint8_t k = n + 1; k > 0; k--)
        if (mark[k - 1] == byte && memcmp(mark, mark + n - (k - 1), (size_t)(k - 1)) == 0) return k;
    return 0;
}

/* How many bytes a character lacks once a byte follows one that lacked n. */
static uint8_t lacks(uint8_t n, unsigned char byte) {
    if (byte >= 0xc0) return byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    return byte >= 0x80 && n > 0 ? n - 1 : 0;
}

static void add_byte(cl_reasoning *r, const cl_engine_request *params, char byte) {
    const char *mark = r->inside ? params->reasoning_end : params->reasoning_begin;
    r->n_missing = lacks(r->n_missing, (unsigned char)byte);
    r->n_matched = match(mark, r->n_matched, byte);
    if (r->n_matched < strlen(mark)) return;
    r->inside = !r->inside;
    r->n_matched = 0;
}

void cl_reasoning_add(cl_reasoning *r, const cl_engine_request *params, const cl_tokenizer *tok, int32_t token) {
    char piece[512]; /* what a longer one has behind these bytes is no mark */
    int32_t n_forced;
    if (params->max_reasoning_tokens < 0) return;
    const int32_t *forced = cl_reasoning_forced(r, params, &n_forced);
    const size_t size = cl_tokenizer_piece(tok, token, true, piece, sizeof piece);
    r->n_counted += r->inside;
    r->n_forced = n_forced > 0 && *forced == token ? r->n_forced + 1 : 0;
    for (size_t i = 0; i < size && i < sizeof piece; i++) add_byte(r, params, piece[i]);
    if (r->inside && r->n_forced == params->n_reasoning_end_tokens) { /* they need not be the end mark */
        r->inside = false;
        r->n_matched = 0;
    }
    if (!r->inside) r->n_forced = 0;
}

const int32_t *cl_reasoning_forced(const cl_reasoning *r, const cl_engine_request *params, int32_t *n) {
    const int64_t n_over = r->n_counted - params->max_reasoning_tokens;
    const bool amid_mark = r->n_matched > 0 && n_over < CL_ENGINE_MAX_MARK; /* one that has begun ends before */
    const bool ends = n_over >= 0 && !amid_mark && (r->n_missing == 0 || n_over >= MOST_WAIT);
    const bool forces = params->max_reasoning_tokens >= 0 && r->inside && (r->n_forced > 0 || ends);
    *n = forces ? params->n_reasoning_end_tokens - r->n_forced : 0;
    return params->reasoning_end_tokens + r->n_forced;
}

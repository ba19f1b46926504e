/* Makes the bodies of synthetic requests, reads those of a file, and draws arrival times. */
#include "load_requests.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/philox.h"
#include "chunkllama/common/str.h"

/* ---- Random numbers: functions of seed, stream and index, so that the same options give the same load ---- */

typedef enum random_stream { RANDOM_ARRIVALS, RANDOM_SHARED, RANDOM_OWN } random_stream;

static uint64_t random_bits(uint64_t seed, random_stream stream, uint32_t row, uint64_t index) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), row, (uint32_t)stream};
    cl_philox(counter, seed);
    return (uint64_t)counter[0] << 32 | counter[1];
}

/* Uniform in (0, 1], so that it has a logarithm. */
static double random_unit(uint64_t seed, random_stream stream, uint32_t row, uint64_t index) {
    return ((double)(random_bits(seed, stream, row, index) >> 11) + 1) * 0x1p-53;
}

/* ---- Bodies ---- */

/*
 * Append a request with this body, after setting the fields for streaming, greedy sampling and a fixed length. Steals the
 * reference to body, which may be NULL. False: memory is lacking.
 */
static bool add_request(load_requests *requests, json_t *body, const load_fields *fields) {
    bool ok = body && json_object_set_new(body, "model", json_string(fields->model)) == 0 &&
              json_object_set_new(body, "stream", json_true()) == 0 &&
              json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1)) == 0;
    if (ok && !json_object_get(body, "temperature")) ok = json_object_set_new(body, "temperature", json_integer(0)) == 0;
    if (ok && fields->completion_tokens) {
        json_object_del(body, "max_completion_tokens");
        ok = json_object_set_new(body, "max_tokens", json_integer(fields->completion_tokens)) == 0 &&
             json_object_set_new(body, "ignore_eos", json_true()) == 0;
    }
    if (ok && fields->extra) ok = json_object_update(body, (json_t *)fields->extra) == 0;
    char *text = ok ? json_dumps(body, JSON_COMPACT) : NULL;
    load_request *grown = text ? realloc(requests->items, (requests->n + 1) * sizeof *grown) : NULL;
    if (grown) {
        requests->items = grown;
        grown[requests->n++] = (load_request){text, json_object_get(body, "messages") != NULL};
    } else {
        free(text);
    }
    json_decref(body);
    return grown != NULL;
}

void load_requests_free(load_requests *requests) {
    for (size_t i = 0; i < requests->n; i++) free(requests->items[i].body);
    free(requests->items);
    *requests = (load_requests){0};
}

/* ---- Synthetic requests ---- */

static const char *const words[] = {" the",  " of",   " and",  " to",   " in",   " is",    " that", " it",
                                    " was",  " for",  " on",   " are",  " with", " as",    " be",   " at",
                                    " one",  " have", " this", " from", " or",   " had",   " by",   " but",
                                    " what", " some", " we",   " can",  " out",  " other", " were", " all"};
enum { N_WORDS = sizeof words / sizeof *words };

/* The token at a position of a request's prompt: a number below n_tokens. */
static uint64_t draw(const load_shape *s, int64_t request, int64_t position, uint64_t n_tokens) {
    const int64_t prefix = request % s->n_prefixes, member = request / s->n_prefixes;
    if (position < s->shared_tokens)
        return random_bits(s->seed, RANDOM_SHARED, (uint32_t)prefix, (uint64_t)position) % n_tokens;
    const uint64_t bits = random_bits(s->seed, RANDOM_OWN, (uint32_t)request, (uint64_t)position);
    /* The first own token differs among the requests of a prefix; if nothing is shared, among all requests. */
    if (position == s->shared_tokens) return (uint64_t)(s->shared_tokens ? member : request) % n_tokens;
    return bits % n_tokens;
}

static json_t *prompt_ids(const load_shape *s, int64_t request, int64_t n) {
    json_t *ids = json_array();
    for (int64_t i = 0; ids && i < n; i++) {
        const uint64_t id = draw(s, request, i, (uint64_t)(s->vocab - LOAD_FIRST_TOKEN));
        if (json_array_append_new(ids, json_integer(LOAD_FIRST_TOKEN + (json_int_t)id)) == 0) continue;
        json_decref(ids);
        return NULL;
    }
    return ids;
}

static json_t *prompt_text(const load_shape *s, int64_t request, int64_t n) {
    char *text = malloc((size_t)n * 8 + 1), *end = text;
    if (!text) return NULL;
    for (int64_t i = 0; i < n; i++) end = stpcpy(end, words[draw(s, request, i, N_WORDS)]);
    json_t *json = json_string(text);
    free(text);
    return json;
}

static bool add_synthetic(const load_shape *s, const load_fields *fields, int64_t request, int64_t n_tokens,
                          load_requests *requests) {
    json_t *prompt = s->text ? prompt_text(s, request, n_tokens) : prompt_ids(s, request, n_tokens);
    return add_request(requests, json_pack("{s:o}", "prompt", prompt), fields);
}

bool load_requests_synthetic(const load_shape *shape, const load_fields *fields, load_requests *requests) {
    for (int64_t i = 0; i < shape->n; i++)
        if (!add_synthetic(shape, fields, i, shape->prompt_tokens, requests)) return false;
    return true;
}

bool load_requests_prefixes(const load_shape *shape, const load_fields *fields, load_requests *requests) {
    for (int64_t i = 0; i < shape->n_prefixes; i++)
        if (!add_synthetic(shape, fields, i, shape->shared_tokens, requests)) return false;
    return true;
}

void load_random_tokens(int32_t *tokens, int64_t n, int32_t n_vocab, uint64_t seed) {
    tokens[0] = (int32_t)(seed % (uint64_t)n_vocab);
    for (int64_t i = 1; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((seed >> 33) % (uint64_t)n_vocab);
    }
}

void load_random_sequences(int32_t *tokens, int32_t n, int64_t length, int64_t n_shared, int32_t n_vocab) {
    for (int32_t i = 0; i < n; i++) {
        load_random_tokens(tokens + i * length, length, n_vocab, (uint64_t)i);
        if (i > 0) memcpy(tokens + i * length, tokens, (size_t)n_shared * sizeof *tokens);
    }
}

/* ---- Requests of a file ---- */

/* The body in a line, without the id, which is for `batch` only. NULL with *error filled. */
static json_t *read_line(const char *text, size_t size, const char *path, size_t number, cl_error *error) {
    json_error_t problem;
    const size_t mark = number == 1 ? cl_utf8_mark_size(text, size) : 0;
    json_t *line = json_loadb(text + mark, size - mark, JSON_ALLOW_NUL, &problem);
    json_t *body = json_object_get(line, "body") ? json_object_get(line, "body") : line;
    if (!json_object_get(body, "messages") && !json_object_get(body, "prompt")) {
        cl_error_set(error, CL_ERR_FORMAT, "%s, line %zu: it must be a JSON object with messages or a prompt%s%s", path, number,
                     line ? "" : ": ", line ? "" : problem.text);
        json_decref(line);
        return NULL;
    }
    json_incref(body);
    json_decref(line);
    json_object_del(body, "id");
    return body;
}

cl_status load_requests_read(const char *path, int64_t n, const load_fields *fields, load_requests *requests, cl_error *error) {
    FILE *f = fopen(path, "rbe");
    if (!f) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    char *text = NULL;
    size_t capacity = 0, number = 0;
    cl_status status = CL_OK;
    while (status == CL_OK && (n == 0 || requests->n < (size_t)n)) {
        const ssize_t size = getline(&text, &capacity, f);
        if (size < 0) {
            if (ferror(f)) status = cl_fail(error, CL_ERR_FILE, "cannot read %s: %s", path, strerror(errno));
            if (ferror(f) || n == 0 || requests->n == 0) break;
            rewind(f);
            number = 0;
            continue;
        }
        number++;
        if (strspn(text, " \t\r\n") == (size_t)size) continue;
        json_t *body = read_line(text, (size_t)size, path, number, error);
        if (!body)
            status = error->code;
        else if (!add_request(requests, body, fields))
            status = cl_fail(error, CL_ERR_NOMEM, "no memory for the requests of %s", path);
    }
    if (status == CL_OK && requests->n == 0) status = cl_fail(error, CL_ERR_FORMAT, "%s holds no requests", path);
    free(text);
    fclose(f);
    return status;
}

/* ---- Arrival times ---- */

void load_arrivals(double *at, size_t n, double rate, uint64_t seed) {
    double now = 0;
    for (size_t i = 0; i < n; i++) {
        at[i] = now;
        now -= log(random_unit(seed, RANDOM_ARRIVALS, 0, i)) / rate;
    }
}

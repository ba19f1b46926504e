/* Answers requests about a grammar: see grammar_serve.h. */
#include "grammar_serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "grammar_confine.h"
#include "grammar_wire.h"

const cl_process_limits cl_process_defaults = {
    .memory_bytes = (size_t)256 << 20,
    .all_memory_bytes = (size_t)1 << 30,
    .compile_s = 2,
    .answer_s = 0.1,
    .first_s = 1,
    .domain_s = 0.4,
    .question_s = 0.01,
    .compile_wait_s = 20,
    .answer_wait_s = 10,
};

typedef struct serving {
    int fd;
    const cl_process_limits *limits;
    cl_grammar_library *library;
    size_t mask_bytes;
    cl_grammar *grammar;   /* NULL: not compiled yet */
    cl_matcher **matchers; /* [n_matchers] by number; NULL: none */
    uint32_t n_matchers;
    uint32_t *mask; /* scratch */
    char *reply;    /* [n_reply] what is written of it so far; [capacity], owned */
    size_t n_reply, capacity;
    uint64_t first_bytes; /* of the process when it began */
    double left_s;        /* CPU time for answers */
} serving;

static uint64_t memory_bytes(void) {
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) == 0 ? (uint64_t)r.ru_maxrss * 1024 : 0;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Add to the reply. False: memory is lacking. */
static bool write_part(serving *s, const void *bytes, size_t size) {
    if (s->n_reply + size > s->capacity) {
        const size_t capacity = 2 * (s->n_reply + size);
        char *reply = realloc(s->reply, capacity);
        if (!reply) return false;
        s->reply = reply;
        s->capacity = capacity;
    }
    memcpy(s->reply + s->n_reply, bytes, size);
    s->n_reply += size;
    return true;
}

/*
 * Send the reply that was begun when cpu_seconds() was `begin`, all at once: whoever has the first byte does not wait for the
 * others.
 */
static bool send_reply(serving *s, double begin) {
    const cl_wire_reply r = {.memory_bytes = memory_bytes() - s->first_bytes, .cpu_s = cpu_seconds() - begin};
    const bool ok = write_part(s, &r, sizeof r) && cl_wire_write(s->fd, s->reply, s->n_reply);
    s->n_reply = 0;
    return ok;
}

/* ---- Compiling ---- */

static bool compile(serving *s, const cl_wire_request *r, const char *text) {
    cl_error error = {.code = CL_OK};
    const double begin = cpu_seconds();
    cl_confine_time(s->limits->compile_s);
    error.code = s->library->compile(s->library, 0, (cl_grammar_kind)r->kind, text, r->size, &s->grammar, &error);
    return write_part(s, &error, sizeof error) && send_reply(s, begin);
}

/* ---- Questions ---- */

/* The matcher of a number, which is started if it is new; NULL: memory is lacking. */
static cl_matcher *find_matcher(serving *s, uint32_t number) {
    if (number >= s->n_matchers) {
        const uint32_t n = number + 64;
        cl_matcher **matchers = realloc(s->matchers, n * sizeof *matchers);
        if (!matchers) return NULL;
        for (uint32_t i = s->n_matchers; i < n; i++) matchers[i] = NULL;
        s->matchers = matchers;
        s->n_matchers = n;
    }
    if (!s->matchers[number]) s->matchers[number] = s->grammar->start(s->grammar);
    return s->matchers[number];
}

static void end_matcher(serving *s, uint32_t number) {
    if (number >= s->n_matchers || !s->matchers[number]) return;
    s->matchers[number]->free(s->matchers[number]);
    s->matchers[number] = NULL;
}

/* Each step of a question returns false if the matcher has failed. */
static bool add_tokens(cl_matcher *m, const int32_t *tokens, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!m->advance(m, tokens[i])) return false;
    return true;
}

static bool try_token(cl_matcher *m, int32_t token, cl_wire_answer *a) {
    bool allowed = false;
    const bool ok = m->try_advance(m, token, &allowed);
    a->allowed = allowed;
    return ok;
}

static bool get_state(cl_matcher *m, cl_wire_answer *a) {
    a->is_complete = m->is_complete(m);
    a->n_forced = a->is_complete ? 0 : m->get_forced(m, a->forced);
    return a->n_forced >= 0;
}

/* A token that is refused is followed by others, which the mask answers. */
static bool answer(serving *s, const cl_wire_question *q, const int32_t *tokens, cl_matcher *m, cl_wire_answer *a) {
    const int32_t *checked = tokens + q->n_added;
    if (!add_tokens(m, tokens, q->n_added)) return false;
    if (q->asks & CL_ASK_VALID) a->n_valid = m->count_valid(m, checked, (int32_t)q->n_checked);
    if (q->asks & CL_ASK_TRY && !try_token(m, checked[0], a)) return false;
    a->has_mask = q->asks & CL_ASK_MASK || (q->asks & CL_ASK_TRY && !a->allowed);
    if (a->has_mask && !m->get_mask(m, s->mask)) return false;
    return !(q->asks & CL_ASK_STATE) || a->has_mask || get_state(m, a);
}

static bool write_failure(serving *s, cl_matcher *m) {
    const cl_wire_answer a = {.failed = true};
    cl_error error = {.code = CL_ERR_NOMEM, .message = "no memory for the grammar of a choice"};
    if (m) m->explain(m, &error);
    return write_part(s, &a, sizeof a) && write_part(s, &error, sizeof error);
}

static bool take_question(serving *s, const cl_wire_question *q, const int32_t *tokens) {
    cl_wire_answer a = {.failed = false};
    if (q->asks & CL_ASK_END) {
        end_matcher(s, q->matcher);
        return true;
    }
    s->left_s += s->limits->question_s;
    cl_matcher *m = find_matcher(s, q->matcher);
    if (!m || !answer(s, q, tokens, m, &a)) return write_failure(s, m);
    return write_part(s, &a, sizeof a) && (!a.has_mask || write_part(s, s->mask, s->mask_bytes));
}

static bool take_questions(serving *s, const cl_wire_request *r, const char *bytes) {
    const double begin = cpu_seconds(), more = s->limits->question_s * r->n, left = s->left_s + more;
    if (left <= 0) _exit(CL_EXIT_TIME);
    cl_confine_time(fmin(left, s->limits->answer_s + more));
    bool ok = s->grammar;
    for (uint32_t i = 0; ok && i < r->n; i++) {
        const cl_wire_question *q = (const cl_wire_question *)(const void *)bytes;
        const int32_t *tokens = (const int32_t *)(const void *)(q + 1);
        ok = take_question(s, q, tokens);
        bytes = (const char *)(tokens + q->n_added + q->n_checked);
    }
    s->left_s -= cpu_seconds() - begin;
    return ok && send_reply(s, begin);
}

/* ---- Requests ---- */

static bool serve_one(serving *s) {
    cl_wire_request r;
    if (!cl_wire_read(s->fd, &r, sizeof r)) return false;
    char *bytes = malloc(r.size + 1);
    const bool ok = bytes && cl_wire_read(s->fd, bytes, r.size) &&
                    (r.kind == CL_WIRE_QUESTIONS ? take_questions(s, &r, bytes) : compile(s, &r, bytes));
    free(bytes);
    return ok;
}

void cl_grammar_serve(int fd, cl_grammar_library *library, int32_t n_vocab, const cl_process_limits *limits) {
    serving s = {.fd = fd,
                 .limits = limits,
                 .library = library,
                 .mask_bytes = cl_mask_words(n_vocab) * sizeof(uint32_t),
                 .first_bytes = memory_bytes(),
                 .left_s = limits->first_s};
    s.mask = malloc(s.mask_bytes);
    while (s.mask && serve_one(&s)) {
    }
    free(s.mask); /* the rest ends with the process */
}

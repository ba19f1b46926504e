/* The engine's side of the processes of grammars: see grammar_process.h. */
#include "grammar_process.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "chunkattn/base/clock.h"
#include "chunkllama/common/deadline.h"
#include "chunkllama/common/str.h"
#include "grammar_serve.h"
#include "grammar_starter.h"
#include "grammar_wire.h"

enum { MAX_PROCESSES = 128 }; /* fewer than the starter can have, since some are being ended */

typedef struct process process;

typedef struct library {
    cl_grammar_library base;
    cl_starter *starter; /* owned */
    int32_t n_vocab;
    cl_process_limits limits;
    pthread_mutex_t mutex; /* guards everything below */
    process *first;        /* all of them */
    int32_t n_processes;
    uint64_t memory_bytes; /* by which they have grown */
    uint64_t n_releases;   /* for the order of use */
    uint64_t n_steps;      /* calls of foresee */
} library;

/* Where the question of a matcher is. */
typedef enum stage { ANSWERED, QUEUED, SENT } stage;

typedef struct matcher {
    cl_matcher base;
    process *p;
    uint32_t number;
    bool is_posed; /* it has a question, whose answer no function has taken yet: nothing else of it is touched meanwhile */

    /* Guarded by the process's `exchange`, like all that follows while the question is not answered. */
    struct matcher *next; /* in one of the lists of the process */
    stage stage;
    bool is_known; /* the process may have started it */
    bool is_freed; /* when its question is answered */
    int32_t tried; /* the token that try_advance asks about */

    /* What the process has not got yet: tokens that were added, and what the next question asks. */
    int32_t added[CL_FORCED_MAX];
    uint32_t n_added, asks, n_checked;
    const int32_t *checked; /* [n_checked] borrowed until it is sent */

    /* What it has answered, as far as it still holds. */
    bool has_state, has_mask;
    cl_wire_answer answer;
    uint32_t *mask; /* [words] owned; NULL: none was needed yet */
    cl_error error; /* code CL_OK: it has not failed */
} matcher;

/* A grammar with its process. */
struct process {
    cl_grammar base;
    library *l;
    uint32_t domain; /* whose requests alone have it */
    cl_grammar_kind kind;
    char *text; /* [size] owned */
    size_t size;

    /* Guarded by the library's mutex. */
    bool is_compiled; /* so that further requests may have it */
    int32_t n_users;  /* requests */
    uint64_t release; /* the last one's number */
    uint64_t memory_bytes;
    process *next;
    uint64_t step;      /* the last one of which it has questions */
    double step_s;      /* CPU time that its answers took; 0: they are not there yet */
    double questions_s; /* what its questions add to the limit of its domain */

    atomic_bool exceeds;      /* it must end, since it took most of a step in which its domain took too much */
    atomic_bool has_ended;    /* once `end` says how; never false again */
    pthread_mutex_t exchange; /* guards everything below */
    cl_started started;       /* its socket is closed once it has ended */
    cl_error end;
    uint32_t n_numbers;              /* of matchers */
    matcher *queued;                 /* whose questions it gets with the next request */
    matcher *sent;                   /* whose questions it has, in their order */
    double due;                      /* the time by which it must have answered these */
    uint64_t queued_step, sent_step; /* the step of these questions, if they were foreseen; otherwise 0 */
    matcher *freed;                  /* numbers of which the process still has a matcher */
    matcher *unused;                 /* numbers that are free */
    char *request;                   /* [capacity] scratch, owned */
    size_t capacity;
};

/* ---- The list of processes ---- */

/* The functions of this part are called with the library's mutex held, but for free_process. */

static void unlist(process *p) {
    process **at = &p->l->first;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    p->l->n_processes--;
    p->l->memory_bytes -= p->memory_bytes;
}

/* Take a process out of the list that no request uses, the one whose use is the longest ago. */
static process *take_unused(library *l) {
    process *oldest = NULL;
    for (process *p = l->first; p; p = p->next)
        if (p->n_users == 0 && (!oldest || p->release < oldest->release)) oldest = p;
    if (oldest) unlist(oldest);
    return oldest;
}

static void free_list(matcher *m) {
    for (matcher *next; m; m = next) {
        next = m->next;
        free(m->mask);
        free(m);
    }
}

/* A process that no request uses, and that the library does not list. */
static void free_process(process *p) {
    cl_starter_end(p->l->starter, &p->started);
    free_list(p->sent);
    free_list(p->freed);
    free_list(p->unused);
    pthread_mutex_destroy(&p->exchange);
    free(p->request);
    free(p->text);
    free(p);
}

/* ---- Shares ---- */

/* The processes that requests use, and their memory. */
typedef struct usage {
    uint64_t n, bytes;
} usage;

/* With the library's mutex held: of the requests of a domain, or, if it is NULL, of all. */
static usage usage_of(const library *l, const uint32_t *domain) {
    usage u = {0, 0};
    for (const process *p = l->first; p; p = p->next) {
        if (p->n_users == 0 || (domain && p->domain != *domain)) continue;
        u.n++;
        u.bytes += p->memory_bytes;
    }
    return u;
}

/*
 * With the library's mutex held: whether the requests of a domain may use one more process. They may use as much as they leave
 * free, which is half of everything for one domain alone, so another one always finds something.
 */
static bool has_share(const library *l, uint32_t domain) {
    const usage all = usage_of(l, NULL), own = usage_of(l, &domain);
    return all.n + own.n < MAX_PROCESSES && all.bytes + own.bytes < l->limits.all_memory_bytes;
}

/*
 * With the library's mutex held: whether a process is one that must end where all together have too much memory: no domain uses
 * more than its own, of which it has at least the average.
 */
static bool is_largest(const library *l, const process *p) {
    const usage own = usage_of(l, &p->domain);
    for (const process *other = l->first; other; other = other->next)
        if (usage_of(l, &other->domain).bytes > own.bytes) return false;
    return p->memory_bytes * own.n >= own.bytes;
}

/* With the library's mutex held: note how much a process has grown, as far as what it says can be true. */
static void set_memory(process *p, uint64_t bytes) {
    library *l = p->l;
    if (bytes > l->limits.all_memory_bytes) bytes = l->limits.all_memory_bytes + 1;
    l->memory_bytes += bytes - p->memory_bytes;
    p->memory_bytes = bytes;
}

/* Note how much a process has grown. False: all together have grown too much, although unused ones end, and this one must. */
static bool grow(process *p, uint64_t bytes) {
    library *l = p->l;
    pthread_mutex_lock(&l->mutex);
    set_memory(p, bytes);
    const bool exceeds = l->memory_bytes > l->limits.all_memory_bytes;
    process *unused = exceeds ? take_unused(l) : NULL;
    const bool ok = !exceeds || unused || !is_largest(l, p);
    pthread_mutex_unlock(&l->mutex);
    if (unused) free_process(unused);
    return ok;
}

/* ---- Ends of processes ---- */

static int mebibytes(size_t bytes) { return (int)(bytes >> 20); }

static bool is_out_of_time(int status) {
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) || (WIFEXITED(status) && WEXITSTATUS(status) == CL_EXIT_TIME);
}

static cl_status explain_time(const cl_process_limits *l, bool compiles, cl_error *error) {
    if (compiles)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "cannot be compiled: it takes more than the %g s of CPU time that it may; simplify it",
                             l->compile_s);
    return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                         "cannot be followed: a step of it takes more than %g s of CPU time, or all steps together more than "
                         "%g s, with %g s more for each token; simplify it",
                         l->answer_s, l->first_s, l->question_s);
}

/* Say how a process has ended. The grammar is being compiled, or was. */
static cl_status explain_end(const cl_process_limits *l, int status, bool late, bool compiles, cl_error *error) {
    const char *what = compiles ? "cannot be compiled: it" : "cannot be followed: it";
    const bool by_signal = WIFSIGNALED(status);
    const int signal = by_signal ? WTERMSIG(status) : 0;
    if (status < 0) return cl_starter_fail(error);
    if (late && cl_deadline_check(error) == CL_ERR_LIMIT)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "%s takes longer to prepare than the %g s that a request may; simplify it", what,
                             cl_deadline_limit());
    if (late && cl_deadline_passed()) return error->code; /* the server stops */
    if (late)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "%s takes more than the %g s that it may; simplify it", what,
                             compiles ? l->compile_wait_s : l->answer_wait_s);
    if (is_out_of_time(status)) return explain_time(l, compiles, error);
    if (signal == SIGABRT || signal == SIGSYS) /* it called abort() */
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "%s needs more than the %d MiB of memory that it may; simplify it",
                             what, mebibytes(l->memory_bytes));
    if (signal == SIGSEGV || signal == SIGBUS)
        return cl_fail_field(error, CL_ERR_LIMIT, "grammar",
                             "%s recurses deeper than its stack allows, or hits a defect of the grammar engine; simplify it",
                             what);
    return cl_fail(error, CL_ERR_NOMEM, "the process of the grammar has ended, by %s %d: send the request later",
                   by_signal ? "signal" : "exit status", by_signal ? signal : WEXITSTATUS(status));
}

/* End a process that is of no use any more; held: p->exchange, or nobody else uses p. */
static void end_process(process *p, bool late, bool compiles) {
    if (atomic_load(&p->has_ended)) return;
    const int status = cl_starter_end(p->l->starter, &p->started);
    explain_end(&p->l->limits, status, late, compiles, &p->end);
    pthread_mutex_lock(&p->l->mutex);
    set_memory(p, 0);
    pthread_mutex_unlock(&p->l->mutex);
    atomic_store(&p->has_ended, true);
}

/* ---- Requests ---- */

static size_t question_size(const matcher *m) {
    return sizeof(cl_wire_question) + (m->n_added + m->n_checked) * sizeof(int32_t);
}

static char *put(char *at, const void *bytes, size_t size) {
    if (size > 0) memcpy(at, bytes, size);
    return at + size;
}

static char *put_question(char *at, const matcher *m) {
    const cl_wire_question q = {.matcher = m->number, .asks = m->asks, .n_added = m->n_added, .n_checked = m->n_checked};
    at = put(at, &q, sizeof q);
    at = put(at, m->added, m->n_added * sizeof *m->added);
    return put(at, m->checked, m->n_checked * sizeof *m->checked);
}

/* Make room in p->request. */
static bool reserve(process *p, size_t size) {
    if (size <= p->capacity) return true;
    char *request = realloc(p->request, size);
    if (!request) return false;
    p->request = request;
    p->capacity = size;
    return true;
}

/* Note that the questions of a step are asked. All of a step are, before the first answer is awaited. */
static void begin_step(process *p) {
    int32_t n = 0;
    for (const matcher *m = p->queued; m; m = m->next) n++;
    pthread_mutex_lock(&p->l->mutex);
    p->step = p->queued_step;
    p->step_s = 0;
    p->questions_s = p->l->limits.question_s * n;
    pthread_mutex_unlock(&p->l->mutex);
}

/* Send the questions that are queued, and those to matchers that were freed. With p->exchange held. */
static bool send_questions(process *p, bool *late) {
    cl_wire_request head = {.kind = CL_WIRE_QUESTIONS};
    for (const matcher *m = p->freed; m; m = m->next, head.n++) head.size += question_size(m);
    for (const matcher *m = p->queued; m; m = m->next, head.n++) head.size += question_size(m);
    if (!reserve(p, sizeof head + head.size)) return false;
    if (p->queued_step) begin_step(p);
    char *at = put(p->request, &head, sizeof head);
    for (matcher *m; (m = p->freed);) {
        at = put_question(at, m);
        p->freed = m->next;
        m->next = p->unused;
        p->unused = m;
    }
    for (matcher *m = p->queued; m; m = m->next) {
        at = put_question(at, m);
        m->stage = SENT;
    }
    p->sent = p->queued;
    p->sent_step = p->queued_step;
    p->queued = NULL;
    p->queued_step = 0;
    p->due = clock_seconds() + p->l->limits.answer_wait_s;
    return cl_wire_write_until(p->started.fd, p->request, sizeof head + head.size, p->due, late);
}

/* ---- Answers ---- */

static bool are_tokens(const int32_t *tokens, int32_t n, int32_t n_vocab) {
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab) return false;
    return true;
}

/* Whether an answer is one that the engine can use, whatever runs in the process. */
static bool is_sound(const matcher *m, const cl_wire_answer *a) {
    const bool needs_mask = m->asks & CL_ASK_MASK || (m->asks & CL_ASK_TRY && !a->allowed);
    return (a->failed || a->has_mask || !needs_mask) && a->n_valid >= 0 && a->n_valid <= (int32_t)m->n_checked &&
           a->n_forced >= 0 && a->n_forced <= CL_FORCED_MAX && are_tokens(a->forced, a->n_forced, m->p->l->n_vocab);
}

/* Whether a mask has a token, once the bits behind the vocabulary are cleared. */
static bool trim_mask(uint32_t *mask, int32_t n_vocab) {
    const size_t n_words = cl_mask_words(n_vocab);
    uint32_t any = 0;
    if (n_vocab % 32) mask[n_words - 1] &= (1u << n_vocab % 32) - 1;
    for (size_t i = 0; i < n_words; i++) any |= mask[i];
    return any;
}

/* An error that may be CL_OK. */
static bool read_error(int fd, cl_error *error, double until, bool *late) {
    if (!cl_wire_read_until(fd, error, sizeof *error, until, late)) return false;
    error->message[sizeof error->message - 1] = 0;
    error->field[sizeof error->field - 1] = 0;
    cl_str_disarm(error->message, strlen(error->message));
    return error->code >= CL_ERR_BUSY && error->code <= CL_OK;
}

static bool read_mask(matcher *m, double until, bool *late) {
    const int32_t n_vocab = m->p->l->n_vocab;
    const size_t size = cl_mask_words(n_vocab) * sizeof *m->mask;
    if (!m->mask) m->mask = malloc(size);
    m->has_mask = m->mask && cl_wire_read_until(m->p->started.fd, m->mask, size, until, late) && trim_mask(m->mask, n_vocab);
    return m->has_mask;
}

static bool read_answer(matcher *m, double until, bool *late) {
    cl_wire_answer *a = &m->answer;
    const int fd = m->p->started.fd;
    if (!cl_wire_read_until(fd, a, sizeof *a, until, late) || !is_sound(m, a)) return false;
    m->is_known = true;
    if (a->failed) return read_error(fd, &m->error, until, late) && m->error.code != CL_OK;
    m->has_state = m->asks & CL_ASK_STATE && !a->has_mask;
    m->n_added = m->asks = m->n_checked = 0;
    return !a->has_mask || read_mask(m, until, late);
}

/* What the processes of a domain that have answered in a step took for it. */
typedef struct domain_time {
    double seconds, limit;
    process *longest; /* the one that took most */
} domain_time;

/* With the library's mutex held. */
static domain_time time_of(const process *like) {
    domain_time t = {.limit = like->l->limits.domain_s};
    for (process *p = like->l->first; p; p = p->next) {
        if (p->domain != like->domain || p->step != like->step || atomic_load(&p->exceeds)) continue;
        t.seconds += p->step_s;
        t.limit += p->questions_s;
        if (!t.longest || p->step_s > t.longest->step_s) t.longest = p;
    }
    return t;
}

/*
 * Note what answers of a step took. Of its domain, the processes that took most of the step must end, until the others took no
 * more than they may together.
 */
static void end_step(process *p, double seconds) {
    pthread_mutex_lock(&p->l->mutex);
    p->step_s = seconds > 0 ? seconds : 0;
    for (domain_time t = time_of(p); t.longest && t.seconds > t.limit; t = time_of(p)) atomic_store(&t.longest->exceeds, true);
    pthread_mutex_unlock(&p->l->mutex);
}

static bool read_answers(process *p, bool *late) {
    cl_wire_reply end;
    for (matcher *m = p->sent; m; m = m->next)
        if (!read_answer(m, p->due, late)) return false;
    if (!cl_wire_read_until(p->started.fd, &end, sizeof end, p->due, late)) return false;
    if (p->sent_step) end_step(p, end.cpu_s);
    if (grow(p, end.memory_bytes)) return true;
    end_process(p, false, false);
    cl_fail_field(&p->end, CL_ERR_LIMIT, "grammar",
                  "cannot be followed: all grammars together need more than the %d MiB of memory that they may; simplify it",
                  mebibytes(p->l->limits.all_memory_bytes));
    return false;
}

static void fail(matcher *m, const cl_error *error) {
    m->error = *error;
    m->has_mask = m->has_state = false;
}

/* A matcher is not used any more. The process frees its own when it gets the next request; the number is free after that. */
static void retire(matcher *m) {
    process *p = m->p;
    free(m->mask);
    m->mask = NULL;
    m->asks = CL_ASK_END;
    m->n_added = m->n_checked = 0;
    matcher **list = m->is_known ? &p->freed : &p->unused;
    m->next = *list;
    *list = m;
}

/* The questions of a list were answered, or, if the process has ended, have failed. */
static void settle(matcher **list) {
    for (matcher *m; (m = *list);) {
        *list = m->next;
        m->stage = ANSWERED;
        if (atomic_load(&m->p->has_ended)) fail(m, &m->p->end);
        if (m->is_freed) retire(m);
    }
}

static void end_exceeding(process *p) {
    if (!atomic_load(&p->exceeds) || atomic_load(&p->has_ended)) return;
    end_process(p, false, false);
    cl_fail_field(
        &p->end, CL_ERR_LIMIT, "grammar",
        "cannot be followed: in a step the grammars of one tenant take more than %g s of CPU time together, with %g s "
        "more for each token, and this one the most; simplify it",
        p->l->limits.domain_s, p->l->limits.question_s);
}

/* Whether a process answers before a time. One that takes too long ends. */
static bool is_heard(process *p, double until) {
    if (cl_wire_wait(p->started.fd, fmin(until, p->due))) return true;
    if (clock_seconds() < p->due && !cl_deadline_passed()) return false;
    end_process(p, true, false);
    return true;
}

/* Send the questions that wait, unless the process has others. With p->exchange held, like the next. */
static void send_queued(process *p) {
    bool late = false;
    end_exceeding(p);
    if (!p->sent && p->queued && !atomic_load(&p->has_ended) && !send_questions(p, &late)) end_process(p, late, false);
}

/* Take the answers that come before a time, to all questions. */
static void take_answers(process *p, double until) {
    for (send_queued(p); p->sent || p->queued; send_queued(p)) {
        bool late = false;
        if (!atomic_load(&p->has_ended) && !is_heard(p, until)) return;
        if (!atomic_load(&p->has_ended) && !read_answers(p, &late)) end_process(p, late, false);
        settle(&p->sent);
        if (atomic_load(&p->has_ended)) settle(&p->queued);
    }
}

/* ---- Matchers ---- */

/* Queue a question. With p->exchange held. */
static void pose(matcher *m, uint32_t asks, const int32_t *checked, uint32_t n_checked) {
    if (asks & CL_ASK_TRY) {
        m->tried = *checked;
        checked = &m->tried;
    }
    m->asks = asks;
    m->checked = checked;
    m->n_checked = n_checked;
    m->stage = QUEUED;
    m->next = m->p->queued;
    m->p->queued = m;
    m->is_posed = true;
}

/* Ask, or take the answer to what was asked. False: it has failed, or is late. */
static bool ask(matcher *m, uint32_t asks, const int32_t *checked, uint32_t n_checked) {
    process *p = m->p;
    if (!m->is_posed && m->error.code != CL_OK) return false;
    pthread_mutex_lock(&p->exchange);
    if (!m->is_posed) pose(m, asks, checked, n_checked);
    take_answers(p, m->base.until);
    m->is_posed = m->stage != ANSWERED;
    pthread_mutex_unlock(&p->exchange);
    return !m->is_posed && m->error.code == CL_OK;
}

static bool is_late(cl_matcher *base) { return ((const matcher *)base)->is_posed; }

static bool has_answer(cl_matcher *base) {
    const matcher *m = (const matcher *)base;
    pthread_mutex_lock(&m->p->exchange);
    take_answers(m->p, 0);
    const bool is_answered = m->stage == ANSWERED;
    pthread_mutex_unlock(&m->p->exchange);
    return is_answered;
}

/* -1: it has ended. */
static int socket_of(process *p) {
    pthread_mutex_lock(&p->exchange);
    const int fd = p->started.fd;
    pthread_mutex_unlock(&p->exchange);
    return fd;
}

/* Those that are left out have processes that others have, or are looked at soon. */
static void wait_for_one(cl_matcher *const *matchers, int32_t n, double until) {
    struct pollfd files[MAX_PROCESSES];
    if (n > MAX_PROCESSES) n = MAX_PROCESSES;
    for (int32_t i = 0; i < n; i++)
        files[i] = (struct pollfd){.fd = socket_of(((const matcher *)matchers[i])->p), .events = POLLIN};
    poll(files, (nfds_t)n, (int)ceil(1e3 * fmax(0, until - clock_seconds())));
}

static bool get_mask(cl_matcher *base, uint32_t *mask) {
    matcher *m = (matcher *)base;
    if ((m->is_posed || !m->has_mask) && !ask(m, CL_ASK_MASK, NULL, 0)) return false;
    if (!m->has_mask) return false;
    memcpy(mask, m->mask, cl_mask_words(m->p->l->n_vocab) * sizeof *mask);
    return true;
}

/* The tokens wait for the next question. */
static bool advance(cl_matcher *base, int32_t token) {
    matcher *m = (matcher *)base;
    if ((m->is_posed || m->n_added == CL_FORCED_MAX) && !ask(m, 0, NULL, 0)) return false;
    m->added[m->n_added++] = token;
    m->has_mask = m->has_state = false;
    return m->error.code == CL_OK;
}

/* Once a token was refused, the mask answers for others. */
static bool try_advance(cl_matcher *base, int32_t token, bool *allowed) {
    matcher *m = (matcher *)base;
    if (!m->is_posed && m->has_mask) {
        *allowed = cl_mask_has(m->mask, token);
        return !*allowed || advance(base, token);
    }
    const bool ok = ask(m, CL_ASK_TRY | CL_ASK_STATE, &token, 1);
    *allowed = ok && m->answer.allowed;
    return ok;
}

/* All processes get their questions before the answer of the first one is awaited. */
static void foresee(cl_matcher **matchers, const int32_t *tokens, int32_t n) {
    library *l = ((matcher *)matchers[0])->p->l;
    pthread_mutex_lock(&l->mutex);
    const uint64_t step = ++l->n_steps;
    pthread_mutex_unlock(&l->mutex);
    int32_t n_posed = 0;
    for (int32_t i = 0; i < n; i++) {
        matcher *m = (matcher *)matchers[i];
        if (m->is_posed || m->error.code != CL_OK || m->has_mask) continue; /* the answer is known */
        pthread_mutex_lock(&m->p->exchange);
        pose(m, CL_ASK_TRY | CL_ASK_STATE, &tokens[i], 1);
        m->p->queued_step = step;
        pthread_mutex_unlock(&m->p->exchange);
        matchers[n_posed++] = &m->base;
    }
    for (int asks = 1; asks >= 0; asks--)
        for (int32_t i = 0; i < n_posed; i++) {
            process *p = ((matcher *)matchers[i])->p;
            pthread_mutex_lock(&p->exchange);
            if (asks)
                send_queued(p);
            else
                take_answers(p, matchers[i]->until);
            pthread_mutex_unlock(&p->exchange);
        }
}

static bool has_state(matcher *m) { return (!m->is_posed && m->has_state) || (ask(m, CL_ASK_STATE, NULL, 0) && m->has_state); }

static int32_t get_forced(cl_matcher *base, int32_t *tokens) {
    matcher *m = (matcher *)base;
    if (!has_state(m)) return -1;
    for (int32_t i = 0; i < m->answer.n_forced; i++) tokens[i] = m->answer.forced[i];
    return m->answer.n_forced;
}

static int32_t count_valid(cl_matcher *base, const int32_t *tokens, int32_t n) {
    matcher *m = (matcher *)base;
    return ask(m, CL_ASK_VALID, tokens, (uint32_t)n) ? m->answer.n_valid : 0;
}

static bool is_complete(cl_matcher *base) {
    matcher *m = (matcher *)base;
    return has_state(m) && m->answer.is_complete;
}

static cl_status explain(cl_matcher *base, cl_error *error) {
    const matcher *m = (matcher *)base;
    if (error) *error = m->error;
    return m->error.code;
}

static void free_matcher(cl_matcher *base) {
    matcher *m = (matcher *)base;
    process *p = m->p;
    pthread_mutex_lock(&p->exchange);
    matcher **at = &p->queued;
    while (*at && *at != m) at = &(*at)->next;
    if (*at) *at = m->next;
    if (m->stage == SENT)
        m->is_freed = true;
    else
        retire(m);
    pthread_mutex_unlock(&p->exchange);
}

static cl_matcher *start(cl_grammar *base) {
    process *p = (process *)base;
    pthread_mutex_lock(&p->exchange);
    matcher *m = p->unused;
    if (m) p->unused = m->next;
    const uint32_t number = m ? m->number : p->n_numbers;
    if (!m) m = malloc(sizeof *m);
    if (m && number == p->n_numbers) p->n_numbers++;
    pthread_mutex_unlock(&p->exchange);
    if (!m) return NULL;
    *m = (matcher){.base = {get_mask, advance, try_advance, get_forced, count_valid, is_complete, explain, free_matcher,
                            foresee, is_late, has_answer, wait_for_one, INFINITY},
                   .p = p,
                   .number = number};
    return &m->base;
}

/* ---- Grammars ---- */

/* A request does not need its grammar any more. The process stays for others, unless it has ended. */
static void release(cl_grammar *base) {
    process *p = (process *)base;
    library *l = p->l;
    pthread_mutex_lock(&l->mutex);
    p->release = ++l->n_releases;
    const bool ends = --p->n_users == 0 && (atomic_load(&p->has_ended) || atomic_load(&p->exceeds));
    if (ends) unlist(p);
    pthread_mutex_unlock(&l->mutex);
    if (ends) free_process(p);
}

/* Whether it can be followed. */
static bool is_usable(const process *p) { return p->is_compiled && !atomic_load(&p->has_ended) && !atomic_load(&p->exceeds); }

static bool has_text(const process *p, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size) {
    return p->domain == domain && p->kind == kind && p->size == size && memcmp(p->text, text, size) == 0;
}

/* A compiled grammar of this text, which has one more user then; NULL: there is none. */
static process *find(library *l, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size) {
    pthread_mutex_lock(&l->mutex);
    process *p = l->first;
    while (p && !(is_usable(p) && has_text(p, domain, kind, text, size))) p = p->next;
    if (p) p->n_users++;
    pthread_mutex_unlock(&l->mutex);
    return p;
}

/* A grammar that is not listed yet, without a process. NULL if memory is lacking. */
static process *create_process(library *l, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size) {
    process *p = calloc(1, sizeof *p);
    char *copy = malloc(size + 1);
    if (!p || !copy) {
        free(p);
        free(copy);
        return NULL;
    }
    memcpy(copy, text, size);
    *p = (process){.base = {start, release},
                   .l = l,
                   .domain = domain,
                   .kind = kind,
                   .text = copy,
                   .size = size,
                   .n_users = 1,
                   .started.fd = -1};
    atomic_init(&p->exceeds, false);
    atomic_init(&p->has_ended, false);
    pthread_mutex_init(&p->exchange, NULL);
    return p;
}

/* With the library's mutex held: list a process if there is room for one more. */
static bool add(library *l, process *p) {
    if (l->n_processes == MAX_PROCESSES || l->memory_bytes >= l->limits.all_memory_bytes) return false;
    p->next = l->first;
    l->first = p;
    l->n_processes++;
    return true;
}

/* List a process, for which unused ones end if they have to. False: its domain has its share already. */
static bool enlist(library *l, process *p) {
    bool ok, is_listed = false;
    do {
        pthread_mutex_lock(&l->mutex);
        ok = has_share(l, p->domain);
        is_listed = ok && add(l, p);
        process *unused = ok && !is_listed ? take_unused(l) : NULL;
        pthread_mutex_unlock(&l->mutex);
        if (unused) free_process(unused);
    } while (ok && !is_listed);
    return ok;
}

static void remove_process(process *p) {
    pthread_mutex_lock(&p->l->mutex);
    unlist(p);
    pthread_mutex_unlock(&p->l->mutex);
    free_process(p);
}

/* Let the process compile its text. */
static cl_status send_text(process *p, cl_error *error) {
    const cl_wire_request head = {.kind = (uint32_t)p->kind, .size = p->size};
    const double until = clock_seconds() + p->l->limits.compile_wait_s;
    cl_wire_reply reply = {.memory_bytes = 0};
    cl_error answer = {.code = CL_OK};
    bool late = false;
    const int fd = p->started.fd;
    const bool ok = cl_wire_write_until(fd, &head, sizeof head, until, &late) &&
                    cl_wire_write_until(fd, p->text, p->size, until, &late) && read_error(fd, &answer, until, &late) &&
                    cl_wire_read_until(fd, &reply, sizeof reply, until, &late);
    if (!ok) end_process(p, late, true);
    if (!ok) answer = p->end;
    if (answer.code != CL_OK && error) *error = answer;
    pthread_mutex_lock(&p->l->mutex);
    set_memory(p, reply.memory_bytes);
    p->is_compiled = answer.code == CL_OK;
    pthread_mutex_unlock(&p->l->mutex);
    return answer.code;
}

static cl_status fail_busy(const library *l, cl_error *error) {
    return cl_fail(error, CL_ERR_BUSY,
                   "the running requests use as many different grammars as they may: there are %d processes with %d MiB of "
                   "memory for all tenants; send the request later",
                   MAX_PROCESSES, mebibytes(l->limits.all_memory_bytes));
}

/* Two threads may compile the same text at the same time: then it has two processes. */
static cl_status compile(cl_grammar_library *base, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size,
                         cl_grammar **out, cl_error *error) {
    library *l = (library *)base;
    process *p = find(l, domain, kind, text, size);
    *out = p ? &p->base : NULL;
    if (p) return CL_OK;
    p = create_process(l, domain, kind, text, size);
    if (!p) return cl_fail(error, CL_ERR_NOMEM, "no memory for a grammar");
    if (!enlist(l, p)) {
        free_process(p);
        return fail_busy(l, error);
    }
    cl_status status = cl_starter_fork(l->starter, &p->started, error);
    if (status == CL_OK) status = send_text(p, error);
    if (status == CL_OK)
        *out = &p->base;
    else
        remove_process(p);
    return status;
}

/* ---- The library ---- */

static void free_library(cl_grammar_library *base) {
    library *l = (library *)base;
    for (process *p = l->first, *next; p; p = next) {
        next = p->next;
        free_process(p);
    }
    cl_starter_free(&l->starter);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

cl_status cl_grammar_open_processes(cl_grammar_open_fn *open, const char *path, const cl_tokenizer *tok, int32_t n_vocab,
                                    const cl_process_limits *limits, cl_grammar_library **out, cl_error *error) {
    *out = NULL;
    library *l = calloc(1, sizeof *l);
    if (!l) return cl_fail(error, CL_ERR_NOMEM, "no memory for grammars");
    *l = (library){.base = {compile, free_library}, .n_vocab = n_vocab, .limits = *limits};
    pthread_mutex_init(&l->mutex, NULL);
    const cl_status status = cl_starter_create(open, path, tok, n_vocab, limits, &l->starter, error);
    if (status == CL_OK)
        *out = &l->base;
    else
        free_library(&l->base);
    return status;
}

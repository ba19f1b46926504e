/*
 * Grammars in processes of their own: they answer as in the own process, and what one of them does to its process (time,
 * memory, a signal, a call that it may not make) ends that grammar by an error that says why, and no other.
 *
 * The grammar engine is the test's own. A text names what its process does while it compiles; the processes tell the test about
 * themselves in memory that all of them share.
 */
#include "tests/support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "chunkllama/common/deadline.h"
#include "chunkllama/engine/grammar_process.h"
#include "chunkllama/engine/grammar_starter.h"
#include "chunkllama/engine/grammar_wire.h"
#include "tests/support/child.h"
#include "tests/support/rng.h"
#include "tests/support/wait.h"

enum { N_VOCAB = 1000, WORDS = (N_VOCAB + 31) / 32 };
enum { ALL = 128 }; /* processes that there may be */

/* What processes write, and the test reads. */
typedef struct board {
    atomic_int n_compiled, n_allowed_calls, n_tried_calls;
    atomic_int last; /* process that has compiled */
    atomic_int starter;
    atomic_int other; /* a process that the engine's process has forked */
    atomic_bool held;
    atomic_int n_readable;
    void *nothing;       /* NULL */
    void *volatile kept; /* memory of a process */
} board;
static board *shared;

/* Messages that the engine's side has written. */
static atomic_int n_messages;
bool __real_cl_wire_write_until(int fd, const void *bytes, size_t size, double until, bool *late);
bool __wrap_cl_wire_write_until(int fd, const void *bytes, size_t size, double until, bool *late);
bool __wrap_cl_wire_write_until(int fd, const void *bytes, size_t size, double until, bool *late) {
    atomic_fetch_add(&n_messages, 1);
    return __real_cl_wire_write_until(fd, bytes, size, until, late);
}

/* Whether the system is one before Linux 5.9, which lacks close_range. */
static bool is_old;
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!is_old || number != SYS_close_range) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    errno = ENOSYS;
    return -1;
}

/* ---- The grammar engine ---- */

typedef struct odd_matcher {
    cl_matcher base;
    uint32_t sum; /* of the tokens so far */
    bool failed;
    void *nothing; /* NULL */
} odd_matcher;

static bool allows(uint32_t sum, int32_t token) { return (uint32_t)token % 3 == sum % 3 || token == 7; }

static int32_t forced_token(uint32_t sum) { return sum % 5 == 4 ? (int32_t)(sum % 3 + 3 * (sum % 100)) : -1; }

static bool get_mask(cl_matcher *base, uint32_t *mask) {
    const odd_matcher *m = (odd_matcher *)base;
    memset(mask, 0, WORDS * sizeof *mask);
    for (int32_t id = 0; id < N_VOCAB; id++)
        if (allows(m->sum, id)) mask[id / 32] |= 1u << id % 32;
    return !m->failed;
}

/* As programs in Rust do. */
static void allocate(size_t mebibytes) {
    for (size_t i = 0; i < mebibytes; i++) {
        char *block = malloc(1 << 20);
        if (!block) abort();
        shared->kept = block; /* so that no compiler leaves it out */
        memset(block, 1, 1 << 20);
    }
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const double TURN_S = 0.06; /* CPU time of the token 995 */

/* Tokens from 990 on have effects of their own. */
static bool advance(cl_matcher *base, int32_t token) {
    odd_matcher *m = (odd_matcher *)base;
    const double end = cpu_seconds() + TURN_S;
    while (token == 995 && cpu_seconds() < end) m->failed = false;
    if (token == 994) allocate(40);
    if (token == 999) m->failed = true;
    for (volatile bool endless = token == 998; endless;) m->sum++;
    if (token == 997) *(volatile int *)m->nothing = 0;
    if (token == 996) abort();
    m->sum += (uint32_t)token;
    return !m->failed;
}

static int32_t count_valid(cl_matcher *base, const int32_t *tokens, int32_t n) {
    uint32_t sum = ((odd_matcher *)base)->sum;
    int32_t n_valid = 0;
    while (n_valid < n && allows(sum, tokens[n_valid])) sum += (uint32_t)tokens[n_valid++];
    return n_valid;
}

static bool try_advance(cl_matcher *base, int32_t token, bool *allowed) {
    *allowed = count_valid(base, &token, 1) == 1;
    return !*allowed || advance(base, token);
}

static int32_t get_forced(cl_matcher *base, int32_t *tokens) {
    const odd_matcher *m = (odd_matcher *)base;
    tokens[0] = forced_token(m->sum);
    return m->failed ? -1 : tokens[0] >= 0;
}

static bool is_complete(cl_matcher *base) { return ((odd_matcher *)base)->sum > 5000; }

static cl_status explain(cl_matcher *base, cl_error *error) {
    (void)base;
    return cl_fail_field(error, CL_ERR_LIMIT, "grammar", "fails by\x1b[31m its token");
}

static void free_matcher(cl_matcher *base) { free(base); }

static cl_matcher *start(cl_grammar *base) {
    (void)base;
    odd_matcher *m = malloc(sizeof *m);
    *m = (odd_matcher){.base = {get_mask, advance, try_advance, get_forced, count_valid, is_complete, explain, free_matcher,
                                NULL, NULL, NULL, NULL, 0}};
    return &m->base;
}

static void free_grammar(cl_grammar *g) { free(g); }

static void note(long result) {
    atomic_fetch_add(&shared->n_tried_calls, 1);
    if (result >= 0) atomic_fetch_add(&shared->n_allowed_calls, 1);
}

static void try_calls(void) {
    const pid_t parent = getppid();
    char *const arguments[] = {"/bin/true", NULL};
    note(open("/etc/passwd", O_RDONLY));
    note(open("/tmp/grammar_was_here", O_WRONLY | O_CREAT, 0600));
    note(truncate("/tmp/grammar_was_here", 0));
    note(unlink("/tmp/grammar_was_here"));
    note(socket(AF_INET, SOCK_STREAM, 0));
    note(socket(AF_UNIX, SOCK_STREAM, 0));
    note(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    note(syscall(SYS_clone3, NULL, 0));
    note(execv(arguments[0], arguments));
    note(kill(parent, 0));
    note(syscall(SYS_pidfd_open, parent, 0));
    note(syscall(SYS_ptrace, 16, parent, 0, 0));
    note(syscall(SYS_process_vm_readv, parent, NULL, 0, NULL, 0, 0));
    note(syscall(SYS_io_uring_setup, 1, NULL));
    note(prctl(PR_SET_PDEATHSIG, 0));
    note(fcntl(0, F_GETFD));
    note(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
}

/* Try to read of the stack's end, which cannot be accessed, and of what is before it. */
static void try_stack(void) {
    enum { STACK = 256 << 20, GUARD = 1 << 16 };
    char here;
    const uintptr_t end = (uintptr_t)&here - STACK + GUARD; /* in the guard, since `here` is near the beginning */
    shared->n_readable = 0;
    for (uintptr_t i = 0; i < 3; i++)
        shared->n_readable += syscall(SYS_rt_sigprocmask, SIG_BLOCK, end + i * GUARD, NULL, sizeof(uint64_t)) == 0;
}

static cl_status compile(cl_grammar_library *l, uint32_t domain, cl_grammar_kind kind, const char *text, size_t size,
                         cl_grammar **grammar, cl_error *error) {
    (void)l;
    (void)domain;
    const cl_str s = {text, size};
    atomic_fetch_add(&shared->n_compiled, 1);
    atomic_store(&shared->last, getpid());
    *grammar = NULL;
    if (cl_str_is(s, "wrong")) return cl_refuse(error, "grammar", "is of kind %d", (int)kind);
    if (cl_str_is(s, "calls")) try_calls();
    if (cl_str_is(s, "stack")) try_stack();
    if (cl_str_is(s, "memory")) allocate(SIZE_MAX);
    if (size >= 5 && memcmp(text, "large", 5) == 0) allocate(40);
    if (cl_str_is(s, "fault")) *(volatile int *)shared->nothing = 0;
    if (cl_str_is(s, "leaves")) _exit(0);
    for (volatile bool endless = cl_str_is(s, "time"); endless;) {
    }
    while (cl_str_is(s, "hold")) {
        atomic_store(&shared->held, true);
        syscall(SYS_futex, &(int){0}, 0, 0, NULL, NULL, 0); /* waits */
    }
    *grammar = malloc(sizeof **grammar);
    **grammar = (cl_grammar){start, free_grammar};
    return CL_OK;
}

static void free_library(cl_grammar_library *l) { free(l); }

static cl_status open_odd(const char *path, const cl_tokenizer *tok, int32_t n_vocab, bool is_alone,
                          cl_grammar_library **library, cl_error *error) {
    (void)tok;
    *library = NULL;
    if (strcmp(path, "odd") != 0 || n_vocab != N_VOCAB)
        return cl_fail_field(error, CL_ERR_FILE, "grammar_library", "is %s", path);
    if (is_alone) atomic_store(&shared->starter, getpid());
    *library = malloc(sizeof **library);
    **library = (cl_grammar_library){compile, free_library};
    return CL_OK;
}

/* ---- Helpers ---- */

static cl_process_limits quick(void) {
    cl_process_limits l = cl_process_defaults;
    l.memory_bytes = (size_t)8 << 20;
    l.compile_s = l.answer_s = 0.1;
    l.compile_wait_s = l.answer_wait_s = 1e9;
    return l;
}

static cl_grammar_library *open_with(const cl_process_limits *limits) {
    cl_grammar_library *l;
    cl_error error;
    if (cl_grammar_open_processes(open_odd, "odd", NULL, N_VOCAB, limits, &l, &error) != CL_OK) fail_msg("%s", error.message);
    return l;
}

static cl_grammar_library *open_library(void) { return open_with(&cl_process_defaults); }

static cl_status try_compile(cl_grammar_library *l, uint32_t domain, const char *text, cl_grammar **g, cl_error *error) {
    *error = (cl_error){.code = CL_OK};
    return l->compile(l, domain, CL_GRAMMAR_REGEX, text, strlen(text), g, error);
}

static cl_grammar *must_compile_for(cl_grammar_library *l, uint32_t domain, const char *text) {
    cl_grammar *g;
    cl_error error;
    if (try_compile(l, domain, text, &g, &error) != CL_OK) fail_msg("%s: %s", text, error.message);
    return g;
}

static cl_grammar *must_compile(cl_grammar_library *l, const char *text) { return must_compile_for(l, 0, text); }

static void use_once(cl_grammar_library *l, const char *text) {
    cl_grammar *g = must_compile(l, text);
    g->free(g);
}

/* Valid until the next call. */
static const char *numbered(int i) {
    static char text[16];
    snprintf(text, sizeof text, "g%d", i);
    return text;
}

static void expect_refusal(cl_grammar_library *l, const char *text, cl_status status, const char *says) {
    cl_grammar *g;
    cl_error error;
    const cl_status was = try_compile(l, 0, text, &g, &error);
    if (was != status || g || !strstr(error.message, says))
        fail_msg("%s: %d, \"%s\" should be %d, \"%s\"", text, was, error.message, status, says);
}

static void expect_failure(cl_matcher *m, cl_status status, const char *says) {
    uint32_t mask[WORDS];
    bool allowed;
    cl_error error;
    assert_false(m->get_mask(m, mask));
    assert_false(m->try_advance(m, 7, &allowed));
    assert_int_equal(m->get_forced(m, (int32_t *)mask), -1);
    assert_int_equal(m->explain(m, &error), status);
    if (!strstr(error.message, says)) fail_msg("\"%s\" should say \"%s\"", error.message, says);
}

static void expect_works(cl_grammar *g) {
    bool allowed = false;
    cl_matcher *m = g->start(g);
    assert_true(m->try_advance(m, 7, &allowed) && allowed);
    m->free(m);
}

static void end(cl_grammar_library *l, cl_grammar *g) {
    g->free(g);
    l->free(l);
}

/* Whether a process has ended, also if nobody has waited for it. */
static bool is_gone(pid_t pid) {
    char path[32], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return true;
    if (fscanf(file, "%*d %*s %c", &state) != 1) state = 'Z';
    fclose(file);
    return state == 'Z' || state == 'X';
}

static pid_t last_process(void) { return atomic_load(&shared->last); }

static int set_up(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

/* ---- Tests ---- */

/* What matchers say, in whatever order they are asked, is what they say in the own process. */
static void they_answer_as_in_the_own_process(void **state) {
    (void)state;
    cl_grammar_library *libraries[2] = {open_library(), NULL};
    cl_error error;
    assert_int_equal(open_odd("odd", NULL, N_VOCAB, false, &libraries[1], &error), CL_OK);
    cl_grammar *g[2] = {must_compile(libraries[0], "x"), must_compile(libraries[1], "x")};
    rng r = {1};
    int n_forced = 0, n_complete = 0, n_refused = 0;
    for (int run = 0; run < 40; run++) {
        cl_matcher *m[2] = {g[0]->start(g[0]), g[1]->start(g[1])};
        for (int step = 0; step < 60 && !m[1]->is_complete(m[1]); step++) {
            uint32_t mask[2][WORDS];
            int32_t forced[2][CL_FORCED_MAX] = {{0}}, tokens[3], n[2];
            bool allowed[2] = {false, false};
            for (int i = 0; i < 3; i++) tokens[i] = (int32_t)rng_below(&r, 990);
            const int what = (int)rng_below(&r, 5);
            for (int i = 0; i < 2; i++) {
                if (what == 0) assert_true(m[i]->get_mask(m[i], mask[i]));
                if (what == 1) assert_true(m[i]->try_advance(m[i], tokens[0], &allowed[i]));
                if (what == 2) n[i] = m[i]->count_valid(m[i], tokens, 3);
                if (what == 3) n[i] = m[i]->get_forced(m[i], forced[i]);
                if (what == 4) assert_true(m[i]->advance(m[i], tokens[0]));
            }
            if (what == 0) assert_memory_equal(mask[0], mask[1], sizeof *mask);
            if (what == 1) assert_int_equal(allowed[0], allowed[1]);
            if (what == 2 || what == 3) assert_int_equal(n[0], n[1]);
            assert_memory_equal(forced[0], forced[1], sizeof(int32_t) * (size_t)(what == 3 ? n[0] : 0));
            assert_int_equal(m[0]->is_complete(m[0]), m[1]->is_complete(m[1]));
            n_forced += what == 3 && n[0] > 0;
            n_refused += what == 1 && !allowed[0];
        }
        n_complete += m[1]->is_complete(m[1]);
        for (int i = 0; i < 2; i++) m[i]->free(m[i]);
    }
    assert_true(n_forced > 20 && n_complete > 5 && n_refused > 50);
    for (int i = 0; i < 2; i++) end(libraries[i], g[i]);
}

/* A token that may come takes one message, with all that is asked about it; a refused one takes none more until it is replaced.
 */
static void a_token_takes_one_message(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    cl_grammar *g = must_compile(l, "x");
    cl_matcher *m = g->start(g);
    uint32_t mask[WORDS];
    int32_t forced[CL_FORCED_MAX];
    bool allowed;
    const int before = atomic_load(&n_messages);
    for (int i = 0; i < 10; i++) {
        assert_true(m->try_advance(m, 7, &allowed) && allowed);
        assert_false(m->is_complete(m));
        assert_true(m->get_forced(m, forced) >= 0);
    }
    assert_int_equal(atomic_load(&n_messages) - before, 10);
    for (int32_t id = 2; id < 8; id += 3) assert_true(m->try_advance(m, id, &allowed) && !allowed);
    assert_true(m->get_mask(m, mask) && m->advance(m, 7));
    assert_int_equal(atomic_load(&n_messages) - before, 11);
    for (int i = 0; i < CL_FORCED_MAX - 1; i++) assert_true(m->advance(m, 7));
    assert_false(m->is_complete(m));
    assert_int_equal(atomic_load(&n_messages) - before, 12);
    m->free(m);
    end(l, g);
}

static void compilations_end_by_their_limits(void **state) {
    (void)state;
    const cl_process_limits limits = quick();
    cl_grammar_library *l = open_with(&limits);
    cl_grammar *other = must_compile(l, "other");
    expect_refusal(l, "wrong", CL_ERR_ARG, "grammar is of kind 2");
    expect_refusal(l, "time", CL_ERR_LIMIT, "cannot be compiled: it takes more than the 0.1 s of CPU time that it may");
    expect_refusal(l, "memory", CL_ERR_LIMIT, "cannot be compiled: it needs more than the 8 MiB of memory that it may");
    expect_refusal(l, "fault", CL_ERR_LIMIT, "cannot be compiled: it recurses deeper than its stack allows, or hits a defect");
    expect_refusal(l, "leaves", CL_ERR_NOMEM, "has ended, by exit status 0");
    assert_true(is_gone(last_process()));
    expect_works(other);
    end(l, other);
}

/* A process that neither works nor ends is given up, by the clock. */
static void a_process_that_hangs_is_given_up(void **state) {
    (void)state;
    cl_process_limits limits = cl_process_defaults;
    limits.compile_wait_s = limits.answer_wait_s = 0.02;
    cl_grammar_library *l = open_with(&limits);
    expect_refusal(l, "hold", CL_ERR_LIMIT, "cannot be compiled: it takes more than the 0.02 s that it may");
    assert_true(is_gone(last_process()));
    l->free(l);
    limits.compile_wait_s = 1e9;
    l = open_with(&limits);
    cl_grammar *g = must_compile(l, "x");
    cl_matcher *m = g->start(g);
    kill(last_process(), SIGSTOP);
    expect_failure(m, CL_ERR_LIMIT, "cannot be followed: it takes more than the 0.02 s that it may");
    m->free(m);
    end(l, g);
}

typedef struct waiting {
    cl_grammar_library *l;
    atomic_bool stop;
    cl_status status;
    cl_error error;
} waiting;

static void *wait_for_hold(void *arg) {
    waiting *w = arg;
    const cl_deadline deadline = {.limit_s = 1e9, .at = clock_seconds() + 1e9, .stop = &w->stop};
    cl_grammar *g;
    cl_deadline_set(&deadline);
    w->status = try_compile(w->l, 0, "hold", &g, &w->error);
    cl_deadline_set(NULL);
    return NULL;
}

/* While a compilation is held, other grammars are compiled and followed, and whoever waits for it can be stopped. */
static void a_held_compilation_is_in_nobodys_way(void **state) {
    (void)state;
    cl_process_limits limits = cl_process_defaults;
    limits.compile_wait_s = 1e9;
    waiting w = {.l = open_with(&limits)};
    pthread_t thread;
    atomic_store(&shared->held, false);
    pthread_create(&thread, NULL, wait_for_hold, &w);
    WAIT_UNTIL(atomic_load(&shared->held));
    const pid_t held = last_process();
    for (int i = 0; i < 3; i++) {
        cl_grammar *g = must_compile(w.l, i ? "x" : "y");
        expect_works(g);
        g->free(g);
    }
    assert_false(is_gone(held));
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(w.status, CL_ERR_BUSY);
    assert_non_null(strstr(w.error.message, "stopped"));
    assert_true(is_gone(held));
    w.l->free(w.l);
}

/* Whoever compiles has a deadline for all that it does. */
static void a_compilation_keeps_the_deadline(void **state) {
    (void)state;
    cl_process_limits limits = cl_process_defaults;
    limits.compile_wait_s = 1e9;
    cl_grammar_library *l = open_with(&limits);
    const cl_deadline passed = {.limit_s = 3, .at = clock_seconds()};
    cl_deadline_set(&passed);
    expect_refusal(l, "hold", CL_ERR_LIMIT, "grammar cannot be compiled: it takes longer to prepare than the 3 s");
    cl_deadline_set(NULL);
    l->free(l);
}

/* What one matcher brings about ends all choices with its grammar at once, and no other grammar. */
static void failures_end_their_grammar(void **state) {
    (void)state;
    static const struct {
        int32_t token;
        int signal; /* from outside, in place of the token */
        cl_status status;
        const char *says;
    } cases[] = {
        {998, 0, CL_ERR_LIMIT, "cannot be followed: a step of it takes more than 0.1 s of CPU time, or all steps"},
        {997, 0, CL_ERR_LIMIT, "cannot be followed: it recurses deeper than its stack allows, or hits a defect"},
        {0, SIGKILL, CL_ERR_NOMEM, "has ended, by signal 9"},
        {996, 0, CL_ERR_LIMIT, "cannot be followed: it needs more than the 8 MiB of memory that it may"},
    };
    const cl_process_limits limits = quick();
    cl_grammar_library *l = open_with(&limits);
    cl_grammar *other = must_compile(l, "other");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_grammar *g = must_compile(l, "x"), *again;
        cl_matcher *m[30];
        const pid_t process = last_process();
        for (int k = 0; k < 30; k++) m[k] = g->start(g);
        if (cases[i].signal)
            kill(process, cases[i].signal);
        else
            m[0]->advance(m[0], cases[i].token);
        expect_failure(m[0], cases[i].status, cases[i].says);
        const int before = atomic_load(&n_messages);
        for (int k = 1; k < 30; k++) expect_failure(m[k], cases[i].status, cases[i].says);
        assert_int_equal(atomic_load(&n_messages), before);
        expect_works(other);
        again = must_compile(l, "x");
        assert_int_not_equal(last_process(), process);
        expect_works(again);
        again->free(again);
        for (int k = 0; k < 30; k++) m[k]->free(m[k]);
        g->free(g);
        assert_true(is_gone(process));
    }
    end(l, other);
}

/* A matcher that fails by itself fails alone, and no control character of its message comes out. */
static void a_matcher_fails_alone(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    cl_grammar *g = must_compile(l, "x");
    cl_matcher *m = g->start(g);
    m->advance(m, 999);
    expect_failure(m, CL_ERR_LIMIT, "grammar fails by?[31m its token");
    expect_works(g);
    m->free(m);
    end(l, g);
}

/* All answers of a grammar together have a budget, to which each question adds. */
static void slow_grammars_run_out_of_time(void **state) {
    (void)state;
    cl_process_limits limits = cl_process_defaults;
    limits.first_s = 1e-3;
    limits.question_s = 0;
    cl_grammar_library *l = open_with(&limits);
    cl_grammar *g = must_compile(l, "x");
    cl_matcher *m = g->start(g);
    uint32_t mask[WORDS];
    while (m->get_mask(m, mask)) {
        bool allowed;
        m->try_advance(m, 7, &allowed);
    }
    expect_failure(m, CL_ERR_LIMIT, "of CPU time");
    m->free(m);
    end(l, g);
}

/* The grammars of a domain have a budget for each step, too. Beyond it the longest end, and those of others do not. */
static void a_domains_steps_have_a_limit(void **state) {
    (void)state;
    enum { N = 11 }; /* the last one is another domain's */
    cl_process_limits limits = cl_process_defaults;
    limits.question_s = 0;
    limits.answer_s = limits.first_s = limits.answer_wait_s = 1e9;
    cl_grammar_library *l = open_with(&limits);
    cl_grammar *g[N];
    cl_matcher *m[N], *asked[N];
    int32_t tokens[N];
    uint32_t mask[WORDS];
    int n_left = 0;
    for (int i = 0; i < N; i++) {
        g[i] = must_compile_for(l, i == N - 1, numbered(i));
        m[i] = asked[i] = g[i]->start(g[i]);
        tokens[i] = 995;
        assert_true(m[i]->advance(m[i], 2)); /* after which this token is allowed */
    }
    m[0]->foresee(asked, tokens, N);
    for (int i = 0; i < N; i++) {
        bool allowed = false;
        assert_true(m[i]->try_advance(m[i], 995, &allowed) && allowed);
    }
    for (int i = 0; i < N - 1; i++) n_left += m[i]->get_mask(m[i], mask);
    assert_in_range(n_left, 1, (int)(limits.domain_s / TURN_S));
    assert_true(m[N - 1]->get_mask(m[N - 1], mask));
    for (int i = 0; i < N - 1; i++)
        if (!m[i]->get_mask(m[i], mask))
            expect_failure(m[i], CL_ERR_LIMIT,
                           "in a step the grammars of one tenant take more than 0.4 s of CPU time together");
    for (int i = 0; i < N; i++) {
        m[i]->free(m[i]);
        g[i]->free(g[i]);
    }
    l->free(l);
}

static void grammars_are_kept_while_there_is_room(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    const int before = atomic_load(&shared->n_compiled);
    for (int i = 0; i < 3; i++) { /* without a user, with one, and with two */
        cl_grammar *g = must_compile(l, "first");
        if (i == 0) g->free(g);
    }
    assert_int_equal(atomic_load(&shared->n_compiled), before + 1);
    for (int i = 1; i < ALL; i++) use_once(l, numbered(i));
    use_once(l, "g1");
    assert_int_equal(atomic_load(&shared->n_compiled), before + ALL);
    use_once(l, "more"); /* in the place of g2, whose use is the longest ago */
    for (int i = ALL - 1; i > 2; i--) use_once(l, numbered(i));
    use_once(l, "g1");
    assert_int_equal(atomic_load(&shared->n_compiled), before + ALL + 1);
    use_once(l, "g2");
    assert_int_equal(atomic_load(&shared->n_compiled), before + ALL + 2);
    l->free(l);
}

/* How many grammars requests of a domain can use at once. */
static int fill(cl_grammar_library *l, uint32_t domain) {
    cl_grammar *g;
    cl_error error;
    int n = 0;
    while (try_compile(l, domain, numbered(n), &g, &error) == CL_OK) n++;
    assert_int_equal(error.code, CL_ERR_BUSY);
    assert_non_null(strstr(error.message, "as many different grammars as they may: there are 128 processes with 1024 MiB"));
    return n;
}

/* Each domain may have as much as it leaves free, also where others had everything before, and nobody has another's. */
static void domains_share_the_processes(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    const int before = atomic_load(&shared->n_compiled);
    assert_int_equal(fill(l, 1), ALL / 2);
    assert_int_equal(fill(l, 2), ALL / 4);
    assert_int_equal(fill(l, 3), ALL / 8);
    assert_int_equal(atomic_load(&shared->n_compiled), before + ALL / 2 + ALL / 4 + ALL / 8);
    l->free(l);
}

/*
 * The memory of all processes together has a limit, too: unused ones end first, and then one of a domain that has the most, and
 * not one that asks just then.
 */
static void memory_of_all_has_a_limit(void **state) {
    (void)state;
    cl_process_limits limits = cl_process_defaults;
    limits.all_memory_bytes = (size_t)64 << 20;
    cl_grammar_library *l = open_with(&limits);
    cl_grammar *g[3] = {must_compile_for(l, 1, "small"), must_compile_for(l, 1, "large"), NULL}, *none;
    cl_matcher *m[3] = {g[0]->start(g[0]), g[1]->start(g[1]), NULL};
    cl_error error;
    uint32_t mask[WORDS];
    bool works[3];
    use_once(l, "large, too");
    const pid_t unused = last_process();
    assert_true(m[0]->get_mask(m[0], mask) && m[0]->advance(m[0], 7));
    assert_true(is_gone(unused));
    g[2] = must_compile_for(l, 2, "large");
    m[2] = g[2]->start(g[2]);
    assert_int_equal(try_compile(l, 3, "small", &none, &error), CL_ERR_BUSY);
    for (int i = 0; i < 3; i++) works[i] = m[i]->get_mask(m[i], mask);
    assert_true(works[0] && works[1] != works[2]);
    expect_failure(m[works[1] ? 2 : 1], CL_ERR_LIMIT, "all grammars together need more than the 64 MiB");
    for (int i = 0; i < 3; i++) {
        m[i]->free(m[i]);
        g[i]->free(g[i]);
    }
    l->free(l);
}

/* It is what the answers have left that counts, and not what was there before them. */
static void memory_of_the_last_answers_counts(void **state) {
    (void)state;
    cl_process_limits limits = cl_process_defaults;
    limits.all_memory_bytes = (size_t)64 << 20;
    cl_grammar_library *l = open_with(&limits);
    cl_grammar *g[2] = {must_compile(l, "x"), must_compile(l, "y")};
    cl_matcher *m[2] = {g[0]->start(g[0]), g[1]->start(g[1])};
    uint32_t mask[WORDS];
    for (int i = 0; i < 3; i++) assert_true(m[i > 0]->advance(m[i > 0], 994)); /* the second one has most */
    assert_true(m[0]->get_mask(m[0], mask));
    assert_false(m[1]->get_mask(m[1], mask));
    expect_failure(m[1], CL_ERR_LIMIT, "all grammars together need more than the 64 MiB");
    for (int i = 0; i < 2; i++) {
        m[i]->free(m[i]);
        g[i]->free(g[i]);
    }
    l->free(l);
}

/* Deep recursion meets the end of its stack, and not what else is there. */
static void a_stack_has_an_end(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    cl_grammar *g = must_compile(l, "stack");
    assert_int_equal(atomic_load(&shared->n_readable), 2);
    end(l, g);
}

/* All files are closed, with or without the call that closes many. */
static void no_file_is_inherited(void **state) {
    (void)state;
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){1000, before.rlim_max});
    for (int i = 0; i < 2; i++) {
        is_old = i > 0;
        int ends[2];
        char byte;
        assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
        cl_grammar_library *l = open_library();
        cl_grammar *g = must_compile(l, "x");
        is_old = false;
        close(ends[1]);
        assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody else can write */
        close(ends[0]);
        expect_works(g);
        end(l, g);
    }
    setrlimit(RLIMIT_NOFILE, &before);
}

static void processes_can_do_nothing_else(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    cl_grammar *g = must_compile(l, "calls");
    assert_int_equal(atomic_load(&shared->n_tried_calls), 17);
    assert_int_equal(atomic_load(&shared->n_allowed_calls), 0);
    expect_works(g);
    end(l, g);
}

/* The signals by which terminals and service managers end programs reach all their processes. */
static void only_the_engine_ends_them(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1};
    cl_grammar_library *l = open_library();
    cl_grammar *g = must_compile(l, "x");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        kill(atomic_load(&shared->starter), signals[i]);
        kill(last_process(), signals[i]);
    }
    expect_works(g);
    expect_works(must_compile(l, "y"));
    const pid_t process = last_process(), starter = atomic_load(&shared->starter);
    l->free(l); /* closes the sockets */
    WAIT_UNTIL(is_gone(process) && is_gone(starter));
}

/* Without the starter its processes end, and nothing waits for it. */
static void without_the_starter_all_grammars_fail(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    cl_grammar *g = must_compile(l, "x");
    cl_matcher *m = g->start(g);
    kill(atomic_load(&shared->starter), SIGKILL);
    WAIT_UNTIL(is_gone(last_process()));
    expect_refusal(l, "y", CL_ERR_NOMEM, "the process that starts grammars has ended; restart the server");
    expect_failure(m, CL_ERR_NOMEM, "has ended");
    m->free(m);
    end(l, g);
}

/* A starter that hangs is killed. */
static void nobody_waits_for_the_starter(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    const pid_t starter = atomic_load(&shared->starter);
    kill(starter, SIGSTOP);
    l->free(l);
    assert_true(is_gone(starter));
}

/* The process of an engine that is killed leaves none behind, not even beside another process that it had forked. */
static void they_end_with_the_engines_process(void **state) {
    (void)state;
    for (int forks = 0; forks < 2; forks++) {
        const pid_t before = last_process(), starter = atomic_load(&shared->starter), engine = fork_child();
        if (engine == 0) {
            must_compile(open_library(), "x");
            const pid_t other = forks ? fork() : 1;
            if (other == 0)
                for (;;) pause();
            atomic_store(&shared->other, other);
            raise(SIGKILL);
        }
        const int status = end_of_child(engine);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_true(last_process() != before && atomic_load(&shared->starter) != starter);
        WAIT_UNTIL(is_gone(last_process()) && is_gone(atomic_load(&shared->starter)));
        if (forks) kill(atomic_load(&shared->other), SIGKILL);
    }
}

/* A program may have closed its standard files, whose numbers the sockets get then. */
static void they_need_no_standard_files(void **state) {
    (void)state;
    const pid_t engine = fork_child();
    if (engine == 0) {
        for (int fd = 0; fd < 3; fd++) close(fd);
        expect_works(must_compile(open_library(), "x"));
        _exit(0);
    }
    assert_int_equal(end_of_child(engine), 0);
}

/* A process whose socket cannot be received does not stay. */
static void without_files_nothing_is_left(void **state) {
    (void)state;
    cl_grammar_library *l = open_library();
    struct rlimit before;
    const int next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, before.rlim_max});
    for (int i = 0; i < CL_STARTER_MAX + 1; i++) expect_refusal(l, "x", CL_ERR_NOMEM, "no process or file is left");
    setrlimit(RLIMIT_NOFILE, &before);
    end(l, must_compile(l, "x"));
}

static void errors_of_loading_come_through(void **state) {
    (void)state;
    cl_grammar_library *l;
    cl_error error;
    assert_int_equal(cl_grammar_open_processes(open_odd, "even", NULL, N_VOCAB, &cl_process_defaults, &l, &error), CL_ERR_FILE);
    assert_null(l);
    assert_string_equal(error.message, "grammar_library is even");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_answer_as_in_the_own_process),
        cmocka_unit_test(a_token_takes_one_message),
        cmocka_unit_test(compilations_end_by_their_limits),
        cmocka_unit_test(a_process_that_hangs_is_given_up),
        cmocka_unit_test(a_held_compilation_is_in_nobodys_way),
        cmocka_unit_test(a_compilation_keeps_the_deadline),
        cmocka_unit_test(failures_end_their_grammar),
        cmocka_unit_test(a_matcher_fails_alone),
        cmocka_unit_test(slow_grammars_run_out_of_time),
        cmocka_unit_test(a_domains_steps_have_a_limit),
        cmocka_unit_test(grammars_are_kept_while_there_is_room),
        cmocka_unit_test(domains_share_the_processes),
        cmocka_unit_test(memory_of_all_has_a_limit),
        cmocka_unit_test(memory_of_the_last_answers_counts),
        cmocka_unit_test(a_stack_has_an_end),
        cmocka_unit_test(no_file_is_inherited),
        cmocka_unit_test(processes_can_do_nothing_else),
        cmocka_unit_test(only_the_engine_ends_them),
        cmocka_unit_test(without_the_starter_all_grammars_fail),
        cmocka_unit_test(nobody_waits_for_the_starter),
        cmocka_unit_test(they_end_with_the_engines_process),
        cmocka_unit_test(they_need_no_standard_files),
        cmocka_unit_test(without_files_nothing_is_left),
        cmocka_unit_test(errors_of_loading_come_through),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

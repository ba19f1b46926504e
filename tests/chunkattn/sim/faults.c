/* Failing calls and the virtual clock: see faults.h. */
#include "faults.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <time.h>

#include "chunkattn.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void __real_free(void *p);
int __real_mprotect(void *p, size_t size, int protection);
cattn_status __real_cattn_step_end(cattn_cache *cache, cattn_error *error);
int __real_clock_gettime(clockid_t id, struct timespec *t);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void __wrap_free(void *p);
int __wrap_mprotect(void *p, size_t size, int protection);
cattn_status __wrap_cattn_step_end(cattn_cache *cache, cattn_error *error);
double __wrap_cl_now(void);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

double sim_time, sim_jumped, sim_row_seconds;

static struct { int64_t n, times; } requests[FAULT_KINDS];
static bool armed;
static int64_t n_fired, n_fired_disk, n_allocated, n_allocations;

void fault_request(fault_kind kind, int64_t n, int64_t times) {
    requests[kind].n = n;
    requests[kind].times = times;
}

bool fault_fires(fault_kind kind) {
    const bool of_disk = kind >= FAULT_OPEN;
    if ((!armed && !of_disk) || requests[kind].n == 0) return false;
    if (requests[kind].n > 1) {
        requests[kind].n--;
        return false;
    }
    if (--requests[kind].times <= 0) requests[kind].n = 0;
    if (of_disk)
        n_fired_disk++;
    else
        n_fired++;
    return true;
}

void faults_arm(void) { armed = true; }
int64_t faults_n_fired(void) { return n_fired; }
int64_t faults_n_fired_disk(void) { return n_fired_disk; }
int64_t faults_n_allocated(void) { return n_allocated; }
int64_t faults_n_allocations(void) { return n_allocations; }

bool faults_disarm(void) {
    const bool before = armed;
    armed = false;
    return before;
}

/* ---- Memory ---- */

static void *counted(void *p) {
    n_allocated += p != NULL;
    n_allocations++;
    return p;
}

void *__wrap_malloc(size_t size) { return fault_fires(FAULT_ALLOCATION) ? NULL : counted(__real_malloc(size)); }
void *__wrap_calloc(size_t n, size_t size) { return fault_fires(FAULT_ALLOCATION) ? NULL : counted(__real_calloc(n, size)); }
void *__wrap_aligned_alloc(size_t align, size_t size) {
    return fault_fires(FAULT_ALLOCATION) ? NULL : counted(__real_aligned_alloc(align, size));
}

void *__wrap_realloc(void *p, size_t size) {
    if (fault_fires(FAULT_ALLOCATION)) return NULL;
    void *larger = __real_realloc(p, size);
    if (!p) counted(larger);
    return larger;
}

void __wrap_free(void *p) {
    n_allocated -= p != NULL;
    __real_free(p);
}

int __wrap_mprotect(void *p, size_t size, int protection) {
    if (!fault_fires(FAULT_COMMIT)) return __real_mprotect(p, size, protection);
    errno = ENOMEM;
    return -1;
}

/* ---- Steps ---- */

cattn_status __wrap_cattn_step_end(cattn_cache *cache, cattn_error *error) {
    if (!fault_fires(FAULT_STEP_END)) return __real_cattn_step_end(cache, error);
    error->message[0] = 0;
    return CATTN_ERR_NOMEM;
}

/* ---- Time ---- */

double sim_steady_time(void) { return 1000 + sim_time - sim_jumped; }

double __wrap_cl_now(void) { return sim_time; }

int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    (void)id;
    const double seconds = floor(sim_steady_time());
    *t = (struct timespec){(time_t)seconds, (long)(1e9 * (sim_steady_time() - seconds))};
    return 0;
}

double real_seconds(void) {
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs in a child process, and what is reported of one that fails: see plans.h. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plans.h"

/* What a child says to its parent. */
typedef struct report {
    const char *format; /* of the failure; NULL: it crashed, or an assertion failed */
    bool is_quiet;      /* a failure is not printed */
} report;

static report *shared;
static const char *first_format;
static void (*run_plan)(const void *plan);

void *plan_shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) return memory;
    perror("mmap");
    exit(2);
}

void plan_fail(const char *format, const char *message) {
    shared->format = format;
    if (!shared->is_quiet) fprintf(stderr, "%s\n", message);
    fflush(stderr);
    _exit(1);
}

static bool run_apart(void (*task)(const void *arg), const void *arg, bool is_quiet) {
    if (!shared) shared = plan_shared(sizeof *shared);
    *shared = (report){.is_quiet = is_quiet};
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    if (child == 0) {
        if (is_quiet && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout))) _exit(2);
        task(arg);
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool plan_run(void (*task)(const void *arg), const void *arg) { return run_apart(task, arg, false); }

/* Whether a plan fails in the same way as the first one. */
static bool fails_alike(const void *plan) { return !run_apart(run_plan, plan, true) && shared->format == first_format; }

void plan_report(const plan_kind *kind, void *plan, void (*run)(const void *plan)) {
    run_plan = run;
    if (run_apart(run, plan, true)) {
        printf("The failure does not repeat.\n");
        return;
    }
    first_format = shared->format;
    plan_shrink(kind, plan, fails_alike);
    printf("The smallest plan that fails so; save it, and run it with --plan:\n\n");
    plan_print(kind, plan, stdout);
    printf("\n");
    run_apart(run, plan, false);
}

int plan_run_file(const plan_kind *kind, const char *path, void *plan, void (*run)(const void *plan)) {
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return 2;
    }
    const bool is_plan = plan_read(kind, plan, file);
    fclose(file);
    if (!is_plan) return 2;
    if (plan_run(run, plan)) return 0;
    plan_report(kind, plan, run);
    return 1;
}

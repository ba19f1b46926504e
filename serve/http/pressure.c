/* Watches the system's memory, and adapts the budget of the K/V cache: see pressure.h. */
#include "pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"

enum { MAX_FILE = 16 << 10 }; /* memory.stat has about 2 KB */

struct http_pressure {
    int stalls, current, stat, high, max; /* files; -1: there is none */
    bool has_total;                       /* a sample was read before, of: */
    uint64_t total;                       /* microseconds of stalls */
    double read_at;
    pressure_budget budget;
    char text[MAX_FILE]; /* of the file that was read last */
};

/* ---- Files ---- */

static bool read_file(http_pressure *p, int fd) {
    const ssize_t n = fd < 0 ? -1 : pread(fd, p->text, sizeof p->text - 1, 0);
    p->text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The number after `key` in the text that was read last; false: there is none, as for a limit that is "max". */
static bool number_after(const http_pressure *p, const char *key, uint64_t *value) {
    const char *at = strstr(p->text, key);
    return at && sscanf(at + strlen(key), "%" SCNu64, value) == 1;
}

/* The number that a file begins with, or that follows a key. */
static bool read_number(http_pressure *p, int fd, const char *key, uint64_t *value) {
    return read_file(p, fd) && number_after(p, key, value);
}

/* The path of the PSI file of this process's control group, in text [size]; false: it has none. */
static bool own_path(char *text, size_t size) {
    char line[4096];
    bool found = false;
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && !found && fgets(line, sizeof line, groups)) {
        line[strcspn(line, "\n")] = '\0';
        found = strncmp(line, "0::", 3) == 0;
    }
    if (groups) fclose(groups);
    return found && snprintf(text, size, "/sys/fs/cgroup%s/memory.pressure", line + 3) < (int)size && access(text, R_OK) == 0;
}

/* Open a file in the folder of the PSI file at `path`. */
static int open_beside(const char *path, const char *name) {
    char beside[4200];
    const char *slash = strrchr(path, '/');
    const int n_folder = slash ? (int)(slash + 1 - path) : 0;
    const int n = snprintf(beside, sizeof beside, "%.*s%s", n_folder, path, name);
    return n < (int)sizeof beside ? open(beside, O_RDONLY | O_CLOEXEC) : -1;
}

cl_status pressure_open(const char *path, http_pressure **out, cl_error *error) {
    char own[4200];
    *out = NULL;
    if (strcmp(path, "auto") == 0) path = own_path(own, sizeof own) ? own : "/proc/pressure/memory";
    http_pressure *p = calloc(1, sizeof *p);
    if (!p) return cl_fail(error, CL_ERR_NOMEM, "no memory to watch %s", path);
    p->stalls = open(path, O_RDONLY | O_CLOEXEC);
    const int not_open = errno;
    p->current = open_beside(path, "memory.current");
    p->stat = open_beside(path, "memory.stat");
    p->high = open_beside(path, "memory.high");
    p->max = open_beside(path, "memory.max");
    uint64_t total;
    errno = 0; /* unless reading says more */
    if (!read_number(p, p->stalls, "total=", &total)) {
        const int cause = p->stalls < 0 ? not_open : errno;
        pressure_close(&p);
        return cl_fail(error, CL_ERR_FILE,
                       "cannot read stalls of memory from %.200s: %s; name memory.pressure of a control group, or "
                       "/proc/pressure/memory if the kernel has it",
                       path, cause ? strerror(cause) : "it has no line with total=");
    }
    *out = p;
    return CL_OK;
}

static void close_file(int fd) {
    if (fd >= 0) close(fd);
}

void pressure_close(http_pressure **address) {
    http_pressure *p = address ? *address : NULL;
    if (!p) return;
    *address = NULL;
    close_file(p->stalls);
    close_file(p->current);
    close_file(p->stat);
    close_file(p->high);
    close_file(p->max);
    free(p);
}

/* ---- Samples ---- */

/* The part of the time since the last sample in which some task waited. */
static double read_stalled(http_pressure *p, double now) {
    uint64_t total;
    if (!read_number(p, p->stalls, "total=", &total)) return 0; /* the first is the line "some" */
    const double seconds = now - p->read_at;
    const bool comparable = p->has_total && total > p->total && seconds > 0;
    const double stalled = comparable ? 1e-6 * (double)(total - p->total) / seconds : 0;
    p->has_total = true;
    p->total = total;
    p->read_at = now;
    return stalled < 1 ? stalled : 1;
}

/* Memory in use but for cached files, which the kernel drops by itself, relative to the smaller limit. */
static double read_used(http_pressure *p) {
    uint64_t current, files = 0, limit = UINT64_MAX, other;
    if (!read_number(p, p->current, "", &current)) return 0;
    if (read_number(p, p->high, "", &other) && other < limit) limit = other;
    if (read_number(p, p->max, "", &other) && other < limit) limit = other;
    if (limit == UINT64_MAX || limit == 0) return 0;
    if (read_file(p, p->stat)) {
        if (number_after(p, "\ninactive_file ", &other)) files += other;
        if (number_after(p, "\nactive_file ", &other)) files += other;
    }
    return current > files ? (double)(current - files) / (double)limit : 0;
}

pressure_sample pressure_read(http_pressure *p, double now) {
    return (pressure_sample){.stalled = read_stalled(p, now), .used = read_used(p)};
}

/* ---- The budget ---- */

void pressure_decide(pressure_budget *b, const pressure_sample *sample, uint64_t bytes_in_use, double now) {
    static const double calm_s = 10;
    const uint64_t eighth = b->whole / 8;
    if (sample->stalled > 0.10 || sample->used > 0.95) {
        const uint64_t used = bytes_in_use < b->bytes ? bytes_in_use : b->bytes, lower = used / 4 * 3;
        if (b->bytes > eighth) b->bytes = lower > eighth ? lower : eighth;
        b->calm_since = now;
    } else if (sample->stalled > 0.01 || sample->used > 0.85) {
        b->calm_since = now;
    } else if (b->bytes < b->whole && now - b->calm_since >= calm_s) {
        b->bytes = b->whole - b->bytes > eighth ? b->bytes + eighth : b->whole;
        b->calm_since = now;
    }
}

void pressure_follow(http_pressure *p, cl_engine *engine) {
    const double now = clock_seconds();
    const pressure_sample sample = pressure_read(p, now);
    cattn_stats kv = {.struct_size = sizeof kv};
    cl_engine_get_kv_stats(engine, &kv);
    if (p->budget.whole == 0) p->budget = (pressure_budget){.whole = kv.budget_bytes, .bytes = kv.budget_bytes};
    const uint64_t before = p->budget.bytes;
    pressure_decide(&p->budget, &sample, kv.bytes_in_use, now);
    if (p->budget.bytes != before) cl_engine_set_kv_budget(engine, p->budget.bytes, NULL);
}

/* Reads the files of the system and of the control groups: see memory.h. */
#include "memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4200 };

/* Let *line [size] be the first line of a file that begins with `start`. False: it has none. */
static bool find_line(const char *folder, const char *name, const char *start, char *line, int size) {
    char path[MAX_PATH];
    FILE *f = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path ? fopen(path, "re") : NULL;
    bool found = false;
    while (f && !found && fgets(line, size, f)) found = strncmp(line, start, strlen(start)) == 0;
    if (f) fclose(f);
    return found;
}

/* The number behind `start`; 0 if the file has none, as a limit that is "max". */
static uint64_t number(const char *folder, const char *name, const char *start) {
    char line[128];
    uint64_t n = 0;
    if (find_line(folder, name, start, line, sizeof line)) (void)sscanf(line + strlen(start), "%" SCNu64, &n);
    return n;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* What the limit of a control group leaves. */
static void apply_group(ca_memory *m, const char *group) {
    const uint64_t limit = number(group, "memory.max", ""), current = number(group, "memory.current", ""),
                   files = number(group, "memory.stat", "active_file ") + number(group, "memory.stat", "inactive_file "),
                   used = current - least(files, current);
    if (limit == 0) return;
    m->total = least(m->total, limit);
    m->free = least(m->free, limit - least(used, limit));
}

ca_memory ca_memory_read(const char *proc, const char *groups) {
    static const uint64_t kib = 1024;
    const uint64_t total = number(proc, "meminfo", "MemTotal:"), available = number(proc, "meminfo", "MemAvailable:");
    ca_memory m = {.total = total ? total * kib : UINT64_MAX, .free = available ? available * kib : UINT64_MAX};
    char line[MAX_PATH], group[MAX_PATH];
    if (!find_line(proc, "self/cgroup", "0::/", line, sizeof line)) return m;
    line[strcspn(line, "\n")] = '\0';
    if (snprintf(group, sizeof group, "%s%s", groups, line + strlen("0::")) >= (int)sizeof group) return m;
    for (char *end = group + strlen(group); end >= group + strlen(groups); end = strrchr(group, '/')) {
        *end = '\0';
        apply_group(&m, group);
    }
    return m;
}

/* Reads the files of the system and of the control groups: see memory.h. */
#include "memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH = 4200 };
static const uint64_t kib = 1024;

/* ---- Files ---- */

static FILE *open_file(const char *folder, const char *name) {
    char path[MAX_PATH];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* Let *line [size] be the first line of a file that begins with `start`. False: it has none. */
static bool find_line(const char *folder, const char *name, const char *start, char *line, int size) {
    FILE *f = open_file(folder, name);
    bool found = false;
    while (f && !found && fgets(line, size, f)) found = strncmp(line, start, strlen(start)) == 0;
    if (f) fclose(f);
    return found;
}

/* The number behind `start`; 0 if the file has none, as a limit that is "max" or "unlimited". */
static uint64_t number(const char *folder, const char *name, const char *start) {
    char line[128];
    uint64_t n = 0;
    if (find_line(folder, name, start, line, sizeof line)) (void)sscanf(line + strlen(start), "%" SCNu64, &n);
    return n;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- Control groups ---- */

/* The names of a version of control groups. */
typedef struct group_names {
    const char *folder, *limit, *current;    /* folder: of the hierarchy; "": the one of all */
    const char *active_file, *inactive_file; /* in memory.stat */
} group_names;

static const group_names version_1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ",
                                      "total_inactive_file "};
static const group_names version_2 = {"", "memory.max", "memory.current", "active_file ", "inactive_file "};

/* What the limit of a control group leaves. */
static void apply_group(ca_memory *m, const char *group, const group_names *names) {
    const uint64_t limit = number(group, names->limit, ""), current = number(group, names->current, ""),
                   files =
                       number(group, "memory.stat", names->active_file) + number(group, "memory.stat", names->inactive_file),
                   used = current - least(files, current);
    if (limit == 0) return;
    m->total = least(m->total, limit);
    m->free = least(m->free, limit - least(used, limit));
}

/* Whether a group counts what the groups in it use, as it always does in version 2. */
static bool is_hierarchical(const char *group) {
    char line[16];
    return !find_line(group, "memory.use_hierarchy", "0", line, sizeof line);
}

/* What the group at a path leaves, and the groups that it is in. */
static void apply_groups(ca_memory *m, const char *groups, const char *path, const group_names *names) {
    char group[MAX_PATH];
    const size_t n_root = strlen(groups) + strlen(names->folder);
    if (snprintf(group, sizeof group, "%s%s%s", groups, names->folder, path) >= (int)sizeof group) return;
    apply_group(m, group, names);
    for (char *end; (end = strrchr(group, '/')) && end >= group + n_root;) {
        *end = '\0';
        if (!is_hierarchical(group)) return;
        apply_group(m, group, names);
    }
}

/* Whether a list with commas has the controller of memory. */
static bool has_memory(const char *controllers) {
    static const char name[] = "memory";
    for (const char *at = controllers; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == strlen(name) && strncmp(at, name, strlen(name)) == 0) return true;
    return false;
}

/* A line of the file of this process's groups: NUMBER:CONTROLLERS:PATH, in version 2 without controllers. */
static void apply_line(ca_memory *m, const char *groups, char *line) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/') return;
    *path++ = '\0';
    if (*++controllers == '\0')
        apply_groups(m, groups, path, &version_2);
    else if (has_memory(controllers))
        apply_groups(m, groups, path, &version_1);
}

/* ---- The process ---- */

/* What a limit of the process leaves of its address space. */
static void apply_limit(ca_memory *m, const char *proc, const char *limit_name, const char *used_name) {
    const uint64_t limit = number(proc, "self/limits", limit_name), used = number(proc, "self/status", used_name) * kib;
    if (limit == 0) return;
    m->total = least(m->total, limit);
    m->space = least(m->space, limit - least(used, limit));
    m->free = least(m->free, m->space);
}

ca_memory ca_memory_read(const char *proc, const char *groups) {
    const uint64_t total = number(proc, "meminfo", "MemTotal:"), available = number(proc, "meminfo", "MemAvailable:");
    ca_memory m = {
        .total = total ? total * kib : UINT64_MAX, .free = available ? available * kib : UINT64_MAX, .space = UINT64_MAX};
    char line[MAX_PATH];
    FILE *f = open_file(proc, "self/cgroup");
    while (f && fgets(line, sizeof line, f)) apply_line(&m, groups, line);
    if (f) fclose(f);
    apply_limit(&m, proc, "Max address space", "VmSize:");
    apply_limit(&m, proc, "Max data size", "VmData:");
    return m;
}

/* The list of kernel levels and the choice among them. */
#include "levels.h"

#include <stdlib.h>
#include <string.h>

#include "cpu.h"

#define CA_LEVEL(name, features) {#name, features},
static const struct {
    const char *name;
    uint32_t features;
} levels[CA_N_LEVELS] = {
#include "levels.def"
};
#undef CA_LEVEL

const char *ca_level_name(int level) { return levels[level].name; }

int ca_level_find(const char *name) {
    int level = CA_N_LEVELS - 1;
    while (level >= 0 && strcmp(levels[level].name, name) != 0) level--;
    return level;
}

uint32_t ca_level_features(int level) { return levels[level].features; }

bool ca_level_runs(int level) { return (levels[level].features & ~ca_cpu_features()) == 0; }

int ca_level_of_cpu(int i) {
    for (int level = 0; level < CA_N_LEVELS; level++)
        if (ca_level_runs(level) && i-- == 0) return level;
    return -1;
}

const char *ca_level_environment(void) {
    const char *name = getenv("CATTN_LEVEL");
    return name && *name ? name : NULL;
}

ca_level_status ca_level_choose(const char *highest, int *level) {
    int top = CA_N_LEVELS - 1;
    if (highest) {
        top = ca_level_find(highest);
        if (top < 0) return CA_LEVEL_UNKNOWN;
        if (!ca_level_runs(top)) return CA_LEVEL_LACKING;
    }
    const char *environment = ca_level_environment();
    if (environment) {
        const int limit = ca_level_find(environment);
        if (limit < 0) return CA_LEVEL_ENVIRONMENT_UNKNOWN;
        if (limit < top) top = limit;
    }
    while (!ca_level_runs(top)) top--; /* ref needs nothing */
    *level = top;
    return CA_LEVEL_OK;
}

/*
 * Kernel levels: their names, the CPU features that they need, and which one to use, which the environment variable CATTN_LEVEL
 * may lower. A level is an index into the list in levels.def, lowest first; only levels of this architecture are in it.
 */
#ifndef CHUNKATTN_BASE_LEVELS_H
#define CHUNKATTN_BASE_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

/* CA_LEVEL_ref, ... */
#define CA_LEVEL(name, features) CA_LEVEL_##name,
enum {
#include "levels.def"
    CA_N_LEVELS
};
#undef CA_LEVEL

/* Static storage. */
const char *ca_level_name(int level);

/* -1: no level has this name. */
int ca_level_find(const char *name);

/* CA_CPU_*. */
uint32_t ca_level_features(int level);

/* Whether this CPU, as its operating system lets it, runs the level. */
bool ca_level_runs(int level);

/* The i-th level that this CPU runs, lowest first; -1 past the last. */
int ca_level_of_cpu(int i);

/* The value of CATTN_LEVEL; NULL where it is unset or empty. Nothing else reads the variable. */
const char *ca_level_environment(void);

typedef enum ca_level_status {
    CA_LEVEL_OK,
    CA_LEVEL_UNKNOWN,             /* no level has the name `highest` */
    CA_LEVEL_LACKING,             /* this CPU does not run it */
    CA_LEVEL_ENVIRONMENT_UNKNOWN, /* no level has the name in CATTN_LEVEL */
} ca_level_status;

/*
 * The highest level that this CPU runs and that is neither above `highest` (a name; NULL: any) nor above the one in
 * CATTN_LEVEL. *level is set only on CA_LEVEL_OK.
 */
ca_level_status ca_level_choose(const char *highest, int *level);

#endif

/* The fields of records, for the files of this folder. */
#ifndef TESTS_CHUNKATTN_PLANS_FIELDS_H
#define TESTS_CHUNKATTN_PLANS_FIELDS_H

#include "plans.h"

typedef struct plan_field {
    char name[32], refers_to[16]; /* refers_to: the name of records, or empty */
    int64_t simplest;
} plan_field;

/* Take the first field from a list. False: there is none. */
static inline bool plan_next_field(const char **list, plan_field *f) {
    int n = 0;
    long long simplest = 0;
    *f = (plan_field){.name = ""};
    if (sscanf(*list, " %31[a-z0-9_]%n", f->name, &n) != 1) return false;
    *list += n;
    if (sscanf(*list, ":%15[a-z]%n", f->refers_to, &n) == 1) *list += n;
    if (sscanf(*list, "=%lld%n", &simplest, &n) == 1) *list += n;
    f->simplest = simplest;
    return true;
}

static inline int64_t *plan_record(const plan_records *r, const void *plan, int64_t i) {
    return (int64_t *)(void *)((char *)plan + r->at + (size_t)i * r->size);
}

/* The number of records; NULL: always one. */
static inline int64_t *plan_count(const plan_records *r, const void *plan) {
    return r->count == PLAN_ONE ? NULL : (int64_t *)(void *)((char *)plan + r->count);
}

#endif

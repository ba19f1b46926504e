/* Keeps salts by their bytes, and gives them domains: see salts.h. */
#include "salts.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lists ---- */

static void add(cl_salt_list *list, cl_salt *salt) {
    salt->before = list->last;
    salt->after = NULL;
    if (list->last)
        list->last->after = salt;
    else
        list->first = salt;
    list->last = salt;
    list->n++;
}

static void take(cl_salt_list *list, cl_salt *salt) {
    if (salt->before)
        salt->before->after = salt->after;
    else
        list->first = salt->after;
    if (salt->after)
        salt->after->before = salt->before;
    else
        list->last = salt->before;
    list->n--;
}

/* ---- Salts ---- */

static int compare(const void *a, const void *b) {
    const cl_salt *x = a, *y = b;
    if (x->domain != y->domain) return x->domain < y->domain ? -1 : 1;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return memcmp(x->bytes, y->bytes, x->size);
}

void cl_salts_init(cl_salts *s, uint32_t first_domain, uint32_t n_domains, void (*clear)(void *ctx), void *ctx) {
    *s = (cl_salts){.first_domain = first_domain, .n_domains = n_domains, .clear = clear, .ctx = ctx};
}

static void forget_unused(cl_salts *s) {
    cl_salt *salt = s->unused.first;
    take(&s->unused, salt);
    tdelete(salt, &s->by_name, compare);
    free(salt);
}

void cl_salts_free(cl_salts *s) {
    while (s->used.first) cl_salts_release(s, s->used.first);
    while (s->unused.first) forget_unused(s);
}

static bool is_given(const cl_salts *s, uint32_t kv_domain) {
    for (const cl_salt *salt = s->used.first; salt; salt = salt->after)
        if (salt->kv_domain == kv_domain) return true;
    return false;
}

/* A domain of which the caches have nothing. */
static uint32_t new_domain(cl_salts *s) {
    uint32_t kv_domain;
    do {
        if (s->n_given == s->n_domains) {
            while (s->unused.first) forget_unused(s);
            s->clear(s->ctx);
            s->n_given = 0;
        }
        kv_domain = s->first_domain + s->n_given++;
    } while (is_given(s, kv_domain));
    return kv_domain;
}

cl_salt *cl_salts_acquire(cl_salts *s, uint32_t domain, const char *bytes, size_t size) {
    cl_salt *added = malloc(sizeof *added + size);
    if (!added) return NULL;
    *added = (cl_salt){.domain = domain, .size = size, .bytes = memcpy(added + 1, bytes, size)};
    cl_salt *const *found = tsearch(added, &s->by_name, compare);
    cl_salt *salt = found ? *found : NULL;
    if (salt == added)
        salt->kv_domain = new_domain(s);
    else
        free(added);
    if (!salt) return NULL;
    if (salt != added && salt->n_users == 0) take(&s->unused, salt);
    if (salt->n_users++ == 0) add(&s->used, salt);
    return salt;
}

void cl_salts_release(cl_salts *s, cl_salt *salt) {
    if (--salt->n_users > 0) return;
    take(&s->used, salt);
    add(&s->unused, salt);
    if (s->unused.n > CL_SALTS_KEPT) forget_unused(s);
}

const cl_salt *cl_salts_find(const cl_salts *s, uint32_t domain, const char *bytes, size_t size) {
    const cl_salt key = {.domain = domain, .size = size, .bytes = bytes};
    cl_salt *const *found = tfind(&key, &s->by_name, compare);
    return found ? *found : NULL;
}

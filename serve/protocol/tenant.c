/* Maps the names of tenants to domains of the engine. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/error.h"
#include "openai.h"

typedef struct tenant {
    uint32_t domain;
    char name[];
} tenant;

static int compare(const void *a, const void *b) {
    const tenant *x = a, *y = b;
    return (x->domain > y->domain) - (x->domain < y->domain);
}

void openai_tenants_free(openai_tenants *tenants) {
    while (tenants->names) {
        tenant *root = *(tenant **)tenants->names;
        tdelete(root, &tenants->names, compare);
        free(root);
    }
}

static bool is_valid(const char *name) {
    size_t n = 0;
    while (name[n] > ' ' && name[n] <= '~') n++;
    return n >= 1 && n <= OPENAI_MAX_TENANT && !name[n];
}

/* FNV-1a of 64 bits, folded to 31. K/V in files depend on it, so it must not change. */
static uint32_t domain_of(const char *name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    const uint32_t domain = (uint32_t)(hash ^ hash >> 33) & INT32_MAX;
    return strcmp(name, OPENAI_DEFAULT_TENANT) == 0 ? 0 : domain ? domain : 1;
}

cl_status openai_tenants_domain(openai_tenants *tenants, const char *name, uint32_t *domain, cl_error *error) {
    if (!is_valid(name))
        return cl_fail(error, CL_ERR_ARG, "a tenant's name must be 1 to %d printable ASCII characters without blanks",
                       OPENAI_MAX_TENANT);
    const size_t size = strlen(name) + 1;
    tenant *added = malloc(sizeof *added + size);
    if (!added) return cl_fail(error, CL_ERR_NOMEM, "no memory for the name of a tenant");
    added->domain = *domain = domain_of(name);
    memcpy(added->name, name, size);
    tenant *const *found = tsearch(added, &tenants->names, compare);
    if (found && *found == added) return CL_OK;
    free(added);
    if (!found) return cl_fail(error, CL_ERR_NOMEM, "no memory for the name of a tenant");
    if (strcmp((*found)->name, name) == 0) return CL_OK;
    return cl_fail(error, CL_ERR_ARG, "the tenants '%s' and '%s' have the same hash, %u; rename one of them", (*found)->name,
                   name, *domain);
}

const char *openai_tenants_name(const openai_tenants *tenants, uint32_t domain) {
    const tenant wanted = {.domain = domain};
    tenant *const *found = tfind(&wanted, &tenants->names, compare);
    return found ? (*found)->name : NULL;
}

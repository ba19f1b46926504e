/* kcheck: the command line and guarded memory. */
#include "kcheck.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/cpu.h"

const char *const type_names[CA_N_TYPES] = {"f32", "f16", "bf16", "int8"};

/* [size | GUARD ... | bytes, cleared to GUARD | GUARD ...] */
enum { GUARD = 0xa5, GUARD_BYTES = 256 };

void *guard_new(size_t bytes) {
    const size_t whole = (bytes + 63) / 64 * 64;
    char *p = aligned_alloc(64, whole + 3 * GUARD_BYTES);
    if (!p) {
        fprintf(stderr, "kcheck: out of memory\n");
        exit(2);
    }
    memcpy(p, &bytes, sizeof bytes);
    memset(p + GUARD_BYTES, GUARD, whole + 2 * GUARD_BYTES);
    return p + 2 * GUARD_BYTES;
}

bool guard_check(const void *memory) {
    const unsigned char *p = memory;
    size_t bytes;
    memcpy(&bytes, p - 2 * GUARD_BYTES, sizeof bytes);
    for (int i = 0; i < GUARD_BYTES; i++)
        if (p[i - GUARD_BYTES] != GUARD || p[bytes + (size_t)i] != GUARD) return false;
    return true;
}

void guard_free(void *p) {
    if (p) free((char *)p - 2 * GUARD_BYTES);
}

ca_layout layout_of(cattn_type type, int32_t d_k, int32_t d_v, int32_t c) {
    ca_layout l;
    ca_layout_init(&l, type, d_k, d_v, c);
    return l;
}

/* If a level has no kernel for a type, ca_kernel_find returns that of the next lower level that has one, which its CPUs run. */
static bool check_find(void) {
    bool ok = true;
    for (int k = 0; k < CA_N_TYPES; k++) {
        const ca_kernel *expected = NULL;
        for (int level = 0; level < CA_N_LEVELS; level++) {
            const ca_kernel *own = ca_kernel_of_level(level, (cattn_type)k);
            if (own) expected = own;
            if (own) ok &= strcmp(own->level, ca_level_name(level)) == 0 && own->kv_type == (cattn_type)k;
            ok &= expected && ca_kernel_find(level, (cattn_type)k) == expected &&
                  (ca_level_features(ca_level_find(expected->level)) & ~ca_level_features(level)) == 0;
        }
    }
    if (!ok) printf("FAILED ca_kernel_find\n");
    return ok;
}

static bool is_head_size(int32_t d) {
    for (int i = 0; i < CA_N_HEAD_SIZES; i++)
        if (ca_head_sizes[i] == d) return true;
    return false;
}

static const char usage[] =
    "usage: kcheck [--bench | --costs] [--level LEVEL] [--type f32|f16|bf16|int8] [--seed N] [--every N] [--case N]\n"
    "              [--head-dim N]\n"
    "  Checks every kernel level of this CPU, or times them with --bench.\n"
    "  --head-dim N   times heads of this size, in place of 64 and 128\n"
    "  --costs        measures the constants of the cost model instead\n"
    "  --every N      runs only each N-th case, for slow builds\n"
    "  --case N       runs only this one\n"
    "  CATTN_LEVEL names the highest level to check.\n";

int main(int argc, char **argv) {
    const char *level = NULL, *type = NULL;
    uint64_t seed = 1;
    int32_t every = 1, only = -1, head_dim = 0;
    bool bench = false, costs = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--bench") == 0 || strcmp(argv[i], "--costs") == 0) {
            *(argv[i][2] == 'b' ? &bench : &costs) = true;
            continue;
        }
        if (value && strcmp(argv[i], "--level") == 0)
            level = value;
        else if (value && strcmp(argv[i], "--type") == 0)
            type = value;
        else if (value && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(value, NULL, 0);
        else if (value && strcmp(argv[i], "--every") == 0 && atoi(value) > 0)
            every = atoi(value);
        else if (value && strcmp(argv[i], "--case") == 0)
            only = atoi(value);
        else if (value && strcmp(argv[i], "--head-dim") == 0 && is_head_size(atoi(value)))
            head_dim = atoi(value);
        else {
            fputs(usage, stderr);
            return 2;
        }
        i++;
    }

    int n_run = 0, highest = CA_LEVEL_ref;
    if (ca_level_choose(NULL, &highest) != CA_LEVEL_OK) {
        fprintf(stderr, "kcheck: CATTN_LEVEL is '%s', which is no level\n", ca_level_environment());
        return 2;
    }
    bool ok = check_find();
    printf("%s, seed %llu\n", ca_cpu_name(), (unsigned long long)seed);
    for (int l = 0; l < CA_N_LEVELS; l++) {
        if (l > highest || !ca_level_runs(l)) {
            printf("%s: skipped, not on this CPU or above CATTN_LEVEL\n", ca_level_name(l));
            continue;
        }
        for (int k = 0; k < CA_N_TYPES; k++) {
            const ca_kernel *kernel = ca_kernel_of_level(l, (cattn_type)k);
            if (!kernel || (level && strcmp(level, ca_level_name(l)) != 0) || (type && strcmp(type, type_names[k]) != 0))
                continue;
            n_run++;
            if (costs && l == CA_LEVEL_ref) continue; /* would take minutes, and the reference's costs are not needed */
            if (bench || costs) {
                if (bench)
                    bench_kernel(kernel, head_dim);
                else
                    measure_costs(kernel);
                continue;
            }
            const bool passed = check_write(kernel, seed) && check_kernel(kernel, seed, every, only);
            printf("%s %s: %s\n", kernel->level, type_names[k], passed ? "ok" : "FAILED");
            ok &= passed;
        }
    }
    if (n_run == 0) fprintf(stderr, "kcheck: no such level or type on this CPU\n");
    return ok && n_run > 0 ? 0 : 1;
}

/* kcheck: the command line and guarded memory. */
#include "kcheck.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

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
    ca_layout_init(&l, type, 1, 1, d_k, d_v, c);
    return l;
}

/* Every level is found by its name, hands types it lacks to one below, and is not found where the CPU lacks it. */
static bool check_find(void) {
    int n;
    const ca_level *levels = ca_levels(&n);
    bool ok = !ca_kernel_find("no such level", ~0u, CATTN_F32);
    for (int k = 0; k < CA_N_TYPES; k++) {
        const ca_kernel *expected = NULL;
        for (int i = 0; i < n; i++) {
            if (levels[i].kernels[k]) expected = levels[i].kernels[k];
            ok &= ca_kernel_find(levels[i].name, levels[i].features, (cattn_type)k) == expected;
            ok &= ca_kernel_find(NULL, levels[i].features, (cattn_type)k) == expected;
            if (levels[i].features) ok &= !ca_kernel_find(levels[i].name, 0, (cattn_type)k);
        }
    }
    if (!ok) printf("FAILED ca_kernel_find\n");
    return ok;
}

static const char usage[] =
    "usage: kcheck [--bench | --costs] [--isa LEVEL] [--type f32|f16|bf16|int8] [--seed N] [--every N] [--case N]\n"
    "       kcheck --device cuda\n"
    "  Checks every kernel level of this CPU, or times them with --bench.\n"
    "  --device cuda  checks the CUDA backend's instead; ends with 77 where there is no device\n"
    "  --costs     measure the constants of the cost model instead\n"
    "  --every N   only each N-th case, for slow builds\n"
    "  --case N    only this one\n"
    "  CATTN_LEVEL names the highest level to take.\n";

int main(int argc, char **argv) {
    const char *isa = NULL, *type = NULL, *highest = getenv("CATTN_LEVEL");
    uint64_t seed = 1;
    int32_t every = 1, only = -1;
    bool bench = false, costs = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--bench") == 0 || strcmp(argv[i], "--costs") == 0) {
            *(argv[i][2] == 'b' ? &bench : &costs) = true;
            continue;
        }
        if (value && strcmp(argv[i], "--device") == 0 && strcmp(value, "cuda") == 0) return check_cuda();
        if (value && strcmp(argv[i], "--isa") == 0)
            isa = value;
        else if (value && strcmp(argv[i], "--type") == 0)
            type = value;
        else if (value && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(value, NULL, 0);
        else if (value && strcmp(argv[i], "--every") == 0 && atoi(value) > 0)
            every = atoi(value);
        else if (value && strcmp(argv[i], "--case") == 0)
            only = atoi(value);
        else {
            fputs(usage, stderr);
            return 2;
        }
        i++;
    }

    int n_levels, n_run = 0;
    bool ok = check_find();
    const ca_level *levels = ca_levels(&n_levels);
    printf("%s, seed %llu\n", ca_cpu_name(), (unsigned long long)seed);
    for (int i = 0; i < n_levels; i++) {
        if ((levels[i].features & ~ca_cpu_features()) != 0) {
            printf("%s: skipped, not on this CPU\n", levels[i].name);
            continue;
        }
        for (int k = 0; k < CA_N_TYPES; k++) {
            const ca_kernel *kernel = levels[i].kernels[k];
            if (!kernel || (isa && strcmp(isa, levels[i].name) != 0) || (type && strcmp(type, type_names[k]) != 0)) continue;
            n_run++;
            if (costs && strcmp(kernel->level, "ref") == 0) continue; /* takes minutes, and nobody waits for it */
            if (bench || costs) {
                (bench ? bench_kernel : measure_costs)(kernel);
                continue;
            }
            const bool passed = check_write(kernel, seed) && check_kernel(kernel, seed, every, only);
            printf("%s %s: %s\n", kernel->level, type_names[k], passed ? "ok" : "FAILED");
            ok &= passed;
        }
        if (highest && strcmp(highest, levels[i].name) == 0) break;
    }
    if (n_run == 0) fprintf(stderr, "kcheck: no such level or type on this CPU\n");
    return ok && n_run > 0 ? 0 : 1;
}

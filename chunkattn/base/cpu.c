/* CPUID, and what the system tells: see cpu.h. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the operating system saves on a context switch (XCR0). Only where cpuid reports OSXSAVE. */
static uint32_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Linux saves tiles only for a process that has requested it; the request also covers threads that exist already. */
static int may_use_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static uint32_t detect(void) {
    enum {
        XCR0_YMM = 0x06,      /* xmm and ymm */
        XCR0_ZMM = 0xe6,      /* those, mask registers and both halves of zmm */
        XCR0_TILES = 0x60000, /* their shapes and their data */
        /* Of leaf 7, clang 14 has no names for them: in edx bf16, tiles, int8; of its first subleaf, in eax. */
        CPUID_AMX = 1 << 22 | 1 << 24 | 1 << 25,
        CPUID_AVX_VNNI = 1 << 4
    };
    uint32_t a, b, c, d, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const int has_fma = c & bit_FMA, has_f16c = c & bit_F16C;
    if (!(c & bit_OSXSAVE)) return 0;
    const uint32_t saved = saved_state();
    if ((saved & XCR0_YMM) != XCR0_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (b & bit_AVX2 && has_fma && has_f16c) features |= CA_CPU_AVX2;
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const int has_avx512 = features & CA_CPU_AVX2 && (b & avx512) == avx512 && (saved & XCR0_ZMM) == XCR0_ZMM;
    if (has_avx512) features |= CA_CPU_AVX512;
    if (has_avx512 && c & bit_AVX512VNNI) features |= CA_CPU_AVX512_VNNI;
    if ((d & CPUID_AMX) == CPUID_AMX && (saved & XCR0_TILES) == XCR0_TILES && may_use_tiles()) features |= CA_CPU_AMX;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) { /* a: the highest subleaf of leaf 7 */
        if (features & CA_CPU_AVX2 && a & CPUID_AVX_VNNI) features |= CA_CPU_AVX_VNNI;
        if (has_avx512 && a & bit_AVX512BF16) features |= CA_CPU_AVX512_BF16;
    }
    return features;
}
#else
static uint32_t detect(void) { return 0; }
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t features;
static int n_cpus = 1;
static size_t cache_bytes = (size_t)32 << 20;
static char name[128] = "unknown";

/*
 * "cpu family : 26", "model : 2", "model name : AMD EPYC" in /proc/cpuinfo, in this order; some architectures have no such
 * lines. A virtual machine's name is often no more than its maker's, so the numbers come along.
 */
static void read_name(void) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    char line[256];
    long family = 0, model = 0;
    while (fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (!value) break; /* an empty line: the next CPU */
        value += 1 + strspn(value + 1, " \t");
        if (strncmp(line, "cpu family\t", 11) == 0) family = strtol(value, NULL, 10);
        if (strncmp(line, "model\t", 6) == 0) model = strtol(value, NULL, 10);
        const int length = (int)strcspn(value, "\n");
        if (strncmp(line, "model name", 10) != 0 || length == 0) continue;
        snprintf(name, sizeof name, "%.*s (family %ld, model %ld)", length, value, family, model);
        break;
    }
    fclose(f);
}

/* "32768K"; the highest index is the last level. */
static void read_cache(void) {
    char path[64], line[32];
    for (int index = 0; index < 8; index++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *f = fopen(path, "re");
        if (!f) break;
        const long kib = fgets(line, sizeof line, f) ? strtol(line, NULL, 10) : 0;
        if (kib > 0) cache_bytes = (size_t)kib << 10;
        fclose(f);
    }
}

static void init(void) {
    cpu_set_t set;
    features = detect();
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) n_cpus = CPU_COUNT(&set);
    read_cache();
    read_name();
}

uint32_t ca_cpu_features(void) {
    pthread_once(&once, init);
    return features;
}

int ca_cpu_count(void) {
    pthread_once(&once, init);
    return n_cpus;
}

size_t ca_cpu_cache_bytes(void) {
    pthread_once(&once, init);
    return cache_bytes;
}

const char *ca_cpu_name(void) {
    pthread_once(&once, init);
    return name;
}

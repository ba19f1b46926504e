/* CPU features against those that the kernel lists in /proc/cpuinfo, which come from the same cpuid bits by other code. */
#define _GNU_SOURCE
#include "tests/support/testing.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "chunkattn/base/cpu.h"

/* Whether the first "flags" line of /proc/cpuinfo contains all of these words, which spaces separate. */
static int kernel_lists(const char *words) {
    static char line[16384];
    FILE *f = fopen("/proc/cpuinfo", "r");
    assert_non_null(f);
    int all = 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) != 0) continue;
        line[strcspn(line, "\n")] = ' ';
        char copy[128], padded[64];
        snprintf(copy, sizeof copy, "%s", words);
        all = 1;
        for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
            snprintf(padded, sizeof padded, " %s ", word);
            all &= strstr(line, padded) != NULL;
        }
        break;
    }
    fclose(f);
    return all;
}

static void features_are_the_kernels(void **state) {
    (void)state;
    const struct {
        uint32_t bit;
        const char *flags;
    } known[] = {
        {CA_CPU_AVX2, "avx2 fma f16c"},
        {CA_CPU_AVX512, "avx512f avx512bw avx512dq avx512vl"},
        {CA_CPU_AVX_VNNI, "avx_vnni avx2 fma f16c"},
        {CA_CPU_AVX512_VNNI, "avx512_vnni avx512f"},
        {CA_CPU_AVX512_BF16, "avx512_bf16 avx512f"},
        {CA_CPU_AMX, "amx_tile amx_bf16 amx_int8"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        print_message("%-35s %s\n", known[i].flags, ca_cpu_features() & known[i].bit ? "yes" : "no");
        assert_int_equal((ca_cpu_features() & known[i].bit) != 0, kernel_lists(known[i].flags));
    }
}

static void count_and_name(void **state) {
    (void)state;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_int_equal(ca_cpu_count(), CPU_COUNT(&set));
    assert_in_range(ca_cpu_cache_bytes(), 64 << 10, (size_t)8 << 30);
    assert_true(strlen(ca_cpu_name()) > 0);
    assert_null(strchr(ca_cpu_name(), '\n'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_the_kernels),
        cmocka_unit_test(count_and_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

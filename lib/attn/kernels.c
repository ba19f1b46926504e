/* The list of kernel levels and the choice among them. */
#include "kernels.h"

#include <string.h>

#include "base/cpu.h"

#define KERNEL(name, type, has) ((has) ? &ca_kernels_##name[type] : NULL)
#define CA_LEVEL(name, features, f32, f16, bf16, i8)                                                                           \
    {#name,                                                                                                                    \
     features,                                                                                                                 \
     {KERNEL(name, CATTN_F32, f32), KERNEL(name, CATTN_F16, f16), KERNEL(name, CATTN_BF16, bf16),                              \
      KERNEL(name, CATTN_I8, i8)}},
static const ca_level levels[] = {
#include "isa.def"
};
#undef CA_LEVEL

enum { N_LEVELS = sizeof levels / sizeof levels[0] };

const ca_level *ca_levels(int *n) {
    *n = N_LEVELS;
    return levels;
}

bool ca_level_runs(const ca_level *level, uint32_t features) { return (level->features & ~features) == 0; }

const ca_kernel *ca_kernel_find(const char *level, uint32_t features, cattn_type kv_type) {
    int top = N_LEVELS - 1;
    if (level) {
        while (top >= 0 && strcmp(levels[top].name, level) != 0) top--;
        if (top < 0 || !ca_level_runs(&levels[top], features)) return NULL;
    }
    while (!ca_level_runs(&levels[top], features) || !levels[top].kernels[kv_type]) top--; /* ref has all and needs nothing */
    return levels[top].kernels[kv_type];
}

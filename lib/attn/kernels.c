/* The list of kernel levels and the choice among them. */
#include "kernels.h"

#include <string.h>

#include "base/cpu.h"

void ca_kernel_attend(const ca_kernel *kernel, const ca_tile *tile) {
    int32_t n_tiles = (tile->n_rows - 1) / kernel->max_rows + 1;
    if (n_tiles == 1) {
        kernel->attend(tile);
        return;
    }
    for (int32_t row = 0, n; row < tile->n_rows; row += n, n_tiles--) {
        ca_tile_options options;
        n = (tile->n_rows - row + n_tiles - 1) / n_tiles;
        ca_tile rows = ca_tile_rows(kernel, tile, row, n, &options);
        if (row > 0) rows.next_k = rows.next_v = NULL; /* the first tile prefetches them */
        kernel->attend(&rows);
    }
}

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

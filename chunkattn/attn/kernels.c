/* The kernels of each level, and tiles of more rows than a kernel takes. */
#include "kernels.h"

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

/* ---- The levels' tables ---- */

#define CA_LEVEL(name, features) ca_kernels_##name,
static const ca_kernel *const kernels[CA_N_LEVELS] = {
#include "chunkattn/base/levels.def"
};
#undef CA_LEVEL

const ca_kernel *ca_kernel_of_level(int level, cattn_type kv_type) {
    const ca_kernel *kernel = &kernels[level][kv_type];
    return kernel->attend ? kernel : NULL;
}

const ca_kernel *ca_kernel_find(int level, cattn_type kv_type) {
    while (!ca_kernel_of_level(level, kv_type)) level--; /* ref has all */
    return ca_kernel_of_level(level, kv_type);
}

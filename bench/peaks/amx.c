/* AMX: products of bf16 tiles, all operands in registers. */
#include "bench/peaks.h"

#include "base/cpu.h"
#include "base/tiles.h"

static void multiply_tiles(int64_t rounds) {
    ca_tile_shapes shapes = {0};
    for (int tile = 0; tile < 8; tile++) ca_tiles_shape(&shapes, tile, 16, 64);
    ca_tiles_use(&shapes);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    ca_tiles_leave();
}

const peak peaks_amx[1] = {
    {PEAK_TILES, CA_CPU_AMX, 2.0 * 16 * 16 * 32 * 4, multiply_tiles, NULL},
};

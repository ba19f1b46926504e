/* AMX: products of tiles, all operands in registers. */
#include "bench/shared/peaks.h"

#include "base/cpu.h"
#include "base/tiles.h"

static void clear_tiles(void) {
    ca_tile_shapes shapes = {0};
    for (int tile = 0; tile < 8; tile++) ca_tiles_shape(&shapes, tile, 16, 64);
    ca_tiles_use(&shapes);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

#define MULTIPLY(name, dot)                                                                                                    \
    static void name(int64_t rounds) {                                                                                         \
        clear_tiles();                                                                                                         \
        for (int64_t r = 0; r < rounds; r++) {                                                                                 \
            dot(0, 4, 6);                                                                                                      \
            dot(1, 5, 6);                                                                                                      \
            dot(2, 4, 7);                                                                                                      \
            dot(3, 5, 7);                                                                                                      \
        }                                                                                                                      \
        ca_tiles_leave();                                                                                                      \
    }
MULTIPLY(multiply_bf16, _tile_dpbf16ps)
MULTIPLY(multiply_int8, _tile_dpbusd)

const peak peaks_amx[2] = {
    {PEAK_TILES, CA_CPU_AMX, 2.0 * 16 * 16 * 32 * 4, multiply_bf16, NULL},
    {PEAK_INT8_TILES, CA_CPU_AMX, 2.0 * 16 * 16 * 64 * 4, multiply_int8, NULL},
};

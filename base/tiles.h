/*
 * AMX tile registers: eight, of up to 16 rows of 64 bytes, whose shapes are set before use. For files compiled with AMX.
 *
 * A product takes A [m][64 bytes], B [n_lines][16 columns][4 bytes] and C [m][16 columns] of f32 or i32; A's rows have as many
 * 4-byte words as B has lines. New shapes cost some 50 ns and clear all registers, reading them 7 ns (Intel, family 6,
 * model 167, 3.6 GHz), so that it pays to look first.
 */
#ifndef BASE_TILES_H
#define BASE_TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* As ldtilecfg reads it. */
typedef struct ca_tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} ca_tile_shapes;
_Static_assert(sizeof(ca_tile_shapes) == 64, "64 bytes, as the instruction has it");

static inline void ca_tiles_shape(ca_tile_shapes *s, int tile, int rows, int row_bytes) {
    s->palette = 1;
    s->rows[tile] = (uint8_t)rows;
    s->row_bytes[tile] = (uint16_t)row_bytes;
}

/*
 * Contents of the registers are lost, or kept: both happen. To be called after the last write to what tiles are loaded from:
 * gcc 12's intrinsics do not tell the compiler which memory they read (nor, of shapes, that it is more than 8 bytes, hence the
 * assembly here); tilestored does.
 */
static inline void ca_tiles_use(const ca_tile_shapes *shapes) {
    ca_tile_shapes now;
    __asm__ volatile("sttilecfg %0" : "=m"(now)::"memory");
    if (memcmp(&now, shapes, sizeof now) != 0) __asm__ volatile("ldtilecfg %0" ::"m"(*shapes) : "memory");
}

/* For a thread that is done with them for now: the operating system need not save them any more. */
static inline void ca_tiles_leave(void) { _tile_release(); }

#endif

/*
 * The AMX tile registers: eight registers of up to 16 rows of 64 bytes, whose shapes are set before use. For files that are
 * compiled with AMX.
 *
 * A product has the operands A [m][64 bytes] and B [n_lines][16 columns][4 bytes], and adds to C [m][16 columns] of f32 or i32.
 * A row of A has as many 4-byte words as B has lines. Setting shapes takes about 50 ns and clears all registers; reading them
 * takes 7 ns (Intel, family 6, model 167, 3.6 GHz), so it pays to compare them first.
 */
#ifndef CHUNKATTN_BASE_TILES_H
#define CHUNKATTN_BASE_TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* The operand of ldtilecfg: the shape of each register. */
typedef struct ca_tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} ca_tile_shapes;
_Static_assert(sizeof(ca_tile_shapes) == 64, "the operand of ldtilecfg has 64 bytes");

/* Set the shape of register `tile`, 0 to 7. */
static inline void ca_tiles_shape(ca_tile_shapes *s, int tile, int rows, int row_bytes) {
    s->palette = 1;
    s->rows[tile] = (uint8_t)rows;
    s->row_bytes[tile] = (uint16_t)row_bytes;
}

/*
 * Give this thread's registers these shapes. Their contents are then undefined.
 *
 * To be called after the last write to memory from which tiles are loaded. The intrinsics of gcc 12 do not declare which memory
 * they read (for shapes, they declare 8 bytes, hence the assembly here); that of tilestored does.
 */
static inline void ca_tiles_use(const ca_tile_shapes *shapes) {
    ca_tile_shapes now;
    __asm__ volatile("sttilecfg %0" : "=m"(now)::"memory");
    if (memcmp(&now, shapes, sizeof now) != 0) __asm__ volatile("ldtilecfg %0" ::"m"(*shapes) : "memory");
}

/* Release this thread's registers, so that the operating system need not save them. */
static inline void ca_tiles_leave(void) { _tile_release(); }

#endif

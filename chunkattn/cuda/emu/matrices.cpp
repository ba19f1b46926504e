/*
 * Matrix operations of a warp: ldmatrix, movmatrix, mma. Layouts are those of the PTX ISA, sections "ldmatrix", "movmatrix" and
 * "Matrix Fragments for mma.m16n8k16 with floating point type",
 * and those "for mma.m16n8k16 with .u8/.s8 type" and "for mma.m16n8k32".
 */
#include "state.h"

namespace emu {
namespace {

struct matrix_lane {
    u32 row; /* offset of the row whose address this lane gives */
    u32 r[4];
    bool transposed, valid;
};

/* Row and column, within an 8 x 8 matrix, of the element in half h of a lane's register. */
void place_of(int lane, int h, bool transposed, int &row, int &column) {
    row = lane / 4;
    column = 2 * (lane % 4) + h;
    if (transposed) std::swap(row, column);
}

/* The element in half h of register m of a lane. */
void load_element(matrix_lane **lanes, int m, int l, int h) {
    int row, column;
    place_of(l, h, lanes[l]->transposed, row, column);
    const matrix_lane &source = *lanes[8 * m + row];
    u16 v = 0;
    if (source.valid) memcpy(&v, &own->shared[source.row + 2 * (u32)column], 2);
    lanes[l]->r[m] |= (u32)v << 16 * h;
}

void load_all(void **args) {
    matrix_lane **lanes = reinterpret_cast<matrix_lane **>(args);
    u32 rows[WARP];
    for (int l = 0; l < WARP; l++) {
        for (int i = 0; i < 8; i++) load_element(lanes, i / 2, l, i % 2);
        rows[l] = lanes[l]->row;
    }
    count_rows(rows, WARP);
    tally(&counts::ldmatrix);
}

struct multiply_lane {
    float *c;
    const u32 *a, *b;
    element e;
};

float widen(u32 register_, int h, element e) {
    if (e == F16) return half_to_float((u16)(register_ >> 16 * h));
    return as_float(h ? register_ & 0xffff0000u : register_ << 16);
}

/* The sum over k is in f32, k ascending, and added to C last. A device sums wider and truncates: last bits differ. */
void multiply_all(void **args) {
    multiply_lane **lanes = reinterpret_cast<multiply_lane **>(args);
    float a[16][16], c[16][8];
    floats8 b[16];
    for (int l = 0; l < WARP; l++)
        for (int h = 0; h < 2; h++) {
            const multiply_lane &lane = *lanes[l];
            const int g = l / 4, k = 2 * (l % 4) + h;
            a[g][k] = widen(lane.a[0], h, lane.e);
            a[g + 8][k] = widen(lane.a[1], h, lane.e);
            a[g][k + 8] = widen(lane.a[2], h, lane.e);
            a[g + 8][k + 8] = widen(lane.a[3], h, lane.e);
            b[k][g] = widen(lane.b[0], h, lane.e);
            b[k + 8][g] = widen(lane.b[1], h, lane.e);
        }
    for (int m = 0; m < 16; m++) {
        floats8 sum = {};
        for (int k = 0; k < 16; k++) sum += a[m][k] * b[k];
        memcpy(c[m], &sum, sizeof sum);
    }
    for (int l = 0; l < WARP; l++)
        for (int i = 0; i < 4; i++) lanes[l]->c[i] += c[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
    tally(&counts::mma);
}

struct bytes_lane {
    int *c;
    const u32 *a, *b;
    int k;
};

/* Byte i of a register. */
int unsigned_byte(u32 v, int i) { return (int)(v >> 8 * i & 0xff); }
int signed_byte(u32 v, int i) { return (signed char)(v >> 8 * i & 0xff); }

void multiply_all_bytes(void **args) {
    bytes_lane **lanes = reinterpret_cast<bytes_lane **>(args);
    int a[16][32], b[8][32]; /* B transposed */
    const int k = lanes[0]->k;
    for (int l = 0; l < WARP; l++)
        for (int i = 0; i < k / 4; i++) { /* k / 16 registers of B, of four bytes each; A has two for each of them */
            const bytes_lane &lane = *lanes[l];
            const int g = l / 4, at = 16 * (i / 4) + 4 * (l % 4) + i % 4;
            a[g][at] = unsigned_byte(lane.a[i / 4 * 2], i % 4);
            a[g + 8][at] = unsigned_byte(lane.a[i / 4 * 2 + 1], i % 4);
            b[g][at] = signed_byte(lane.b[i / 4], i % 4);
        }
    for (int l = 0; l < WARP; l++)
        for (int i = 0; i < 4; i++) {
            const int *row = a[l / 4 + 8 * (i / 2)], *column = b[2 * (l % 4) + i % 2];
            for (int j = 0; j < k; j++) lanes[l]->c[i] += row[j] * column[j];
        }
    tally(&counts::mma);
}

} // namespace

void load_matrix(u32 (&r)[4], u32 from, bool transposed, place at) {
    matrix_lane me = {from, {}, transposed, check_shared(from, 16, 16, at)};
    if (me.valid) read_cells(from, 16, at);
    meet(transposed ? "ldmatrix_trans" : "ldmatrix", at, &me, load_all);
    memcpy(r, me.r, sizeof me.r);
}

u32 movmatrix(u32 a, place at) {
    struct lane {
        u32 in, out;
    } me = {a, 0};
    meet("movmatrix", at, &me, [](void **args) {
        lane **lanes = reinterpret_cast<lane **>(args);
        for (int l = 0; l < WARP; l++)
            for (int h = 0; h < 2; h++) {
                int row, column; /* in the source, of the element that lane l gets */
                place_of(l, h, true, row, column);
                lanes[l]->out |= (lanes[4 * row + column / 2]->in >> 16 * (column % 2) & 0xffff) << 16 * h;
            }
        tally(&counts::movmatrix);
    });
    return me.out;
}

void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], element e, place at) {
    multiply_lane me = {c, a, b, e};
    meet("mma", at, &me, multiply_all);
}

void multiply_bytes(int (&c)[4], const u32 *a, const u32 *b, int k, place at) {
    bytes_lane me = {c, a, b, k};
    meet(k == 32 ? "mma_u8s8" : "mma_u8s8_k16", at, &me, multiply_all_bytes);
}

/* ---- Conversions ---- */

float half_to_float(u16 h) {
    const u32 sign = (u32)(h & 0x8000) << 16, size = (u32)(h & 0x7fff) << 13;
    if (size >= 31u << 23) return as_float(sign | 0x7f800000 | size);
    /* The biases of the exponents are 127 and 15. A subnormal number is no denormal f32, which may count as 0. */
    if (size < 1u << 23) return std::copysign((float)(size >> 13) * 0x1p-24f, as_float(sign | 0x3f800000));
    return as_float(sign | (size + (112u << 23)));
}

/* To nearest even; NaN is 0x7fff, as cvt gives. */
u16 float_to_half(float f) {
    if (f != f) return 0x7fff;
    const u32 sign = as_bits(f) >> 16 & 0x8000;
    const float size = std::fabs(f);
    if (size >= 65520) return (u16)(sign | 0x7c00);
    if (size < 6.103515625e-05f) return (u16)(sign | (u32)std::nearbyint(std::ldexp(size, 24)));
    const u32 u = as_bits(size) - (112u << 23);
    return (u16)(sign | (u + 0xfff + (u >> 13 & 1)) >> 13);
}

u16 float_to_bf16(float f) {
    if (f != f) return 0x7fff;
    const u32 u = as_bits(f);
    return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

} // namespace emu

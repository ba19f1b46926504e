/*
 * Matrix operations of a warp: ldmatrix, stmatrix, movmatrix, mma. Layouts are those of the PTX ISA, sections "ldmatrix",
 * "stmatrix", "movmatrix" and "Matrix Fragments for mma.m16n8k16 with floating point type".
 */
#include "state.h"

namespace emu {
namespace {

struct matrix_lane {
    u32 row; /* offset of the row whose address this lane gives */
    u32 r[4];
    bool transposed, valid;
    place at;
};

/* Row and column, within an 8 x 8 matrix, of the element in half h of a lane's register. */
void place_of(int lane, int h, bool transposed, int &row, int &column) {
    row = lane / 4;
    column = 2 * (lane % 4) + h;
    if (transposed) std::swap(row, column);
}

/* Call `move(element in shared memory, register, half)` for all elements of the four matrices. */
template <class F> void for_elements(matrix_lane **lanes, F move) {
    for (int m = 0; m < 4; m++)
        for (int l = 0; l < WARP; l++)
            for (int h = 0; h < 2; h++) {
                int row, column;
                place_of(l, h, lanes[l]->transposed, row, column);
                const matrix_lane &source = *lanes[8 * m + row];
                if (source.valid) move(&own->shared[source.row + 2 * (u32)column], lanes[l]->r[m], h);
            }
}

void count_matrix(matrix_lane **lanes, uint64_t counts::*field) {
    u32 rows[WARP];
    for (int l = 0; l < WARP; l++) rows[l] = lanes[l]->row;
    count_rows(lanes[0]->at, rows, WARP);
    tally(lanes[0]->at, field);
}

void load_all(void **args) {
    matrix_lane **lanes = reinterpret_cast<matrix_lane **>(args);
    for_elements(lanes, [](const unsigned char *from, u32 &r, int h) {
        u16 v;
        memcpy(&v, from, 2);
        r |= (u32)v << 16 * h;
    });
    count_matrix(lanes, &counts::ldmatrix);
}

void store_all(void **args) {
    matrix_lane **lanes = reinterpret_cast<matrix_lane **>(args);
    for_elements(lanes, [](unsigned char *to, u32 r, int h) {
        const u16 v = (u16)(r >> 16 * h);
        memcpy(to, &v, 2);
    });
    count_matrix(lanes, &counts::stmatrix);
}

struct multiply_lane {
    float *c;
    const u32 *a, *b;
    element e;
    place at;
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
    tally(lanes[0]->at, &counts::mma);
}

} // namespace

void load_matrix(u32 (&r)[4], u32 from, bool transposed, place at) {
    matrix_lane me = {from, {}, transposed, check_shared(from, 16, 16, at), at};
    if (me.valid) read_cells(from, 16, at);
    meet(transposed ? "ldmatrix_trans" : "ldmatrix", at, &me, load_all);
    memcpy(r, me.r, sizeof me.r);
}

void store_matrix(u32 to, const u32 (&r)[4], bool transposed, place at) {
    need_sm(90, at);
    matrix_lane me = {to, {r[0], r[1], r[2], r[3]}, transposed, check_shared(to, 16, 16, at), at};
    if (me.valid) write_cells(to, 16, writer::generic, at);
    meet(transposed ? "stmatrix_trans" : "stmatrix", at, &me, store_all);
}

u32 move_matrix(u32 a, place at) {
    struct lane {
        u32 in, out;
        place at;
    } me = {a, 0, at};
    meet("movmatrix", at, &me, [](void **args) {
        lane **lanes = reinterpret_cast<lane **>(args);
        for (int l = 0; l < WARP; l++)
            for (int h = 0; h < 2; h++) {
                int row, column; /* in the source, of the element that lane l gets */
                place_of(l, h, true, row, column);
                lanes[l]->out |= (lanes[4 * row + column / 2]->in >> 16 * (column % 2) & 0xffff) << 16 * h;
            }
        tally(lanes[0]->at, &counts::movmatrix);
    });
    return me.out;
}

void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], element e, place at) {
    multiply_lane me = {c, a, b, e, at};
    meet("mma", at, &me, multiply_all);
}

/* ---- Conversions ---- */

float half_to_float(u16 h) {
    const u32 sign = (u32)(h & 0x8000) << 16, size = (u32)(h & 0x7fff) << 13;
    if (size >= 31u << 23) return as_float(sign | 0x7f800000 | size);
    return as_float(sign | size) * 0x1p112f; /* the biases of the exponents are 127 and 15 */
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

/* e4m3: exponent bias 7, no infinity, NaN is 0x7f or 0xff. */
static u16 e4m3_to_half(u32 v) {
    const u32 sign = (v & 0x80) << 8, exponent = v >> 3 & 15, mantissa = v & 7;
    if ((v & 0x7f) == 0x7f) return 0x7fff;
    if (exponent) return (u16)(sign | (exponent + 8) << 10 | mantissa << 7);
    return (u16)(sign | float_to_half((float)mantissa / 512));
}

u32 e4m3_to_halves(u32 v, place at) {
    need_sm(89, at);
    return e4m3_to_half(v & 0xff) | (u32)e4m3_to_half(v >> 8 & 0xff) << 16;
}

} // namespace emu

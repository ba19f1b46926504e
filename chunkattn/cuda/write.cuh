/* Storing K and V: a step's rows into the tiles, and copies of slots between chunks. 16 bytes a lane. */
#ifndef CHUNKATTN_CUDA_WRITE_CUH
#define CHUNKATTN_CUDA_WRITE_CUH

#include "e4m3.cuh"
#include "tile.cuh"

enum { WRITE_THREADS = 256 };

/* This thread's index in the grid, and the grid's threads. */
DEV int grid_index() { return block_index() * WRITE_THREADS + thread_index(); }
DEV int grid_threads() { return block_count() * WRITE_THREADS; }

/* Round k and v of the rows to E, into the slots of their positions. Neighbouring lanes write neighbouring units of a line. */
template <element E, int D> DEV void write(const ca_cuda_write_args &a) {
    constexpr int UNITS = D / 8; /* of a line */
    const int n = ld_global(a.n_rows) * a.n_kv_heads * 2 * UNITS;
    for (int i = grid_index(); i < n; i += grid_threads()) {
        const int unit = i % UNITS, line = i / UNITS, v = line % 2, head = line / 2 % a.n_kv_heads,
                  row = line / 2 / a.n_kv_heads;
        const int source = ld_global(a.source + row), slot = ld_global(a.position + row) % CA_CUDA_CHUNK;
        const ca_cuda_view &from = v ? a.v : a.k;
        const u4 x = load_unit<E>(line_of(from, source, head), from.type, unit);
        unsigned char *tile =
            (unsigned char *)a.kv + ld_global(a.chunk + row) * a.chunk_bytes + (head * 2 + v) * (int64_t)tile_bytes<D>;
        st_global((u4 *)(tile + unit_offset<D, CA_CUDA_CHUNK>((u32)slot, (u32)unit)), x);
    }
}

template <int D> DEV void write_bf16(const ca_cuda_write_args &a) { write<BF16, D>(a); }
template <int D> DEV void write_f16(const ca_cuda_write_args &a) { write<F16, D>(a); }

/* ---- K and V in e4m3 ---- */

/* The 16 elements of a unit of a caller's line as f32, which is exact. */
DEV void load_16(float (&x)[16], const unsigned char *line, int type, int unit) {
    if (type == CATTN_F32) {
        UNROLL for (int i = 0; i < 4; i++) {
            const f4 four = ld_global((const f4 *)line + 4 * unit + i);
            UNROLL for (int j = 0; j < 4; j++) x[4 * i + j] = four.v[j];
        }
        return;
    }
    UNROLL for (int i = 0; i < 2; i++) {
        const u4 eight = ld_global((const u4 *)line + 2 * unit + i);
        UNROLL for (int j = 0; j < 4; j++) {
            const u32 two = eight.v[j];
            x[8 * i + 2 * j] = type == CATTN_BF16 ? low_half<BF16>(two) : low_half<F16>(two);
            x[8 * i + 2 * j + 1] = type == CATTN_BF16 ? high_half<BF16>(two) : high_half<F16>(two);
        }
    }
}

/* The bits of the largest |x| of a line, of which LANES neighbouring lanes hold 16 elements each. NaN has the largest bits. */
template <int LANES> DEV u32 most_of_line(const float (&x)[16]) {
    u32 most = 0;
    UNROLL for (int i = 0; i < 16; i++) {
        const u32 size = as_bits(x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    UNROLL for (int i = 1; i < LANES; i *= 2) {
        const u32 other = shfl_xor(most, i);
        most = other > most ? other : most;
    }
    return most;
}

/*
 * As write, in e4m3. A lane has a unit of 16 elements; of the lanes of a line, a power of two, the last ones may have none.
 * All lanes of a warp go through the loop equally often.
 */
template <int D> DEV void write_e4m3(const ca_cuda_write_args &a) {
    constexpr int UNITS = D / 16, LANES = D == 96 ? 8 : UNITS;
    const int n = ld_global(a.n_rows) * a.n_kv_heads * 2 * LANES, lane = thread_index() % 32;
    for (int first = grid_index() - lane; first < n; first += grid_threads()) {
        const int i = first + lane, unit = i % LANES, line = i / LANES, v = line % 2, head = line / 2 % a.n_kv_heads,
                  row = line / 2 / a.n_kv_heads;
        const bool used = i < n && unit < UNITS;
        float x[16] = {};
        if (used) {
            const int source = ld_global(a.source + row);
            load_16(x, v ? line_of(a.v, source, head) : line_of(a.k, source, head), v ? a.v.type : a.k.type, unit);
        }
        const float scale = scale_of_line(most_of_line<LANES>(x));
        if (!used) continue;
        const u32 slot = (u32)ld_global(a.position + row) % CA_CUDA_CHUNK;
        unsigned char *tile =
            (unsigned char *)a.kv + ld_global(a.chunk + row) * a.chunk_bytes + (head * 2 + v) * (int64_t)e4m3_tile_bytes<D>;
        st_global((u4 *)(tile + e4m3_unit_offset<D>(slot, (u32)unit)), round_unit(x, scale));
        if (unit == 0) st_global((float *)(tile + CA_CUDA_CHUNK * D) + slot, scale);
    }
}

/* ---- Copies ---- */

/* The slot that a tile's 16-byte unit belongs to, by its place. */
template <int D> DEV int slot_at(int place) {
    constexpr int FULL = D / 64 * (CA_CUDA_CHUNK * 8); /* units of the parts of 64 dimensions */
    return place < FULL ? place / 8 % CA_CUDA_CHUNK : (place - FULL) / 4;
}

/*
 * Carry out copies in their order. A copy keeps a slot's place in its tile, so a thread that takes the same places in every
 * copy reads what it wrote itself, and no copy waits for another.
 */
template <int D> DEV void copy(const ca_cuda_copy_args &a) {
    constexpr int UNITS = 2 * (int)tile_bytes<D> / 16; /* of a K and a V tile */
    const int n_copies = ld_global(a.n_copies), n = a.n_tiles * UNITS;
    for (int i = grid_index(); i < n; i += grid_threads()) {
        const int slot = slot_at<D>(i % (UNITS / 2));
        for (int c = 0; c < n_copies; c++) {
            const ca_cuda_copy now = ld_global(a.copies + c);
            if (slot < now.begin || slot >= now.end) continue;
            u4 *kv = (u4 *)a.kv + i;
            const int64_t chunk = a.chunk_bytes / 16;
            st_global(kv + now.to * chunk, ld_global(kv + now.from * chunk));
        }
    }
}

/* The same of tiles in e4m3. A unit of the scales belongs to four slots, of which some may be copied. */
template <int D> DEV void copy_e4m3(const ca_cuda_copy_args &a) {
    constexpr int UNITS = (int)e4m3_tile_bytes<D> / 16, LINES = CA_CUDA_CHUNK * D / 16; /* LINES: units of the lines */
    const int n_copies = ld_global(a.n_copies), n = a.n_tiles * 2 * UNITS;
    for (int i = grid_index(); i < n; i += grid_threads()) {
        const int place = i % UNITS;
        for (int c = 0; c < n_copies; c++) {
            const ca_cuda_copy now = ld_global(a.copies + c);
            unsigned char *to = (unsigned char *)a.kv + now.to * a.chunk_bytes + (int64_t)i * 16;
            const unsigned char *from = (const unsigned char *)a.kv + now.from * a.chunk_bytes + (int64_t)i * 16;
            if (place < LINES) {
                const int slot = place / (D / 16);
                if (slot >= now.begin && slot < now.end) st_global((u4 *)to, ld_global((const u4 *)from));
                continue;
            }
            UNROLL for (int j = 0; j < 4; j++) {
                const int slot = (place - LINES) * 4 + j;
                if (slot >= now.begin && slot < now.end) st_global((float *)to + j, ld_global((const float *)from + j));
            }
        }
    }
}

#endif

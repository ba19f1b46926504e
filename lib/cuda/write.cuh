/* Storing K and V: a step's rows into the tiles, and copies of slots between chunks. 16 bytes a lane. */
#ifndef LIB_CUDA_WRITE_CUH
#define LIB_CUDA_WRITE_CUH

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

#endif

/*
 * Where the chunks of a work item lie, and copying them from foreign pages into shared memory.
 *
 * A page has a multiple of 16 slots, so a quarter of a chunk is always in one page. Its lines are copied by cp.async, 16 bytes
 * at a time, to the places that they have in a tile (tile.cuh). From there on a kernel does the same as for chunks of the
 * library's own, so the bits are the same, too.
 */
#ifndef CHUNKATTN_CUDA_PAGES_CUH
#define CHUNKATTN_CUDA_PAGES_CUH

#include "softmax.cuh"
#include "tile.cuh"

/* ---- A work item's chunks ---- */

/* What a lane keeps of them: the id of one chunk, or the place of one quarter in foreign pages. */
template <class S> DEV int load_places(const ca_cuda_attend_args &a, int j, int lane) {
    if constexpr (S::PAGES) return ld_global(a.pages.items[j].quarter + lane);
    return ld_global(a.items[j].chunk + lane % CA_CUDA_SEGMENT_CHUNKS);
}

/* The id of the list's chunk i, or the place of its quarter. All lanes. */
template <class S> DEV int shfl_place(int places, int i, int quarter) {
    return shfl(places, S::PAGES ? i * CA_CUDA_QUARTERS + quarter : i);
}

/* The KV head of a work item that is kept in shared memory (tile.cuh), where a register is one too many. */
DEV u32 kept_head(u32 at) { return ld_shared<u32>(at + 4) & 0xffff; }

/* ---- Foreign pages ---- */

/* K or V of one KV head in a quarter. */
struct page_lines {
    const unsigned char *first; /* line; of some other quarter if `exists` is false */
    int64_t stride;             /* bytes from line to line */
    bool exists;                /* false: the sequence has no such page, so no row sees it */
};
DEV page_lines find_lines(const ca_cuda_attend_args &a, bool v, int head, int place) {
    const unsigned char *data = v ? a.pages.v.data : a.pages.k.data;
    const int64_t page_stride = v ? a.pages.v.page_stride : a.pages.k.page_stride,
                  slot_stride = v ? a.pages.v.slot_stride : a.pages.k.slot_stride,
                  head_stride = v ? a.pages.v.head_stride : a.pages.k.head_stride;
    const int known = place < 0 ? 0 : place, page = known >> a.pages.log2_quarters;
    const int slot = (known - (page << a.pages.log2_quarters)) * STEP_SLOTS;
    return {data + page * page_stride + slot * slot_stride + head * head_stride, slot_stride, place >= 0};
}

/*
 * Copy a quarter to 16 lines, from `line` on, of a tile of LINES lines, by 32 or 128 threads of which this is thread t. Eight
 * neighbouring threads copy 128 bytes of a line (four: 64), exchanged among themselves as the tile wants it.
 */
template <int D, int LINES, int THREADS> DEV void copy_page_lines(const page_lines &from, u32 tile, int line, int t) {
    constexpr int AT_ONCE = THREADS / 8; /* lines, of 128 bytes */
    u32 to = tile + (u32)(line + t / 8) * 128 + (u32)t % 8 * 16;
    const unsigned char *unit = from.first + t / 8 * from.stride;
    UNROLL for (int i = 0; i < D / 64 * STEP_SLOTS / AT_ONCE; i++) {
        const int part = i * AT_ONCE / STEP_SLOTS, first = i * AT_ONCE % STEP_SLOTS;
        cp_async16_or_zero(to + (u32)(part * (LINES * 128) + first * 128),
                           unit + first * from.stride + part * 128 + ((t % 8 ^ t / 8 % 8 ^ first % 8) << 4), from.exists);
    }
    if (D % 64 == 0 || t >= STEP_SLOTS * 4) return;
    to = tile + D / 64 * (LINES * 128) + (u32)(line + t / 4) * 64 + (u32)t % 4 * 16;
    unit = from.first + t / 4 * from.stride + D / 64 * 128 + ((t % 4 ^ t / 8 % 4) << 4);
    UNROLL for (int first = 0; first < STEP_SLOTS; first += 2 * AT_ONCE)
        cp_async16_or_zero(to + (u32)first * 64, unit + first * from.stride, from.exists);
}

#endif

/*
 * Prefill attention by wgmma (sm_90a): the work items and, under the condition below, the bits of prefill.cuh.
 *
 * A work item has up to 128 rows here, for which K and V are copied once. Two warp groups compute, each for itself: its half of
 * the tokens is a work item of up to 64 rows, with queries, sums and barriers of its own, so one may finish a work item while
 * the other one is still or already at work. d = 256 leaves shared memory for one group only.
 *
 *   warps 0 to 3 | warps 4 to 7     the group's four warps have 16 rows each, as in prefill.cuh
 *   warp 8                          fills the stages of the ring by bulk copies
 *   warps 9 to 11                   end at once: registers are given to warp groups
 *
 * The warp that copies goes through the work items by itself, over the ends of quarters and of work items, and fills a stage as
 * soon as all warps that compute have left it. Each stage has two mbarriers: one completes when the bytes are here, one when
 * all have left.
 *
 * The bits are those of mma only if wgmma sums 16 products and the accumulator as mma does. Nothing else differs. So steps use
 * these kernels only on a device that is known to do so (ca_cuda_device.wgmma); docs/cuda.md has the reasons.
 *
 * Shared memory: four stages (d = 256: two); for each group queries, sums, their M, their l, flags of the arrival, its part of
 * the work item; mbarriers.
 */
#ifndef CHUNKATTN_CUDA_PREFILL_WGMMA_CUH
#define CHUNKATTN_CUDA_PREFILL_WGMMA_CUH

#include "prefill.cuh"
#include "prefill_wgmma_stage.cuh"

/* ---- The mbarriers of the stages ---- */

template <class S> DEV u32 stage_bar(u32 base, int ring) { return base + S::BARS + (u32)(ring & (S::STAGES - 1)) * 8; }
template <class S> DEV u32 free_bar(u32 base, int ring) { return base + S::FREE + (u32)(ring & (S::STAGES - 1)) * 8; }
template <class S> DEV u32 stage_parity(int ring) { return (u32)ring / S::STAGES; }

template <class S> DEV void init_stages(u32 base) {
    const u32 t = (u32)thread_index();
    if (t < S::STAGES) mbar_init(base + S::BARS + t * 8, 1);
    if (t < S::STAGES) mbar_init(base + S::FREE + t * 8, S::COMPUTING / 32);
    if (t < S::STAGES) mbar_fence_init();
    sync_block();
}

/* ---- The warp that copies ---- */

/* Parts of 64 dimensions of K, or of V; d = 96 ends with half a part. */
template <class S> constexpr int parts_of = (S::D + 63) / 64;

/* Announce the bytes of a quarter of n chunks, or of as many as a stage holds. */
template <class S> DEV void expect_lines(u32 bar, int n) {
    mbar_arrive_expect(bar, (u32)(n < S::CHUNKS ? n : S::CHUNKS) * (2 * STEP_SLOTS * S::D * 2));
}

/* Copy a part of a chunk's quarter of K (v = 0) or V (v = 1) to its place in a stage. */
template <class S> DEV void copy_part_bulk(u32 to, const unsigned char *tile, int c, int quarter, u32 v, u32 part, u32 bar) {
    const u32 bytes = S::D % 64 && part == S::D / 64 ? 1024 : 2048;
    bulk_copy(to + v * S::TILE + part * (S::LINES * 128) + (u32)c * bytes,
              tile + v * tile_bytes<S::D> + part * (CA_CUDA_CHUNK * 128) + (u32)quarter * bytes, bytes, bar);
}

/* Fill the next stage with a quarter of n chunks, or of as many as it holds; the first one is the list's chunk `first`. A lane
 * copies one part of one chunk. */
template <class S>
DEV void fill_stage(const ca_cuda_attend_args &a, u32 base, int ring, int head, int quarter, int places, int first, int n) {
    static_assert(2 * parts_of<S> * S::CHUNKS <= 32, "a lane has at most one copy");
    const int lane = hidden(thread_index()) % 32, c = lane % S::CHUNKS, part = lane / S::CHUNKS;
    const u32 bar = stage_bar<S>(base, ring);
    if (lane == 0) {
        mbar_wait(free_bar<S>(base, ring), stage_parity<S>(ring) ^ 1);
        expect_lines<S>(bar, n);
    }
    sync_warp();
    const int place = shfl(places, first + c);
    if (c >= n || part >= 2 * parts_of<S>) return;
    const unsigned char *tile = (const unsigned char *)a.kv + place * a.chunk_bytes + head * 2 * (int64_t)tile_bytes<S::D>;
    copy_part_bulk<S>(stage_of<S>(base, ring), tile, c, quarter, (u32)(part / parts_of<S>), (u32)(part % parts_of<S>), bar);
}

template <class S> DEV void copy_items(const ca_cuda_attend_args &a) {
    const u32 base = shared_base();
    const int end = ld_global(a.parts + block_index() + 1);
    int ring = 0;
    for (int j = ld_global(a.parts + block_index()); j < end; j++) {
        const ca_work_item work = load_work(a.items + j);
        const int places = load_places<S>(a, j, thread_index() % 32);
        const int n = work.n_chunks, head = work.head;
        UNROLL_BY(1)
        for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) UNROLL_BY(1)
        for (int first = 0; first < n; first += S::CHUNKS) {
            fill_stage<S>(a, base, ring, head, quarter, places, first, n - first);
            ring = next_request<S>(ring);
        }
    }
}

/* ---- The warps that compute ---- */

/* A stage that is not full is multiplied whole, so what lies behind its last chunk must have been written once. */
template <class S> DEV void clear_stages(u32 base) {
    UNROLL for (u32 stage = 0; stage < S::STAGES; stage++) for (u32 i = (u32)thread_index(); i < S::TILE / 16;
                                                                i += S::BLOCK_THREADS)
        st_shared(base + stage * S::STAGE + i * 16, u4{});
    fence_async();
}

/* Which of the block's groups this is, and what the offsets of its own memory are from. */
template <class S> DEV int own_group() { return S::GROUPS == 1 ? 0 : thread_index() / S::THREADS; }
template <class S> DEV u32 own_base() { return shared_base() + (u32)own_group<S>() * S::OWN; }

/* A group's part of a work item: as many whole tokens as fit in its rows; of two groups the second one takes the rest. */
DEV int32_t later_state(int32_t first, int token) { return first < 0 ? first : first + token; }
template <class S> DEV ca_work_item part_of_work(const ca_cuda_attend_args &a, ca_work_item work, int group) {
    const int most = (int)(S::ROWS * a.group_inverse >> 16), begin = group * most, n = work.n_tokens - begin;
    work.row += begin;
    work.n_tokens = (uint8_t)(n < 0 ? 0 : n < most ? n : most);
    work.state = later_state(work.state, begin);
    work.fold = later_state(work.fold, begin);
    work.carry_in = later_state(work.carry_in, begin);
    work.carry_out = later_state(work.carry_out, begin);
    return work;
}

/* As keep_work, for a line that differs from the one in device memory. */
template <class S> DEV void keep_part(const ca_work_item &work, int j, u32 at) {
    u4 words[sizeof work / 16];
    memcpy(words, &work, sizeof work);
    if (own_thread<S>() != 0) return;
    UNROLL for (u32 i = 0; i < 2; i++) st_shared(at + i * 16, words[i]);
    st_shared(at + (u32)sizeof work, j);
}

/* Of a kept work item: its tokens, the number of its chunks, and which of these some row does not see whole. */
struct kept_list {
    int n_tokens, n, partial;
};
DEV kept_list list_of_work(u32 at) {
    const u32 head_word = ld_shared<u32>(at + 4), segment_word = ld_shared<u32>(at + 8);
    return {(int)(head_word >> 16 & 0xff), (int)(segment_word >> 16 & 0xff), (int)(segment_word >> 24)};
}

/* This warp has read all that it needs of the stage. */
template <class S> DEV void leave_stage(u32 base, int ring) {
    sync_warp();
    if (thread_index() % 32 == 0) mbar_arrive(free_bar<S>(base, ring));
}

template <class S> DEV void attend_rows_by_wgmma(const ca_cuda_attend_args &a, int j, int &ring) {
    const u32 base = shared_base(), own = own_base<S>();
    const ca_work_item work = part_of_work<S>(a, load_work(a.items + j), own_group<S>());
    keep_part<S>(work, j, own + S::WORK);
    stage_queries<S, S::ROWS>(a, work, own + S::QUERIES);
    fence_async();
    sync_own<S>();
    prefill_queries<S> q;
    load_queries<S>(q, this_rows<S>());
    UNROLL_BY(1) for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) {
        prefill_state<S> st;
        begin_quarter<S>(a, st, this_rows<S>(), quarter);
        UNROLL_BY(1) for (int first = 0;; first += S::CHUNKS) {
            const kept_list list = list_of_work(own_base<S>() + S::WORK); /* read again: registers are needed for the sums */
            if (first >= list.n) break;
            mbar_wait(stage_bar<S>(base, ring), stage_parity<S>(ring));
            const int here = list.n - first < S::CHUNKS ? list.n - first : S::CHUNKS;
            const prefill_warp w = this_rows<S>();
            if (list.n_tokens > 0)
                attend_stage<S>(a, st, q, w, stage_of<S>(base, ring), quarter, first, here,
                                list.partial >> first & ((1 << here) - 1));
            leave_stage<S>(base, ring);
            ring = next_request<S>(ring);
        }
        end_quarter<S>(a, st, this_rows<S>(), hidden(quarter));
    }
}

template <class S> DEV void compute_items(const ca_cuda_attend_args &a) {
    const u32 own = own_base<S>();
    int ring = 0;
    for (int j = ld_global(a.parts + block_index()); j < ld_global(a.parts + block_index() + 1);) {
        attend_rows_by_wgmma<S>(a, j, ring);
        finish_rows<S>(a, own);
        j = kept_index(own + S::WORK) + 1;
        sync_own<S>();
    }
}

/* ---- A block ---- */

/*
 * Registers of a thread that copies, and of one that computes, where two groups compute: on average those that a thread of 384
 * has when the launch begins. One group has as many as a thread can address.
 */
enum { COPYING_REGISTERS = 24, COMPUTING_REGISTERS = 240 };
static_assert(COPYING_REGISTERS + 2 * COMPUTING_REGISTERS == 3 * 168, "one group gives what the others take");

/* All work items of this block. */
template <element E, int D, kv_source SOURCE> DEV void prefill_wgmma(const ca_cuda_attend_args &a) {
    using S = prefill_shape<E, D, SOURCE>;
    clear_stages<S>(shared_base());
    init_stages<S>(shared_base());
    if (thread_index() >= S::COMPUTING) {
        if constexpr (S::GROUPS == 2) registers_decrease<COPYING_REGISTERS>();
        if (thread_index() < S::COMPUTING + 32) copy_items<S>(a);
    } else {
        if constexpr (S::GROUPS == 2) registers_increase<COMPUTING_REGISTERS>();
        compute_items<S>(a);
    }
}

#endif

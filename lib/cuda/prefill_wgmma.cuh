/*
 * Prefill attention by wgmma (sm_90a): the jobs and, under the condition below, the bits of prefill.cuh.
 *
 * A block has two warp groups. One computes: its four warps have 16 rows each, as in prefill.cuh. Of the other one a single
 * warp runs; it copies. It goes through the jobs by itself, over the ends of quarters and of jobs, and fills each stage as
 * soon as all four warps have left it. For each stage there are two mbarriers: one completes when its bytes are here, one when
 * it may be overwritten. Where two blocks share a multiprocessor, the copying group gives most of its registers to the other
 * one.
 *
 * The bits are those of mma only if wgmma sums 16 products and the accumulator as mma does. Nothing else differs. So a device's
 * steps use these kernels only where it is known to (ca_cuda_device.wgmma_sums_as_mma); docs/cuda.md has the reasons.
 */
#ifndef LIB_CUDA_PREFILL_WGMMA_CUH
#define LIB_CUDA_PREFILL_WGMMA_CUH

#include "prefill.cuh"
#include "prefill_wgmma_stage.cuh"

/* ---- The warp that copies ---- */

template <class S> DEV u32 free_bar(u32 base, int ring) { return base + S::FREE + (u32)(ring & 1) * 8; }

/* Fill the next stage with a quarter of n chunks, the first of which is the list's chunk `first`. A lane copies one part of one
 * chunk. */
template <class S>
DEV void fill_stage(const ca_cuda_attend_args &a, u32 base, int ring, int head, int quarter, int places, int first, int n) {
    static_assert(2 * parts_of<S> * S::CHUNKS <= 32, "a lane has at most one copy");
    const int lane = hidden(thread_index()) % 32, c = lane % S::CHUNKS, part = lane / S::CHUNKS;
    const u32 bar = stage_bar<S>(base, ring);
    if (lane == 0) {
        mbar_wait(free_bar<S>(base, ring), (u32)ring >> 1 ^ 1);
        expect_lines<S>(bar, n);
    }
    sync_warp();
    const int place = shfl(places, first + c);
    if (c >= n || part >= 2 * parts_of<S>) return;
    const unsigned char *tile = (const unsigned char *)a.kv + place * a.chunk_bytes + head * 2 * (int64_t)tile_bytes<S::D>;
    copy_part_bulk<S>(stage_of<S>(base, ring), tile, c, quarter, (u32)(part / parts_of<S>), (u32)(part % parts_of<S>), bar);
}

template <class S> DEV void copy_jobs(const ca_cuda_attend_args &a) {
    const u32 base = shared_base();
    const int end = ld_global(a.parts + block_index() + 1);
    int ring = 0;
    for (int j = ld_global(a.parts + block_index()); j < end; j++) {
        const ca_cuda_job job = load_job(a.jobs + j);
        const int places = load_places<S>(a, j, thread_index() % 32);
        const int n = job.n_chunks, head = job.head;
        UNROLL_BY(1)
        for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) UNROLL_BY(1)
        for (int first = 0; first < n; first += S::CHUNKS) {
            fill_stage<S>(a, base, ring, head, quarter, places, first, n - first);
            ring = next_request(ring);
        }
    }
}

/* ---- The warps that compute ---- */

/* A stage that is not full is multiplied whole, so what lies behind its last chunk must have been written once. */
template <class S> DEV void clear_stages(u32 base) {
    UNROLL for (u32 stage = 0; stage < 2; stage++) for (u32 i = (u32)thread_index(); i < S::TILE / 16; i += S::BLOCK_THREADS)
        st_shared(base + stage * S::STAGE + i * 16, u4{});
    fence_async();
}

/* A kept job's number of chunks, and which of them some row does not see whole. */
struct kept_list {
    int n, partial;
};
DEV kept_list list_of_job(u32 at) {
    const u32 word = ld_shared<u32>(at + 8);
    return {(int)(word >> 16 & 0xff), (int)(word >> 24)};
}

/* This warp has read all that it needs of the stage. */
template <class S> DEV void leave_stage(u32 base, int ring) {
    sync_warp();
    if (thread_index() % 32 == 0) mbar_arrive(free_bar<S>(base, ring));
}

template <class S> DEV void attend_rows_by_wgmma(const ca_cuda_attend_args &a, int j, int &ring) {
    const u32 base = shared_base();
    keep_job(a, j, base + S::JOB);
    stage_queries<S::E, S::D, S::ROWS, S::THREADS>(a, load_job(a.jobs + j), base + S::QUERIES);
    fence_async();
    sync_computing<S>();
    prefill_queries<S> q;
    load_queries<S>(q, this_rows());
    UNROLL_BY(1) for (int quarter = 0; quarter < CA_CUDA_QUARTERS; quarter++) {
        prefill_state<S> st;
        begin_quarter<S>(a, st, this_rows(), quarter);
        UNROLL_BY(1) for (int first = 0;; first += S::CHUNKS) {
            const kept_list list = list_of_job(base + S::JOB); /* read again: registers are needed for the sums */
            if (first >= list.n) break;
            mbar_wait(stage_bar<S>(base, ring), (u32)ring >> 1);
            const int here = list.n - first < S::CHUNKS ? list.n - first : S::CHUNKS;
            attend_stage<S>(a, st, q, this_rows(), stage_of<S>(base, ring), quarter, first, here,
                            list.partial >> first & ((1 << here) - 1));
            leave_stage<S>(base, ring);
            ring = next_request(ring);
        }
        end_quarter<S>(a, st, this_rows(), hidden(quarter));
    }
}

template <class S> DEV void compute_jobs(const ca_cuda_attend_args &a) {
    const u32 base = shared_base();
    int ring = 0;
    for (int j = ld_global(a.parts + block_index()); j < ld_global(a.parts + block_index() + 1);) {
        attend_rows_by_wgmma<S>(a, j, ring);
        finish_rows<S>(a, base);
        j = kept_index(base + S::JOB) + 1;
        sync_computing<S>();
    }
}

/* ---- A block ---- */

/*
 * Registers of a thread that copies, and of one that computes. Two blocks of 256 threads leave 128 for each thread; their
 * average is that. A single block of a multiprocessor has as many as a thread can address.
 */
enum { COPYING_REGISTERS = 24, COMPUTING_REGISTERS = 232 };
static_assert(COPYING_REGISTERS + COMPUTING_REGISTERS == 2 * 128, "one group gives what the other takes");

/* All jobs of this block. */
template <element E, int D> DEV void prefill_wgmma(const ca_cuda_attend_args &a) {
    using S = prefill_shape<E, D, WGMMA_TILES>;
    constexpr bool TWO_BLOCKS = D <= 128; /* of a multiprocessor */
    clear_stages<S>(shared_base());
    init_stages<S>(shared_base());
    if (thread_index() >= S::THREADS) {
        if constexpr (TWO_BLOCKS) registers_decrease<COPYING_REGISTERS>();
        if (thread_index() < S::THREADS + 32) copy_jobs<S>(a);
    } else {
        if constexpr (TWO_BLOCKS) registers_increase<COMPUTING_REGISTERS>();
        compute_jobs<S>(a);
    }
}

#endif

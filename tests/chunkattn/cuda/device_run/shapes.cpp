/* The shapes, and their lists of work items. */
#include "shapes.h"

#include <algorithm>

#include "tests/chunkattn/cuda/kernels/problem.h"

const char *const method_names[] = {"paged", "paged_shared", "chunk"};

/* The shapes of docs/cuda.md's estimate, short ones that show a segment's fixed cost, and the other rows of table 3. */
const std::vector<step_shape> step_shapes = {
    {"shared_4096", 32, 32, 32, 4096, 4096, true},       {"shared_2048", 32, 32, 32, 2048, 2048, true},
    {"shared_1024", 32, 32, 32, 1024, 1024, true},       {"private_8x32k", 8, 32, 8, 32768, 0, true},
    {"private_32x4096", 32, 32, 32, 4096, 0, true},      {"short_512", 32, 32, 32, 512, 512, false},
    {"short_256", 32, 32, 32, 256, 256, false},          {"short_64", 32, 32, 32, 64, 64, false},
    {"table3_1024_0", 32, 32, 32, 1024, 0, false},       {"table3_1024_512", 32, 32, 32, 1024, 512, false},
    {"table3_1024_768", 32, 32, 32, 1024, 768, false},   {"table3_2048_0", 32, 32, 32, 2048, 0, false},
    {"table3_2048_1024", 32, 32, 32, 2048, 1024, false}, {"table3_2048_1536", 32, 32, 32, 2048, 1536, false},
    {"table3_4096_2048", 32, 32, 32, 4096, 2048, false}, {"table3_4096_3072", 32, 32, 32, 4096, 3072, false},
};

step_shape tiny(step_shape s) {
    const int down = s.n > 4096 ? 32 : s.n > 512 ? 4 : 1, group = s.group();
    s.all = s.n == 1024 || group > 1; /* the fewest tokens, and two segments behind a group */
    s.b = s.all && group == 1 ? 9 : 3;
    s.kv_heads = 1;
    s.heads = group;
    s.n /= down;
    s.n_shared /= down;
    return s;
}

int stored_chunks(const step_shape &s, bool shared_storage) {
    const int common = shared_storage ? s.shared_chunks() : 0;
    return common + s.b * (s.chunks() - common);
}

int chunk_id(const step_shape &s, bool shared_storage, int row, int chunk) {
    const int common = shared_storage ? s.shared_chunks() : 0;
    return chunk < common ? chunk : common + row * (s.chunks() - common) + chunk - common;
}

step_lists make_lists(const step_shape &s, method how, int tile_rows, bool chained, int blocks) {
    problem p = {};
    p.n_kv_heads = s.kv_heads;
    p.group = s.group();
    p.position.assign((size_t)s.b, s.n - 1);
    for (int r = 0; r < s.b; r++) {
        p.chunks.emplace_back();
        for (int c = 0; c < s.chunks(); c++) p.chunks.back().push_back(chunk_id(s, how != PAGED, r, c));
    }
    const int shape = SHAPE_EVEN | (how == CHUNK ? 0 : SHAPE_ALONE) | (chained ? SHAPE_CHAIN : 0);
    const work_lists all = make_items(p, shape, tile_rows, blocks, 0);
    step_lists l = {{}, {0}, all.merge_begin, all.merge, all.n_states};
    for (const auto &block : all.phases[0]) {
        l.items.insert(l.items.end(), block.begin(), block.end());
        l.parts.push_back((int32_t)l.items.size());
    }
    return l;
}

bool covers(const step_shape &s, method how, const step_lists &l) {
    std::vector<int> n((size_t)(s.b * s.kv_heads * s.chunks()));
    for (const ca_work_item &work : l.items)
        for (int t = work.row; t < work.row + work.n_tokens; t++)
            for (int i = 0; i < work.n_chunks; i++) {
                const int chunk = work.segment * CA_CUDA_SEGMENT_CHUNKS + (int)(work.order >> 4 * i & 15);
                if (work.chunk[i] != chunk_id(s, how != PAGED, t, chunk)) return false;
                n[(size_t)((t * s.kv_heads + work.head) * s.chunks() + chunk)]++;
            }
    return std::all_of(n.begin(), n.end(), [](int times) { return times == 1; });
}

/* The shapes, and their lists of jobs. */
#include "shapes.h"

#include <algorithm>
#include <queue>

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

namespace {

using chain = std::vector<ca_cuda_job>; /* of one block, one after the other */

ca_cuda_job make_job(const step_shape &s, bool shared_storage, int row, int n_tokens, int segment) {
    ca_cuda_job job = {};
    job.row = row;
    job.n_tokens = (uint8_t)n_tokens;
    job.segment = (uint16_t)segment;
    job.fold = job.carry_in = job.carry_out = -1;
    const int begin = segment * CA_CUDA_SEGMENT_CHUNKS, end = std::min(begin + CA_CUDA_SEGMENT_CHUNKS, s.chunks());
    for (int c = begin; c < end; c++) {
        job.chunk[job.n_chunks] = chunk_id(s, shared_storage, row, c);
        job.order |= (uint32_t)(c - begin) << 4 * job.n_chunks;
        job.n_chunks++;
    }
    return job;
}

/* Whether all rows have the same chunks in a segment. */
bool is_common(const step_shape &s, method how, int segment) {
    return how == CHUNK && std::min((segment + 1) * CA_CUDA_SEGMENT_CHUNKS, s.chunks()) <= s.shared_chunks();
}

std::vector<chain> make_chains(const step_shape &s, method how, int tile_rows, bool chained) {
    std::vector<chain> chains;
    const int n_segments = (s.chunks() + CA_CUDA_SEGMENT_CHUNKS - 1) / CA_CUDA_SEGMENT_CHUNKS;
    for (int segment = 0; segment < n_segments; segment++) {
        const int most = is_common(s, how, segment) ? std::max(1, tile_rows / s.group()) : 1;
        for (int row = 0, tile = 0; row < s.b; row += most, tile++) {
            const ca_cuda_job job = make_job(s, how != PAGED, row, std::min(most, s.b - row), segment);
            if (chained && segment > 0)
                chains[(size_t)tile].push_back(job);
            else
                chains.push_back({job});
        }
    }
    return chains;
}

void number_states(const step_shape &s, std::vector<chain> &chains, step_lists &l) {
    std::vector<std::vector<int32_t>> states((size_t)s.b); /* of each row; chains are in the order of segments */
    for (chain &c : chains) {
        const int n = c[0].n_tokens, kept = c.size() > 1 ? 2 : 1; /* a chain alternates between two states */
        for (size_t i = 0; i < c.size(); i++) {
            c[i].state = l.n_states + (int)(i % 2) * n;
            if (i > 0) c[i].fold = c[i - 1].state;
            if (i + 1 < c.size()) c[i].flags |= CA_CUDA_JOB_KEEP;
        }
        for (int t = 0; t < n; t++) states[(size_t)(c[0].row + t)].push_back(c.back().state + t);
        l.n_states += kept * n;
    }
    for (chain &c : chains)
        if (states[(size_t)c[0].row].size() == 1) c.back().flags |= CA_CUDA_JOB_OUTPUT;
    l.merge_begin.push_back(0);
    for (const auto &row : states) {
        l.merge.insert(l.merge.end(), row.begin(), row.end());
        l.merge_begin.push_back((int32_t)l.merge.size());
    }
}

void assign(const step_shape &s, const std::vector<chain> &chains, int blocks, step_lists &l) {
    std::vector<std::pair<int64_t, chain>> all; /* cost, jobs */
    for (int head = 0; head < s.kv_heads; head++)
        for (chain c : chains) {
            int64_t cost = 0;
            for (ca_cuda_job &job : c) {
                job.head = (uint16_t)head;
                cost += ca_job_cost(job.n_chunks, job.n_tokens * s.group());
            }
            all.push_back({cost, c});
        }
    std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    using load = std::pair<int64_t, int>; /* cost, block */
    std::priority_queue<load, std::vector<load>, std::greater<load>> least;
    for (int i = 0; i < blocks; i++) least.push({0, i});
    std::vector<chain> of((size_t)blocks);
    for (const auto &[cost, c] : all) {
        const load to = least.top();
        least.pop();
        of[(size_t)to.second].insert(of[(size_t)to.second].end(), c.begin(), c.end());
        least.push({to.first + cost, to.second});
    }
    l.parts.push_back(0);
    for (const chain &c : of) {
        l.jobs.insert(l.jobs.end(), c.begin(), c.end());
        l.parts.push_back((int32_t)l.jobs.size());
    }
}

} // namespace

step_lists make_lists(const step_shape &s, method how, int tile_rows, bool chained, int blocks) {
    step_lists l = {};
    std::vector<chain> chains = make_chains(s, how, tile_rows, chained);
    number_states(s, chains, l);
    assign(s, chains, blocks, l);
    return l;
}

bool covers(const step_shape &s, method how, const step_lists &l) {
    std::vector<int> n((size_t)(s.b * s.kv_heads * s.chunks()));
    for (const ca_cuda_job &job : l.jobs)
        for (int t = job.row; t < job.row + job.n_tokens; t++)
            for (int i = 0; i < job.n_chunks; i++) {
                const int chunk = job.segment * CA_CUDA_SEGMENT_CHUNKS + (int)(job.order >> 4 * i & 15);
                if (job.chunk[i] != chunk_id(s, how != PAGED, t, chunk)) return false;
                n[(size_t)((t * s.kv_heads + job.head) * s.chunks() + chunk)]++;
            }
    return std::all_of(n.begin(), n.end(), [](int times) { return times == 1; });
}

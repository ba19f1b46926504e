/* A problem's lists of work items, made without the planner, in more shapes than the planner makes. */
#include <algorithm>
#include <cstring>

#include "problem.h"

namespace {

struct draft { /* a work item before it has a place */
    ca_work_item work;
    int phase;
};

struct builder {
    const problem &p;
    int shape, max_tokens;
    std::mt19937_64 rng;
    work_lists out;
    std::vector<std::vector<draft>> chains; /* drafts of one block, one after the other */

    int below(int n) { return (int)(rng() % (uint64_t)n); }
    bool likely() { return shape & SHAPE_EVEN || below(4); }

    bool sees(int r, int chunk) const {
        const int at = p.position[(size_t)r], first = chunk * CA_CUDA_CHUNK;
        if (first > at) return false;
        return p.window == 0 || first + CA_CUDA_CHUNK - 1 > at - p.window || first < p.n_sink_tokens;
    }
    bool whole(int r, int chunk) const {
        const int at = p.position[(size_t)r], first = chunk * CA_CUDA_CHUNK;
        if (first + CA_CUDA_CHUNK - 1 > at) return false;
        return p.window == 0 || first > at - p.window || first + CA_CUDA_CHUNK <= p.n_sink_tokens;
    }
    int id(int r, int chunk) const {
        const std::vector<int> &c = p.chunks[(size_t)r];
        return chunk < (int)c.size() ? c[(size_t)chunk] : -1;
    }

    /* Rows [begin, end) over the chunks [from, to) of a segment that they have in common. False: they see nothing there. */
    bool add(int begin, int end, int segment, int from, int to, int carry_in, int carry_out, int phase) {
        ca_work_item work = {};
        work.row = begin;
        work.n_tokens = (uint8_t)(end - begin);
        work.segment = (uint16_t)segment;
        work.fold = -1;
        work.carry_in = carry_in;
        work.carry_out = carry_out;
        work.state = -1;
        for (int c = from; c < to; c++) {
            const int chunk = segment * CA_CUDA_SEGMENT_CHUNKS + c;
            int any = -1;
            bool all = true;
            for (int r = begin; r < end; r++) {
                if (sees(r, chunk)) any = id(r, chunk);
                all &= whole(r, chunk);
            }
            if (any < 0) continue;
            work.chunk[work.n_chunks] = any;
            work.order |= (uint32_t)c << 4 * work.n_chunks;
            work.partial = (uint8_t)(work.partial | !all << work.n_chunks);
            work.n_chunks++;
        }
        if (work.n_chunks == 0 && carry_in < 0) return false;
        chains.push_back({{work, phase}});
        return true;
    }

    /* Chunks of the segment from `from` on that no two rows have differently. */
    int common(int begin, int end, int segment, int from) const {
        for (int c = from; c < CA_CUDA_SEGMENT_CHUNKS; c++) {
            int one = -1;
            for (int r = begin; r < end; r++) {
                const int mine = id(r, segment * CA_CUDA_SEGMENT_CHUNKS + c);
                if (mine >= 0 && one >= 0 && mine != one) return c;
                if (mine >= 0) one = mine;
            }
        }
        return CA_CUDA_SEGMENT_CHUNKS;
    }

    void parts(int begin, int end, int segment, int chunk, int from, int carry, int carry_row, int phase) {
        for (int r = begin; r < end;) { /* rows that go on together: by the id at the absolute chunk */
            int to = r, one = -1;       /* a row that ends before goes with any */
            for (; to < end && (one < 0 || id(to, chunk) < 0 || id(to, chunk) == one); to++)
                if (id(to, chunk) >= 0) one = id(to, chunk);
            segment_of(r, to, segment, from, carry < 0 ? -1 : carry + r - carry_row, phase);
            r = to;
        }
    }

    void segment_of(int begin, int end, int segment, int from, int carry, int phase) {
        const int limit = shape & SHAPE_ALONE ? 1 : shape & SHAPE_RANDOM ? 1 + below(max_tokens) : max_tokens;
        if (end - begin > limit) {
            for (int r = begin; r < end; r += limit)
                segment_of(r, std::min(end, r + limit), segment, from, carry < 0 ? -1 : carry + r - begin, phase);
            return;
        }
        const int to = common(begin, end, segment, from), chunk = segment * CA_CUDA_SEGMENT_CHUNKS + to;
        if (to == CA_CUDA_SEGMENT_CHUNKS) {
            add(begin, end, segment, from, to, carry, -1, phase);
            return;
        }
        if (to > from && shape & SHAPE_CARRY) {
            const int saved = out.n_carried;
            if (add(begin, end, segment, from, to, carry, saved, phase)) {
                out.n_carried += end - begin;
                parts(begin, end, segment, chunk, to, saved, begin, phase + 1);
                return;
            }
        }
        parts(begin, end, segment, chunk, from, carry, begin, phase);
    }

    int first_segment(int r) const {
        for (int s = 0;; s++)
            for (int c = 0; c < CA_CUDA_SEGMENT_CHUNKS; c++)
                if (sees(r, s * CA_CUDA_SEGMENT_CHUNKS + c)) return s;
    }

    /* Put a work item behind that of the same rows' previous segment, where that began with their first one. */
    void chain() {
        std::vector<std::vector<draft>> joined;
        for (std::vector<draft> &c : chains) {
            ca_work_item &work = c[0].work;
            bool done = false;
            for (std::vector<draft> &before : joined) {
                ca_work_item &last = before.back().work;
                if (last.row != work.row || last.n_tokens != work.n_tokens || last.carry_out >= 0 ||
                    before[0].work.carry_in >= 0)
                    continue;
                if (work.carry_in >= 0 || work.carry_out >= 0 || last.segment >= work.segment || !likely()) continue;
                bool next = true;
                for (int r = work.row; r < work.row + work.n_tokens; r++) {
                    next &= first_segment(r) >= before[0].work.segment;
                    for (const std::vector<draft> &other : chains) /* nothing between */
                        next &= !(other[0].work.row <= r && r < other[0].work.row + other[0].work.n_tokens &&
                                  other[0].work.segment > last.segment && other[0].work.segment < work.segment);
                }
                if (!next) continue;
                last.flags |= CA_WORK_ITEM_KEEP;
                before.push_back(c[0]);
                done = true;
                break;
            }
            if (!done) joined.push_back(c);
        }
        chains = joined;
    }

    void number_states() {
        std::vector<std::vector<std::pair<int, int>>> lists((size_t)p.rows()); /* (segment, state) */
        for (std::vector<draft> &c : chains) {
            if (c.back().work.carry_out >= 0) continue;
            const int n = c[0].work.n_tokens; /* a chain alternates between two states */
            for (size_t i = 0; i < c.size(); i++) {
                c[i].work.state = out.n_states + (int)(i % 2) * n;
                if (i > 0) c[i].work.fold = c[i - 1].work.state;
            }
            const int state = c.back().work.state;
            out.n_states += c.size() > 1 ? 2 * n : n;
            for (int t = 0; t < c[0].work.n_tokens; t++)
                lists[(size_t)(c[0].work.row + t)].push_back({c.back().work.segment, state + t});
        }
        out.merge_begin.push_back(0);
        for (auto &l : lists) {
            std::sort(l.begin(), l.end());
            for (auto &s : l) out.merge.push_back(s.second);
            out.merge_begin.push_back((int)out.merge.size());
        }
        for (std::vector<draft> &c : chains) {
            ca_work_item &work = c.back().work;
            bool only = work.carry_out < 0;
            for (int r = work.row; r < work.row + work.n_tokens; r++) only &= lists[(size_t)r].size() == 1;
            if (only && likely()) work.flags |= CA_WORK_ITEM_OUTPUT;
        }
    }

    void add_to_block(std::vector<draft> c, int head, int block) {
        for (draft &d : c) {
            d.work.head = (uint16_t)head;
            out.phases[(size_t)c[0].phase][(size_t)block].push_back(d.work);
        }
    }

    /* The chains that cost most come first, each to the block with the least cost. */
    void assign_evenly(int blocks) {
        struct entry {
            int64_t cost;
            int head;
            const std::vector<draft> *chain;
        };
        std::vector<entry> all;
        for (int head = 0; head < p.n_kv_heads; head++)
            for (const std::vector<draft> &c : chains) {
                all.push_back({0, head, &c});
                for (const draft &d : c) all.back().cost += ca_work_cost(d.work.n_chunks, d.work.n_tokens * p.group);
            }
        std::stable_sort(all.begin(), all.end(), [](const entry &a, const entry &b) { return a.cost > b.cost; });
        std::vector<int64_t> cost((size_t)blocks);
        for (const entry &e : all) {
            const auto least = std::min_element(cost.begin(), cost.end());
            *least += e.cost;
            add_to_block(*e.chain, e.head, (int)(least - cost.begin()));
        }
    }

    void assign(int blocks) {
        int last = 0;
        for (const std::vector<draft> &c : chains) last = std::max(last, c[0].phase);
        out.phases.assign((size_t)last + 1, std::vector<std::vector<ca_work_item>>((size_t)blocks));
        if (shape & SHAPE_EVEN) return assign_evenly(blocks);
        std::shuffle(chains.begin(), chains.end(), rng);
        for (const std::vector<draft> &c : chains)
            for (int head = 0; head < p.n_kv_heads; head++) add_to_block(c, head, below(blocks));
    }
};

} // namespace

work_lists make_items(const problem &p, int shape, int max_rows, int blocks, uint64_t seed) {
    builder b = {p, shape, std::max(1, max_rows / p.group), std::mt19937_64(seed), {}, {}};
    int last = 0;
    for (int at : p.position) last = std::max(last, at);
    for (int s = 0; s <= last / (CA_CUDA_CHUNK * CA_CUDA_SEGMENT_CHUNKS); s++) {
        std::vector<int> rows;
        const int chunk = s * CA_CUDA_SEGMENT_CHUNKS;
        for (int r = 0; r < p.rows();) { /* maximal stretches of rows that reach the segment by the same chunks */
            int to = r + 1;
            while (to < p.rows() && (chunk == 0 || b.id(to, chunk - 1) == b.id(r, chunk - 1))) to++;
            if (b.id(r, chunk) >= 0 || std::any_of(p.position.begin() + r, p.position.begin() + to,
                                                   [&](int at) { return at / CA_CUDA_CHUNK >= chunk; }))
                b.parts(r, to, s, chunk, 0, -1, r, 0);
            r = to;
        }
    }
    if (shape & SHAPE_CHAIN) b.chain();
    b.number_states();
    b.assign(blocks);
    return b.out;
}

/* A problem's lists of jobs, made without the planner, in more shapes than the planner makes. */
#include <algorithm>
#include <cstring>

#include "problem.h"

namespace {

struct draft { /* a job before it has a place */
    ca_cuda_job job;
    int phase;
};

struct builder {
    const problem &p;
    int shape, max_tokens;
    std::mt19937_64 rng;
    job_lists out;
    std::vector<std::vector<draft>> chains; /* drafts of one block, one after the other */

    int below(int n) { return (int)(rng() % (uint64_t)n); }

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
        ca_cuda_job job = {};
        job.row = begin;
        job.n_tokens = (uint8_t)(end - begin);
        job.segment = (uint16_t)segment;
        job.fold = -1;
        job.carry_in = carry_in;
        job.carry_out = carry_out;
        job.state = -1;
        for (int c = from; c < to; c++) {
            const int chunk = segment * CA_CUDA_SEGMENT_CHUNKS + c;
            int any = -1;
            bool all = true;
            for (int r = begin; r < end; r++) {
                if (sees(r, chunk)) any = id(r, chunk);
                all &= whole(r, chunk);
            }
            if (any < 0) continue;
            job.chunk[job.n_chunks] = any;
            job.order |= (uint32_t)c << 4 * job.n_chunks;
            job.partial = (uint8_t)(job.partial | !all << job.n_chunks);
            job.n_chunks++;
        }
        if (job.n_chunks == 0 && carry_in < 0) return false;
        chains.push_back({{job, phase}});
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

    /* Put a job behind that of the same rows' previous segment, where that began with their first one. */
    void chain() {
        std::vector<std::vector<draft>> joined;
        for (std::vector<draft> &c : chains) {
            ca_cuda_job &job = c[0].job;
            bool done = false;
            for (std::vector<draft> &before : joined) {
                ca_cuda_job &last = before.back().job;
                if (last.row != job.row || last.n_tokens != job.n_tokens || last.carry_out >= 0 || before[0].job.carry_in >= 0)
                    continue;
                if (job.carry_in >= 0 || job.carry_out >= 0 || last.segment >= job.segment || below(4) == 0) continue;
                bool next = true;
                for (int r = job.row; r < job.row + job.n_tokens; r++) {
                    next &= first_segment(r) >= before[0].job.segment;
                    for (const std::vector<draft> &other : chains) /* nothing between */
                        next &= !(other[0].job.row <= r && r < other[0].job.row + other[0].job.n_tokens &&
                                  other[0].job.segment > last.segment && other[0].job.segment < job.segment);
                }
                if (!next) continue;
                last.flags |= CA_CUDA_JOB_KEEP;
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
            if (c.back().job.carry_out >= 0) continue;
            const int n = c[0].job.n_tokens; /* a chain alternates between two states */
            for (size_t i = 0; i < c.size(); i++) {
                c[i].job.state = out.n_states + (int)(i % 2) * n;
                if (i > 0) c[i].job.fold = c[i - 1].job.state;
            }
            const int state = c.back().job.state;
            out.n_states += c.size() > 1 ? 2 * n : n;
            for (int t = 0; t < c[0].job.n_tokens; t++)
                lists[(size_t)(c[0].job.row + t)].push_back({c.back().job.segment, state + t});
        }
        out.merge_begin.push_back(0);
        for (auto &l : lists) {
            std::sort(l.begin(), l.end());
            for (auto &s : l) out.merge.push_back(s.second);
            out.merge_begin.push_back((int)out.merge.size());
        }
        for (std::vector<draft> &c : chains) {
            ca_cuda_job &job = c.back().job;
            bool only = job.carry_out < 0;
            for (int r = job.row; r < job.row + job.n_tokens; r++) only &= lists[(size_t)r].size() == 1;
            if (only && below(4)) job.flags |= CA_CUDA_JOB_OUTPUT;
        }
    }

    void assign(int blocks) {
        std::shuffle(chains.begin(), chains.end(), rng);
        for (const std::vector<draft> &c : chains)
            for (int head = 0; head < p.n_kv_heads; head++) {
                const size_t phase = (size_t)c[0].phase, block = (size_t)below(blocks);
                if (out.phases.size() <= phase) out.phases.resize(phase + 1);
                out.phases[phase].resize((size_t)blocks);
                for (draft d : c) {
                    d.job.head = (uint16_t)head;
                    out.phases[phase][block].push_back(d.job);
                }
            }
    }
};

} // namespace

job_lists make_jobs(const problem &p, int shape, int max_rows, int blocks, uint64_t seed) {
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

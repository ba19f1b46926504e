/* Random problems, and their place in device memory. */
#include "problem.h"

#include <cmath>
#include <cstring>

#include "chunkattn.h"

float problem::scale() const { return 1 / std::sqrt((float)d); }

std::string problem::text() const {
    char s[400];
    snprintf(
        s, sizeof s,
        "seed %llu: %s d %d, %d KV heads, group %d, %d rows, last position %d, q type %d, out type %d, window %d, sink tokens "
        "%d, softcap %g, slopes %d, sinks %d, nasty %d",
        (unsigned long long)seed, kv_name(*this), d, n_kv_heads, group, rows(), position.back(), q_type, out_type, window,
        n_sink_tokens, softcap, slopes, sinks, how);
    return s;
}

const char *kv_name(const problem &p) { return p.e4m3 ? "e4m3" : p.type == BF16 ? "bf16" : "f16"; }

problem in_e4m3(problem p) {
    p.type = F16;
    p.e4m3 = true;
    return p;
}

namespace {

using generator = std::mt19937_64;
int below(generator &rng, int n) { return (int)(rng() % (uint64_t)n); }

/* Rows [begin, end) share their chunks up to absolute chunk `at`; let them part at random from there on. */
void grow(problem &p, generator &rng, const std::vector<int> &sequence, int begin, int end, int at) {
    int last = 0;
    for (int r = begin; r < end; r++) last = std::max(last, p.position[(size_t)r] / CA_CUDA_CHUNK);
    for (; at <= last; at++) {
        int cut = 0;
        if (sequence[(size_t)begin] != sequence[(size_t)end - 1] && below(rng, 4) == 0)
            cut = begin + 1 + below(rng, end - begin - 1);
        while (cut > begin && cut < end && sequence[(size_t)cut] == sequence[(size_t)cut - 1]) cut++;
        if (cut > begin && cut < end) {
            grow(p, rng, sequence, begin, cut, at);
            grow(p, rng, sequence, cut, end, at);
            return;
        }
        bool used = false;
        for (int r = begin; r < end; r++)
            if (p.position[(size_t)r] / CA_CUDA_CHUNK >= at) {
                p.chunks[(size_t)r].push_back(p.n_chunks);
                used = true;
            }
        p.n_chunks += used;
    }
}

} // namespace

problem random_problem(uint64_t seed, element type, int d, int max_rows, int max_tokens) {
    generator rng(seed);
    problem p = {};
    p.seed = seed;
    p.type = type;
    p.d = d;
    p.n_kv_heads = 1 + below(rng, 2);
    const int groups[] = {1, 1, 2, 3, 4, 7, 8, 16};
    do p.group = groups[below(rng, 8)];
    while (p.group > max_rows);
    p.q_type = below(rng, 3);
    p.out_type = below(rng, 3);
    if (below(rng, 4) == 0) p.window = 1 + below(rng, max_tokens);
    if (p.window && below(rng, 2)) p.n_sink_tokens = 1 + below(rng, 70);
    if (below(rng, 5) == 0) p.softcap = 2 + (float)below(rng, 40);
    p.slopes = below(rng, 5) == 0;
    p.sinks = below(rng, 4) == 0;
    p.how = (nasty)below(rng, N_NASTY);

    const int tokens = 1 + below(rng, std::max(1, 2 * max_rows / p.group)), common = below(rng, max_tokens);
    std::vector<int> sequence;
    for (int s = 0; (int)p.position.size() < tokens; s++) {
        const int n = std::min(tokens - (int)p.position.size(), below(rng, 3) ? 1 : 1 + below(rng, 12));
        const int first = std::min(max_tokens - 1, below(rng, 2) ? common : below(rng, max_tokens));
        for (int i = 0; i < n; i++) {
            p.position.push_back(first + i);
            sequence.push_back(s);
        }
    }
    p.chunks.resize(p.position.size());
    grow(p, rng, sequence, 0, p.rows(), 0);
    return p;
}

problem prompt_problem(problem p, int n, int first) {
    p.position.clear();
    p.chunks.clear();
    p.n_chunks = (first + n - 1) / CA_CUDA_CHUNK + 1;
    for (int i = 0; i < n; i++) {
        p.position.push_back(first + i);
        p.chunks.emplace_back();
        for (int c = 0; c <= (first + i) / CA_CUDA_CHUNK; c++) p.chunks.back().push_back(c);
    }
    return p;
}

/* ---- Memory ---- */

u16 to_16(element e, float f) { return e == BF16 ? emu::float_to_bf16(f) : emu::float_to_half(f); }
float from_16(element e, u16 h) { return e == BF16 ? as_float((u32)h << 16) : emu::half_to_float(h); }

/* The layout as tile.cuh's comment draws it, written down a second time. */
size_t tile_place(int d, int slot, int i) {
    const int part = i / 64, unit = i % 64 / 8;
    if (d - part * 64 >= 64) return (size_t)(part * 64 * 128 + slot * 128 + (unit ^ slot % 8) * 16 + i % 8 * 2);
    return (size_t)(part * 64 * 128 + slot * 64 + (unit ^ slot / 2 % 4) * 16 + i % 8 * 2);
}

namespace {

/* What a slot holds, by how many rows see it. */
float kv_value(const problem &p, generator &rng, bool v, int position, int n_see, int of) {
    std::normal_distribution<float> normal;
    const float x = normal(rng);
    if (n_see == 0) return rng() % 2 ? INFINITY : NAN;
    if (p.how == ODD_VALUES && v && n_see < of && rng() % 64 == 0) return rng() % 2 ? INFINITY : NAN;
    if (p.how == EQUAL) return 1;
    if (p.how == RISING && !v) return x + 0.05f * (float)position;
    return x;
}

float *constants(emu::device &device, const std::vector<float> &v, const char *name) {
    float *to = device.array<float>(v.size(), name);
    memcpy(to, v.data(), v.size() * sizeof(float));
    return to;
}

size_t kv_tile_bytes(const problem &p) {
    return p.e4m3 ? (size_t)(CA_CUDA_CHUNK * (p.d + 4)) : (size_t)(CA_CUDA_CHUNK * p.d * 2);
}

void put_elements(const problem &p, unsigned char *tile, int slot, const std::vector<float> &line) {
    for (int i = 0; i < p.d; i++) {
        const u16 x = to_16(p.type, line[(size_t)i]);
        memcpy(tile + tile_place(p.d, slot, i), &x, 2);
    }
}

/*
 * Half of the problems have tokens whose V differ by powers of two, a few of them so small that their scale is 0. Slots that no
 * row sees hold random bytes.
 */
void put_bytes(const problem &p, generator &rng, unsigned char *tile, bool v, int slot, bool seen, std::vector<float> line) {
    if (v && p.seed % 4 < 2 && rng() % 4 == 0) {
        const int exponent = rng() % 8 ? below(rng, 40) - 20 : -130; /* -130: the scale is 0 */
        for (float &x : line) x = std::ldexp(x, exponent);
    }
    if (v && p.seed % 8 == 1)
        for (float &x : line) x = std::ldexp(x, -130);
    e4m3_line stored = to_e4m3(line.data(), p.d);
    if (!seen) {
        for (uint8_t &code : stored.codes) code = (uint8_t)rng();
        const u32 bits = (u32)rng();
        memcpy(&stored.scale, &bits, 4);
    }
    for (int i = 0; i < p.d; i++) put_e4m3(tile, p.d, slot, i, stored.codes[(size_t)i]);
    memcpy(tile + e4m3_scale_place(p.d, slot), &stored.scale, 4);
}

ca_cuda_view make_view(emu::device &device, size_t rows, int heads, int d, int type, const char *name) {
    const int64_t size = type == CATTN_F32 ? 4 : 2, head = d * size + 32, row = head * heads + 64; /* strides with gaps */
    return {device.alloc(rows * (size_t)row, name), row, head, type, 0};
}

void put(const ca_cuda_view &view, int row, int head, int i, float f) {
    unsigned char *line = (unsigned char *)view.data + row * view.row_stride + head * view.head_stride;
    if (view.type == CATTN_F32) {
        memcpy(line + i * 4, &f, 4);
        return;
    }
    const u16 h = to_16(view.type == CATTN_BF16 ? BF16 : F16, f);
    memcpy(line + i * 2, &h, 2);
}
float get(const ca_cuda_view &view, int row, int head, int i) {
    const unsigned char *line = (const unsigned char *)view.data + row * view.row_stride + head * view.head_stride;
    float f;
    u16 h;
    memcpy(&f, line + i * (view.type == CATTN_F32 ? 4 : 0), 4);
    memcpy(&h, line + i * 2, 2);
    return view.type == CATTN_F32 ? f : from_16(view.type == CATTN_BF16 ? BF16 : F16, h);
}

} // namespace

const unsigned char *memory::kv_tile(const problem &p, int chunk, int head, bool v) const {
    return kv + (size_t)chunk * (size_t)args.chunk_bytes + ((size_t)head * 2 + v) * kv_tile_bytes(p);
}

u16 memory::bits_of(const problem &p, int chunk, int head, bool v, int slot, int i) const {
    u16 h;
    memcpy(&h, kv_tile(p, chunk, head, v) + tile_place(p.d, slot, i), 2);
    return h;
}

double memory::element_of(const problem &p, int chunk, int head, bool v, int slot, int i) const {
    if (!p.e4m3) return from_16(p.type, bits_of(p, chunk, head, v, slot, i));
    const unsigned char *tile = kv_tile(p, chunk, head, v);
    float scale;
    memcpy(&scale, tile + e4m3_scale_place(p.d, slot), sizeof scale);
    return scale * e4m3_value(get_e4m3(tile, p.d, slot, i));
}

/* ---- e4m3 ---- */

e4m3_line to_e4m3(const float *x, int n) {
    e4m3_line line = {e4m3_scale(x, n), std::vector<uint8_t>((size_t)n)};
    if (line.scale > 0)
        for (int i = 0; i < n; i++) line.codes[(size_t)i] = nearest_e4m3(x[i] * (1 / line.scale));
    return line;
}

/* The layout as e4m3.cuh's comment draws it, written down a second time. */
size_t e4m3_pair_place(int d, int slot, int i) {
    const int exchange = d == 64 ? slot / 2 % 4 : d == 96 ? slot / 4 % 2 : slot % 8;
    return (size_t)(slot * d + (i / 16 ^ exchange) * 16 + i % 8 * 2);
}
uint8_t get_e4m3(const unsigned char *tile, int d, int slot, int i) {
    u16 pair;
    memcpy(&pair, tile + e4m3_pair_place(d, slot, i), 2);
    const bool high = i % 16 >= 8;
    return (uint8_t)((pair >> (high ? 7 : 0) & 0x7f) | (pair >> (high ? 15 : 14) & 1) << 7);
}
void put_e4m3(unsigned char *tile, int d, int slot, int i, uint8_t code) {
    u16 pair;
    memcpy(&pair, tile + e4m3_pair_place(d, slot, i), 2);
    const bool high = i % 16 >= 8;
    pair = (u16)((pair & (high ? 0x407f : 0xbf80)) | (code & 0x7f) << (high ? 7 : 0) | code >> 7 << (high ? 15 : 14));
    memcpy(tile + e4m3_pair_place(d, slot, i), &pair, 2);
}
size_t e4m3_scale_place(int d, int slot) { return (size_t)(CA_CUDA_CHUNK * d + slot * 4); }

memory::memory(const problem &p) : args(), n_states(0), n_carried(0) {
    generator rng(p.seed + 1);
    std::normal_distribution<float> normal;
    const size_t tile = kv_tile_bytes(p), rows = (size_t)p.rows(), heads = (size_t)p.heads();
    args.chunk_bytes = (int64_t)(tile * 2 * (size_t)p.n_kv_heads + 256);
    kv = device.array<unsigned char>((size_t)p.n_chunks * (size_t)args.chunk_bytes, "K/V");
    std::vector<int> n_path((size_t)p.n_chunks), start((size_t)p.n_chunks);
    std::vector<std::vector<int>> n_see((size_t)p.n_chunks, std::vector<int>(CA_CUDA_CHUNK));
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < p.chunks[r].size(); i++) {
            const size_t id = (size_t)p.chunks[r][i];
            start[id] = (int)i * CA_CUDA_CHUNK;
            n_path[id]++;
            for (int s = 0; s < CA_CUDA_CHUNK; s++) {
                const int x = start[id] + s, at = p.position[r];
                n_see[id][(size_t)s] += x <= at && (p.window == 0 || x > at - p.window || x < p.n_sink_tokens);
            }
        }
    for (size_t id = 0; id < (size_t)p.n_chunks; id++)
        for (int h = 0; h < p.n_kv_heads; h++)
            for (int v = 0; v < 2; v++)
                for (int s = 0; s < CA_CUDA_CHUNK; s++) {
                    unsigned char *to = kv + id * (size_t)args.chunk_bytes + ((size_t)h * 2 + (size_t)v) * tile;
                    std::vector<float> line((size_t)p.d);
                    for (float &x : line) x = kv_value(p, rng, v, start[id] + s, n_see[id][(size_t)s], n_path[id]);
                    if (p.e4m3)
                        put_bytes(p, rng, to, v, s, n_see[id][(size_t)s] > 0, line);
                    else
                        put_elements(p, to, s, line);
                }
    args.kv = kv;

    args.q = make_view(device, rows, p.heads(), p.d, p.q_type, "q");
    args.out = make_view(device, rows, p.heads(), p.d, p.out_type, "out");
    out_bytes = rows * (size_t)args.out.row_stride;
    int *source = device.array<int>(rows, "source"), *position = device.array<int>(rows, "position");
    for (size_t r = 0; r < rows; r++) {
        source[r] = (int)(rows - 1 - r);
        position[r] = p.position[r];
    }
    const float size_of_q = p.how == HUGE_SCORES ? 300.0f : p.how == WIDE_SCORES ? 8.0f : 1.0f;
    q.resize(rows * heads * (size_t)p.d);
    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < (size_t)p.d; i++) {
                put(args.q, source[r], (int)h, (int)i, normal(rng) * size_of_q);
                q[(r * heads + h) * (size_t)p.d + i] = from_16(p.type, to_16(p.type, get(args.q, source[r], (int)h, (int)i)));
            }
    args.source = source;
    args.position = position;
    args.lse = device.array<float>(rows * heads, "lse");
    for (size_t h = 0; h < heads; h++) {
        slopes.push_back(p.slopes ? std::exp2(-(float)(h + 1)) * 1.442695041f : 0);
        sinks.push_back(p.sinks && h % 3 != 2 ? normal(rng) * 4 : -INFINITY);
    }
    if (p.slopes) args.slopes = constants(device, slopes, "slopes");
    if (p.sinks) args.sinks = constants(device, sinks, "sinks");
    args.arrivals = device.array<u32>(rows * (size_t)p.n_kv_heads, "arrivals");
    memset(args.arrivals, 0, rows * (size_t)p.n_kv_heads * 4);
    args.scale_log2 = p.scale() * 1.442695041f;
    args.softcap = p.softcap * 1.442695041f;
    args.n_kv_heads = p.n_kv_heads;
    args.group = p.group;
    args.group_inverse = (65536u + (u32)p.group - 1) / (u32)p.group;
    args.window = p.window;
    args.n_sink_tokens = p.n_sink_tokens;
}

std::vector<uint32_t> output_bits(const problem &p, const memory &m) {
    std::vector<uint32_t> bits;
    auto add = [&](float f) { bits.push_back(f != f ? 0x7fffffff : as_bits(f)); };
    for (int r = 0; r < p.rows(); r++)
        for (int h = 0; h < p.heads(); h++) {
            for (int i = 0; i < p.d; i++) add(get(m.args.out, m.args.source[r], h, i));
            add(m.args.lse[m.args.source[r] * p.heads() + h]);
        }
    return bits;
}

/* ---- The reference ---- */

namespace {

struct reference_row {
    std::vector<double> o;
    double lse, most_v, most_s;
};

reference_row attend_row(const problem &p, const memory &m, int r, int h) {
    const float *q = &m.q[(size_t)(r * p.heads() + h) * (size_t)p.d];
    const int kv_head = h / p.group, at = p.position[(size_t)r];
    const double cap = m.args.softcap;
    std::vector<double> s;
    std::vector<int> seen;
    reference_row row = {std::vector<double>((size_t)p.d), -INFINITY, 0, 0};
    double max = m.sinks[(size_t)h], sum = 0;
    for (int x = 0; x <= at; x++) {
        if (p.window && x <= at - p.window && x >= p.n_sink_tokens) continue;
        double score = 0, size = 0;
        for (int i = 0; i < p.d; i++) {
            const double part = (double)q[i] * m.element_of(p, p.chunks[(size_t)r][(size_t)(x / CA_CUDA_CHUNK)], kv_head, false,
                                                            x % CA_CUDA_CHUNK, i);
            score += part;
            size += std::fabs(part);
        }
        score *= m.args.scale_log2;
        row.most_s = std::max(row.most_s, size * m.args.scale_log2);
        if (cap > 0) score = cap * std::tanh(score / cap);
        score += (double)m.slopes[(size_t)h] * (x - at);
        row.most_s = std::max(row.most_s, std::fabs(score) + cap);
        s.push_back(score);
        seen.push_back(x);
        max = std::max(max, score);
    }
    for (double &score : s) sum += score = std::exp2(score - max);
    const double all = sum + (m.sinks[(size_t)h] > -INFINITY ? std::exp2(m.sinks[(size_t)h] - max) : 0);
    for (size_t k = 0; k < s.size(); k++)
        for (int i = 0; i < p.d; i++) {
            const double v = m.element_of(p, p.chunks[(size_t)r][(size_t)(seen[k] / CA_CUDA_CHUNK)], kv_head, true,
                                          seen[k] % CA_CUDA_CHUNK, i);
            row.o[(size_t)i] += s[k] / all * v;
            if (std::isfinite(v)) row.most_v = std::max(row.most_v, std::fabs(v));
        }
    row.lse = max + std::log2(all);
    return row;
}

} // namespace

/*
 * A weight is rounded by at most e = 2^-8 of itself (bf16; f16: 2^-11), and l sums the rounded weights, so an output moves by
 * at most e times the largest |v - out|, which is at most 2 max |V|, and lse by at most e / ln 2. A score is wrong by the
 * rounding of d products and sums in f32, at most 2^-20 of the sum of their magnitudes, which moves a weight by that much,
 * relatively. The output's own type adds its rounding.
 *
 * e4m3: weight times scale is rounded, by at most e of itself, and l sums the weights as they are: an output moves by at most
 * e max |V|, lse not at all. Products below 2^-14 in f16 lose at most 2^-25 each, where the largest of their quarter is at
 * least 2^5: 2^-30 of max |V| a slot.
 */
double compare_with_reference(const problem &p, const memory &m) {
    const double rounding = p.type == BF16 ? 1.0 / 256 : 1.0 / 2048;
    const double e = p.e4m3 ? rounding / 2 : rounding, lse_e = p.e4m3 ? 0 : rounding / std::log(2.0);
    const double own = p.out_type == CATTN_F32 ? 1e-6 : p.out_type == CATTN_BF16 ? 1.0 / 256 : 1.0 / 2048;
    const double most_out = p.out_type == CATTN_F16 ? 65504 : INFINITY; /* beyond it an output is infinite */
    double worst = 0;
    auto judge = [&](double got, double want, double allowed, double most) {
        if (std::isinf(got) && std::signbit(got) == std::signbit(want) && std::fabs(want) + allowed > most) return;
        if (!std::isfinite(want)) {
            if (std::isfinite(got)) worst = INFINITY;
            return;
        }
        const double error = std::fabs(got - want) / allowed;
        worst = error <= worst ? worst : error == error ? error : INFINITY;
    };
    for (int r = 0; r < p.rows(); r++)
        for (int h = 0; h < p.heads(); h++) {
            const reference_row row = attend_row(p, m, r, h);
            const double scores = row.most_s * 0x1p-20, small = p.e4m3 ? (p.position[(size_t)r] + 1) * 0x1p-30 : 0;
            for (int i = 0; i < p.d; i++)
                judge(get(m.args.out, m.args.source[r], h, i), row.o[(size_t)i],
                      2 * row.most_v * (e + scores) + (own + small) * row.most_v + 1e-30, most_out);
            judge(m.args.lse[m.args.source[r] * p.heads() + h], row.lse, lse_e + scores + 1e-5, INFINITY);
        }
    return worst;
}

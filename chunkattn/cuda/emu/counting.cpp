/*
 * Counts: sectors of device memory, wavefronts of shared memory, and instructions.
 *
 * A lane logs its accesses until its warp meets; then the n-th access of each lane in a line is taken to be one instruction of
 * the warp. Where lanes execute different lines, their accesses are matched by line.
 */
#include "state.h"

namespace emu {
namespace {

struct request { /* one instruction of a warp */
    place at;
    traffic what;
    u32 bytes; /* of a lane */
    u32 n = 0; /* lanes */
    u64 address[WARP];
    uint8_t lane[WARP];
};

template <class T> u32 add_distinct(T *all, u32 n, T v) {
    for (u32 i = n; i > 0; i--)
        if (all[i - 1] == v) return n;
    all[n] = v;
    return n + 1;
}

void count_sectors(const request &r, uint64_t counts::*requests, uint64_t counts::*bytes, uint64_t counts::*sectors) {
    u64 all[WARP];
    u32 n = 0;
    for (u32 i = 0; i < r.n; i++) n = add_distinct(all, n, r.address[i] / 32); /* an aligned access lies in one sector */
    tally(requests);
    tally(bytes, (u64)r.n * r.bytes);
    tally(sectors, n);
}

/*
 * 128 bytes pass at a time: 32 lanes of 4 bytes, 16 of 8, 8 of 16. Within them, different words of a bank take a wavefront
 * each.
 */
void count_wavefronts(const request &r) {
    const u32 lanes_at_once = 128 / r.bytes;
    u64 wavefronts = 0;
    u32 n_distinct = 0;
    u64 distinct[WARP];
    for (u32 i = 0; i < r.n;) {
        const u32 part = r.lane[i] / lanes_at_once;
        u64 units[WARP];
        u32 in_bank[WARP] = {}, n = 0, most = 0;
        for (; i < r.n && r.lane[i] / lanes_at_once == part; i++) {
            const u64 unit = r.address[i] / r.bytes;
            const u32 before = n;
            n = add_distinct(units, n, unit);
            if (n > before) most = std::max(most, ++in_bank[unit % lanes_at_once]);
            n_distinct = add_distinct(distinct, n_distinct, unit);
        }
        wavefronts += most;
    }
    tally(&counts::shared_requests);
    tally(&counts::shared_wavefronts, wavefronts);
    tally(&counts::shared_least, (n_distinct + lanes_at_once - 1) / lanes_at_once);
}

void judge(const request &r) {
    switch (r.what) {
    case traffic::load: count_sectors(r, &counts::load_requests, &counts::load_bytes, &counts::load_sectors); break;
    case traffic::store: count_sectors(r, &counts::store_requests, &counts::store_bytes, &counts::store_sectors); break;
    case traffic::async: count_sectors(r, &counts::async_requests, &counts::async_bytes, &counts::async_sectors); break;
    case traffic::shared: count_wavefronts(r); break;
    }
}

bool same(const access &a, const access &b) { return a.at == b.at && a.what == b.what && a.bytes == b.bytes; }

bool uniform(const fiber *lanes) {
    const auto &first = lanes[0].log;
    for (int l = 1; l < WARP; l++) {
        if (lanes[l].log.size() != first.size()) return false;
        for (size_t i = 0; i < first.size(); i++)
            if (!same(first[i], lanes[l].log[i])) return false;
    }
    return true;
}

void add_lane(request &r, const access &a, int lane) {
    r.at = a.at;
    r.what = a.what;
    r.bytes = a.bytes;
    r.address[r.n] = a.address;
    r.lane[r.n++] = (uint8_t)lane;
}

void judge_uniform(const fiber *lanes) {
    for (size_t i = 0; i < lanes[0].log.size(); i++) {
        request r;
        for (int l = 0; l < WARP; l++) add_lane(r, lanes[l].log[i], l);
        judge(r);
    }
}

struct line {        /* of the kernel: what a warp accesses there */
    access like;     /* the first of its accesses */
    size_t n_passed; /* accesses of the lane that is looked at */
    std::vector<request> requests;
};

line &line_of(std::vector<line> &lines, const access &a) {
    for (line &k : lines)
        if (same(k.like, a)) return k;
    return lines.emplace_back(line{a, 0, {}});
}

void judge_by_line(const fiber *lanes) {
    std::vector<line> lines;
    for (int l = 0; l < WARP; l++) {
        for (line &k : lines) k.n_passed = 0;
        for (const access &a : lanes[l].log) {
            line &k = line_of(lines, a);
            if (k.requests.size() == k.n_passed) k.requests.emplace_back();
            add_lane(k.requests[k.n_passed++], a, l);
        }
    }
    for (const line &k : lines)
        for (const request &r : k.requests) judge(r);
}

} // namespace

void judge_log(fiber *lanes) {
    if (uniform(lanes))
        judge_uniform(lanes);
    else
        judge_by_line(lanes);
    for (int l = 0; l < WARP; l++) lanes[l].log.clear();
}

void count_rows(const u32 *rows, int n) {
    for (int first = 0; first < n; first += 8) {
        u32 units[8], in_bank[8] = {}, n_units = 0, most = 0;
        for (int i = first; i < first + 8; i++) {
            const u32 unit = rows[i] / 16, before = n_units;
            n_units = add_distinct(units, n_units, unit);
            if (n_units > before) most = std::max(most, ++in_bank[unit % 8]);
        }
        tally(&counts::shared_wavefronts, most);
        tally(&counts::shared_least);
    }
    tally(&counts::shared_requests);
}

} // namespace emu

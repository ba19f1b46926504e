/*
 * Copies from device to shared memory, and mbarriers.
 *
 * cp.async: the data arrives as late as the program allows, at the thread's wait. Bulk copies arrive at a random time after
 * their issue, written by the copy engine, whose clock a thread learns by waiting on the mbarrier.
 */
#include "state.h"

namespace emu {
namespace {

u16 engine() { return (u16)own->fibers.size(); }

mbar &find_mbar(u32 bar, place at) {
    auto b = own->mbars.find(bar);
    if (b == own->mbars.end()) stop(kind::mbar_uninitialised, at, "at " + std::to_string(bar));
    if (!knows(b->second.owner, b->second.init_clock))
        fail(kind::mbar_uninitialised, at, "no barrier since " + thread_name(b->second.owner) + " initialised it");
    return b->second;
}

void complete_phase(u32 at, mbar &b) {
    b.phase++;
    b.pending = b.arrivals;
    b.complete = std::move(b.gathered);
    b.gathered = b.last_seen = known();
    for (fiber &f : own->fibers)
        if (f.is == status::at_mbar && f.bar == at && (b.phase & 1) != f.parity) f.is = status::ready;
}

void check_phase(u32 at, mbar &b, place where) {
    b.at = where;
    if (b.bytes > (1 << 20) - 1 || b.bytes < -((1 << 20) - 1)) fail(kind::mbar_bytes, where, "more than 2^20 - 1 bytes");
    if (b.pending) return;
    if (b.bytes < 0) fail(kind::mbar_bytes, where, std::to_string(-b.bytes) + " too many");
    if (b.bytes == 0) complete_phase(at, b);
}

} // namespace

void cp_async16_or_zero(u32 to, const void *from, bool read, place at) {
    if (!check_shared(to, 16, 16, at)) return;
    if (!check_device(from, 16, 16, device_access::read, at)) return;
    write_cells(to, 16, writer::cp_async, at);
    if (read) count(traffic::async, at, (u64)from, 16);
    count(traffic::shared, at, to, 16);
    self->copies.push_back({to, read ? from : nullptr, at});
}

void cp_async_commit() { self->group_ends.push_back(self->copies.size()); }

void copy_wait(int pending) {
    auto &ends = self->group_ends;
    if ((int)ends.size() <= pending) return;
    const auto last = ends.end() - pending - 1;
    const size_t n = *last;
    for (size_t i = 0; i < n; i++) {
        const async_copy &c = self->copies[i];
        if (c.from)
            memcpy(&own->shared[c.to], c.from, 16);
        else
            memset(&own->shared[c.to], 0, 16);
        complete_cells(c.to, 16, (u16)self->thread, self->clock);
    }
    self->copies.erase(self->copies.begin(), self->copies.begin() + (long)n);
    ends.erase(ends.begin(), last + 1);
    for (size_t &end : ends) end -= n;
}

void end_copies() {
    for (const async_copy &c : self->copies) fail(kind::copies_left, c.at);
    if (own->ended + 1 == (int)own->fibers.size())
        for (const bulk &c : own->bulks) fail(kind::copies_left, c.at);
}

/* Bytes that were completed and never expected, or the other way round; copies for which no thread waited. */
void end_mbars() {
    for (const auto &entry : own->mbars) {
        const mbar &b = entry.second;
        if (b.bytes) fail(kind::mbar_bytes, b.at, std::to_string(b.bytes) + " are left over");
        if (b.copied > b.awaited) fail(kind::copies_left, b.copy, "no thread waits for it");
    }
}

void mbar_init(u32 bar, u32 arrivals, place at) {
    need_sm(90, at);
    if (!check_shared(bar, 8, 8, at)) return;
    write_cells(bar, 8, writer::generic, at);
    own->cells[bar / 4].mbar = own->cells[bar / 4 + 1].mbar = true;
    if (arrivals == 0 || arrivals >= 1 << 20) fail(kind::mbar_arrivals, at, std::to_string(arrivals) + " of an initialisation");
    mbar b = {};
    b.arrivals = b.pending = arrivals;
    b.at = at;
    b.owner = (u16)self->thread;
    b.init_clock = self->clock;
    own->mbars[bar] = std::move(b);
}

void mbar_fence_init(place at) {
    need_sm(90, at);
    self->init_fences.push_back(self->clock++);
}

void mbar_arrive_expect(u32 bar, u32 bytes, place at) {
    need_sm(90, at);
    mbar &b = find_mbar(bar, at);
    b.bytes += bytes;
    if (b.pending == 0) stop(kind::mbar_arrivals, at, "initialised for " + std::to_string(b.arrivals));
    b.pending--;
    release_into(b.gathered, b.last_seen);
    check_phase(bar, b, at);
}

void mbar_wait(u32 bar, u32 parity, place at) {
    need_sm(90, at);
    mbar &b = find_mbar(bar, at);
    if ((b.phase & 1) == parity) {
        self->bar = bar;
        self->parity = parity;
        const u32 awaited = b.phase;
        wait_as(status::at_mbar, "mbar_wait", at);
        if (b.phase != awaited + 1) fail(kind::mbar_overrun, at);
    }
    b.awaited = b.phase;
    acquire(b.complete);
}

void bulk_copy(u32 to, const void *from, u32 bytes, u32 bar, place at) {
    need_sm(90, at);
    if (bytes == 0 || bytes % 16) {
        fail(kind::copy_size, at, std::to_string(bytes));
        return;
    }
    mbar &b = find_mbar(bar, at);
    const clocks &fences = own->fibers[b.owner].init_fences;
    const auto fence = std::lower_bound(fences.begin(), fences.end(), b.init_clock);
    if (fence == fences.end() || !knows(b.owner, *fence)) fail(kind::mbar_fence, at);
    if (!check_shared(to, bytes, 16, at)) return;
    if (!check_device(from, bytes, 16, device_access::read, at)) return;
    check_proxy(to, bytes, at);
    write_cells(to, bytes, writer::bulk, at);
    own->bulks.push_back({to, bytes, bar, from, at});
    tally(&counts::bulk_copies);
    tally(&counts::bulk_bytes, bytes);
}

void deliver(block &in, size_t i) {
    own = &in;
    const bulk c = in.bulks[i];
    in.bulks.erase(in.bulks.begin() + (long)i);
    memcpy(&in.shared[c.to], c.from, c.bytes);
    complete_cells(c.to, c.bytes, engine(), in.engine_clock);
    mbar &b = in.mbars[c.bar];
    release_engine(b.gathered, in.engine_clock++);
    b.bytes -= c.bytes;
    b.copied = b.phase + 1;
    b.copy = c.at;
    self = &in.fibers[0]; /* for the report */
    check_phase(c.bar, b, c.at);
}

void fence_async() { self->fences.push_back(self->clock++); }

} // namespace emu

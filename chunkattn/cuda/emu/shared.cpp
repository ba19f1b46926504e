/*
 * Checks of shared memory, in cells of 4 bytes: each knows its last writer and the readers since then (one reader, or all
 * threads' clocks where more than twelve read it), whether a copy to it is under way, and whether the async proxy may access
 * it.
 */
#include "state.h"

namespace emu {
namespace {

void add_reader(readers &r, u16 me) {
    if (!r.all.empty()) {
        r.all[me] = self->clock;
        return;
    }
    for (size_t i = 0; i < r.n; i++) {
        if (!knows(r.few[i].thread, r.few[i].clock)) continue;
        r.few[i] = {self->clock, me};
        return;
    }
    if (r.n < r.few.size()) {
        r.few[r.n++] = {self->clock, me};
        return;
    }
    r.all.resize(own->fibers.size());
    for (const readers::one &o : r.few) r.all[o.thread] = std::max(r.all[o.thread], o.clock);
    r.all[me] = self->clock;
}

readers *take_readers() {
    if (own->spare_readers.empty()) return &own->all_readers.emplace_back();
    readers *r = own->spare_readers.back();
    own->spare_readers.pop_back();
    return r;
}

void drop_readers(cell &c) {
    c.read_clock = 0;
    if (!c.several) return;
    c.several->n = 0;
    c.several->all.clear();
    own->spare_readers.push_back(c.several);
    c.several = nullptr;
}

void note_reader(cell &c) {
    const u16 me = (u16)self->thread;
    if (c.several) {
        add_reader(*c.several, me);
    } else if (c.read_clock == 0 || knows(c.reader, c.read_clock)) {
        c.reader = me;
        c.read_clock = self->clock;
    } else {
        c.several = take_readers();
        c.several->few[0] = {c.read_clock, c.reader};
        c.several->few[1] = {self->clock, me};
        c.several->n = 2;
    }
}

/* Whether some thread in [begin, end) has read at a clock that this one does not know. A loop without exits is vectorised. */
bool unknown_reader(const clocks &read, size_t begin, size_t end) {
    const u32 *known = self->seen->own.data();
    u32 unknown = 0;
    for (size_t t = begin; t < end; t++) unknown |= known[t] < read[t] ? 1u : 0u;
    return unknown != 0;
}

void check_all_readers(const clocks &read, place where) {
    const size_t me = (size_t)self->thread;
    if (!unknown_reader(read, 0, me) && !unknown_reader(read, me + 1, read.size())) return;
    for (size_t t = 0; t < read.size(); t++)
        if (!knows((u16)t, read[t])) fail(kind::shared_overwrite_race, where, "read by " + thread_name((int)t));
}

void check_reader(u16 thread, u32 clock, place where) {
    if (!knows(thread, clock)) fail(kind::shared_overwrite_race, where, "read by " + thread_name(thread));
}

void check_readers(const cell &c, place where) {
    if (!c.several) {
        if (c.read_clock) check_reader(c.reader, c.read_clock, where);
    } else if (c.several->all.empty()) {
        for (size_t i = 0; i < c.several->n; i++) check_reader(c.several->few[i].thread, c.several->few[i].clock, where);
    } else {
        check_all_readers(c.several->all, where);
    }
}

bool by_engine(const cell &c) { return c.writer == own->fibers.size(); }

} // namespace

bool check_shared(u32 at, u32 bytes, u32 align, place where) {
    if (at & (align - 1)) {
        fail(kind::misaligned, where, "shared memory at " + std::to_string(at));
        return false;
    }
    if ((u64)at + bytes <= own->shared.size()) return true;
    fail(kind::shared_bounds, where, "at " + std::to_string(at) + " of " + std::to_string(own->shared.size()));
    return false;
}

void check_read(u32 at, u32 bytes, place where) {
    const cell *const cells = own->cells.data();
    for (u32 i = at / 4; i < (at + bytes) / 4; i++) {
        const cell &c = cells[i];
        if (c.written && !c.in_flight && !c.mbar && knows(c.writer, c.write_clock)) continue;
        if (c.mbar)
            fail(kind::mbar_overwritten, where);
        else if (c.in_flight)
            fail(kind::copy_under_way, where, "a read");
        else if (!c.written)
            fail(kind::unwritten, where, "at " + std::to_string(i * 4));
        else if (by_engine(c))
            fail(kind::copy_not_awaited, where);
        else
            fail(kind::shared_read_race, where, "written by " + thread_name(c.writer));
    }
}

void note_read(u32 at, u32 bytes) {
    for (u32 i = at / 4; i < (at + bytes) / 4; i++) note_reader(own->cells[i]);
}

void read_cells(u32 at, u32 bytes, place where) {
    check_read(at, bytes, where);
    note_read(at, bytes);
}

void write_cells(u32 at, u32 bytes, writer by, place where) {
    cell *const cells = own->cells.data();
    for (u32 i = at / 4; i < (at + bytes) / 4; i++) {
        cell &c = cells[i];
        if (c.mbar) fail(kind::mbar_overwritten, where);
        if (c.in_flight)
            fail(kind::copy_under_way, where, "a write");
        else if (c.written && !knows(c.writer, c.write_clock))
            fail(kind::shared_write_race, where,
                 by_engine(c) ? "written by a bulk copy" : "written by " + thread_name(c.writer));
        if (c.operands) fail(kind::operand_overwritten, where);
        check_readers(c, where);
        drop_readers(c);
        c.writer = (u16)self->thread;
        c.write_clock = self->clock;
        c.written = true;
        c.in_flight = by != writer::generic;
        c.generic = by != writer::bulk;
    }
}

void complete_cells(u32 at, u32 bytes, u16 by, u32 clock) {
    for (u32 i = at / 4; i < (at + bytes) / 4; i++) {
        cell &c = own->cells[i];
        c.in_flight = false;
        c.writer = by;
        c.write_clock = clock;
    }
}

/* The writer's first fence after the write must have become known, too. */
void check_proxy(u32 at, u32 bytes, place where) {
    const cell *checked = nullptr; /* neighbours mostly have one writer */
    for (u32 i = at / 4; i < (at + bytes) / 4; i++) {
        const cell &c = own->cells[i];
        if (!c.generic || !c.written || by_engine(c)) continue;
        if (checked && checked->writer == c.writer && checked->write_clock == c.write_clock) continue;
        checked = &c;
        const clocks &fences = own->fibers[c.writer].fences;
        const auto fence = std::lower_bound(fences.begin(), fences.end(), c.write_clock);
        if (fence == fences.end() || !knows(c.writer, *fence))
            fail(kind::proxy_fence, where, "written by " + thread_name(c.writer));
    }
}

void load_shared(void *to, u32 from, u32 bytes, place at) {
    memset(to, 0, bytes);
    if (!check_shared(from, bytes, bytes, at)) return;
    read_cells(from, bytes, at);
    memcpy(to, &own->shared[from], bytes);
    count(traffic::shared, at, from, bytes);
}

void store_shared(u32 to, const void *from, u32 bytes, place at) {
    for (u32 i = 0; i < bytes; i += 4) {
        float v;
        memcpy(&v, static_cast<const char *>(from) + i, 4);
        watch(v, at);
    }
    if (!check_shared(to, bytes, bytes, at)) return;
    write_cells(to, bytes, writer::generic, at);
    memcpy(&own->shared[to], from, bytes);
    count(traffic::shared, at, to, bytes);
}

} // namespace emu

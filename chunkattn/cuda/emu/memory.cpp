/*
 * Device memory: allocations, bounds, and the order of accesses by all threads of a launch, in words of 4 bytes.
 *
 * Of each word the last write is kept, and the last read since then by each of four blocks. A write that is not ordered after
 * another thread's read alone may therefore be missed with one seed; another seed has other last reads.
 */
#include "state.h"

#include <sys/mman.h>

#include <cstdlib>

namespace emu {
namespace {

enum : size_t { GAP = 4096, LARGE = (size_t)1 << 32 };

u64 stamp() { return (u64)(self->block + 1) << 42 | (u64)self->thread << 32 | self->clock; }
int stamp_block(u64 s) { return (int)(s >> 42) - 1; }
int stamp_thread(u64 s) { return (int)(s >> 32 & 0x3ff); }
bool ordered(u64 s) { return s == 0 || knows_block(stamp_block(s), stamp_thread(s), (u32)s); }
std::string stamp_name(u64 s) { return "block " + std::to_string(stamp_block(s)) + ", " + thread_name(stamp_thread(s)); }

/* The allocation that holds [p, p + bytes), or NULL. */
const allocation *find(const device::memory &m, const unsigned char *p, size_t bytes) {
    auto next = m.by_address.upper_bound(p);
    if (next == m.by_address.begin()) return nullptr;
    const allocation &a = (--next)->second;
    return p + bytes <= a.base + a.bytes ? &a : nullptr;
}

/* The same; an allocation that is found becomes the launch's last one. */
const allocation *find_cached(const unsigned char *p, size_t bytes) {
    const allocation *last = now->last_allocation;
    if (last && p >= last->base && p + bytes <= last->base + last->bytes) return last;
    const allocation *found = find(*now->memory, p, bytes);
    if (!found) return nullptr;
    now->last_allocation = found;
    now->last_history = &now->history[found->id];
    if (now->last_history->empty()) now->last_history->resize(found->bytes / 4 / PAGE_WORDS + 1);
    return found;
}

void report_bounds(const unsigned char *p, place where) {
    std::string more = "not device memory";
    auto next = now->memory->by_address.upper_bound(p);
    if (next != now->memory->by_address.begin()) {
        const allocation &a = (--next)->second;
        if (p < a.base + a.bytes + GAP)
            more = a.name + " at byte " + std::to_string(p - a.base) + " of " + std::to_string(a.bytes);
    }
    fail(kind::device_bounds, where, more);
}

/* Of a word of the last allocation. */
word_history &history_of(size_t word) {
    auto &page = (*now->last_history)[word / PAGE_WORDS];
    if (!page) page = std::make_unique<history_page>(history_page());
    return (*page)[word % PAGE_WORDS];
}

void note_read(word_history &h) {
    u64 *slot = nullptr;
    for (u64 &r : h.reads) {
        if (r && stamp_block(r) != self->block) continue;
        slot = &r;
        break;
    }
    if (!slot) slot = &h.reads[self->block % 4];
    *slot = stamp();
}

void check_order(const allocation &a, word_history &h, device_access how, place where) {
    const bool reads = how == device_access::read;
    if (!ordered(h.write)) {
        const kind k = reads ? kind::device_read_race : kind::device_write_race;
        fail(k, where, a.name + ", written by " + stamp_name(h.write));
    }
    if (reads) {
        note_read(h);
        return;
    }
    for (const u64 reader : h.reads)
        if (!ordered(reader)) fail(kind::device_write_race, where, a.name + ", read by " + stamp_name(reader));
    if (how == device_access::write) h = {stamp(), {}};
}

} // namespace

bool check_device(const void *p, u32 bytes, u32 align, device_access how, place where) {
    const unsigned char *at = static_cast<const unsigned char *>(p);
    if ((uintptr_t)p & (align - 1)) {
        fail(kind::misaligned, where, "device memory");
        return false;
    }
    const allocation *a = find_cached(at, bytes);
    if (!a) {
        report_bounds(at, where);
        return false;
    }
    const size_t first = (size_t)(at - a->base) / 4;
    for (size_t i = 0; i < bytes / 4;) {
        word_history *h = &history_of(first + i);
        size_t in_page = std::min<size_t>(bytes / 4 - i, PAGE_WORDS - (first + i) % PAGE_WORDS);
        for (i += in_page; in_page > 0; in_page--) check_order(*a, *h++, how, where);
    }
    return true;
}

void load(void *to, const void *from, u32 bytes, place at) {
    memset(to, 0, bytes);
    if (!check_device(from, bytes, bytes, device_access::read, at)) return;
    memcpy(to, from, bytes);
    count(traffic::load, at, (u64)from, bytes);
}

void store(void *to, const void *from, u32 bytes, place at) {
    for (u32 i = 0; i < bytes; i += 4) {
        float v;
        memcpy(&v, static_cast<const char *>(from) + i, 4);
        watch(v, at);
    }
    if (!check_device(to, bytes, bytes, device_access::write, at)) return;
    memcpy(to, from, bytes);
    count(traffic::store, at, (u64)to, bytes);
}

void check_prefetch(const void *p, place at) { check_device(p, 4, 4, device_access::read, at); }

u32 atomic_add(u32 *p, u32 v, bool acq_rel, place at) {
    if (acq_rel) acquire_and_release(now->released[p]);
    if (!check_device(p, 4, 4, device_access::atomic, at)) return 0;
    const u32 old = *p;
    *p += v;
    return old;
}

/* Memory filled with NaN. A large piece is all zeros instead, and only what is used of it takes memory of the machine. */
static unsigned char *allocate(size_t bytes) {
    if (bytes >= LARGE) {
        void *p = mmap(nullptr, bytes + GAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) abort();
        return static_cast<unsigned char *>(p);
    }
    unsigned char *p = static_cast<unsigned char *>(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + GAP));
    if (!p) abort();
    memset(p, 0xff, bytes);
    return p;
}

static void release(const allocation &a) {
    if (a.bytes >= LARGE)
        munmap(a.base, a.bytes + GAP);
    else
        ::free(a.base);
}

device::device() : own(std::make_unique<memory>()) {}
device::~device() {
    for (auto &a : own->by_address) release(a.second);
}

void *device::alloc(size_t bytes, const std::string &name) {
    unsigned char *p = allocate(bytes);
    own->by_address[p] = {p, bytes, name, own->next_id++};
    return p;
}

void device::free(void *p) {
    const auto found = own->by_address.find(static_cast<unsigned char *>(p));
    if (found == own->by_address.end()) return;
    release(found->second);
    own->by_address.erase(found);
}

bool device::owns(const void *p, size_t bytes) const { return find(*own, static_cast<const unsigned char *>(p), bytes); }

} // namespace emu

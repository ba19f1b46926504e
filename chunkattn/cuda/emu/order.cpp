/*
 * What each thread knows of the others' progress: vector clocks.
 *
 * A thread's accesses bear its clock. Where it releases (barrier, sync_warp, mbarrier, acq_rel atomic) its clock goes up, and
 * those that acquire there know all its accesses up to then. Shuffles, votes and mma pass nothing on.
 */
#include "state.h"

namespace emu {
namespace {

void raise(clocks &a, const clocks &b) {
    if (a.size() < b.size()) a.resize(b.size());
    for (size_t i = 0; i < b.size(); i++) a[i] = std::max(a[i], b[i]);
}

void raise(knowledge &a, const knowledge &b) {
    raise(a.own, b.own);
    for (const auto &o : b.others) raise(a.others[o.first], o.second);
}

} // namespace

bool knows_block(int block, int thread, u32 clock) {
    if (block == self->block) return knows((u16)thread, clock);
    const auto o = self->seen->others.find(block);
    return o != self->seen->others.end() && o->second[(size_t)thread] >= clock;
}

known release(fiber *const *threads, size_t n) {
    known k = std::make_shared<knowledge>(*threads[0]->seen);
    const known *last = &threads[0]->seen;
    for (size_t i = 1; i < n; i++) {
        if (threads[i]->seen == *last) continue;
        last = &threads[i]->seen;
        raise(*k, **last);
    }
    for (size_t i = 0; i < n; i++) k->own[(size_t)threads[i]->thread] = threads[i]->clock++;
    return k;
}

void release_into(known &to, known &last) {
    if (!to)
        to = std::make_shared<knowledge>(*self->seen);
    else if (last != self->seen)
        raise(*to, *self->seen);
    last = self->seen;
    to->own[(size_t)self->thread] = self->clock++;
}

void release_engine(known &to, u32 clock) {
    if (!to) {
        to = std::make_shared<knowledge>();
        to->own.resize(own->fibers.size() + 1);
    }
    to->own.back() = clock;
}

known join(const known &a, const known &b) {
    if (!a || a == b) return b;
    if (!b) return a;
    if (now->merged && now->merged_a == a && now->merged_b == b) return now->merged;
    now->merged = std::make_shared<knowledge>(*a);
    raise(*now->merged, *b);
    now->merged_a = a;
    now->merged_b = b;
    return now->merged;
}

void acquire(const known &k) { self->seen = join(self->seen, k); }

void synchronise(fiber *const *threads, size_t n) {
    const known all = release(threads, n);
    for (size_t i = 0; i < n; i++) threads[i]->seen = all;
}

/* `word` is what earlier acq_rel atomics on a word released, as clocks of each block. */
void acquire_and_release(std::map<int, clocks> &word) {
    const known k = std::make_shared<knowledge>(*self->seen);
    k->own[(size_t)self->thread] = self->clock++;
    for (const auto &w : word) raise(w.first == self->block ? k->own : k->others[w.first], w.second);
    word[self->block] = k->own;
    for (const auto &o : k->others) word[o.first] = o.second;
    self->seen = k;
}

} // namespace emu

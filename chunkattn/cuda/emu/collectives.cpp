/* What a warp, a warp group or a block does together: barriers, votes, shuffles, setmaxnreg. */
#include "state.h"

namespace emu {
namespace {

void pointers(fiber *first, size_t n, fiber **to) {
    for (size_t i = 0; i < n; i++) to[i] = &first[i];
}

/* ---- Warp groups ---- */

struct group_lane {
    const char *op;
    place at;
    void *arg;
    void (*all)(void **args);
};

void warp_joins_group(void **args) {
    const group_lane &call = *static_cast<group_lane *>(args[0]);
    const size_t index = (size_t)self->thread / GROUP;
    warp_group &g = own->groups[index];
    if ((index + 1) * GROUP > own->fibers.size())
        stop(kind::divergent, call.at, std::string(call.op) + " needs a warp group of four warps");
    if (g.here && (g.op != call.op || !(g.at == call.at)))
        stop(kind::divergent, call.at,
             std::string(call.op) + " while other warps of the group are at " + g.op + " in line " + std::to_string(g.at.line));
    g.op = call.op;
    g.at = call.at;
    fiber *lanes = lanes_of(self->thread);
    for (int l = 0; l < WARP; l++) {
        g.args[lanes[l].thread % GROUP] = static_cast<group_lane *>(args[l])->arg;
        lanes[l].is = status::at_group;
    }
    g.here += WARP;
    if (g.here < GROUP) return;
    g.here = 0;
    for (size_t t = index * GROUP; t < (index + 1) * GROUP; t++) own->fibers[t].is = status::ready;
    call.all(g.args);
}

/* ---- Barriers ---- */

struct barrier_lane {
    barrier_call call;
    place at;
    bool out;
};

void check_barrier(const named_barrier &b, const barrier_call &call, int threads, place at) {
    if (call.id < 0 || call.id >= NAMED_BARRIERS) stop(kind::barrier_misuse, at, "id " + std::to_string(call.id));
    if (threads <= 0 || threads % WARP || threads > (int)own->fibers.size())
        stop(kind::barrier_misuse, at, std::to_string(threads) + " threads");
    if (!b.arrived) return;
    if (b.threads != threads)
        stop(kind::barrier_misuse, at,
             std::to_string(threads) + " threads, but " + std::to_string(b.threads) + " in line " + std::to_string(b.at.line));
    if (b.reduces != call.reduces) stop(kind::barrier_misuse, at, "with a reduction and without one");
}

void complete_barrier(named_barrier &b) {
    for (size_t i = 0; i < b.waiting.size(); i++) {
        b.waiting[i]->seen = b.gathered;
        b.waiting[i]->is = status::ready;
        *b.results[i] = b.any;
    }
    b = named_barrier();
}

void warp_joins_barrier(void **args) {
    const barrier_lane &first = *static_cast<barrier_lane *>(args[0]);
    const int threads = first.call.threads ? first.call.threads : (int)own->fibers.size();
    named_barrier &b = own->barriers[(size_t)first.call.id % NAMED_BARRIERS];
    check_barrier(b, first.call, threads, first.at);
    b.threads = threads;
    b.reduces = first.call.reduces;
    b.at = first.at;
    fiber *lanes[WARP];
    pointers(lanes_of(self->thread), WARP, lanes);
    b.gathered = join(b.gathered, release(lanes, WARP));
    for (int l = 0; l < WARP; l++) {
        barrier_lane &lane = *static_cast<barrier_lane *>(args[l]);
        if (lane.call.id != first.call.id || lane.call.threads != first.call.threads)
            fail(kind::divergent, lane.at, "barrier ids or counts differ");
        b.any |= lane.call.in;
        b.waiting.push_back(lanes[l]);
        b.results.push_back(&lane.out);
        lanes[l]->is = status::at_barrier;
    }
    b.arrived += WARP;
    if (b.arrived < threads) return;
    complete_barrier(b);
}

/* ---- setmaxnreg ---- */

struct registers_lane {
    int n;
    bool increase;
    place at;
};

bool take_registers(size_t group, int n) {
    warp_group &g = own->groups[group];
    const int more = (n - g.registers) * GROUP;
    if (more > own->free_registers) return false;
    own->free_registers -= more;
    g.registers = n;
    return true;
}

void wake_for_registers() {
    for (size_t g = 0; g < own->groups.size(); g++) {
        fiber *threads = &own->fibers[g * GROUP];
        if (threads[0].is != status::at_registers || !take_registers(g, threads[0].wanted)) continue;
        for (int t = 0; t < GROUP; t++) threads[t].is = status::ready;
    }
}

void group_sets_registers(void **args) {
    const registers_lane &call = *static_cast<registers_lane *>(args[0]);
    const size_t group = (size_t)self->thread / GROUP;
    const int before = own->groups[group].registers;
    const std::string sizes = std::to_string(before) + " to " + std::to_string(call.n);
    if (call.n < 24 || call.n > 256 || call.n % 8) fail(kind::registers, call.at, sizes + ": 24 .. 256 in steps of 8");
    if (call.increase ? call.n < before : call.n > before)
        fail(kind::registers, call.at, "from " + sizes + " in the wrong direction");
    if (take_registers(group, call.n)) {
        wake_for_registers();
        return;
    }
    for (size_t t = group * GROUP; t < (group + 1) * GROUP; t++) {
        own->fibers[t].is = status::at_registers;
        own->fibers[t].wanted = call.n;
    }
}

} // namespace

void meet(const char *op, place at, void *arg, void (*all)(void **args)) {
    warp &w = my_warp();
    if (w.ended) stop(kind::lanes_ended, at, op);
    if (w.here && (w.op != op || !(w.at == at)))
        stop(kind::divergent, at,
             std::string(op) + " while other lanes are at " + w.op + " in line " + std::to_string(w.at.line));
    w.op = op;
    w.at = at;
    w.args[self->thread % WARP] = arg;
    if (++w.here < WARP) {
        wait_as(status::at_warp, op, at);
        return;
    }
    w.here = 0;
    self->what = op;
    self->at = at;
    fiber *lanes = lanes_of(self->thread);
    for (int l = 0; l < WARP; l++) lanes[l].is = status::ready;
    judge_log(lanes);
    all(w.args);
}

void meet_group(const char *op, place at, void *arg, void (*all)(void **args)) {
    group_lane lane = {op, at, arg, all};
    meet(op, at, &lane, warp_joins_group);
    while (self->is != status::ready) yield();
}

void lane_ended() {
    warp &w = my_warp();
    if (++w.ended == WARP) judge_log(lanes_of(self->thread));
    if (w.here) {
        fail(kind::lanes_ended, w.at, w.op);
        now->dead = true;
    }
}

void sync_warp(place at) {
    meet("sync_warp", at, nullptr, [](void **) {
        fiber *lanes[WARP];
        pointers(lanes_of(self->thread), WARP, lanes);
        synchronise(lanes, WARP);
    });
}

bool barrier(const barrier_call &call, place at) {
    barrier_lane lane = {call, at, false};
    meet(call.id ? "sync_named" : "sync_block", at, &lane, warp_joins_barrier);
    while (self->is != status::ready) yield();
    return lane.out;
}

bool any_sync(bool b, place at) {
    struct lane {
        bool in, out;
    } me = {b, false};
    meet("a vote", at, &me, [](void **args) {
        bool any = false;
        for (int l = 0; l < WARP; l++) any |= static_cast<lane *>(args[l])->in;
        for (int l = 0; l < WARP; l++) static_cast<lane *>(args[l])->out = any;
        tally(&counts::votes);
    });
    return me.out;
}

u32 shuffle(u32 v, int from, bool exclusive_or, place at) {
    struct lane {
        u32 in, out;
        int from;
    } me = {v, 0, exclusive_or ? (self->thread ^ from) % WARP : (int)((u32)from % WARP)};
    meet("a shuffle", at, &me, [](void **args) {
        for (int l = 0; l < WARP; l++) {
            lane *to = static_cast<lane *>(args[l]);
            to->out = static_cast<lane *>(args[to->from])->in;
        }
    });
    return me.out;
}

void set_registers(int n, bool increase, place at) {
    need_sm(90, at);
    registers_lane lane = {n, increase, at};
    meet_group("setmaxnreg", at, &lane, group_sets_registers);
    while (self->is != status::ready) yield();
}

} // namespace emu

/*
 * Threads as fibers: switching between them, the scheduler, the deadlock report, and launches.
 *
 * Between two collective operations the lanes of a warp run one after the other, never in lockstep, so a missing sync_warp has
 * consequences. A lane that waits hands over to the next ready lane of its warp; after a random number of such switches the
 * scheduler chooses a block and a warp again, and now and then lets a bulk copy arrive.
 */
#include "state.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the switch between fibers is written for x86-64 only"
#endif

namespace emu {

__thread launch *now;
__thread block *own;
__thread fiber *self;

namespace {

#ifdef __SANITIZE_ADDRESS__
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif

/* Save the callee-saved registers on the stack and its pointer in *save, then go on where `to` was saved. */
extern "C" void emu_switch(void **save, void *to);
asm(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch, @function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\nmov %rsp, (%rdi)\n"
    "mov %rsi, %rsp\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size emu_switch, .-emu_switch\n");

void begin_switch([[maybe_unused]] void **fake_stack, [[maybe_unused]] const void *stack, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}
void end_switch([[maybe_unused]] void *fake_stack, [[maybe_unused]] const void **from, [[maybe_unused]] size_t *bytes) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#endif
}

void to_fiber_from_scheduler(fiber &f) {
    self = &f;
    begin_switch(&now->scheduler_fake_stack, f.stack, STACK_BYTES);
    emu_switch(&now->scheduler_sp, f.sp);
    end_switch(now->scheduler_fake_stack, nullptr, nullptr);
}
void to_scheduler() {
    fiber *me = self;
    begin_switch(me->is == status::ended ? nullptr : &me->fake_stack, now->scheduler_stack, now->scheduler_stack_bytes);
    emu_switch(&me->sp, now->scheduler_sp);
    end_switch(me->fake_stack, nullptr, nullptr);
}
void to_fiber(fiber &f) {
    fiber *me = self;
    self = &f;
    begin_switch(me->is == status::ended ? nullptr : &me->fake_stack, f.stack, STACK_BYTES);
    emu_switch(&me->sp, f.sp);
    end_switch(me->fake_stack, nullptr, nullptr);
}

/* Stacks of a host thread, each below an inaccessible page; kept from launch to launch. */
class stack_pool {
    std::vector<char *> free_ones, all;

  public:
    char *take() {
        if (free_ones.empty()) {
            const size_t page = (size_t)sysconf(_SC_PAGESIZE);
            char *p = static_cast<char *>(
                mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
            if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) != 0) abort();
            all.push_back(p);
            free_ones.push_back(p + page);
        }
        char *p = free_ones.back();
        free_ones.pop_back();
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(p, STACK_BYTES); /* its last fiber may have been abandoned */
#endif
        return p;
    }
    void put(char *p) { free_ones.push_back(p); }
    ~stack_pool() {
        for (char *p : all) munmap(p, STACK_BYTES + (size_t)sysconf(_SC_PAGESIZE));
    }
};
thread_local stack_pool stacks;

/* The first function on a fiber's stack. */
void enter() {
    end_switch(nullptr, now->scheduler_stack ? nullptr : &now->scheduler_stack,
               now->scheduler_stack ? nullptr : &now->scheduler_stack_bytes);
    (*now->body)();
    end_copies();
    end_wgmmas();
    self->is = status::ended;
    self->what = "ended";
    own->ended++;
    lane_ended();
    yield();
    abort();
}

void prepare(fiber &f, int index, int thread, const known &start) {
    f.block = index;
    f.thread = thread;
    f.seen = start;
    f.stack = stacks.take();
    void **sp = reinterpret_cast<void **>(f.stack + STACK_BYTES);
    *--sp = nullptr; /* a function finds the stack 8 bytes off a multiple of 16 */
    *--sp = reinterpret_cast<void *>(enter);
    for (int r = 0; r < 6; r++) *--sp = nullptr;
    f.sp = sp;
}

std::unique_ptr<block> make_block(int index) {
    const config &c = now->c;
    auto b = std::make_unique<block>();
    b->index = index;
    b->shared.assign(c.shared_bytes, 0xff);
    b->cells.resize(c.shared_bytes / 4 + 1);
    b->warps.resize((size_t)c.threads / WARP);
    b->groups.resize(((size_t)c.threads + GROUP - 1) / GROUP);
    for (warp_group &g : b->groups) g.registers = c.registers;
    b->fibers.resize((size_t)c.threads);
    const known start = std::make_shared<knowledge>();
    start->own.assign((size_t)c.threads + 1, 0);
    for (int t = 0; t < c.threads; t++) prepare(b->fibers[(size_t)t], index, t, start);
    return b;
}

void drop_block(block &b) {
    for (fiber &f : b.fibers) stacks.put(f.stack);
}

/* Whether some lane of the warp could run. */
bool run_warp(block &b, size_t w) {
    const u32 first = (u32)now->rng() % WARP;
    for (u32 l = 0; l < WARP; l++) {
        fiber &f = b.fibers[w * WARP + (l + first) % WARP];
        if (f.is != status::ready) continue;
        own = &b;
        now->slice = 1 + (int)(now->rng() % 256);
        to_fiber_from_scheduler(f);
        return true;
    }
    return false;
}

std::string who_waits(const block &b) {
    std::map<std::pair<std::string, place>, int> by_place;
    for (const fiber &f : b.fibers) by_place[{f.what, f.is == status::ended ? place{"", 0} : f.at}]++;
    std::string text;
    for (const auto &p : by_place) {
        text += (text.empty() ? "" : ", ") + std::to_string(p.second) + " threads ";
        text += p.first.second.line ? "at " + p.first.first + " in line " + std::to_string(p.first.second.line) : p.first.first;
    }
    return text;
}

void report_deadlock(block &b) {
    own = &b;
    self = nullptr;
    for (fiber &f : b.fibers)
        if (f.is != status::ended && (!self || f.is == status::at_registers)) self = &f;
    fail(self->is == status::at_registers ? kind::registers : kind::deadlock, self->at, who_waits(b));
    now->dead = true;
}

void finish_block(block &b) {
    own = &b;
    self = &b.fibers[0];
    end_mbars();
}

/* One step of a block: a warp runs, or a copy arrives, or the block is finished. */
bool step_finishes(block &b) {
    if (!b.bulks.empty() && now->rng() % 8 == 0) deliver(b, now->rng() % b.bulks.size());
    const size_t first = now->rng() % b.warps.size();
    for (size_t w = 0; w < b.warps.size(); w++)
        if (run_warp(b, (first + w) % b.warps.size())) return false;
    if (!b.bulks.empty())
        deliver(b, now->rng() % b.bulks.size());
    else if (b.ended == (int)b.fibers.size())
        return true;
    else
        report_deadlock(b);
    return false;
}

void run_grid() {
    std::vector<int> order((size_t)now->c.blocks);
    for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
    std::shuffle(order.begin(), order.end(), now->rng);
    size_t next = 0;
    while (!now->dead) {
        while (now->blocks.size() < (size_t)now->c.resident && next < order.size())
            now->blocks.push_back(make_block(order[next++]));
        if (now->blocks.empty()) break;
        const size_t i = now->rng() % now->blocks.size();
        block &b = *now->blocks[i];
        if (!step_finishes(b)) continue;
        finish_block(b);
        drop_block(b);
        now->blocks.erase(now->blocks.begin() + (long)i);
    }
    for (auto &b : now->blocks) drop_block(*b);
    now->blocks.clear();
}

} // namespace

void yield() {
    if (!now->dead && --now->slice > 0) {
        fiber *lanes = lanes_of(self->thread);
        for (int i = 1; i < WARP; i++) {
            fiber &f = lanes[(self->thread + i) % WARP];
            if (f.is != status::ready) continue;
            to_fiber(f);
            return;
        }
    }
    to_scheduler();
}

void wait_as(status why, const char *what, place at) {
    self->is = why;
    self->what = what;
    self->at = at;
    yield();
}

void fail(kind k, place at, const std::string &more) {
    if (!now->reported.insert({k, at}).second) return;
    now->out.errors.push_back({k, at.file, at.line, self->block, self->thread, more});
}

void stop(kind k, place at, std::string &&more) {
    fail(k, at, more);
    std::string().swap(more); /* nothing else frees it: this stack is abandoned */
    now->dead = true;
    for (;;) to_scheduler();
}

std::string thread_name(int thread) { return "thread " + std::to_string(thread); }

void need_sm(int sm, place at) {
    if (now->c.sm < sm) fail(kind::needs_sm, at, "sm_" + std::to_string(sm) + " has it");
}

int thread_index() { return self->thread; }
int block_index() { return self->block; }
int block_count() { return now->c.blocks; }

const char *describe(kind k) {
    static const char *const texts[] = {
#define EMU_ERROR(name, text) text,
#include "errors.def"
#undef EMU_ERROR
    };
    return texts[(int)k];
}

std::string report::text() const {
    std::string all;
    for (const error &e : errors) {
        all += e.file + ":" + std::to_string(e.line) + ": block " + std::to_string(e.block) + ", thread " +
               std::to_string(e.thread);
        all += std::string(": ") + describe(e.what) + (e.more.empty() ? "" : " (" + e.more + ")") + "\n";
    }
    return all;
}

size_t shared_bytes_of(int sm) { return (size_t)(sm >= 90 ? 227 : 163) << 10; }

/* Whether a device would accept the launch. */
static bool check_limits(launch &l) {
    const config &c = l.c;
    const size_t largest_shared = shared_bytes_of(c.sm);
    const auto refuse = [&](const std::string &more) {
        l.out.errors.push_back({kind::launch_limits, "launch", 0, 0, 0, more});
    };
    if (c.blocks < 1 || c.threads < WARP || c.threads % WARP || c.threads > 1024)
        refuse(std::to_string(c.blocks) + " blocks of " + std::to_string(c.threads) + " threads");
    else if (c.shared_bytes * (size_t)c.blocks_per_sm > largest_shared)
        refuse(std::to_string(c.shared_bytes) + " bytes of shared memory a block; " + std::to_string(largest_shared) +
               " are there for " + std::to_string(c.blocks_per_sm));
    else if (c.registers < 0 || c.registers > 255 || c.registers * c.threads * c.blocks_per_sm > 65536)
        refuse(std::to_string(c.registers) + " registers a thread");
    return l.out.errors.empty();
}

report device::launch(const config &c, const std::function<void()> &kernel) {
    emu::launch l;
    l.c = c;
    if (!check_limits(l)) return std::move(l.out);
    if (l.c.registers == 0) l.c.registers = std::min(255, 65536 / c.threads / c.blocks_per_sm / 8 * 8);
    l.body = &kernel;
    l.memory = own.get();
    l.rng.seed(c.seed);
    now = &l;
    run_grid();
    now = nullptr;
    emu::own = nullptr;
    self = nullptr;
    return std::move(l.out);
}

} // namespace emu

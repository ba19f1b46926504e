/*
 * What the emulation's files share: the state of a launch, its blocks, warps and fibers.
 *
 *   fibers.cpp       switching, scheduling, the deadlock report, launches
 *   order.cpp        what each thread knows of the others' progress
 *   shared.cpp       checks of shared memory
 *   memory.cpp       device memory: allocations, bounds, visibility
 *   collectives.cpp  what a warp or a block does together: barriers, votes, shuffles, setmaxnreg
 *   copies.cpp       cp.async, bulk copies, mbarriers
 *   matrices.cpp     ldmatrix, movmatrix, mma
 *   wgmma.cpp        matrix products of a warp group
 *   counting.cpp     sectors, wavefronts and the other counts
 */
#ifndef CHUNKATTN_CUDA_EMU_STATE_H
#define CHUNKATTN_CUDA_EMU_STATE_H

#include "emu_primitives.h"

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <set>
#include <unordered_map>

namespace emu {

enum { WARP = 32, GROUP = 128, NAMED_BARRIERS = 16 };

using floats8 = float __attribute__((vector_size(32))); /* products of matrices, 8 columns at a time */

/* ---- Order (order.cpp) ---- */

using clocks = std::vector<u32>; /* by thread of a block; the element after the last thread is the copy engine's */

/*
 * Up to which of its steps every other thread's accesses are visible. Immutable once shared: threads that leave a barrier
 * together hold the same object, which makes most operations on 32 threads cost as much as on one.
 */
struct knowledge {
    clocks own;                   /* of the threads of the block */
    std::map<int, clocks> others; /* of other blocks, by index */
};
using known = std::shared_ptr<knowledge>;

/* ---- Shared memory (shared.cpp) ---- */

/*
 * The reads of a cell since its last write. A read is left out if the thread of a later one knew of it: whoever knows of the
 * later read knows of both.
 */
struct readers {
    struct one {
        u32 clock;
        u16 thread;
    };
    std::array<one, 12> few;
    size_t n = 0; /* of `few` */
    clocks all;   /* by thread, in place of `few` if there are more; otherwise empty */
};

struct cell { /* of 4 bytes */
    u32 write_clock = 0, read_clock = 0;
    u16 writer = 0, reader = 0;
    u16 operands = 0;       /* wgmmas under way that read it */
    bool written = false;   /* holds a value */
    bool in_flight = false; /* a copy to it is under way */
    bool generic = false;   /* the last write was an ordinary one */
    bool mbar = false;
    readers *several = nullptr; /* in place of reader where several read since the last write; block::all_readers holds it */
};

/* ---- Copies (copies.cpp) ---- */

struct async_copy {
    u32 to;
    const void *from; /* NULL: zeros */
    place at;
};
struct bulk {
    u32 to, bytes, bar;
    const void *from;
    place at;
};
struct mbar {
    u32 arrivals, pending, phase = 0;
    int64_t bytes = 0; /* expected minus completed in this phase; negative while the expectation comes later */
    u32 awaited = 0;   /* phases that some thread has waited for */
    u32 copied = 0;    /* phases up to the last one in which a bulk copy arrived, and that copy */
    place copy = {"", 0};
    place at;  /* of the last operation on it */
    u16 owner; /* the thread that initialised it */
    u32 init_clock;
    known gathered, complete; /* what was released in this phase, and in the last complete one */
    known last_seen;          /* of the last thread that arrived */
};

/* ---- wgmma (wgmma.cpp) ---- */

struct accumulator {
    float (*d)[4];
    std::vector<float> sums; /* [N / 8][4], to be stored at the wait */
    u64 group;               /* of the last wgmma that adds to it */
    place at;
};
struct read_operands {
    u64 group;
    std::vector<u32> units; /* offsets of the 16-byte units for which this thread stands */
    const u32 *registers;   /* A's, or NULL */
    u32 values[4];
    place at;
};

/* ---- Counting (counting.cpp) ---- */

enum class traffic : uint8_t { load, store, shared, async };
struct access {
    place at;
    traffic what;
    uint8_t bytes;
    u64 address;
};

/* ---- Threads ---- */

enum class status : uint8_t { ready, at_warp, at_group, at_barrier, at_mbar, at_registers, ended };

struct fiber {
    void *sp = nullptr;
    char *stack = nullptr;
    void *fake_stack = nullptr; /* AddressSanitizer's */
    int block = 0, thread = 0;
    status is = status::ready;
    const char *what = ""; /* for which it waits, and where */
    place at = {"", 0};
    u32 bar = 0, parity = 0; /* at_mbar */
    int wanted = 0;          /* at_registers */

    u32 clock = 1; /* of its accesses; goes up whenever others learn of them */
    known seen;
    clocks fences; /* clocks of its fence_async calls, ascending */
    clocks init_fences;

    std::vector<async_copy> copies; /* cp.async under way, in order */
    std::vector<size_t> group_ends; /* of each committed group, the copies up to its end */

    bool group_fenced = false;
    u64 first_group = 0, open_group = 0; /* of wgmmas: the first under way, the one that is not committed yet */
    std::vector<accumulator> accumulators;
    std::vector<read_operands> operands;

    std::vector<access> log; /* since the warp last met */
};

struct warp {
    int here = 0, ended = 0; /* lanes */
    place at = {"", 0};
    const char *op = "";
    void *args[WARP];
};
struct warp_group {
    int here = 0; /* threads */
    place at = {"", 0};
    const char *op = "";
    void *args[GROUP];
    int registers = 0;
};
struct named_barrier {
    int arrived = 0, threads = 0;
    bool reduces = false;
    place at = {"", 0};
    std::vector<fiber *> waiting;
    std::vector<bool *> results;
    bool any = false;
    known gathered;
};

struct block {
    int index;
    int ended = 0;
    std::vector<fiber> fibers;
    std::vector<warp> warps;
    std::vector<warp_group> groups;
    std::vector<unsigned char> shared;
    std::vector<cell> cells;
    std::deque<readers> all_readers;
    std::vector<readers *> spare_readers; /* of all_readers, those that no cell has */
    std::array<named_barrier, NAMED_BARRIERS> barriers;
    std::map<u32, mbar> mbars;
    std::vector<bulk> bulks; /* under way */
    u32 engine_clock = 1;    /* of the copy engine */
    int free_registers = 0;
};

/* ---- Device memory (memory.cpp) ---- */

struct allocation {
    unsigned char *base;
    size_t bytes;
    std::string name;
    size_t id; /* in order of allocation */
};
struct device::memory {
    std::map<const unsigned char *, allocation> by_address;
    size_t next_id = 0;
};

/* Who touched 4 bytes of device memory in this launch: block + 1, thread and clock packed by stamp(); 0: nobody. */
struct word_history {
    u64 write;
    u64 reads[4]; /* the last one by each of some blocks since the write */
};
enum { PAGE_WORDS = 1024 };
using history_page = std::array<word_history, PAGE_WORDS>;
using allocation_history = std::vector<std::unique_ptr<history_page>>;

struct launch {
    config c;
    report out;
    const std::function<void()> *body = nullptr;
    device::memory *memory = nullptr;
    std::vector<std::unique_ptr<block>> blocks; /* resident */
    std::mt19937_64 rng;
    std::set<std::pair<kind, place>> reported;
    std::unordered_map<size_t, allocation_history> history; /* by allocation */
    std::map<const void *, std::map<int, clocks>> released; /* by acq_rel atomics: by block */
    const allocation *last_allocation = nullptr;            /* the last one accessed, and its history */
    allocation_history *last_history = nullptr;
    known merged_a, merged_b, merged; /* the last join */
    void *scheduler_sp = nullptr, *scheduler_fake_stack = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_stack_bytes = 0;
    int slice = 0; /* switches between lanes until the scheduler may choose again */
    bool dead = false;
};

/* __thread and not thread_local, which would access them through a function. */
extern __thread launch *now __attribute__((tls_model("initial-exec")));
extern __thread block *own __attribute__((tls_model("initial-exec")));
extern __thread fiber *self __attribute__((tls_model("initial-exec")));

inline warp &my_warp() { return own->warps[(size_t)self->thread / WARP]; }
inline fiber *lanes_of(int thread) { return &own->fibers[(size_t)thread / WARP * WARP]; }

/* fibers.cpp */
void yield();                                              /* until the fiber is ready again */
void wait_as(status why, const char *what, place at);      /* the fiber waits until another one makes it ready */
void fail(kind k, place at, const std::string &more = ""); /* report */
void stop(kind k, place at, std::string &&more = "");      /* report, and end the launch */
std::string thread_name(int thread);
void need_sm(int sm, place at);

/* order.cpp */
inline bool knows(u16 thread, u32 clock) { return thread == self->thread || self->seen->own[thread] >= clock; }
bool knows_block(int block, int thread, u32 clock);
known release(fiber *const *threads, size_t n); /* what they know and did so far; their clocks go up */
/* The same of one thread into a union that nobody else holds; last is what the thread before knew. */
void release_into(known &to, known &last);
void release_engine(known &to, u32 clock); /* the copy engine's clock */
known join(const known &a, const known &b);
void acquire(const known &k);
void synchronise(fiber *const *threads, size_t n);
void acquire_and_release(std::map<int, clocks> &word);

/* shared.cpp */
bool check_shared(u32 at, u32 bytes, u32 align, place where);
void check_read(u32 at, u32 bytes, place where); /* against earlier writes */
void note_read(u32 at, u32 bytes);               /* for later writes */
void read_cells(u32 at, u32 bytes, place where); /* both */
enum class writer { generic, cp_async, bulk };
void write_cells(u32 at, u32 bytes, writer by, place where);
void complete_cells(u32 at, u32 bytes, u16 by, u32 clock); /* a copy's data arrived */
void check_proxy(u32 at, u32 bytes, place where);          /* the async proxy accesses what was written generically */

/* memory.cpp */
enum class device_access { read, write, atomic };
bool check_device(const void *p, u32 bytes, u32 align, device_access how, place where);

/* collectives.cpp */
/* All lanes of the warp come to the same operation; the last one runs `all` with the lanes' arguments. */
void meet(const char *op, place at, void *arg, void (*all)(void **args));
/* The same for a warp group. */
void meet_group(const char *op, place at, void *arg, void (*all)(void **args));
void lane_ended();

/* copies.cpp */
void deliver(block &b, size_t i); /* the i-th bulk copy under way arrives */
void end_copies();                /* of a fiber that ends */
void end_mbars();                 /* of a block that ends */

/* wgmma.cpp */
void end_wgmmas();

/* counting.cpp */
inline void count(traffic what, place at, u64 address, u32 bytes) { self->log.push_back({at, what, (uint8_t)bytes, address}); }
inline void tally(uint64_t counts::*field, u64 n = 1) { now->out.n.*field += n; }
void judge_log(fiber *lanes);            /* of a warp that meets or ends */
void count_rows(const u32 *rows, int n); /* shared memory accessed in rows of 16 bytes, 8 at a time */

} // namespace emu
#endif

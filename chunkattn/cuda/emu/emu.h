/*
 * The emulation of a CUDA device, as its users see it: memory, launches, and what a launch reports.
 *
 * A kernel is any function written against chunkattn/cuda/primitives.h. Each of its threads runs as a fiber on the calling host
 * thread; warps and blocks are interleaved in an order that the seed determines. Several host threads may run launches at the
 * same time, on devices of their own. docs/cuda.md says what is checked and what is not.
 */
#ifndef CHUNKATTN_CUDA_EMU_EMU_H
#define CHUNKATTN_CUDA_EMU_EMU_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emu {

/* A line of a kernel's source. */
struct place {
    const char *file;
    int line;
};
inline bool operator<(place a, place b) { return a.line != b.line ? a.line < b.line : a.file < b.file; }
inline bool operator==(place a, place b) { return a.line == b.line && a.file == b.file; }

/* Kinds of errors; errors.def has a sentence for each. */
enum class kind {
#define EMU_ERROR(name, text) name,
#include "errors.def"
#undef EMU_ERROR
};
const char *describe(kind k);

struct error {
    kind what;
    std::string file;
    int line;
    int block, thread; /* the first that was found */
    std::string more;  /* what else is known, perhaps empty */
};

/* What a launch did. A sector is 32 bytes of device memory; a wavefront is one pass over the 32 banks of shared memory. */
struct counts {
    uint64_t load_requests, load_bytes, load_sectors; /* ld_global and its kin, by whole warps */
    uint64_t store_requests, store_bytes, store_sectors;
    uint64_t async_requests, async_bytes, async_sectors; /* cp_async */
    uint64_t bulk_copies, bulk_bytes;
    uint64_t shared_requests, shared_wavefronts, shared_least; /* ld, st, ldmatrix, cp_async; least: without conflicts */
    uint64_t ldmatrix, movmatrix, mma, wgmma;
    uint64_t votes;
};

struct report {
    counts n = {};
    std::vector<error> errors; /* each kind and line once */

    std::string text() const; /* the errors, one a line */
};

struct config {
    int blocks = 1, threads = 32; /* threads of a block, a multiple of 32, at most 1024 */
    size_t shared_bytes = 0;      /* dynamic shared memory of a block */
    uint64_t seed = 1;
    int resident = 2; /* blocks that run at a time */
    int sm = 90;      /* compute capability: primitives that it lacks are errors */
    int blocks_per_sm = 1;
    int registers = 0; /* of a thread when the launch begins; 0: as many as fit with blocks_per_sm */
};

/* Bytes of shared memory that the blocks of a multiprocessor have together. */
size_t shared_bytes_of(int sm);

/* Device memory and the launches that use it. */
class device {
  public:
    device();
    ~device();
    device(const device &) = delete;
    device &operator=(const device &) = delete;

    /* Aligned to 4096 bytes, filled with 0xff (NaN), followed by a gap that nothing owns. The name appears in errors. */
    void *alloc(size_t bytes, const std::string &name);
    void free(void *p);
    bool owns(const void *p, size_t bytes) const;

    template <class T> T *array(size_t n, const std::string &name) { return static_cast<T *>(alloc(n * sizeof(T), name)); }

    /* Runs the kernel in every thread of the grid. An error that leaves nothing sensible to do ends the launch early. */
    report launch(const config &c, const std::function<void()> &kernel);

    struct memory;

  private:
    std::unique_ptr<memory> own;
};

} // namespace emu
#endif

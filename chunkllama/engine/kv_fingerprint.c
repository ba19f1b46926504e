/* The fingerprint of model, machine code and CPU: see kv_fingerprint.h. */
#include "kv_fingerprint.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#include "chunkattn/base/cpu.h"
#include "chunkllama/linear/linear.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct code {
    XXH3_state_t state;
    bool first; /* the next object is the program itself, which the system lists first */
    bool known; /* the program has a build id */
} code;

static size_t round_up(size_t n, size_t align) { return (n + align - 1) / align * align; }

/* Hash the build id among the notes [size] of an object. False: there is none. */
static bool add_build_id(XXH3_state_t *state, const char *notes, size_t size, size_t align) {
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        const size_t name = at + sizeof note, text = round_up(name + note.n_namesz, align);
        if (text + note.n_descsz > size) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0) {
            XXH3_128bits_update(state, notes + text, note.n_descsz);
            return true;
        }
        at = round_up(text + note.n_descsz, align);
    }
    return false;
}

/* For dl_iterate_phdr: hash the build id of one object, the program or a library. */
static int add_object(struct dl_phdr_info *info, size_t size, void *ctx) {
    (void)size;
    code *c = ctx;
    const bool is_kernels = strstr(info->dlpi_name, "vdso") != NULL; /* the kernel's, which computes nothing here */
    for (int i = 0; i < info->dlpi_phnum && !is_kernels; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_NOTE) continue;
        const char *notes = (const char *)info->dlpi_addr + h->p_vaddr; /* NOLINT(performance-no-int-to-ptr) */
        if (add_build_id(&c->state, notes, h->p_memsz, h->p_align < 4 ? 4 : h->p_align)) c->known |= c->first;
    }
    c->first = false;
    return 0;
}

cl_status cl_kv_fingerprint(const cl_model *model, int64_t n_ctx, uint64_t fingerprint[2], cl_error *error) {
    code c = {.first = true};
    fingerprint[0] = fingerprint[1] = 0;
    if (!model->has_fingerprint) return CL_OK;
    XXH3_128bits_reset(&c.state);
    XXH3_128bits_update(&c.state, model->fingerprint, sizeof model->fingerprint);
    const char *level = cl_kernels_level(model->kernels);
    XXH3_128bits_update(&c.state, level, strlen(level));
    for (int i = 0; i < CL_N_ROPES; i++)
        XXH3_128bits_update(&c.state, cl_rope_is_short(&model->params.rope[i], n_ctx) ? "short" : "other", 5);
    XXH3_128bits_update(&c.state, ca_cpu_name(), strlen(ca_cpu_name()));
    dl_iterate_phdr(add_object, &c);
    if (!c.known)
        return cl_fail(error, CL_ERR_UNSUPPORTED,
                       "kv_tier_dir is set, but the program has no build id, which would tell other builds apart; link it with "
                       "--build-id");
    const XXH128_hash_t hash = XXH3_128bits_digest(&c.state);
    fingerprint[0] = hash.high64;
    fingerprint[1] = hash.low64;
    return CL_OK;
}

/*
 * The architectures. Sources: Llama (arXiv 2302.13971), Qwen2 (2407.10671), Qwen3 (2505.09388), Gemma 3 (2503.19786), and the
 * models' published configurations.
 */
#include "arch.h"

#include <stdio.h>
#include <string.h>

#define VISION                                                                                                                 \
    { "vision tower", "v. vision_tower. model.vision_tower." }
#define PROJECTOR                                                                                                              \
    { "projector", "mm. multi_modal_projector. model.multi_modal_projector." }
#define NEXT_TOKEN                                                                                                             \
    { "next-token layers", "mtp. model.mtp. model.mtp_layers." }

static const cl_arch table[] = {
    {.name = "llama", .windows = true, .left_out = {VISION, PROJECTOR, NEXT_TOKEN}}, /* and Mistral, SmolLM2, TinyLlama */
    {.name = "qwen2", .rope_halves = true, .qkv_bias = true, .left_out = {NEXT_TOKEN}},
    {.name = "qwen3", .rope_halves = true, .qk_norm = true, .left_out = {NEXT_TOKEN}},
    {.name = "gemma3",
     .rope_halves = true,
     .qk_norm = true,
     .post_norms = true,
     .gelu = true,
     .scaled_embedding = true,
     .windows = true,
     .full_every = 6,
     .window_rope_base = 10000,
     .wide_scale_layers = 62,
     .left_out = {VISION, PROJECTOR}},
};
enum { N_ARCHS = sizeof table / sizeof *table };

cl_status cl_arch_find(cl_str name, const cl_arch **found, cl_error *error) {
    char names[128], shown[40];
    size_t used = 0;
    for (int i = 0; i < N_ARCHS; i++) {
        if (cl_str_is(name, table[i].name)) {
            *found = &table[i];
            return CL_OK;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", table[i].name);
    }
    return cl_fail(error, CL_ERR_UNSUPPORTED, "general.architecture is \"%s\"; supported: %s",
                   cl_str_show(name, shown, sizeof shown), names);
}

static bool begins(cl_str name, const char *part, size_t size) {
    return name.size >= size && memcmp(name.data, part, size) == 0;
}

const char *cl_arch_left_out(const cl_arch *arch, cl_str name) {
    for (int i = 0; i < CL_MAX_LEFT_OUT && arch->left_out[i].names; i++)
        for (const char *part = arch->left_out[i].names; *part; part += strspn(part, " ")) {
            const size_t size = strcspn(part, " ");
            if (begins(name, part, size)) return arch->left_out[i].what;
            part += size;
        }
    return NULL;
}

/*
 * The architectures. Sources: Llama (arXiv 2302.13971), Qwen2 (2407.10671), Qwen3 (2505.09388), Gemma 3 (2503.19786), and the
 * models' published configurations.
 */
#include "arch.h"

#include <stdio.h>

static const cl_arch table[] = {
    {.name = "llama", .windows = true}, /* and Mistral, SmolLM2, TinyLlama */
    {.name = "qwen2", .rope_halves = true, .qkv_bias = true},
    {.name = "qwen3", .rope_halves = true, .qk_norm = true},
    {.name = "gemma3",
     .rope_halves = true,
     .qk_norm = true,
     .post_norms = true,
     .gelu = true,
     .scaled_embedding = true,
     .windows = true,
     .full_every = 6,
     .window_rope_base = 10000,
     .wide_scale_layers = 62},
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

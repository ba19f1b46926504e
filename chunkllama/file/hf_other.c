/* Refuses folders that hold something else in the place of a model, and says what can be done with that. */
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "hf.h"

/* What a folder may hold, the most telling first. */
enum { ADAPTER, MODELS, OTHER_FORMAT, EXTRA, N_KINDS };

#define N5 "[0-9][0-9][0-9][0-9][0-9]"

/* A name is of the kind of the first pattern that it matches. */
static const struct {
    const char *pattern;
    int kind;
} patterns[] = {
    {"adapter_config.json", ADAPTER},
    {"*mmproj*.gguf", EXTRA},
    {"*-00001-of-" N5 ".gguf", MODELS},
    {"*-" N5 "-of-" N5 ".gguf", EXTRA},
    {"*.gguf", MODELS},
    {"pytorch_model*.bin", OTHER_FORMAT},
    {"*.pth", OTHER_FORMAT},
    {"*.ckpt", OTHER_FORMAT},
    {"tf_model*.h5", OTHER_FORMAT},
    {"flax_model*.msgpack", OTHER_FORMAT},
    {"*.onnx", OTHER_FORMAT},
};

static int kind_of(const char *name) {
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i].pattern, name, 0) == 0) return patterns[i].kind;
    return N_KINDS;
}

/* The files of a kind: their number, and the first in the order of their names. */
typedef struct findings {
    int n[N_KINDS];
    char first[N_KINDS][256];
} findings;

static void look_into(const char *path, findings *f) {
    enum { MOST_ENTRIES = 10000 };
    DIR *folder = opendir(path);
    const struct dirent *entry;
    for (int i = 0; folder && i < MOST_ENTRIES && (entry = readdir(folder)); i++) {
        const int kind = kind_of(entry->d_name);
        if (kind == N_KINDS) continue;
        if (f->n[kind]++ == 0 || strcmp(entry->d_name, f->first[kind]) < 0)
            (void)snprintf(f->first[kind], sizeof f->first[kind], "%s", entry->d_name);
    }
    if (folder) closedir(folder);
}

bool cl_hf_refuse_other(const char *folder, const char *lack, cl_error *error) {
    static const char *const advice[N_KINDS] = {
        [ADAPTER] = "it is a LoRA adapter, which is not supported; merge it into the weights of its model, and name that model",
        [MODELS] = "to load a GGUF file in it, name that: ",
        [OTHER_FORMAT] =
            "it has weights in a format that is not read; convert the model to GGUF, or to a folder of safetensors: ",
        [EXTRA] = "it has only a part of a model; name a GGUF file of the model itself, instead of: ",
    };
    findings f = {0};
    int kind = 0;
    char name[256] = "", several[64] = "";
    look_into(folder, &f);
    while (kind < N_KINDS && f.n[kind] == 0) kind++;
    if (kind == N_KINDS) return false;
    if (kind != ADAPTER) cl_str_show(cl_str_of(f.first[kind]), name, sizeof name);
    if (kind == MODELS && f.n[kind] > 1)
        (void)snprintf(several, sizeof several, "to load one of its %d GGUF files, name that, such as: ", f.n[kind]);
    cl_fail(error, CL_ERR_FILE, "%s: %s; %s%s", folder, lack, *several ? several : advice[kind], name);
    return true;
}

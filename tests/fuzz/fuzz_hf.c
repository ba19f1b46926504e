/*
 * A folder as Hugging Face has them. The input is the texts of its files, with a zero byte between them: config.json,
 * tokenizer.json, tokenizer_config.json, generation_config.json, and the header of model.safetensors, behind which as many
 * zeros are written as the largest number of the header says.
 */
#include "fuzz.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "use_model.h"

enum { MAX_DATA = 1 << 19 };

static char folder[64];

static void remove_folder(void);

/* In memory, if the system has a folder for that. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    snprintf(folder, sizeof folder, "%s/fuzz_hf_XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder), "%s", folder);
    return atexit(remove_folder);
}

static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                                    "model.safetensors"};
enum { N_NAMES = sizeof names / sizeof *names };

static void path_of(int i, char path[128]) { snprintf(path, 128, "%s/%s", folder, names[i]); }

static void remove_folder(void) {
    char path[128];
    for (int i = 0; i < N_NAMES; i++) path_of(i, path), unlink(path);
    rmdir(folder);
}

/* The largest number of a text that is at most MAX_DATA. */
static size_t largest_number(const uint8_t *text, size_t size) {
    size_t largest = 0;
    for (size_t i = 0; i < size;) {
        size_t n = 0;
        for (; i < size && text[i] >= '0' && text[i] <= '9'; i++) n = n > MAX_DATA ? n : 10 * n + (size_t)(text[i] - '0');
        if (n > largest && n <= MAX_DATA) largest = n;
        i++;
    }
    return largest;
}

static void write_file(int i, const uint8_t *text, size_t size) {
    static const uint8_t zeros[MAX_DATA];
    const uint64_t n_header = size;
    char path[128];
    path_of(i, path);
    unlink(path);
    if (size == 0) return; /* the folder lacks it */
    FILE *out = fopen(path, "wb");
    FUZZ_CHECK(out, "%s", path);
    if (i == N_NAMES - 1) fwrite(&n_header, 1, sizeof n_header, out);
    fwrite(text, 1, size, out);
    if (i == N_NAMES - 1) fwrite(zeros, 1, largest_number(text, size), out);
    FUZZ_CHECK(fclose(out) == 0, "%s", path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *at = data, *end = data + size;
    for (int i = 0; i < N_NAMES; i++) {
        const uint8_t *zero = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL, *stop = zero ? zero : end;
        write_file(i, at, (size_t)(stop - at));
        at = zero ? zero + 1 : end;
    }
    use_model(folder);
    return 0;
}

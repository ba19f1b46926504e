/* Calls a fuzz target with files, in place of libFuzzer: those of its corpus, or the files and folders that are its arguments.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

/* The target's own function comes before this one. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    return 0;
}

static size_t n_replayed;

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void replay_file(const char *path, size_t size) {
    FILE *in = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1); /* of the exact size, so that a sanitizer sees what is read beyond it */
    FUZZ_CHECK(in && data && fread(data, 1, size, in) == size, "%s cannot be read", path);
    fclose(in);
    printf("%s\n", path);
    fflush(stdout); /* the last line names the input that ends the process */
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_replayed++;
}

static void replay(const char *path);

static void replay_folder(const char *path) {
    struct dirent **entries;
    const int n = scandir(path, &entries, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') replay(name);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

static void replay(const char *path) {
    struct stat st;
    FUZZ_CHECK(stat(path, &st) == 0, "%s does not exist", path);
    if (S_ISDIR(st.st_mode))
        replay_folder(path);
    else
        replay_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv) {
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) replay(argv[i]);
    if (argc < 2) replay(FUZZ_CORPUS);
    printf("%zu inputs\n", n_replayed);
    return n_replayed == 0;
}

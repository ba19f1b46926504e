/*
 * Folders as Hugging Face has them, written from the corpus of the fuzz target hf. An input is the texts of a folder's files,
 * with a zero byte between them: config.json, tokenizer.json, tokenizer_config.json, generation_config.json, the header of
 * model.safetensors, behind which as many zeros are written as the largest number of the header says, and
 * 1_Pooling/config.json. A folder lacks the files of which there is no text. Where the folder cannot be written the program
 * ends.
 */
#ifndef TESTS_CHUNKLLAMA_MODEL_HF_FOLDER_H
#define TESTS_CHUNKLLAMA_MODEL_HF_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HF_FOLDER_DATA = 1 << 19, HF_FOLDER_PATH = 64 }; /* the most bytes of data; a folder's path */

static const char *const hf_folder_names[] = {"config.json",           "tokenizer.json",
                                              "tokenizer_config.json", "generation_config.json",
                                              "model.safetensors",     "1_Pooling/config.json"};
enum { HF_FOLDER_FILES = sizeof hf_folder_names / sizeof *hf_folder_names, HF_FOLDER_WEIGHTS = 4 };

/* The path of a folder's part. */
static inline const char *hf_folder_path(const char *folder, const char *name, char path[2 * HF_FOLDER_PATH]) {
    snprintf(path, 2 * HF_FOLDER_PATH, "%s/%s", folder, name);
    return path;
}

/* A new folder, in memory if the system has a folder for that. */
static inline void hf_folder_create(char folder[HF_FOLDER_PATH]) {
    snprintf(folder, HF_FOLDER_PATH, "%s/hf_XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    char path[2 * HF_FOLDER_PATH];
    if (!mkdtemp(folder) || mkdir(hf_folder_path(folder, "1_Pooling", path), 0700) != 0) abort();
}

static inline void hf_folder_remove(const char *folder) {
    char path[2 * HF_FOLDER_PATH];
    for (int i = 0; i < HF_FOLDER_FILES; i++) unlink(hf_folder_path(folder, hf_folder_names[i], path));
    rmdir(hf_folder_path(folder, "1_Pooling", path));
    rmdir(folder);
}

/* The largest number of a text that is at most HF_FOLDER_DATA. */
static inline size_t hf_folder_largest_number(const uint8_t *text, size_t size) {
    size_t largest = 0;
    for (size_t i = 0; i < size;) {
        size_t n = 0;
        for (; i < size && text[i] >= '0' && text[i] <= '9'; i++) n = n > HF_FOLDER_DATA ? n : 10 * n + (size_t)(text[i] - '0');
        if (n > largest && n <= HF_FOLDER_DATA) largest = n;
        i++;
    }
    return largest;
}

static inline void hf_folder_write_file(const char *folder, int i, const uint8_t *text, size_t size) {
    static const uint8_t zeros[HF_FOLDER_DATA];
    const uint64_t n_header = size;
    char path[2 * HF_FOLDER_PATH];
    unlink(hf_folder_path(folder, hf_folder_names[i], path));
    if (size == 0) return;
    FILE *out = fopen(path, "wb");
    if (!out) abort();
    if (i == HF_FOLDER_WEIGHTS) fwrite(&n_header, 1, sizeof n_header, out);
    fwrite(text, 1, size, out);
    if (i == HF_FOLDER_WEIGHTS) fwrite(zeros, 1, hf_folder_largest_number(text, size), out);
    if (fclose(out) != 0) abort();
}

/* Write the files of an input; those that the folder has are replaced. */
static inline void hf_folder_write(const char *folder, const uint8_t *data, size_t size) {
    const uint8_t *at = data, *end = data + size;
    for (int i = 0; i < HF_FOLDER_FILES; i++) {
        const uint8_t *zero = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL, *stop = zero ? zero : end;
        hf_folder_write_file(folder, i, at, (size_t)(stop - at));
        at = zero ? zero + 1 : end;
    }
}

#endif

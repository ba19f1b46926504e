/*
 * The files in the folder of --kv-tier. Each belongs to one model, build, CPU and set of options, and is locked by the process
 * that uses it. One that nobody uses may be of a server that will start again, or of one that never will.
 */
#ifndef CLI_TIER_FILES_H
#define CLI_TIER_FILES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tier_file {
    char name[40];
    int64_t bytes;      /* on the disk */
    int64_t written_at; /* seconds since 1970 */
    bool used;          /* a process has it */
} tier_file;

/*
 * Call a function for each file of the folder, which is open as `folder` meanwhile. A file that is not used stays locked during
 * its call, so that no process begins to use it. False: the folder cannot be read; see errno.
 */
bool tier_files_for_each(const char *path, void (*call)(void *ctx, int folder, const tier_file *file), void *ctx);

#endif

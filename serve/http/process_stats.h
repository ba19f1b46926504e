/*
 * What the process uses of the machine, for the metrics that Prometheus' client libraries call process_*. Its files of /proc
 * are opened once, since the sandbox allows no others later.
 */
#ifndef SERVE_HTTP_PROCESS_STATS_H
#define SERVE_HTTP_PROCESS_STATS_H

#include <stdint.h>

enum { PROCESS_FILES = 2 }; /* that are open */

typedef struct process_files {
    int memory, files; /* file descriptors; -1: not available */
    int64_t max_open_files;
} process_files;

/* What is not known is negative. */
typedef struct process_stats {
    int64_t virtual_bytes, resident_bytes;
    double cpu_seconds; /* of all threads, in the program and in the kernel */
    int64_t open_files, max_open_files;
} process_stats;

void process_files_open(process_files *files);
void process_files_close(process_files *files);

/* From any thread. */
process_stats process_stats_read(const process_files *files);

#endif

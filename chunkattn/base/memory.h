/* The memory that this process may use. */
#ifndef CHUNKATTN_BASE_MEMORY_H
#define CHUNKATTN_BASE_MEMORY_H

#include <stdint.h>

/* In bytes; UINT64_MAX: not known, or without a limit. */
typedef struct ca_memory {
    uint64_t total; /* of the machine, or the limit of this process or of a control group that it is in */
    uint64_t free;  /* that nobody uses, or the kernel would give up at once: files that it keeps for later; at most `space` */
    uint64_t space; /* that the process may still map, by its limits of address space and of data (RLIMIT_AS, RLIMIT_DATA) */
} ca_memory;

/* proc, groups: the folders /proc and /sys/fs/cgroup, of control groups of either version. Threads: any. */
ca_memory ca_memory_read(const char *proc, const char *groups);

#endif

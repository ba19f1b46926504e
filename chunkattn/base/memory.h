/* The memory that this process may use. */
#ifndef CHUNKATTN_BASE_MEMORY_H
#define CHUNKATTN_BASE_MEMORY_H

#include <stdint.h>

/* In bytes; UINT64_MAX: not known. */
typedef struct ca_memory {
    uint64_t total; /* of the machine, or the limit of a control group that this process is in */
    uint64_t free;  /* that nobody uses, or the kernel would give up at once: files that it keeps for later */
} ca_memory;

/* proc, groups: the folders /proc and /sys/fs/cgroup, of control groups of version 2. Threads: any. */
ca_memory ca_memory_read(const char *proc, const char *groups);

#endif

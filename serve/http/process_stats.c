/* Reads what the kernel reports of the process. */
#include "process_stats.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void process_files_open(process_files *files) {
    struct rlimit limit;
    files->memory = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    files->files = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    files->max_open_files = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (int64_t)limit.rlim_cur : -1;
}

void process_files_close(process_files *files) {
    if (files->memory >= 0) close(files->memory);
    if (files->files >= 0) close(files->files);
    files->memory = files->files = -1;
}

/* The first two numbers of statm, in pages: the addresses, and what of them is in memory. */
static void read_memory(int fd, process_stats *stats) {
    char text[128];
    int64_t all, resident;
    const ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%" SCNd64 " %" SCNd64, &all, &resident) != 2) return;
    stats->virtual_bytes = all * sysconf(_SC_PAGESIZE);
    stats->resident_bytes = resident * sysconf(_SC_PAGESIZE);
}

/* From Linux 6.2 on, the size of the folder is the number of open files. fstat() would call newfstatat, which the sandbox
 * forbids. */
static int64_t count_files(int fd) {
    struct stat st;
    return fd >= 0 && syscall(SYS_fstat, fd, &st) == 0 && st.st_size > 0 ? (int64_t)st.st_size : -1;
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

process_stats process_stats_read(const process_files *files) {
    struct rusage usage;
    process_stats stats = {.virtual_bytes = -1, .resident_bytes = -1, .cpu_seconds = -1};
    read_memory(files->memory, &stats);
    if (getrusage(RUSAGE_SELF, &usage) == 0) stats.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    stats.open_files = count_files(files->files);
    stats.max_open_files = files->max_open_files;
    return stats;
}

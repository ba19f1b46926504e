/* Maps model files into memory read-only, so that their pages are loaded when they are first read. */
#include "file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

cl_status cl_file_map_open(const char *path, cl_file_map *map, cl_error *error) {
    *map = (cl_file_map){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cl_fail(error, CL_ERR_FILE, "%s: cannot be opened: %s", path, strerror(errno));
    struct stat st;
    cl_status status = CL_OK;
    if (fstat(fd, &st) != 0) {
        status = cl_fail(error, CL_ERR_FILE, "%s: cannot be examined: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = cl_fail(error, CL_ERR_FILE, "%s: not a regular file", path);
    } else if (st.st_size == 0) {
        status = cl_fail(error, CL_ERR_FORMAT, "%s: the file is empty", path);
    } else {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = cl_fail(error, CL_ERR_FILE, "%s: cannot be mapped: %s", path, strerror(errno));
        else
            *map = (cl_file_map){data, (size_t)st.st_size};
    }
    close(fd);
    return status;
}

void cl_file_map_close(cl_file_map *map) {
    if (map->data) munmap((void *)map->data, map->size);
    *map = (cl_file_map){0};
}

void cl_file_map_drop(const cl_file_map *map, const void *data, size_t size) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)map->data, at = (uintptr_t)data;
    if (!map->data || at < start || at > start + map->size || size > start + map->size - at) return; /* the caller's bytes */
    const uintptr_t first = (at + page - 1) / page * page, end = (at + size) / page * page;
    if (first < end) (void)madvise((void *)(map->data + (first - start)), end - first, MADV_DONTNEED);
}

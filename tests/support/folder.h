/* Folders that tests have made, which have files, and folders that are empty. */
#ifndef TESTS_SUPPORT_FOLDER_H
#define TESTS_SUPPORT_FOLDER_H

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static inline void empty_folder(const char *path) {
    DIR *list = opendir(path);
    for (const struct dirent *e; list && (e = readdir(list));)
        if (unlinkat(dirfd(list), e->d_name, 0) != 0) unlinkat(dirfd(list), e->d_name, AT_REMOVEDIR);
    if (list) closedir(list);
}

/* Remove a folder with what it has; -1: it was not possible. */
static inline int remove_folder(const char *path) {
    empty_folder(path);
    return rmdir(path);
}

#endif

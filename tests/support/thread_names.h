/* The names of the threads of this process. */
#ifndef TESTS_SUPPORT_THREAD_NAMES_H
#define TESTS_SUPPORT_THREAD_NAMES_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "wait.h"

/* How many threads have this name now. A new thread has its name once it has begun. */
static inline int count_threads(const char *name) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *d; tasks && (d = readdir(tasks));) {
        char path[300], got[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "r");
        if (f && fgets(got, sizeof got, f)) n += strcspn(got, "\n") == strlen(name) && strncmp(got, name, strlen(name)) == 0;
        if (f) fclose(f);
    }
    if (tasks) closedir(tasks);
    return n;
}

/*
 * Wait until n threads have this name. After that, threads that wait for work hold no lock of a sanitizer, which a child of
 * fork(2) would find locked.
 */
static inline void wait_for_threads(const char *name, int n) { WAIT_UNTIL(count_threads(name) == n); }

#endif

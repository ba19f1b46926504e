/* Which threads of this process sleep: what one of them was to do is done, or it waits for an event. */
#ifndef TESTS_SUPPORT_SLEEPING_H
#define TESTS_SUPPORT_SLEEPING_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whether a thread sleeps, or has ended. tid: the process's number for its first thread. */
static inline bool thread_sleeps(long tid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
    FILE *in = fopen(path, "r");
    if (!in) return true;
    const bool has_line = fgets(text, sizeof text, in);
    fclose(in);
    const char *state = strrchr(text, ')'); /* the program's name is in parentheses */
    return !has_line || (state && state[1] == ' ' && state[2] == 'S');
}

/* Whether all threads but the caller sleep. */
static inline bool others_sleep(void) {
    const long self = syscall(SYS_gettid);
    bool all = true;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; tasks && (e = readdir(tasks));)
        if (e->d_name[0] != '.' && atol(e->d_name) != self) all = all && thread_sleeps(atol(e->d_name));
    if (tasks) closedir(tasks);
    return all;
}

#endif

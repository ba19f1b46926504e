/* Looks at the files in the folder of --kv-tier. `tier` lists them, and removes those that no server uses. */
#include "tier_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

/* Whether a name is that of a tier's file: 32 hexadecimal digits and ".kv". */
static bool is_tier_file(const char *name) { return strspn(name, "0123456789abcdef") == 32 && strcmp(name + 32, ".kv") == 0; }

/* Open a file, lock it if nobody uses it, and look at it. The descriptor, or -1: it is none of a tier, or it has gone. */
static int open_file(int folder, const char *name, tier_file *file) {
    struct stat st;
    const int fd = is_tier_file(name) ? openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0) return -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -1;
    }
    /* The file may have holes, so its size is not what it takes of the disk, which is counted in units of 512 bytes. */
    *file = (tier_file){.bytes = (int64_t)st.st_blocks * 512,
                        .written_at = (int64_t)st.st_mtim.tv_sec,
                        .used = flock(fd, LOCK_EX | LOCK_NB) != 0};
    snprintf(file->name, sizeof file->name, "%.39s", name);
    return fd;
}

bool tier_files_for_each(const char *path, void (*call)(void *ctx, int folder, const tier_file *file), void *ctx) {
    tier_file file;
    DIR *entries = opendir(path);
    if (!entries) return false;
    for (const struct dirent *e; (e = readdir(entries));) {
        const int fd = open_file(dirfd(entries), e->d_name, &file);
        if (fd < 0) continue;
        call(ctx, dirfd(entries), &file);
        close(fd);
    }
    closedir(entries);
    return true;
}

/* ---- The command ---- */

typedef struct tier_listing {
    const cli_options *opt;
    int n;       /* files */
    bool failed; /* a file could not be removed */
} tier_listing;

/* What becomes of a file that is listed, perhaps in the caller's text. */
static const char *treat(tier_listing *l, int folder, const tier_file *file, char *text, size_t size) {
    if (file->used) return "in use";
    if (!l->opt->remove) return "not in use";
    if (unlinkat(folder, file->name, 0) == 0) return "removed";
    snprintf(text, size, "cannot be removed: %s", strerror(errno));
    l->failed = true;
    return text;
}

static void show(void *ctx, int folder, const tier_file *file) {
    tier_listing *l = ctx;
    char text[200];
    const char *state = treat(l, folder, file, text, sizeof text);
    l->n++;
    const time_t written_at = (time_t)file->written_at;
    char day[sizeof "2026-12-31"] = "";
    struct tm utc;
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&written_at, &utc));
    if (l->opt->json)
        printf("{\"file\": \"%s\", \"bytes\": %" PRId64 ", \"written\": \"%s\", \"state\": \"%s\"}\n", file->name, file->bytes,
               day, state);
    else
        printf("%s  %10.1f MB  written %s  %s\n", file->name, (double)file->bytes / 1e6, day, state);
}

int cmd_tier(const cli_options *opt) {
    cl_error error;
    const char *path = opt->n_args ? opt->args[0] : opt->kv_tier;
    tier_listing l = {.opt = opt};
    const bool is_read = path && tier_files_for_each(path, show, &l);
    if (is_read && !l.n && !opt->json) printf("%s has no files of --kv-tier\n", path);
    if (is_read) return l.failed;
    if (path)
        cl_fail(&error, CL_ERR_FILE, "cannot read the folder %.200s: %s", path, strerror(errno));
    else
        cl_fail(&error, CL_ERR_ARG, "no folder; name that of --kv-tier");
    return session_fail(CMD_TIER, &error);
}

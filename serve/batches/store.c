/* Opens the folder and its index, and makes transactions. */
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_index.h"

#define INDEX "index.db"

/* ---- The folder ---- */

static cl_status open_folder(batch_store *s, const char *path, cl_error *error) {
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return cl_fail(error, CL_ERR_FILE, "cannot create the folder %.200s: %s", path, strerror(errno));
    s->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->folder < 0) return cl_fail(error, CL_ERR_FILE, "cannot open the folder %.200s: %s", path, strerror(errno));
    if (flock(s->folder, LOCK_EX | LOCK_NB) == 0) return CL_OK;
    return cl_fail(error, CL_ERR_FILE, "another process has the folder %.200s; name one that no other server uses", path);
}

/*
 * Rename an entry of the folder, so that nothing uses it any more and nothing of it is lost, and report that. False: it could
 * not be renamed; see errno.
 */
static bool set_aside(batch_store *s, const char *name, const char *reason) {
    char aside[NAME_MAX + 1];
    struct stat st;
    int n = 0;
    do snprintf(aside, sizeof aside, "%s.aside%d", name, ++n);
    while (fstatat(s->folder, aside, &st, AT_SYMLINK_NOFOLLOW) == 0);
    if (errno != ENOENT) return false; /* the name may be in use */
    if (renameat(s->folder, name, s->folder, aside) != 0) return errno == ENOENT;
    if (s->watcher && s->watcher->set_aside) s->watcher->set_aside(s->watcher->ctx, name, aside, reason);
    return true;
}

/* Find the file in the index to which an entry of the folder belongs; SQL_NONE: these are contents without one. */
static sql_result find_file(batch_store *s, const char *name) {
    int64_t found;
    char id[STORE_ID], contents[STORE_ID + 8];
    snprintf(id, sizeof id, "%.*s", (int)strcspn(name, "."), name);
    content_name(id, contents);
    if (strncmp(name, "file-", strlen("file-")) != 0 || strcmp(contents, name) != 0) return SQL_FOUND; /* no contents */
    return sql_find(s->writer.db, &found, "SELECT 1 FROM file WHERE id = ?1", "t", id);
}

static bool is_index(batch_store *s, const char *name) {
    (void)s;
    return strcmp(name, INDEX) == 0;
}

/* Whether a name is that of a file or a batch in a folder without an index, as an earlier version wrote it. */
static bool is_of_earlier_version(batch_store *s, const char *name) {
    const char *end = strrchr(name, '.');
    (void)s;
    return (strncmp(name, "file-", strlen("file-")) == 0 || strncmp(name, "batch_", strlen("batch_")) == 0) && end &&
           strcmp(end, ".json") == 0;
}

/* What becomes of contents without a file: those of an index or log that was lost are kept, those of a crash are not. */
static bool cannot_keep(batch_store *s, const char *name) {
    const sql_result found = find_file(s, name);
    return found == SQL_FAILED || (found == SQL_NONE && !set_aside(s, name, "no index describes the file any more"));
}
static bool drop(batch_store *s, const char *name) {
    return find_file(s, name) == SQL_NONE && unlinkat(s->folder, name, 0) == 0;
}

/* Call a function with the name of each entry of the folder. Returns for how many it returned true; -1: see errno. */
static int for_each_entry(batch_store *s, bool (*call)(batch_store *s, const char *name)) {
    const int fd = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (!entries && fd >= 0) close(fd);
    if (!entries) return -1;
    int n = 0;
    for (const struct dirent *e; (e = readdir(entries));) n += call(s, e->d_name);
    closedir(entries);
    return n;
}

static cl_status fail_list(const char *path, cl_error *error) {
    return cl_fail(error, CL_ERR_FILE, "cannot list the folder %.200s: %s", path, strerror(errno));
}

static cl_status fail_entry(const char *what, const char *name, cl_error *error) {
    return cl_fail(error, CL_ERR_FILE, "cannot %s %s in the folder of --files-dir: %s", what, name, strerror(errno));
}

/* Take a file out of the index if its contents are not the bytes that were written, and set what there is of them aside. */
static cl_status check_file(batch_store *s, const char *id, int64_t bytes, cl_error *error) {
    char name[STORE_ID + 8];
    struct stat st;
    content_name(id, name);
    const bool there = fstatat(s->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT) return fail_entry("examine", name, error);
    if (there && S_ISREG(st.st_mode) && st.st_size == bytes) return CL_OK;
    if (there && !set_aside(s, name, "its contents are not those of the file in the index"))
        return fail_entry("rename", name, error);
    if (!there && s->watcher && s->watcher->set_aside)
        s->watcher->set_aside(s->watcher->ctx, name, NULL, "its contents are missing");
    return sql_run(s->writer.db, "DELETE FROM file WHERE id = ?1", "t", id) ? CL_OK : sql_failure(s->writer.db, error);
}

static cl_status check_files(batch_store *s, cl_error *error) {
    sqlite3_stmt *q = sql_begin(s->writer.db, "SELECT id, bytes FROM file", "");
    cl_status status = CL_OK;
    while (status == CL_OK && sql_next(q)) {
        char id[STORE_ID];
        snprintf(id, sizeof id, "%s", sql_text(q, 0));
        status = check_file(s, id, sqlite3_column_int64(q, 1), error);
    }
    return sql_end(q) || status != CL_OK ? status : sql_failure(s->writer.db, error);
}

/* ---- The index ---- */

/*
 * Settings of the connection that writes. A transaction is durable once its frames are in the log, by one fsync, and readers
 * need not wait for it. Pages of deleted rows return to the file system.
 */
static const char settings[] = "PRAGMA auto_vacuum = FULL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                               "PRAGMA secure_delete = OFF; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;";

/* Set the contents aside that the index does not describe. */
static cl_status keep_contents(batch_store *s, const char *path, cl_error *error) {
    const int n_left = for_each_entry(s, cannot_keep);
    if (n_left < 0) return fail_list(path, error);
    if (n_left == 0) return CL_OK;
    return cl_fail(error, CL_ERR_FILE,
                   "cannot rename %d files of the folder %.200s, whose index is lost, so that they are kept; let this user "
                   "write to the folder, and start again",
                   n_left, path);
}

/* Create the tables. Contents that are there already have lost their index, and are set aside before there is another one. */
static cl_status create_tables(batch_store *s, const char *path, cl_error *error) {
    sqlite3 *db = s->writer.db;
    if (!sql_run(db, "BEGIN", "") || sqlite3_exec(db, store_schema, NULL, NULL, NULL) != SQLITE_OK)
        return sql_failure(db, error);
    if (keep_contents(s, path, error) != CL_OK) return error->code;
    return sql_run(db, "COMMIT", "") ? CL_OK : sql_failure(db, error);
}

/* Whether an entry is no file, such as a pipe, for which SQLite would wait, or a link, which it would follow. */
static bool is_no_file(batch_store *s, const char *name) {
    struct stat st;
    return fstatat(s->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode);
}

/* The index's file. SQLite would create it with the modes that the umask allows. */
static cl_status open_index_file(batch_store *s, const char *path, cl_error *error) {
    if (is_no_file(s, INDEX)) return cl_fail(error, CL_ERR_FORMAT, "%.200s/%s is no file", path, INDEX);
    const int fd = openat(s->folder, INDEX, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return cl_fail(error, CL_ERR_FILE, "cannot open %.200s/%s: %s", path, INDEX, strerror(errno));
    close(fd);
    return CL_OK;
}

/* Open the index. CL_ERR_FORMAT: it is damaged. */
static cl_status open_index(batch_store *s, const char *path, cl_error *error) {
    char name[4096];
    int64_t version = 0;
    snprintf(name, sizeof name, "%s/%s", path, INDEX);
    if (open_index_file(s, path, error) != CL_OK) return error->code;
    if (!sql_open(name, true, &s->writer.db) || sqlite3_exec(s->writer.db, settings, NULL, NULL, NULL) != SQLITE_OK ||
        sql_find(s->writer.db, &version, "PRAGMA user_version", "") == SQL_FAILED)
        return sql_failure(s->writer.db, error);
    if (version > STORE_VERSION)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "a later version has written the folder %.200s; start that one", path);
    if (version == 0 && create_tables(s, path, error) != CL_OK) return error->code;
    if (check_files(s, error) != CL_OK) return error->code;
    if (!batch_remove_old(s->writer.db)) return sql_failure(s->writer.db, error);
    if (!sql_open(name, false, &s->reader.db)) return sql_failure(s->reader.db, error);
    return sql_open(name, false, &s->worker) ? CL_OK : sql_failure(s->worker, error);
}

static void close_index(batch_store *s) {
    sqlite3_close(s->worker);
    sqlite3_close(s->reader.db);
    sqlite3_close(s->writer.db);
    s->worker = s->reader.db = s->writer.db = NULL;
}

/* SQLite's files beside the index. */
static const char *const logs[] = {INDEX "-journal", INDEX "-wal", INDEX "-shm"};
enum { N_LOGS = sizeof logs / sizeof *logs };

/* Set aside what is no file in the place of a log. */
static cl_status check_logs(batch_store *s, cl_error *error) {
    for (size_t i = 0; i < N_LOGS; i++)
        if (is_no_file(s, logs[i]) && !set_aside(s, logs[i], "it is no file")) return fail_entry("rename", logs[i], error);
    return CL_OK;
}

/* Open the index. One that is damaged is set aside with its logs, and a new one begins. */
static cl_status open_some_index(batch_store *s, const char *path, cl_error *error) {
    if (for_each_entry(s, is_index) == 0 && for_each_entry(s, is_of_earlier_version) > 0)
        return cl_fail(error, CL_ERR_FORMAT,
                       "the folder %.100s has no index and files of an earlier chunkllama; convert it by "
                       "scripts/convert_files_dir.py of the sources, or name another folder",
                       path);
    if (check_logs(s, error) != CL_OK) return error->code;
    const cl_status status = open_index(s, path, error);
    if (status != CL_ERR_FORMAT) return status;
    close_index(s);
    bool ok = true;
    for (size_t i = 0; i < N_LOGS; i++) ok = ok && set_aside(s, logs[i], error->message);
    return ok && set_aside(s, INDEX, error->message) ? open_index(s, path, error) : status;
}

cl_status store_open(const char *path, const store_watcher *watcher, batch_store **opened, cl_error *error) {
    *opened = NULL;
    batch_store *s = calloc(1, sizeof *s);
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for --files-dir");
    pthread_mutex_init(&s->turn, NULL);
    pthread_mutex_init(&s->writer.lock, NULL);
    pthread_mutex_init(&s->reader.lock, NULL);
    s->folder = -1;
    s->watcher = watcher;
    cl_status status = open_folder(s, path, error);
    const bool loses_log = status == CL_OK && is_no_file(s, INDEX "-wal");
    if (status == CL_OK) status = open_some_index(s, path, error);
    if (status == CL_OK && loses_log) status = keep_contents(s, path, error);
    if (status == CL_OK && for_each_entry(s, drop) < 0) status = fail_list(path, error);
    s->watcher = NULL;
    *opened = s;
    if (status != CL_OK) store_close(opened);
    return status;
}

void store_close(batch_store **address) {
    batch_store *s = address ? *address : NULL;
    if (!s) return;
    *address = NULL;
    close_index(s);
    if (s->folder >= 0) close(s->folder);
    pthread_mutex_destroy(&s->reader.lock);
    pthread_mutex_destroy(&s->writer.lock);
    pthread_mutex_destroy(&s->turn);
    free(s);
}

/* ---- Transactions ---- */

sqlite3 *store_begin(batch_store *s, openai_error *error) {
    sqlite3 *db = s->writer.db;
    pthread_mutex_lock(&s->turn);
    pthread_mutex_lock(&s->writer.lock);
    pthread_mutex_unlock(&s->turn);
    /* One that memory was lacking to undo is undone now. */
    if ((sqlite3_get_autocommit(db) || sql_run(db, "ROLLBACK", "")) && sql_run(db, "BEGIN IMMEDIATE", "")) return db;
    store_failed(db, error);
    return NULL;
}

bool store_end(batch_store *s, bool ok, openai_error *error) {
    sqlite3 *db = s->writer.db;
    const bool done = ok && (sql_run(db, "COMMIT", "") || store_failed(db, error));
    if (!done && !sqlite3_get_autocommit(db)) sql_run(db, "ROLLBACK", "");
    pthread_mutex_unlock(&s->writer.lock);
    return done;
}

/* Opens the folder and its index, and makes transactions. */
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_index.h"

/* ---- The folder ---- */

static cl_status open_folder(batch_store *s, const char *path, cl_error *error) {
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return cl_fail(error, CL_ERR_FILE, "cannot create the folder %.200s: %s", path, strerror(errno));
    s->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->folder < 0) return cl_fail(error, CL_ERR_FILE, "cannot open the folder %.200s: %s", path, strerror(errno));
    if (flock(s->folder, LOCK_EX | LOCK_NB) == 0) return CL_OK;
    return cl_fail(error, CL_ERR_FILE, "another process has the folder %.200s; name one that no other server uses", path);
}

/* Whether a file of the folder has contents of which the index has no file. */
static bool is_lost(batch_store *s, const char *name) {
    int64_t found;
    char id[STORE_ID], contents[STORE_ID + 8];
    snprintf(id, sizeof id, "%.*s", (int)strcspn(name, "."), name);
    content_name(id, contents);
    return strcmp(contents, name) == 0 &&
           sql_find(s->writer.db, &found, "SELECT 1 FROM file WHERE id = ?1", "t", id) == SQL_NONE;
}

/* Count the files in the folder that are named as files or batches; with `remove` remove lost contents. -1: see errno. */
static int sweep(batch_store *s, bool remove) {
    const int fd = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (!entries && fd >= 0) close(fd);
    if (!entries) return -1;
    int n = 0;
    for (const struct dirent *e; (e = readdir(entries));) {
        const bool ours =
            strncmp(e->d_name, "file-", strlen("file-")) == 0 || strncmp(e->d_name, "batch_", strlen("batch_")) == 0;
        n += ours;
        if (remove && ours && is_lost(s, e->d_name)) unlinkat(s->folder, e->d_name, 0);
    }
    closedir(entries);
    return n;
}

/* ---- The index ---- */

/*
 * Settings of the connection that writes. A transaction is durable once its frames are in the log, by one fsync, and readers
 * need not wait for it. Pages of deleted rows return to the file system.
 */
static const char settings[] = "PRAGMA auto_vacuum = FULL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                               "PRAGMA secure_delete = OFF; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;";

/* Create the tables. Files that are there already have lost their index, or are of the form before it. */
static cl_status create_tables(batch_store *s, const char *path, cl_error *error) {
    if (sweep(s, false) != 0)
        return cl_fail(error, CL_ERR_FORMAT,
                       "the folder %.100s has files, but no index: if an earlier chunkllama wrote it, convert it by "
                       "scripts/convert_files_dir.py of the sources; otherwise restore its index.db, or empty it",
                       path);
    sqlite3 *db = s->writer.db;
    const bool ok =
        sql_run(db, "BEGIN", "") && sqlite3_exec(db, store_schema, NULL, NULL, NULL) == SQLITE_OK && sql_run(db, "COMMIT", "");
    return ok ? CL_OK : sql_failure(db, error);
}

static cl_status open_index(batch_store *s, const char *path, cl_error *error) {
    char name[4096];
    int64_t version = 0;
    snprintf(name, sizeof name, "%s/index.db", path);
    /* SQLite would create it with the modes that the umask allows. */
    const int fd = openat(s->folder, "index.db", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return cl_fail(error, CL_ERR_FILE, "cannot open %.200s: %s", name, strerror(errno));
    close(fd);
    if (!sql_open(name, true, &s->writer.db) || sqlite3_exec(s->writer.db, settings, NULL, NULL, NULL) != SQLITE_OK ||
        sql_find(s->writer.db, &version, "PRAGMA user_version", "") == SQL_FAILED)
        return sql_failure(s->writer.db, error);
    if (version > STORE_VERSION)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "a later version has written the folder %.200s; start that one", path);
    if (version == 0 && create_tables(s, path, error) != CL_OK) return error->code;
    if (!sql_open(name, false, &s->reader.db)) return sql_failure(s->reader.db, error);
    return sql_open(name, false, &s->worker) ? CL_OK : sql_failure(s->worker, error);
}

cl_status store_open(const char *path, batch_store **opened, cl_error *error) {
    *opened = NULL;
    batch_store *s = calloc(1, sizeof *s);
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for --files-dir");
    pthread_mutex_init(&s->turn, NULL);
    pthread_mutex_init(&s->writer.lock, NULL);
    pthread_mutex_init(&s->reader.lock, NULL);
    s->folder = -1;
    cl_status status = open_folder(s, path, error);
    if (status == CL_OK) status = open_index(s, path, error);
    if (status == CL_OK && sweep(s, true) < 0)
        status = cl_fail(error, CL_ERR_FILE, "cannot list the folder %.200s: %s", path, strerror(errno));
    *opened = s;
    if (status != CL_OK) store_close(opened);
    return status;
}

void store_close(batch_store **address) {
    batch_store *s = address ? *address : NULL;
    if (!s) return;
    *address = NULL;
    sqlite3_close(s->worker);
    sqlite3_close(s->reader.db);
    sqlite3_close(s->writer.db);
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

/* Files and batches on disk: reported changes stay, and a call that fails changes nothing. */
#include "tests/support/testing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batches_fixture.h"
#include "serve/batches/batch.h"
#include "serve/batches/requests.h"
#include "tests/support/folder.h"

static bool exists(batch_store *s, store_kind kind, uint32_t domain, const char *id) {
    openai_writer w = {0};
    openai_error error;
    const bool found = store_get(s, kind, domain, id, &w, &error);
    writer_free(&w);
    assert_true(found || error.status == 404);
    return found;
}

static const char *text_of(const json_t *object, const char *member) {
    return json_string_value(json_object_get(object, member));
}

/* ---- Files ---- */

static void files_are_there_after_a_restart(void **state) {
    char ids[3][STORE_ID] = {0};
    openai_error error;
    batch_store *s = open_store(*state);
    for (int i = 0; i < 3; i++) assert_true(add_file(s, i == 1 ? &alice : &nobody, i ? "text\n" : "", ids[i], &error));
    json_t *before = list_of(s, STORE_FILE, 0);
    store_close(&s);
    s = open_store(*state);
    json_t *after = list_of(s, STORE_FILE, 0);
    assert_true(json_equal(before, after));
    assert_string_equal(text_of(after, "first_id"), ids[2]);
    assert_string_equal(text_of(after, "last_id"), ids[0]);
    assert_true(exists(s, STORE_FILE, 7, ids[1]) && !exists(s, STORE_FILE, 0, ids[1]) && !exists(s, STORE_BATCH, 7, ids[1]));
    char *text = read_file(s, 7, ids[1]);
    assert_string_equal(text, "text\n");
    assert_null(read_file(s, 0, ids[1]));
    free(text);
    json_decref(before);
    json_decref(after);
    store_close(&s);
}

static void what_belongs_to_no_file_is_removed(void **state) {
    char id[STORE_ID];
    openai_error error;
    batch_store *s = open_store(*state);
    assert_true(add_file(s, &nobody, "text", id, &error));
    batch_content part = content_begin(s);
    assert_true(content_write(&part, "part", 4, &error));
    assert_int_equal(count_files(*state, ".data"), 2);
    store_close(&s); /* as if the process had ended */
    s = open_store(*state);
    assert_int_equal(count_files(*state, ".data"), 1);
    assert_int_equal(count_of(s, STORE_FILE, 0), 1);
    close(part.fd);
    store_close(&s);
}

static void an_upload_that_ends_early_leaves_nothing(void **state) {
    openai_error error;
    batch_store *s = open_store(*state);
    batch_content c = content_begin(s);
    assert_true(content_write(&c, "four", 4, &error));
    assert_int_equal(count_files(*state, ".data"), 1);
    content_end(&c);
    assert_int_equal(count_files(*state, ".data"), 0);
    store_close(&s);
}

/* Each call of the disk fails once. Then the file is refused and leaves nothing; otherwise it is there after a restart. */
static void a_disk_that_fails_keeps_no_half(void **state) {
    int failures = 0;
    for (int n = 1;; n++) {
        char id[STORE_ID];
        openai_error error;
        batch_store *s = open_store(*state);
        fail_disk(n, 1);
        const bool added = add_file(s, &nobody, "some text", id, &error);
        if (!mend_disk()) {
            assert_true(added);
            store_close(&s);
            break;
        }
        failures++;
        assert_false(added);
        assert_int_equal(error.status, 500);
        if (!strstr(error.message, "No space left") && !strstr(error.message, "disk I/O error")) fail_msg("%s", error.message);
        assert_int_equal(count_of(s, STORE_FILE, 0), 0);
        store_close(&s);
        s = open_store(*state);
        assert_int_equal(count_of(s, STORE_FILE, 0), 0);
        assert_int_equal(count_files(*state, ".data"), 0);
        store_close(&s);
    }
    assert_true(failures >= 6); /* two pieces, fsync of the contents and of the folder, and the index's log and its fsync */
}

/* ---- The folder ---- */

static void path_in(const char *folder, const char *name, char path[200]) {
    assert_in_range(snprintf(path, 200, "%s/%s", folder, name), 1, 199);
}

static FILE *open_file(const char *folder, const char *name, const char *mode) {
    char path[200];
    path_in(folder, name, path);
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    return f;
}

static void write_text(const char *folder, const char *name, const char *text) {
    FILE *f = open_file(folder, name, "w");
    fputs(text, f);
    fclose(f);
}

/* The store must not open; the error names this. */
static void refused(const char *path, cl_status status, const char *what) {
    batch_store *s;
    cl_error error;
    assert_int_equal(store_open(path, NULL, &s, &error), status);
    assert_null(s);
    if (!strstr(error.message, what)) fail_msg("%s", error.message);
}

/* What a store that opens sets aside: "NAME REASON" for each, with a line break. */
static char reported[1000];

static void note_aside(void *ctx, const char *name, const char *aside, const char *reason) {
    (void)ctx;
    assert_true(!aside || strncmp(aside, name, strlen(name)) == 0);
    snprintf(reported + strlen(reported), sizeof reported - strlen(reported), "%s %s\n", name, reason);
}

static batch_store *open_damaged(const char *path) {
    const store_watcher watcher = {note_aside, NULL};
    batch_store *s;
    cl_error error;
    *reported = '\0';
    if (store_open(path, &watcher, &s, &error) != CL_OK) fail_msg("%s", error.message);
    return s;
}

static void assert_reported(const char *text) {
    if (!strstr(reported, text)) fail_msg("<%s> lacks <%s>", reported, text);
}

/* A store with a file, which is closed. */
static void make_file(const char *path, char *id) {
    openai_error error;
    batch_store *s = open_store(path);
    assert_true(add_file(s, &nobody, "text", id, &error));
    store_close(&s);
}

static void damage_by_text(const char *path) {
    write_text(path, "index.db",
               "This is no database of SQLite, but it is longer than the head that one begins with, 100 bytes.");
}
static void damage_by_cut(const char *path) {
    char name[200];
    path_in(path, "index.db", name);
    assert_int_equal(truncate(name, 5000), 0);
}
static void damage_by_nothing(const char *path) { write_text(path, "index.db", ""); }
static void damage_by_loss(const char *path) {
    char name[200];
    path_in(path, "index.db", name);
    assert_int_equal(unlink(name), 0);
}
/* Make an entry of the folder that is no file: a folder, a pipe or a socket. */
static void make_odd(const char *path, const char *name, mode_t type) {
    char odd[200];
    path_in(path, name, odd);
    assert_int_equal(type == S_IFDIR ? mkdir(odd, 0700) : mknod(odd, type | 0600, 0), 0);
}
static void damage_by_folder(const char *path) {
    damage_by_loss(path);
    make_odd(path, "index.db", S_IFDIR);
}
static void damage_by_pipe(const char *path) {
    damage_by_loss(path);
    make_odd(path, "index.db", S_IFIFO);
}
static void damage_by_socket(const char *path) {
    damage_by_loss(path);
    make_odd(path, "index.db", S_IFSOCK);
}
/* To a file that is none of the folder's, and must stay as it is. */
static char linked_path[200];
static const char linked_text[] =
    "This file belongs to somebody else, and is as long as the head of a database, 100 bytes and more.....";
static void damage_by_link(const char *path) {
    char name[200];
    damage_by_loss(path);
    snprintf(linked_path, sizeof linked_path, "%s.linked", path);
    FILE *f = fopen(linked_path, "w");
    assert_true(f && fputs(linked_text, f) >= 0 && fclose(f) == 0);
    path_in(path, "index.db", name);
    assert_int_equal(symlink(linked_path, name), 0);
}

static void check_linked(void) {
    char text[sizeof linked_text + 1] = "";
    FILE *f = fopen(linked_path, "r");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text - 1, f), sizeof linked_text - 1);
    fclose(f);
    assert_string_equal(text, linked_text);
    assert_int_equal(unlink(linked_path), 0);
}

/* The store opens, nothing is removed, and files can be added; also at the start after that. */
static void a_damaged_index_is_set_aside(void **state) {
    static void (*const damages[])(const char *) = {damage_by_text,   damage_by_cut,  damage_by_nothing, damage_by_loss,
                                                    damage_by_folder, damage_by_pipe, damage_by_socket,  damage_by_link};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char id[STORE_ID], name[STORE_ID + 16];
        make_file(*state, id);
        damages[i](*state);
        batch_store *s = open_damaged(*state);
        assert_reported(id);
        if (i != 2 && i != 3) assert_reported("index.db "); /* otherwise there is none */
        assert_false(exists(s, STORE_FILE, 0, id));
        store_close(&s);
        snprintf(name, sizeof name, "%s.data.aside1", id);
        fclose(open_file(*state, name, "r"));
        make_file(*state, id);
        s = open_damaged(*state);
        assert_string_equal(reported, "");
        assert_true(exists(s, STORE_FILE, 0, id));
        store_close(&s);
        if (damages[i] == damage_by_link) check_linked();
    }
    refused("/nowhere/at/all", CL_ERR_FILE, "/nowhere/at/all");
}

/* The index stays, and contents that only the log described are not removed. */
static void a_log_that_is_no_file_is_set_aside(void **state) {
    static const mode_t types[] = {S_IFDIR, S_IFIFO, S_IFSOCK};
    static const char *const logs[] = {"index.db-journal", "index.db-wal", "index.db-shm"};
    for (size_t i = 0; i < 9; i++) {
        const char *log = logs[i % 3];
        char id[STORE_ID], line[100];
        make_file(*state, id);
        make_odd(*state, log, types[i / 3]);
        write_text(*state, "file-lost.data", "text");
        batch_store *s = open_damaged(*state);
        snprintf(line, sizeof line, "%s it is no file", log);
        assert_reported(line);
        assert_true(exists(s, STORE_FILE, 0, id));
        store_close(&s);
        assert_int_equal(count_files(*state, "file-lost.data.aside1"), i % 3 == 1);
        s = open_damaged(*state);
        assert_string_equal(reported, "");
        store_close(&s);
        empty_folder(*state);
    }
}

/* The other files stay. */
static void damaged_contents_are_set_aside(void **state) {
    for (int how = 0; how < 5; how++) {
        char ids[2][STORE_ID], name[STORE_ID + 8], path[200];
        make_file(*state, ids[0]);
        make_file(*state, ids[1]);
        content_name(ids[0], name);
        path_in(*state, name, path);
        assert_int_equal(how == 0 ? truncate(path, 2) : unlink(path), 0);
        static const mode_t types[] = {[1] = S_IFDIR, [3] = S_IFIFO, [4] = S_IFSOCK};
        if (types[how]) make_odd(*state, name, types[how]);
        batch_store *s = open_damaged(*state);
        assert_reported(name);
        assert_true(!exists(s, STORE_FILE, 0, ids[0]) && exists(s, STORE_FILE, 0, ids[1]));
        store_close(&s);
    }
}

/* The linker calls these in place of the functions of these names. They fail with these errors for contents; 0: they do not. */
static int stat_failure, rename_failure;

static bool is_contents(const char *name) { return strncmp(name, "file-", strlen("file-")) == 0; }

int __real_fstatat(int folder, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int folder, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int folder, const char *name, struct stat *st, int flags) {
    errno = stat_failure;
    return stat_failure && is_contents(name) ? -1 : __real_fstatat(folder, name, st, flags);
}

int __real_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name) {
    errno = rename_failure;
    return rename_failure && is_contents(name) ? -1 : __real_renameat(from, name, to, new_name);
}

/* Contents that the disk does not show now are neither lost nor removed. */
static void contents_that_cannot_be_examined_stay(void **state) {
    char id[STORE_ID];
    make_file(*state, id);
    stat_failure = EIO;
    refused(*state, CL_ERR_FILE, "cannot examine file-");
    stat_failure = 0;
    batch_store *s = open_damaged(*state);
    assert_string_equal(reported, "");
    char *text = read_file(s, 0, id);
    assert_string_equal(text, "text");
    free(text);
    store_close(&s);
}

/* What cannot be renamed stays as it is until it can. */
static void contents_that_cannot_be_renamed_stay(void **state) {
    for (int loses_index = 0; loses_index < 2; loses_index++) {
        char id[STORE_ID], name[STORE_ID + 8], path[200];
        make_file(*state, id);
        content_name(id, name);
        path_in(*state, name, path);
        loses_index ? damage_by_loss(*state) : write_text(*state, name, "te");
        rename_failure = EROFS;
        for (int i = 0; i < 2; i++) refused(*state, CL_ERR_FILE, loses_index ? "cannot rename 1 files" : "cannot rename file-");
        rename_failure = 0;
        assert_int_equal(access(path, F_OK), 0);
        batch_store *s = open_damaged(*state);
        assert_reported(name);
        assert_false(exists(s, STORE_FILE, 0, id));
        store_close(&s);
        assert_int_equal(count_files(*state, ".aside1"), 1);
        empty_folder(*state);
    }
}

/* An index is damaged also if only a change of it shows that. */
static void an_index_that_cannot_be_changed_is_set_aside(void **state) {
    char id[STORE_ID], name[STORE_ID + 8];
    make_file(*state, id);
    content_name(id, name);
    batch_store *s = open_store(*state);
    assert_true(sql_run(s->writer.db,
                        "CREATE TRIGGER damage BEFORE DELETE ON file BEGIN SELECT RAISE(ABORT, 'a page is damaged'); END", ""));
    store_close(&s);
    write_text(*state, name, "te");
    s = open_damaged(*state);
    assert_reported("index.db index.db in the folder of --files-dir is damaged (a page is damaged)");
    store_close(&s);
}

static void a_folder_of_an_earlier_version_is_refused(void **state) {
    write_text(*state, "file-1.json", "{}");
    write_text(*state, "file-1.data", "text");
    for (int i = 0; i < 2; i++) refused(*state, CL_ERR_FORMAT, "scripts/convert_files_dir.py");
    assert_int_equal(count_files(*state, ".json") + count_files(*state, ".data"), 2);
}

static void a_later_version_is_refused(void **state) {
    batch_store *s = open_store(*state);
    assert_true(sql_run(s->writer.db, "PRAGMA user_version = 99", ""));
    store_close(&s);
    refused(*state, CL_ERR_UNSUPPORTED, "later version");
}

/* ---- Batches ---- */

/* Set a status as the worker does. */
static void set_status(batch_store *s, const char *status) {
    openai_error error;
    batch_info b;
    int n;
    assert_true(batch_list_open(s, &b, 1, &n));
    sqlite3 *db = store_begin(s, &error);
    assert_true(store_end(s, db && batch_set_status(db, n > 0 ? b.sequence : 1, status), &error));
}

static void expect_status(batch_store *s, const char *id, const char *status) {
    json_t *batch = object_of(s, STORE_BATCH, 0, id);
    assert_string_equal(text_of(batch, "status"), status);
    json_decref(batch);
}

static bool cancel(batch_store *s, uint32_t domain, const char *id, openai_error *error) {
    openai_writer w = {0};
    const bool ok = batch_cancel(s, domain, id, &w, error);
    writer_free(&w);
    return ok;
}

static void a_batch_changes_as_it_may(void **state) {
    char id[STORE_ID], file[STORE_ID];
    openai_error error;
    batch_store *s = open_store(*state);
    add_batch(s, &nobody, "{}", "24h", id);
    json_t *batch = object_of(s, STORE_BATCH, 0, id);
    assert_true(has_status(batch, "validating"));
    assert_string_equal(text_of(json_object_get(batch, "metadata"), "a"), "b");
    snprintf(file, sizeof file, "%s", text_of(batch, "input_file_id"));
    json_decref(batch);
    assert_false(store_remove_file(s, 0, file, &error));
    assert_int_equal(error.status, 409);
    set_status(s, "in_progress");
    expect_status(s, id, "in_progress");
    assert_false(cancel(s, 7, id, &error)); /* of another tenant */
    assert_int_equal(error.status, 404);
    assert_true(cancel(s, 0, id, &error));
    store_close(&s);

    s = open_store(*state);
    set_status(s, "completed");
    expect_status(s, id, "cancelling");
    set_status(s, "cancelled");
    set_status(s, "in_progress");
    batch = object_of(s, STORE_BATCH, 0, id);
    assert_true(has_status(batch, "cancelled") && json_is_integer(json_object_get(batch, "cancelled_at")));
    json_decref(batch);
    assert_true(store_remove_file(s, 0, file, &error));
    assert_int_equal(count_files(*state, ".data"), 0);
    store_close(&s);
}

static void a_change_that_fails_is_none(void **state) {
    char id[STORE_ID];
    openai_error error;
    batch_store *s = open_store(*state);
    add_batch(s, &nobody, "{}", "24h", id);
    int failures = 0;
    for (;; failures++) {
        fail_disk(failures + 1, 1);
        const bool done = cancel(s, 0, id, &error);
        if (!mend_disk()) {
            assert_true(done);
            break;
        }
        assert_false(done);
        assert_int_equal(error.status, 500);
        expect_status(s, id, "validating");
    }
    assert_true(failures >= 2);
    store_close(&s);
    s = open_store(*state);
    expect_status(s, id, "cancelling");
    store_close(&s);
}

/* ---- A process that is killed ---- */

enum { N_REQUESTS = 6, MOST = 1 << 20 /* bytes of the index and its log */ };

static bool goes_on(void *ctx) { return (void)ctx, false; }

/* Add a batch, and output lines of its requests in one transaction each; each third reports an error. */
static void add_outputs(batch_store *s) {
    char id[STORE_ID], text[100 * N_REQUESTS] = "", *at = text;
    openai_error error;
    batch_info b;
    int n;
    for (int i = 0; i < N_REQUESTS; i++)
        at += sprintf(at, "{\"custom_id\": \"%d\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {}}\n", i);
    add_batch(s, &nobody, text, "24h", id);
    assert_true(batch_list_open(s, &b, 1, &n));
    const int fd = content_open(s, b.input, &error);
    assert_true(batch_check(s, &b, fd, 1000, goes_on, NULL));
    close(fd);
    for (int i = 1; i <= N_REQUESTS; i++) {
        sqlite3 *db = store_begin(s, &error);
        assert_true(store_end(s, db && batch_add_output(db, &b, i, i % 3 == 0, "record\n", strlen("record\n")), &error));
    }
}

/* Copy at most `most` bytes of a file to another folder. Returns how many there were. */
static size_t copy_file(const char *from, const char *to, const char *name, size_t most) {
    static char bytes[MOST];
    FILE *in = open_file(from, name, "rb"), *out = open_file(to, name, "wb");
    const size_t n = fread(bytes, 1, most, in);
    assert_true(n < sizeof bytes && fwrite(bytes, 1, n, out) == n);
    fclose(in);
    fclose(out);
    return n;
}

/* The number of output lines, which must equal the batch's counts. */
static int64_t count_outputs(batch_store *s) {
    int64_t n = 0, n_failed = 0;
    assert_int_equal(sql_find(s->worker, &n, "SELECT count(*) FROM request WHERE record = CAST(?1 AS BLOB)", "t", "record\n"),
                     SQL_FOUND);
    assert_int_equal(sql_find(s->worker, &n_failed, "SELECT count(*) FROM request WHERE failed", ""), SQL_FOUND);
    json_t *list = list_of(s, STORE_BATCH, 0);
    const json_t *batch = json_array_get(json_object_get(list, "data"), 0);
    assert_int_equal(n_requests(batch, "completed"), n - n_failed);
    assert_int_equal(n_requests(batch, "failed"), n_failed);
    assert_int_equal(n_requests(batch, "total"), batch && has_status(batch, "in_progress") ? N_REQUESTS : 0);
    json_decref(list);
    return n;
}

/* With any part of the log on the disk, whole transactions are there: an output line with its count, or neither. */
static void a_log_ends_anywhere(void **state) {
    char copy[200];
    snprintf(copy, sizeof copy, "%s/copy", (char *)*state);
    assert_int_equal(mkdir(copy, 0700), 0);
    batch_store *s = open_store(*state);
    add_outputs(s);
    int64_t n_before = 0;
    bool whole = false;
    for (size_t size = 0; !whole; size += 997) {
        copy_file(*state, copy, "index.db", MOST);
        whole = copy_file(*state, copy, "index.db-wal", size) < size;
        batch_store *killed = open_store(copy);
        const int64_t n = count_outputs(killed);
        assert_true(n >= n_before);
        n_before = n;
        store_close(&killed);
        empty_folder(copy);
    }
    assert_int_equal(n_before, N_REQUESTS);
    store_close(&s);
}

/* ---- How many there may be ---- */

/* A batch may be removed once it has ended, by its tenant alone; its input may go before it or stay. */
static void a_batch_that_has_ended_can_be_removed(void **state) {
    char id[STORE_ID];
    openai_error error;
    openai_writer w = {0};
    batch_store *s = open_store(*state);
    add_batch(s, &alice, "", "24h", id);
    assert_false(batch_remove(s, 7, id, &error));
    assert_int_equal(error.status, 409);
    assert_true(batch_cancel(s, 7, id, &w, &error));
    writer_free(&w);
    assert_true(sql_run(s->writer.db, "UPDATE batch SET status = 'cancelled'", ""));
    assert_false(batch_remove(s, 0, id, &error));
    assert_int_equal(error.status, 404);
    assert_true(batch_remove(s, 7, id, &error));
    assert_false(batch_remove(s, 7, id, &error));
    assert_int_equal(error.status, 404);
    store_close(&s);
    s = open_store(*state);
    assert_int_equal(count_of(s, STORE_BATCH, 7), 0);
    assert_int_equal(count_of(s, STORE_FILE, 7), 1);
    store_close(&s);
}

/* Batches that ended long ago are removed when another one is made, and at the start; those that have not ended stay. */
static void are_removed(const char *path, bool at_start) {
    char id[STORE_ID], open[STORE_ID], late[STORE_ID], next[STORE_ID];
    batch_store *s = open_store(path);
    add_batch(s, &nobody, "", "24h", id);
    add_batch(s, &alice, "", "24h", open);
    add_batch(s, &alice, "", "24h", late);
    assert_true(
        sql_run(s->writer.db, "UPDATE batch SET created_at = created_at - ?1", "i", (int64_t)(STORE_MAX_DAYS + 1) * 86400));
    assert_true(sql_run(s->writer.db, "UPDATE batch SET status = 'completed' WHERE id = ?1", "t", id));
    assert_true(
        sql_run(s->writer.db, "UPDATE batch SET status = 'completed', completed_at = unixepoch() WHERE id = ?1", "t", late));
    if (at_start) {
        store_close(&s);
        s = open_store(path);
    } else {
        add_batch(s, &nobody, "", "24h", next);
    }
    assert_true(!exists(s, STORE_BATCH, 0, id) && exists(s, STORE_BATCH, 7, open) && exists(s, STORE_BATCH, 7, late));
    store_close(&s);
}

static void old_batches_are_removed(void **state) {
    are_removed(*state, false);
    are_removed(*state, true);
}

/* Add n files of a tenant to the index alone. */
static void add_records(batch_store *s, int n, int domain) {
    assert_true(sql_run(s->writer.db,
                        "WITH RECURSIVE count(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM count WHERE i < ?1)"
                        " INSERT INTO file (id, tenant, domain, bytes, created_at, filename, purpose)"
                        " SELECT 'file-' || ?2 || '-' || i, 'any', ?2, 0, 0, '', 'batch' FROM count",
                        "ii", (int64_t)n, (int64_t)domain));
}

/* A tenant may have as many as it leaves free, so another one finds some. */
static void a_tenant_leaves_as_many_as_it_has(void **state) {
    char id[STORE_ID];
    openai_error error;
    batch_store *s = open_store(*state);
    add_records(s, STORE_MAX_OBJECTS / 2 - 1, 0);
    assert_true(add_file(s, &nobody, "", id, &error));
    assert_false(add_file(s, &nobody, "", id, &error));
    assert_non_null(strstr(error.message, "DELETE /v1/files/ID"));
    assert_string_equal(error.code, "too_many_files");
    assert_true(add_file(s, &alice, "", id, &error));
    store_close(&s);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_folder, tear_down_folder)
    const struct CMUnitTest tests[] = {
        TEST(files_are_there_after_a_restart),
        TEST(what_belongs_to_no_file_is_removed),
        TEST(an_upload_that_ends_early_leaves_nothing),
        TEST(a_disk_that_fails_keeps_no_half),
        TEST(a_damaged_index_is_set_aside),
        TEST(a_log_that_is_no_file_is_set_aside),
        TEST(damaged_contents_are_set_aside),
        TEST(contents_that_cannot_be_examined_stay),
        TEST(contents_that_cannot_be_renamed_stay),
        TEST(an_index_that_cannot_be_changed_is_set_aside),
        TEST(a_later_version_is_refused),
        TEST(a_folder_of_an_earlier_version_is_refused),
        TEST(a_batch_changes_as_it_may),
        TEST(a_change_that_fails_is_none),
        TEST(a_log_ends_anywhere),
        TEST(a_batch_that_has_ended_can_be_removed),
        TEST(old_batches_are_removed),
        TEST(a_tenant_leaves_as_many_as_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

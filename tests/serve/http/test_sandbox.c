/* What a process in the sandbox can and cannot do. Each check runs in a child process, since a sandbox cannot be left. */
#define _GNU_SOURCE /* accept4 */
#include "tests/support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serve/batches/store.h"
#include "serve/http/sandbox.h"

/* Run a check in a child process; 0: it passed, otherwise the line of the first EXPECT that did not hold. */
static int in_child(int (*check)(void)) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(check());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define EXPECT(condition)                                                                                                      \
    if (!(condition)) return __LINE__

#define EXPECT_FAILS(call, number)                                                                                             \
    errno = 0;                                                                                                                 \
    EXPECT((call) < 0 && errno == (number))

/* ---- Files ---- */

static char folder[] = "/tmp/chunkllama-sandbox-XXXXXX";
static char model[64], other[64], link_to_other[80];

static void write_file(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
}

/* A folder with a file and a link to a file outside of it, and that file. */
static int make_files(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(other, sizeof other, "%s.other", folder);
    snprintf(link_to_other, sizeof link_to_other, "%s/link", folder);
    write_file(model);
    write_file(other);
    return symlink(other, link_to_other);
}

static int remove_files(void **state) {
    (void)state;
    unlink(model);
    unlink(link_to_other);
    unlink(other);
    char files[80];
    snprintf(files, sizeof files, "%s/files", folder);
    rmdir(files);
    return rmdir(folder);
}

static int check_support(void) {
    const char *const paths[] = {model, NULL};
    return sandbox_limit_files(paths, NULL, NULL, NULL) == CL_ERR_UNSUPPORTED;
}

static int check_model_only(void) {
    const char *const paths[] = {model, NULL};
    EXPECT(sandbox_limit_files(paths, NULL, NULL, NULL) == CL_OK);
    EXPECT(open(model, O_RDONLY) >= 0);
    EXPECT(open("/proc/cpuinfo", O_RDONLY) >= 0);
    EXPECT_FAILS(open(other, O_RDONLY), EACCES);
    EXPECT_FAILS(open("/etc/passwd", O_RDONLY), EACCES);
    EXPECT_FAILS(open(model, O_WRONLY), EACCES);
    EXPECT_FAILS(open("/tmp/chunkllama-sandbox-new", O_WRONLY | O_CREAT, 0600), EACCES);
    EXPECT_FAILS(unlink(model), EACCES);
    EXPECT_FAILS(mkdir("/tmp/chunkllama-sandbox-new", 0700), EACCES);
    EXPECT_FAILS(execl("/bin/true", "true", (char *)NULL), EACCES);
    return 0;
}

static int check_folder_with_links(void) {
    const char *const paths[] = {folder, NULL};
    EXPECT(sandbox_limit_files(paths, NULL, NULL, NULL) == CL_OK);
    EXPECT(open(model, O_RDONLY) >= 0);
    EXPECT(open(link_to_other, O_RDONLY) >= 0);
    EXPECT_FAILS(open("/etc/passwd", O_RDONLY), EACCES);
    return 0;
}

static int check_missing_model(void) {
    const char *const paths[] = {"/nowhere/model.gguf", NULL};
    EXPECT(sandbox_limit_files(paths, NULL, NULL, NULL) == CL_OK);
    EXPECT_FAILS(open(model, O_RDONLY), EACCES);
    return 0;
}

/* Add a file to a store, read the list that has it, and remove it. */
static int use_store(batch_store *s) {
    openai_error error;
    openai_writer w = {0};
    char id[STORE_ID];
    int64_t size;
    batch_content c = content_begin(s);
    EXPECT(content_write(&c, "text", 4, &error));
    EXPECT(store_add_file(&c, &(store_owner){"default", 0}, "name", "batch", &w, &error));
    snprintf(id, sizeof id, "%s", c.id);
    content_end(&c);
    EXPECT(store_list(s, STORE_FILE, 0, &(store_query){.limit = 10}, &w, &error));
    writer_free(&w);
    const int fd = store_open_file(s, 0, id, &size, &error);
    EXPECT(fd >= 0 && size == 4 && close(fd) == 0);
    EXPECT(store_remove_file(s, 0, id, &error));
    return 0;
}

/* In the folder of clients' files the store works, also behind the second step, and nowhere else is anything written. */
static int check_files(void) {
    const char *const paths[] = {model, NULL};
    char files[80];
    cl_error error;
    batch_store *s;
    snprintf(files, sizeof files, "%s/files", folder);
    EXPECT(sandbox_limit_files(paths, NULL, files, NULL) == CL_OK);
    EXPECT(store_open(files, &s, &error) == CL_OK);
    const int at = open(files, O_RDONLY | O_DIRECTORY);
    EXPECT(at >= 0);
    for (int step = 0; step < 2; step++) {
        EXPECT(use_store(s) == 0);
        EXPECT_FAILS(openat(AT_FDCWD, other, O_RDWR), EACCES);
        EXPECT_FAILS(openat(AT_FDCWD, model, O_RDWR), EACCES);
        EXPECT_FAILS(unlinkat(AT_FDCWD, model, 0), EACCES);
        if (step == 0) EXPECT(sandbox_limit_calls(true, NULL) == CL_OK);
    }
    EXPECT_FAILS(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    EXPECT_FAILS(mkdirat(at, "sub", 0700), EPERM);
    EXPECT_FAILS(renameat(at, "index.db", at, "other"), EPERM);
    store_close(&s);
    EXPECT_FAILS(openat(at, "index.db-wal", O_RDONLY), ENOENT);
    EXPECT(unlinkat(at, "index.db", 0) == 0);
    return 0;
}

static void only_the_models_files_can_be_read(void **state) {
    (void)state;
    if (in_child(check_support) != 0) skip(); /* the system has no Landlock */
    assert_int_equal(in_child(check_model_only), 0);
    assert_int_equal(in_child(check_folder_with_links), 0);
    assert_int_equal(in_child(check_missing_model), 0);
    assert_int_equal(in_child(check_files), 0);
}

/* ---- System calls ---- */

static int listen_on_loopback(struct sockaddr_in *address) {
    socklen_t size = sizeof *address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)address, size) != 0 || listen(fd, 1) != 0) return -1;
    return getsockname(fd, (struct sockaddr *)address, &size) == 0 ? fd : -1;
}

static int check_nothing_is_opened(void) {
    struct sockaddr_in address;
    const int listener = listen_on_loopback(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(listener >= 0 && client >= 0);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    EXPECT_FAILS(open("/proc/cpuinfo", O_RDONLY), EPERM);
    EXPECT_FAILS(syscall(SYS_openat, AT_FDCWD, "/proc/cpuinfo", O_RDONLY, 0), EPERM);
    EXPECT_FAILS(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    EXPECT_FAILS(connect(client, (struct sockaddr *)&address, sizeof address), EPERM);
    EXPECT_FAILS(fork(), EPERM);
    EXPECT_FAILS(execl("/bin/true", "true", (char *)NULL), EPERM);
    EXPECT_FAILS(unlink(model), EPERM);
    EXPECT_FAILS(truncate(model, 0), EPERM);
    EXPECT_FAILS(kill(getppid(), 0), EPERM);
    return 0;
}

static int check_memory_is_not_executable(void) {
    void *before = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(before != MAP_FAILED && sandbox_limit_calls(false, NULL) == CL_OK);
    EXPECT_FAILS(mprotect(before, 4096, PROT_READ | PROT_EXEC), EPERM);
    errno = 0;
    EXPECT(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EPERM);
    EXPECT(mprotect(before, 4096, PROT_READ) == 0);
    EXPECT(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    return 0;
}

static int check_connections_are_accepted(void) {
    struct sockaddr_in address;
    const int listener = listen_on_loopback(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(listener >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    const int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char got = 0;
    EXPECT(accepted >= 0 && send(client, "x", 1, 0) == 1 && recv(accepted, &got, 1, 0) == 1 && got == 'x');
    return 0;
}

static int pipe_ends[2];
static int opening_failed; /* the error number; 0: it succeeded */

/* Wait for a byte, then try to open a file. */
static void *open_later(void *unused) {
    char go;
    if (read(pipe_ends[0], &go, 1) == 1) opening_failed = open("/proc/cpuinfo", O_RDONLY) < 0 ? errno : 0;
    return unused;
}

static int check_all_threads(void) {
    pthread_t other_thread;
    EXPECT(pipe(pipe_ends) == 0 && pthread_create(&other_thread, NULL, open_later, NULL) == 0);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    EXPECT(write(pipe_ends[1], "x", 1) == 1 && pthread_join(other_thread, NULL) == 0);
    EXPECT(opening_failed == EPERM);
    return 0;
}

static void a_running_server_opens_nothing(void **state) {
    (void)state;
    assert_int_equal(in_child(check_nothing_is_opened), 0);
    assert_int_equal(in_child(check_memory_is_not_executable), 0);
    assert_int_equal(in_child(check_connections_are_accepted), 0);
    assert_int_equal(in_child(check_all_threads), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_models_files_can_be_read),
        cmocka_unit_test(a_running_server_opens_nothing),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}

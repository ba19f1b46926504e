/* The file of a Unix socket: its mode, what it replaces, and that it is removed. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/http/unix_socket.h"

static char folder[] = "/tmp/unix_socket_test_XXXXXX";
static char path[64], other[64];

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return rmdir(folder); /* nothing is left in it */
}

static bool can_connect(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool ok = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return ok;
}

static bool exists(void) { return access(path, F_OK) == 0; }

static void assert_refused(const char *name, cl_status status, const char *in_message) {
    unix_socket s;
    cl_error error;
    assert_int_equal(unix_socket_open(&s, name, 0600, &error), status);
    assert_int_equal(s.fd, -1);
    if (!strstr(error.message, in_message)) fail_msg("'%s' does not say '%s'", error.message, in_message);
    unix_socket_close(&s);
}

static void the_file_has_its_mode_and_is_removed(void **state) {
    (void)state;
    static const mode_t modes[] = {0600, 0660, 0666};
    for (size_t i = 0; i < 3; i++) {
        unix_socket s;
        struct stat st;
        assert_int_equal(unix_socket_open(&s, path, modes[i], NULL), CL_OK);
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == modes[i]);
        assert_true(can_connect());
        unix_socket_close(&s);
        assert_true(s.fd == -1 && !exists());
    }
}

static void a_stale_socket_is_replaced_and_a_live_one_is_not(void **state) {
    (void)state;
    unix_socket dead, s;
    assert_int_equal(unix_socket_open(&dead, path, 0600, NULL), CL_OK);
    assert_refused(path, CL_ERR_FILE, "another server listens on /tmp/unix_socket_test_");
    assert_true(can_connect());
    close(dead.fd);
    assert_true(exists() && !can_connect());
    assert_int_equal(unix_socket_open(&s, path, 0600, NULL), CL_OK);
    assert_true(can_connect());
    /* Another server has replaced it: its file stays. */
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(unix_socket_open(&dead, path, 0600, NULL), CL_OK);
    unix_socket_close(&s);
    assert_true(can_connect());
    unix_socket_close(&dead);
    assert_int_equal(unlink(other), 0);
}

static void other_files_stay(void **state) {
    (void)state;
    char long_path[200];
    fclose(fopen(path, "w"));
    assert_refused(path, CL_ERR_FILE, " is there and is no socket; choose another path, or remove it");
    assert_true(exists());
    unlink(path);
    assert_refused("/no/such/folder/socket", CL_ERR_FILE, "No such file or directory; name a file in a folder");
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_refused(long_path, CL_ERR_ARG, "the path has 199 bytes; it must have 1 to 107");
    assert_refused("", CL_ERR_ARG, "the path has 0 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_has_its_mode_and_is_removed),
        cmocka_unit_test(a_stale_socket_is_replaced_and_a_live_one_is_not),
        cmocka_unit_test(other_files_stay),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Messages to a service manager: the address in NOTIFY_SOCKET, and a manager that does not read them. */
#include "serve/http/service_manager.h"

#include "tests/support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NAME_BYTES = sizeof(((struct sockaddr_un *)NULL)->sun_path) };

/* The longest name that is accepted: "@", the process's number, and letters. */
static void longest_name(char name[static NAME_BYTES]) {
    memset(name, 'x', NAME_BYTES);
    const int n = snprintf(name, NAME_BYTES, "@%ld", (long)getpid());
    name[n] = 'x';
    name[NAME_BYTES - 1] = 0;
}

/* The socket of a manager with an abstract name. */
static int listen_at(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, size), 0);
    return fd;
}

static void names_without_a_manager(void **state) {
    (void)state;
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[0] = '/';
    longer[NAME_BYTES] = 0;
    const struct {
        const char *name;
        int error;
    } cases[] = {{NULL, 0},        {"", 0},           {"relative", EINVAL},   {"vsock:2:1", EINVAL},
                 {longer, EINVAL}, {"/gone", ENOENT}, {"@gone", ECONNREFUSED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        service_manager m;
        if (cases[i].name)
            setenv("NOTIFY_SOCKET", cases[i].name, 1);
        else
            unsetenv("NOTIFY_SOCKET");
        service_manager_open(&m);
        assert_int_equal(m.socket, -1);
        assert_int_equal(m.error, cases[i].error);
        service_manager_ready(&m); /* sends nothing */
        service_manager_close(&m);
    }
}

static void messages(void **state) {
    (void)state;
    char name[NAME_BYTES], text[256];
    longest_name(name);
    const int manager = listen_at(name);
    service_manager m;
    setenv("NOTIFY_SOCKET", name, 1);
    service_manager_open(&m);
    assert_int_equal(m.error, 0);
    service_manager_stopping(&m, 3, 1e9); /* the longest --shutdown-timeout */
    const ssize_t n = recv(manager, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = 0;
    assert_string_equal(text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000015000000\nSTATUS=Waiting for requests to end: 3");

    /* Its queue is full, so a message is lost, after a second, and not at once. */
    struct timeval patience;
    socklen_t size = sizeof patience;
    assert_int_equal(getsockopt(m.socket, SOL_SOCKET, SO_SNDTIMEO, &patience, &size), 0);
    assert_true(patience.tv_sec == 1 && patience.tv_usec == 0);
    assert_int_equal(fcntl(m.socket, F_GETFL) & O_NONBLOCK, 0);
    const int other = dup(m.socket);
    while (send(other, "X=1", 3, MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
    service_manager_ready(&m);

    /* It ends, which is no signal and no error for the server. */
    close(manager);
    service_manager_ready(&m);
    close(other);
    service_manager_close(&m);
    assert_int_equal(m.socket, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_without_a_manager), cmocka_unit_test(messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

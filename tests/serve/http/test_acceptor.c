/* The acceptor alone: the test takes the daemon's place, since the linker puts its MHD_add_connection in place of that. */
#include "tests/support/testing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/acceptor.h"
#include "tests/support/wait.h"

static atomic_int accepted = -1; /* the connection that was passed to the daemon last */
static atomic_int n_hangups;

int __wrap_MHD_add_connection(struct MHD_Daemon *daemon, int fd, const struct sockaddr *address, socklen_t size);
int __wrap_MHD_add_connection(struct MHD_Daemon *daemon, int fd, const struct sockaddr *address, socklen_t size) {
    (void)daemon, (void)address, (void)size;
    accepted = fd;
    return MHD_YES;
}

static void on_hangup(void *owner) {
    (void)owner;
    n_hangups++;
}

static int listen_anywhere(struct sockaddr_in *address) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)address, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)address, &size), 0);
    return fd;
}

/* Connect a client; the acceptor's socket. */
static int connect_client(int client, const struct sockaddr_in *address) {
    accepted = -1;
    assert_int_equal(connect(client, (const struct sockaddr *)address, sizeof *address), 0);
    WAIT_UNTIL(accepted >= 0);
    return accepted;
}

/*
 * The copy of a socket, by which the client reads its last answer, is closed while the daemon still has the socket. The next
 * connection gets the number of the copy, but none of its events.
 */
static void a_closed_copy_has_no_events(void **state) {
    (void)state;
    enum { N_CLIENTS = 3 };
    struct sockaddr_in address;
    int clients[N_CLIENTS];
    const int listener = listen_anywhere(&address);
    for (int i = 0; i < N_CLIENTS; i++) clients[i] = socket(AF_INET, SOCK_STREAM, 0);
    http_acceptor *a = acceptor_create(&(acceptor_config){.listeners = {{.fd = listener}},
                                                          .n_listeners = 1,
                                                          .max_connections = 8,
                                                          .request_timeout_s = 1000,
                                                          .idle_timeout_s = 1000,
                                                          .on_hangup = on_hangup});
    assert_true(a && acceptor_start(a, (struct MHD_Daemon *[ACCEPTOR_MAX_LISTENERS]){NULL}));

    const int of_daemon = connect_client(clients[0], &address);
    const int copy = dup(of_daemon); /* the lowest number that is free */
    close(copy);
    acceptor_connection_ends(a, of_daemon);
    assert_int_not_equal(fcntl(copy, F_GETFD), -1);
    shutdown(clients[0], SHUT_RDWR);
    WAIT_UNTIL(fcntl(copy, F_GETFD) == -1);

    const int next = connect_client(clients[1], &address);
    assert_int_equal(next, copy);
    acceptor_watch(a, next, a);
    const int last = connect_client(clients[2], &address); /* all events before it have been handled */
    assert_int_equal(n_hangups, 0);
    shutdown(clients[1], SHUT_RDWR);
    WAIT_UNTIL(n_hangups == 1);

    acceptor_destroy(&a);
    close(of_daemon), close(next), close(last), close(listener);
    for (int i = 0; i < N_CLIENTS; i++) close(clients[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_closed_copy_has_no_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

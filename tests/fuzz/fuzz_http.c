/*
 * Bytes that a client sends to a server over the fake engine. The first byte chooses the server, and how the client behaves: it
 * reads the answer after its last byte or hangs up at once. Each byte 0x01 divides the rest into pieces that are sent one by
 * one.
 *
 * The server must answer what was sent, close the connection, and go on serving: after each input, a request for /health must
 * succeed.
 */
#include "tests/support/testing.h"

#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/serve/http/server_fixture.h"

enum { PATIENCE_S = 60, HANG_UP = 1, GUARDED = 2, ASK = 4, FILES = 8 };

static void *fast, *guarded, *files;

/* Remove the folder of the server that keeps files. */
static void remove_files(void) { tear_down(&files); }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    atexit(remove_files);
    return set_up_fast(&fast) | set_up_guarded(&guarded) | set_up_files(&files);
}

/* From another address each time: a port of the same one could not be used again for a minute. */
static int connect_from_anywhere(uint16_t port) {
    static uint32_t n;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (n++ % 65000 << 8))};
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    FUZZ_CHECK(bind(fd, (const struct sockaddr *)&from, sizeof from) == 0, "bind: %s", strerror(errno));
    FUZZ_CHECK(connect(fd, (const struct sockaddr *)&to, sizeof to) == 0, "connect: %s", strerror(errno));
    return fd;
}

static void send_pieces(int fd, const uint8_t *data, size_t size) {
    for (const uint8_t *end = data + size; data < end;) {
        const uint8_t *cut = memchr(data, 1, (size_t)(end - data)), *stop = cut ? cut : end;
        while (data < stop) {
            const ssize_t n = send(fd, data, (size_t)(stop - data), MSG_NOSIGNAL);
            if (n <= 0) return; /* the server has closed the connection */
            data += n;
        }
        data = stop + (cut != NULL);
    }
}

/* Read to the server's close. Returns the bytes read, of which the first [capacity - 1] are in text, with a zero behind them.
 */
static void read_to_end(int fd, char *text, size_t capacity) {
    char rest[4096];
    size_t n_text = 0;
    for (;;) {
        const ssize_t n = recv(fd, rest, sizeof rest, 0);
        if (n < 0) FUZZ_CHECK(errno != EAGAIN && errno != EWOULDBLOCK, "no answer for %d s", PATIENCE_S);
        if (n <= 0) break;
        const size_t kept = (size_t)n < capacity - 1 - n_text ? (size_t)n : capacity - 1 - n_text;
        memcpy(text + n_text, rest, kept);
        n_text += kept;
    }
    text[n_text] = '\0';
}

static void hang_up(int fd) {
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void ask(uint16_t port) {
    static const char request[] = "GET /health HTTP/1.0\r\n\r\n";
    char text[512];
    const int fd = connect_from_anywhere(port);
    send_pieces(fd, (const uint8_t *)request, sizeof request - 1);
    read_to_end(fd, text, sizeof text);
    FUZZ_CHECK(strncmp(text, "HTTP/1.1 200", 12) == 0, "health: <%s>", text);
    hang_up(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const uint8_t how = data[0];
    const uint16_t port = ((const fixture *)(how & FILES ? files : how & GUARDED ? guarded : fast))->port;
    char text[512];
    const int fd = connect_from_anywhere(port);
    send_pieces(fd, data + 1, size - 1);
    if (!(how & HANG_UP)) {
        shutdown(fd, SHUT_WR);
        read_to_end(fd, text, sizeof text);
        FUZZ_CHECK(text[0] == '\0' || strncmp(text, "HTTP/1.1 ", 9) == 0, "<%s>", text);
    }
    hang_up(fd);
    if (how & ASK) ask(port);
    return 0;
}

/* A small blocking HTTP client. */
#include "client.h"

#include "tests/support/testing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int client_connect(uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 300}; /* a busy machine may need long for a moment's work */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void client_send_bytes(int fd, const char *data, size_t size) {
    while (size > 0) {
        const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0) return;
        data += n;
        size -= (size_t)n;
    }
}

static void send_request(int fd, const char *method, const char *path, const char *body, const char *version) {
    char head[512];
    const size_t size = body ? strlen(body) : 0;
    const int n =
        snprintf(head, sizeof head, "%s %s HTTP/%s\r\nHost: test\r\nContent-Length: %zu\r\n\r\n", method, path, version, size);
    client_send_bytes(fd, head, (size_t)n);
    client_send_bytes(fd, body, size);
}

void client_send(int fd, const char *method, const char *path, const char *body) {
    send_request(fd, method, path, body, "1.1");
}

void client_send_last(int fd, const char *method, const char *path, const char *body) {
    send_request(fd, method, path, body, "1.0");
}

static char *read_some(int fd, const char *until) {
    size_t size = 0, capacity = 4096, searched = 0; /* bytes where `until` does not begin */
    char *text = malloc(capacity);
    text[0] = '\0';
    while (!until || !strstr(text + searched, until)) {
        if (until && size >= strlen(until)) searched = size - strlen(until) + 1;
        if (capacity - size < 2048) text = realloc(text, capacity *= 2);
        const ssize_t n = recv(fd, text + size, 2047, 0);
        if (n < 0 && errno == EAGAIN) fail_msg("nothing came in five minutes after <%s>", text);
        if (n <= 0) break;
        size += (size_t)n;
        text[size] = '\0';
    }
    return text;
}

char *client_read_until(int fd, const char *text) { return read_some(fd, text); }

char *client_read_all(int fd) { return read_some(fd, NULL); }

int client_call(uint16_t port, const char *method, const char *path, const char *body, char **reply) {
    const int fd = client_connect(port);
    client_send_last(fd, method, path, body);
    char *text = client_read_all(fd);
    close(fd);
    const int status = strncmp(text, "HTTP/1.1 ", 9) == 0 ? atoi(text + 9) : 0;
    const char *start = strstr(text, "\r\n\r\n");
    *reply = strdup(start ? start + 4 : "");
    free(text);
    return status;
}

int client_call_json(uint16_t port, const char *method, const char *path, const char *body, json_t **reply) {
    char *text;
    const int status = client_call(port, method, path, body, &text);
    *reply = json_loads(text, 0, NULL);
    free(text);
    return status;
}

double client_metric(uint16_t port, const char *name) {
    char *text, line[256];
    client_call(port, "GET", "/metrics", NULL, &text);
    snprintf(line, sizeof line, "\n%s", name);
    const char *at = strstr(text, line), *end = at ? strchr(at + 1, '\n') : NULL;
    while (end && end > at && *end != ' ') end--;
    const double value = end ? atof(end) : -1;
    free(text);
    return value;
}

/* A small blocking HTTP client over a plain socket, so that tests control the time of each byte, and of hanging up. */
#ifndef TESTS_SERVE_HTTP_CLIENT_H
#define TESTS_SERVE_HTTP_CLIENT_H

#include <jansson.h>
#include <stdint.h>

/* A socket that is connected to 127.0.0.1; -1: the connection was refused. */
int client_connect(uint16_t port);

/* Send bytes as they are, as far as the server receives them. */
void client_send_bytes(int fd, const char *data, size_t size);

/* Send a request with this body (NULL: none). */
void client_send(int fd, const char *method, const char *path, const char *body);

/* The same as the connection's last request, in HTTP/1.0: the reply is not cut into chunks and ends with the connection. */
void client_send_last(int fd, const char *method, const char *path, const char *body);

/* Read until `text` has come, or the server closes; everything read so far, allocated. The test fails if nothing comes in five
 * minutes, as it does in all that follows. */
char *client_read_until(int fd, const char *text);

/* Read up to the server's close; everything, allocated. */
char *client_read_all(int fd);

/* One exchange on a connection of its own: the status, and the body, allocated. */
int client_call(uint16_t port, const char *method, const char *path, const char *body, char **reply);

/* The same for a JSON reply. */
int client_call_json(uint16_t port, const char *method, const char *path, const char *body, json_t **reply);

/* The value of the first sample of /metrics whose line begins with `name`; -1: there is none. */
double client_metric(uint16_t port, const char *name);

#endif

/*
 * Reports the server's state to the service manager that started the process, by the protocol of systemd's sd_notify(3): text
 * messages to the Unix socket that the environment variable NOTIFY_SOCKET names. Without the variable nothing is sent.
 *
 * The messages are sent here and not by libsystemd, whose sd_notify makes a socket for each message: a process in the sandbox
 * (sandbox.h) cannot make one. The socket is opened before, and stays open.
 */
#ifndef SERVE_HTTP_SERVICE_MANAGER_H
#define SERVE_HTTP_SERVICE_MANAGER_H

#include <stdint.h>

typedef struct service_manager {
    int socket; /* -1: there is nobody to report to */
    int error;  /* why not, as in errno, although NOTIFY_SOCKET is set; 0: it is not set, or there is no error */
} service_manager;

/* Connect to the socket that NOTIFY_SOCKET names. To be called before sandbox_limit_calls. */
void service_manager_open(service_manager *m);

/*
 * Report a state. A message that the manager does not take within a second, or that cannot be sent at all, is lost: the server
 * works as well without.
 */
void service_manager_loading(const service_manager *m);
void service_manager_ready(const service_manager *m);     /* /readyz answers 200 */
void service_manager_reloading(const service_manager *m); /* until the next service_manager_ready */

/* The server ends when n_requests have ended, within `seconds`. The manager may kill it if it takes much longer. */
void service_manager_stopping(const service_manager *m, int32_t n_requests, double seconds);

void service_manager_close(service_manager *m);

#endif

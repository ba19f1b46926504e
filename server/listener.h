/* A listening TCP socket. */
#ifndef SERVER_LISTENER_H
#define SERVER_LISTENER_H

#include <stdint.h>

#include "llama/common/error.h"

/* Listen on host, *port (0: any; set to the one found). The socket is the caller's to close. */
cl_status listener_open(const char *host, uint16_t *port, int *fd, cl_error *error);

#endif

/*
 * Notices clients that hang up while their connection is suspended, when libmicrohttpd does not look at it.
 *
 * A thread of its own sleeps on the sockets. A client that closes only its sending half counts as gone, as in most servers:
 * it cannot be told from one that closed the whole, until something is sent.
 */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H

#include <stdbool.h>

typedef struct watch watch;

/* on_gone gets a socket's owner, once, on the watch's thread; it must not call the watch. NULL without memory or threads. */
watch *watch_create(void (*on_gone)(void *owner));
void watch_destroy(watch **w);

/* Watch fd until watch_remove. False without memory. */
bool watch_add(watch *w, int fd, void *owner);

/* After this returns on_gone is not running for fd's owner and will not be called. Unknown sockets are ignored. */
void watch_remove(watch *w, int fd);

#endif

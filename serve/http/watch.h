/*
 * Notices clients that hang up while their connection is suspended, when libmicrohttpd does not read from it.
 *
 * A thread of its own waits for events of the sockets. A client that closes only its sending half counts as gone, as in most
 * servers: until something is sent to it, it looks the same as one that has closed the whole connection.
 */
#ifndef SERVE_HTTP_WATCH_H
#define SERVE_HTTP_WATCH_H

#include <stdbool.h>

typedef struct watch watch;

/*
 * on_hangup is called with a socket's owner, once, on the watch's thread; it must not call the watch. NULL if memory or threads
 * are lacking.
 */
watch *watch_create(void (*on_hangup)(void *owner));

/* Stop the thread and free w. NULL and pointers to NULL are ignored. */
void watch_destroy(watch **w);

/* Watch the socket fd until watch_remove, from any thread. False if memory is lacking. */
bool watch_add(watch *w, int fd, void *owner);

/*
 * Stop watching the socket fd, from any thread. When this returns, on_hangup is not running for its owner and will not be
 * called. Sockets that are not watched are ignored.
 */
void watch_remove(watch *w, int fd);

#endif

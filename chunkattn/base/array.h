/* Arrays that grow, with memory from a ca_alloc (alloc.h). A zeroed array is empty. */
#ifndef CHUNKATTN_BASE_ARRAY_H
#define CHUNKATTN_BASE_ARRAY_H

#include "alloc.h"

#define CA_ARRAY(type)                                                                                                         \
    struct {                                                                                                                   \
        type *at;                                                                                                              \
        size_t n, capacity;                                                                                                    \
    }

/*
 * Make room for `need` elements in all, or for `more` elements after the first n. Returns 0, or -1 without memory; the elements
 * are unchanged.
 */
#define CA_RESERVE(alloc, array, need) ca_grow((alloc), (void **)&(array)->at, &(array)->capacity, (need), sizeof *(array)->at)
#define CA_ROOM(alloc, array, more)                                                                                            \
    ((array)->n + (more) <= (array)->capacity ? 0 : CA_RESERVE((alloc), (array), (array)->n + (more)))

/* Free an array, which is then empty. */
#define CA_ARRAY_FREE(alloc, array)                                                                                            \
    do {                                                                                                                       \
        ca_delete((alloc), (array)->at, (array)->capacity, sizeof *(array)->at);                                               \
        (array)->at = NULL;                                                                                                    \
        (array)->n = (array)->capacity = 0;                                                                                    \
    } while (0)

#endif

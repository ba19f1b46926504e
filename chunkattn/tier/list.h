/*
 * Doubly linked lists of elements of an array, by their index. The links are an array of their own, so that an element is in at
 * most one list at a time. Every operation takes constant time.
 */
#ifndef CHUNKATTN_TIER_LIST_H
#define CHUNKATTN_TIER_LIST_H

#include <stddef.h>
#include <stdint.h>

enum { CA_LIST_END = -1 };

typedef struct ca_link {
    int32_t previous, next; /* CA_LIST_END: none */
} ca_link;

typedef struct ca_list {
    int32_t first, last; /* CA_LIST_END: the list is empty */
    size_t n;
} ca_list;

static const ca_list ca_list_empty = {CA_LIST_END, CA_LIST_END, 0};

/* Put element i, which is in no list, at the beginning. */
static inline void ca_list_push_first(ca_list *list, ca_link *links, int32_t i) {
    links[i] = (ca_link){CA_LIST_END, list->first};
    if (list->first == CA_LIST_END)
        list->last = i;
    else
        links[list->first].previous = i;
    list->first = i;
    list->n++;
}

/* Put element i, which is in no list, at the end. */
static inline void ca_list_push_last(ca_list *list, ca_link *links, int32_t i) {
    links[i] = (ca_link){list->last, CA_LIST_END};
    if (list->last == CA_LIST_END)
        list->first = i;
    else
        links[list->last].next = i;
    list->last = i;
    list->n++;
}

/* Take element i out of the list, in which it is. */
static inline void ca_list_remove(ca_list *list, ca_link *links, int32_t i) {
    const ca_link link = links[i];
    if (link.previous == CA_LIST_END)
        list->first = link.next;
    else
        links[link.previous].next = link.next;
    if (link.next == CA_LIST_END)
        list->last = link.previous;
    else
        links[link.next].previous = link.previous;
    list->n--;
}

#endif

/*
 * How many leading tokens requests have in common: the figures of the paper's Table 2.
 *
 * The shared tokens of a request are the leading tokens that it has in common with some other request: the longest, over all
 * others, of the common prefixes.
 */
#ifndef BENCH_SHARED_SHARED_TOKENS_H
#define BENCH_SHARED_SHARED_TOKENS_H

#include <chunkllama.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct shared_tokens {
    size_t n_requests;
    size_t n_distinct; /* requests that differ */
    /*
     * Shared beginnings. Requests in lexical order are in one group as long as neighbours have at least 9/10 of what either of
     * them shares with anyone; a group of two or more counts. So requests behind one prompt count once although a few of them
     * happen to go on with the same words, and prompts that have only a part in common count apart.
     */
    size_t n_prompts;
    double average; /* shared tokens of a request */
    size_t maximum;
    double average_length; /* tokens of a request */
} shared_tokens;

/* Sorts the requests. False without memory. */
bool shared_tokens_count(cl_token_list *requests, size_t n, shared_tokens *result);

#endif

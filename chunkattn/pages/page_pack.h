/*
 * Packing one KV head of a foreign page into the K and V tiles that kernels read (chunkattn/cache/layout.h, all slot groups
 * closed). Only bits are moved: a page has the type of the tiles, so nothing is converted, and one version serves all kernel
 * levels.
 */
#ifndef CHUNKATTN_PAGES_PAGE_PACK_H
#define CHUNKATTN_PAGES_PAGE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

/* K or V of one page and KV head: the first token, and the bytes from one token to the next. */
typedef struct ca_page_rows {
    const char *at;
    ptrdiff_t stride;
} ca_page_rows;

typedef struct ca_page_pack {
    cattn_type type; /* CATTN_F32, CATTN_F16 or CATTN_BF16 */
    int32_t d_k, d_v, c;
    int32_t n; /* tokens to pack, at most c; rounded up to a multiple of 8 */
    ca_page_rows k, v;
    char *k_tile, *v_tile;
    /* A page whose first n_next tokens are prefetched meanwhile; 0: none. */
    int32_t n_next;
    ca_page_rows next_k, next_v;
} ca_page_pack;

/* Pack the first n tokens of a page into both tiles. Several threads may pack at the same time, each into its own tiles. */
void ca_pack_page(const ca_page_pack *p);

#endif

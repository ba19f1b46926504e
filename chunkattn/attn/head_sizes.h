/*
 * The head sizes of Q, K, V and the output that a cache may have, each a multiple of 16, so that every level's vectors and
 * tiles divide them. The config check, its message, the kernels' buffers and the tests take them from here.
 */
#ifndef CHUNKATTN_ATTN_HEAD_SIZES_H
#define CHUNKATTN_ATTN_HEAD_SIZES_H

#include <stdint.h>

static const int32_t ca_head_sizes[] = {32, 48, 64, 80, 96, 112, 128, 192, 256, 512};

enum { CA_N_HEAD_SIZES = sizeof ca_head_sizes / sizeof ca_head_sizes[0], CA_MAX_HEAD_SIZE = 512 };

#endif

/* Strings take their words in turn, each with the hash of those before. */
#include "hash.h"

#include <string.h>
#include <sys/random.h>

cl_hash_key cl_hash_new_key(void) {
    cl_hash_key key;
    /* Without the kernel's random bytes all works as well, but a file could be made to be slow. */
    if (getrandom(&key, sizeof key, 0) != sizeof key) key = (cl_hash_key){0x243f6a8885a308d3u, 0x13198a2e03707345u};
    key.factor |= 1; /* an even one would lose bits */
    return key;
}

uint64_t cl_hash_bytes(cl_hash_key key, const char *data, size_t size) {
    uint64_t hash = 0, word;
    for (; size >= sizeof word; data += sizeof word, size -= sizeof word) {
        memcpy(&word, data, sizeof word);
        hash = cl_hash_mix(key, hash ^ word);
    }
    word = (uint64_t)size << 56; /* behind the seven bytes at most that are left: "a" is not "a\0" */
    for (size_t i = 0; i < size; i++) word |= (uint64_t)(unsigned char)data[i] << 8 * i;
    return cl_hash_u64(key, hash ^ word);
}

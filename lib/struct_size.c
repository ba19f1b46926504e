/* Public structs that grow at the end: see struct_size.h. */
#include "struct_size.h"

#include <string.h>

#include "error.h"

/* No struct comes near it, so a larger struct_size is one that was never set. */
enum { MAX_STRUCT_SIZE = 1 << 16 };

static size_t size_of(const void *caller) {
    size_t size;
    memcpy(&size, caller, sizeof size);
    return size;
}

cattn_status ca_struct_check(const void *caller, size_t first_size, const char *type, cattn_error *error) {
    const size_t size = size_of(caller);
    if (size >= first_size && size <= MAX_STRUCT_SIZE) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "struct_size of %s is %zu; set it to sizeof(%s), which is at least %zu", type,
                   size, type, first_size);
}

cattn_status ca_struct_read(void *to, size_t size, const void *from, size_t first_size, const char *type, cattn_error *error) {
    const size_t caller_size = size_of(from);
    const cattn_status status = ca_struct_check(from, first_size, type, error);
    if (status) return status;
    for (size_t i = size; i < caller_size; i++)
        if (((const char *)from)[i] != 0)
            return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                           "an unknown field at byte %zu of %s is set; this library is version %s and knows %zu bytes: clear "
                           "the field or use a newer library",
                           i, type, cattn_version(), size);
    memcpy(to, from, caller_size < size ? caller_size : size);
    memcpy(to, &size, sizeof size);
    return CATTN_OK;
}

cattn_status ca_struct_write(void *to, const void *from, size_t size, size_t first_size, const char *type, cattn_error *error) {
    const size_t caller_size = size_of(to);
    const cattn_status status = ca_struct_check(to, first_size, type, error);
    if (status) return status;
    memcpy(to, from, caller_size < size ? caller_size : size);
    if (caller_size > size) memset((char *)to + size, 0, caller_size - size);
    memcpy(to, &caller_size, sizeof caller_size);
    return CATTN_OK;
}

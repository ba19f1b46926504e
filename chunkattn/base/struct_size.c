/* Reads and writes public structs that grow at their end. */
#include "struct_size.h"

#include <stdio.h>
#include <string.h>

/* No struct comes near it, so a larger struct_size is one that was never set. */
enum { MAX_STRUCT_SIZE = 1 << 16 };

static size_t size_of(const void *caller) {
    size_t size;
    memcpy(&size, caller, sizeof size);
    return size;
}

ca_struct_fault ca_struct_check(const ca_struct *type, const void *caller, char message[CA_STRUCT_MESSAGE]) {
    const size_t size = size_of(caller);
    if (size >= type->first_size && size <= MAX_STRUCT_SIZE) return CA_STRUCT_OK;
    snprintf(message, CA_STRUCT_MESSAGE, "struct_size of %s is %zu; set it to sizeof(%s), which is at least %zu", type->name,
             size, type->name, type->first_size);
    return CA_STRUCT_WRONG_SIZE;
}

ca_struct_fault ca_struct_read(const ca_struct *type, void *to, const void *from, const char *version,
                               char message[CA_STRUCT_MESSAGE]) {
    const size_t size = type->size, caller_size = size_of(from);
    const ca_struct_fault fault = ca_struct_check(type, from, message);
    if (fault) return fault;
    for (size_t i = size; i < caller_size; i++) {
        if (((const char *)from)[i] == 0) continue;
        snprintf(
            message, CA_STRUCT_MESSAGE,
            "an unknown field at byte %zu of %s is set; this library is version %s and knows %zu bytes: clear the field or "
            "use a newer library",
            i, type->name, version, size);
        return CA_STRUCT_UNKNOWN_FIELD;
    }
    memcpy(to, from, caller_size < size ? caller_size : size);
    memcpy(to, &size, sizeof size);
    return CA_STRUCT_OK;
}

ca_struct_fault ca_struct_write(const ca_struct *type, void *to, const void *from, char message[CA_STRUCT_MESSAGE]) {
    const size_t size = type->size, caller_size = size_of(to);
    const ca_struct_fault fault = ca_struct_check(type, to, message);
    if (fault) return fault;
    memcpy(to, from, caller_size < size ? caller_size : size);
    if (caller_size > size) memset((char *)to + size, 0, caller_size - size);
    memcpy(to, &caller_size, sizeof caller_size);
    return CA_STRUCT_OK;
}

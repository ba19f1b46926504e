/*
 * Public structs that grow at their end: reading and writing one whose size differs from this library's, because the caller was
 * compiled with an older or a newer version.
 *
 * Each such struct begins with `size_t struct_size`, the size that the caller was compiled with. The functions know no error
 * type: they report what is wrong as a message, from which each library makes its own error.
 */
#ifndef CHUNKATTN_BASE_STRUCT_SIZE_H
#define CHUNKATTN_BASE_STRUCT_SIZE_H

#include <stddef.h>

/* A struct type: its name, for messages, and its bytes in this version and in its first one. */
typedef struct ca_struct {
    const char *name;
    size_t size, first_size;
} ca_struct;

/* The struct type of *value; `last` is the last field that its first version had. */
#define CA_STRUCT(type, last, value) (&(const ca_struct){#type, sizeof(type), offsetof(type, last) + sizeof((value)->last)})

typedef enum ca_struct_fault {
    CA_STRUCT_OK = 0,
    CA_STRUCT_WRONG_SIZE,    /* struct_size is smaller than the first version or absurdly large: it was never set */
    CA_STRUCT_UNKNOWN_FIELD, /* a field that this version does not know is not zero */
} ca_struct_fault;

enum { CA_STRUCT_MESSAGE = 248 }; /* bytes of a message, with its terminator */

/* Whether the struct_size of *caller is possible. All three functions fill message only if they return a fault. */
ca_struct_fault ca_struct_check(const ca_struct *type, const void *caller, char message[CA_STRUCT_MESSAGE]);

/*
 * Copy the caller's struct over *to [type->size], which holds the defaults: fields that an older caller lacks keep them. The
 * further bytes of a newer caller must be zero. version: the library's, for the message.
 */
ca_struct_fault ca_struct_read(const ca_struct *type, void *to, const void *from, const char *version,
                               char message[CA_STRUCT_MESSAGE]);

/*
 * Fill the caller's struct *to from *from [type->size], as far as the caller's struct_size reaches; the further bytes of a
 * newer caller become zero. The caller's struct_size stays.
 */
ca_struct_fault ca_struct_write(const ca_struct *type, void *to, const void *from, char message[CA_STRUCT_MESSAGE]);

#endif

/* The library's public structs that grow at their end (chunkattn/base/struct_size.h), with its errors. */
#ifndef CHUNKATTN_API_PUBLIC_STRUCT_H
#define CHUNKATTN_API_PUBLIC_STRUCT_H

#include "chunkattn.h"
#include "chunkattn/base/struct_size.h"

/*
 * As ca_struct_check, ca_struct_read and ca_struct_write, for a struct type by its name and the last field that its first
 * version had. CATTN_ERR_ARG for an impossible struct_size; CATTN_ERR_UNSUPPORTED for an unknown field that is set.
 */
#define CA_STRUCT_CHECK(type, last, caller, error)   ca_public_check(CA_STRUCT(type, last, caller), (caller), (error))
#define CA_STRUCT_READ(type, last, to, from, error)  ca_public_read(CA_STRUCT(type, last, to), (to), (from), (error))
#define CA_STRUCT_WRITE(type, last, to, from, error) ca_public_write(CA_STRUCT(type, last, to), (to), (from), (error))

cattn_status ca_public_check(const ca_struct *type, const void *caller, cattn_error *error);
cattn_status ca_public_read(const ca_struct *type, void *to, const void *from, cattn_error *error);
cattn_status ca_public_write(const ca_struct *type, void *to, const void *from, cattn_error *error);

#endif

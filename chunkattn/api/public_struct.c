/* Reports what is wrong with a caller's struct as the library's error. */
#include "public_struct.h"

#include "chunkattn/base/fail.h"

static cattn_status report(ca_struct_fault fault, const char *message, cattn_error *error) {
    if (fault == CA_STRUCT_OK) return CATTN_OK;
    return ca_fail(error, fault == CA_STRUCT_WRONG_SIZE ? CATTN_ERR_ARG : CATTN_ERR_UNSUPPORTED, -1, "%s", message);
}

cattn_status ca_public_check(const ca_struct *type, const void *caller, cattn_error *error) {
    char message[CA_STRUCT_MESSAGE];
    return report(ca_struct_check(type, caller, message), message, error);
}

cattn_status ca_public_read(const ca_struct *type, void *to, const void *from, cattn_error *error) {
    char message[CA_STRUCT_MESSAGE];
    return report(ca_struct_read(type, to, from, cattn_version(), message), message, error);
}

cattn_status ca_public_write(const ca_struct *type, void *to, const void *from, cattn_error *error) {
    char message[CA_STRUCT_MESSAGE];
    return report(ca_struct_write(type, to, from, message), message, error);
}

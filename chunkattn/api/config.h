/* Checking a cattn_config. */
#ifndef CHUNKATTN_API_CONFIG_H
#define CHUNKATTN_API_CONFIG_H

#include "chunkattn.h"

/*
 * Copy *config to *resolved, with defaults for zeros and for fields that the caller's struct_size does not reach. CATTN_ERR_ARG
 * names the field, its value and its limit. Arrays stay the caller's.
 */
cattn_status ca_config_resolve(const cattn_config *config, cattn_config *resolved, cattn_error *error);

#endif

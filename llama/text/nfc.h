/* Unicode's normalisation form C, which some tokenizers apply to text first. */
#ifndef LLAMA_TEXT_NFC_H
#define LLAMA_TEXT_NFC_H

#include <stdbool.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

/* Whether normalising could change the text: no character below U+0300 ever changes. */
bool cl_nfc_may_change(cl_str text);

/* *out: UTF-8 text (valid) normalised, in *buf, which the caller frees; n log n in its size. */
cl_status cl_nfc_normalize(cl_str text, char **buf, cl_str *out, cl_error *error);

#endif

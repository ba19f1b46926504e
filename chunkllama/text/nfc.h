/* Unicode's normalisation form C, which some tokenizers apply to a text before anything else. */
#ifndef CHUNKLLAMA_TEXT_NFC_H
#define CHUNKLLAMA_TEXT_NFC_H

#include <stdbool.h>

#include "chunkllama/common/error.h"
#include "chunkllama/common/str.h"

/* Whether normalising could change the text. Characters below U+0300 never change. */
bool cl_nfc_may_change(cl_str text);

/* *out: the text, which must be valid UTF-8, normalised, in *buf, which the caller frees. Takes linear time. */
cl_status cl_nfc_normalize(cl_str text, char **buf, cl_str *out, cl_error *error);

#endif

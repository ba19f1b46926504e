/*
 * The hash of all that K/V of equal tokens depend on: the fingerprint with which an engine opens a file tier.
 */
#ifndef CHUNKLLAMA_ENGINE_KV_FINGERPRINT_H
#define CHUNKLLAMA_ENGINE_KV_FINGERPRINT_H

#include "chunkllama/model/model.h"

/*
 * The hash of the model's files, the level of its linear layers, the rotation for sequences of at most n_ctx positions, the
 * machine code of the program and its shared libraries (by their GNU build ids), and the CPU. The model must have been loaded
 * with its fingerprint.
 *
 * Errors: CL_ERR_UNSUPPORTED if the program has no build id.
 */
cl_status cl_kv_fingerprint(const cl_model *model, int64_t n_ctx, uint64_t fingerprint[2], cl_error *error);

#endif

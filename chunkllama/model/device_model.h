/*
 * A model's weights on a CUDA device. Matrices keep the layouts of the CPU's kernels (linear_format.h), vectors are f32. The
 * embedding stays on the host, which looks its rows up.
 */
#ifndef CHUNKLLAMA_MODEL_DEVICE_MODEL_H
#define CHUNKLLAMA_MODEL_DEVICE_MODEL_H

#include "chunkattn/cuda/runtime.h"
#include "model.h"

typedef struct cl_device_model {
    const ca_cuda_runtime *runtime; /* static */
    int32_t device;
    cl_layer_weights *layers; /* [n_layers] as those of the host, but data and vectors are on the device; owned */
    cl_linear output;         /* the same */
    cl_norm output_norm;
    unsigned char *memory; /* [bytes] on the device, in which all of them are; owned */
    uint64_t bytes;
} cl_device_model;

/*
 * The number of a device that is named as in cl_model_options; -1: the CPU. CL_ERR_ARG: name is neither.
 */
cl_status cl_device_parse(const char *name, int32_t *device, cl_error *error);

/* The bytes of memory of a device that weights and K and V may take; the rest is for CUDA itself. 0: there is no such device.
 */
uint64_t cl_device_memory(int32_t device);

/*
 * Whether device `device` can run a model with these parameters, and has memory for its weights: CL_ERR_UNSUPPORTED names what
 * is missing, of the build, the machine or the model.
 */
cl_status cl_device_model_check(const cl_model_file *file, const cl_model_params *p, int32_t device, cl_error *error);

/*
 * Copy the weights of *m, which was checked, to the device and free the host's matrices, but for the embedding. CL_ERR_NOMEM:
 * host or device has no memory for them. *d is NULL on an error, and m is unchanged.
 */
cl_status cl_device_model_create(cl_model *m, int32_t device, cl_device_model **d, cl_error *error);
void cl_device_model_free(cl_device_model **d);

#endif

/*
 * The launches of decode steps as CUDA graphs: one call in place of ten for each layer.
 *
 * A step's launches are those of another one if its attention has the same number (chunkattn_cuda.h, "Graphs") and its rows
 * are as many. The second of two successive steps that are alike is captured, so that steps which never come again cost
 * nothing.
 */
#ifndef CHUNKLLAMA_MODEL_DEVICE_GRAPHS_H
#define CHUNKLLAMA_MODEL_DEVICE_GRAPHS_H

#include "chunkattn/cuda/runtime.h"

enum { CL_DEVICE_GRAPHS = 16 };

typedef struct cl_graph_key {
    uint64_t attention;
    int32_t n_rows;
} cl_graph_key;

typedef struct cl_device_graphs {
    struct {
        cl_graph_key key;
        ca_cuda_graph *graph; /* owned; NULL: the place is free */
        uint64_t last_run;
    } at[CL_DEVICE_GRAPHS];
    cl_graph_key last; /* of the step before */
    uint64_t n_steps;
} cl_device_graphs;

/* The graph of a step, or NULL. *capture: whether it should be captured; cl_device_graphs_add takes it then. */
ca_cuda_graph *cl_device_graphs_find(cl_device_graphs *g, cl_graph_key key, bool *capture);

/* Keep a graph in the place of the one that was not run for the longest time, which is destroyed; none of them is running. */
void cl_device_graphs_add(cl_device_graphs *g, cl_graph_key key, ca_cuda_graph *graph, const ca_cuda_runtime *runtime);

void cl_device_graphs_free(cl_device_graphs *g, const ca_cuda_runtime *runtime);

#endif

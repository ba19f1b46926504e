/* See device_graphs.h. */
#include "device_graphs.h"

static bool is_same(cl_graph_key a, cl_graph_key b) { return a.attention == b.attention && a.n_rows == b.n_rows; }

ca_cuda_graph *cl_device_graphs_find(cl_device_graphs *g, cl_graph_key key, bool *capture) {
    ca_cuda_graph *found = NULL;
    g->n_steps++;
    for (int i = 0; i < CL_DEVICE_GRAPHS && !found; i++) {
        if (!g->at[i].graph || !is_same(g->at[i].key, key)) continue;
        found = g->at[i].graph;
        g->at[i].last_run = g->n_steps;
    }
    *capture = !found && is_same(g->last, key);
    g->last = key;
    return found;
}

void cl_device_graphs_add(cl_device_graphs *g, cl_graph_key key, ca_cuda_graph *graph, const ca_cuda_runtime *runtime) {
    int place = 0;
    for (int i = 1; i < CL_DEVICE_GRAPHS; i++)
        if (g->at[i].last_run < g->at[place].last_run) place = i;
    runtime->destroy_graph(g->at[place].graph);
    g->at[place].key = key;
    g->at[place].graph = graph;
    g->at[place].last_run = g->n_steps;
}

void cl_device_graphs_free(cl_device_graphs *g, const ca_cuda_runtime *runtime) {
    for (int i = 0; i < CL_DEVICE_GRAPHS; i++) runtime->destroy_graph(g->at[i].graph);
}

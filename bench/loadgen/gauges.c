/* Reads the gauges out of /metrics pages. */
#include "gauges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 3 };

const char *const load_gauge_names[N_LOAD_GAUGES] = {"batch", "waiting", "kv_usage", "kv_bytes", "kv_bytes_unshared"};

/* The metrics of each gauge. */
static const struct {
    const char *now[MAX_NAMES]; /* its present value, by the first of these names that a page has */
    const char *peak;           /* its largest value since the endpoint's start; NULL: no server reports it */
} metrics[N_LOAD_GAUGES] = {
    [LOAD_GAUGE_BATCH] = {{"vllm:num_requests_running", "llamacpp:requests_processing"}, "chunkattn_batch_peak"},
    [LOAD_GAUGE_WAITING] = {{"vllm:num_requests_waiting", "llamacpp:requests_deferred"}, NULL},
    [LOAD_GAUGE_KV_USAGE] = {{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio"}, NULL},
    [LOAD_GAUGE_KV_BYTES] = {{"chunkattn_kv_bytes_live"}, "chunkattn_kv_bytes_live_peak"},
    [LOAD_GAUGE_KV_BYTES_UNSHARED] = {{"chunkattn_kv_bytes_unshared"}, "chunkattn_kv_bytes_unshared_peak"},
};

/* Set *value to the sum of a name's samples, whatever their labels. Only finite numbers count. False: the page has none. */
static bool read_metric(const char *page, const char *name, double *value) {
    const size_t size = strlen(name);
    bool found = false;
    *value = 0;
    for (const char *line = page, *end; *line; line = end + (*end == '\n')) {
        const char *number = line + size;
        end = line + strcspn(line, "\n");
        if (strncmp(line, name, size) == 0 && (*number == '{' || *number == ' ')) {
            /* A label's value may hold braces; the number follows the last one. */
            for (const char *c = number; c < end; c++)
                if (*c == '}') number = c + 1;
            char *stop; /* beyond the line if the line has no number, since strtod skips line breaks */
            const double sample = strtod(number, &stop);
            if (stop == number || stop > end || !isfinite(*value + sample)) continue;
            *value += sample;
            found = true;
        }
    }
    return found;
}

static void raise_peak(load_gauges *g, load_gauge i, double value) {
    if (!g->known[i] || value > g->peak[i]) g->peak[i] = value;
    g->known[i] = true;
}

void load_gauges_update(load_gauges *g, const char *page) {
    for (load_gauge i = 0; i < N_LOAD_GAUGES; i++) {
        double value;
        for (int k = 0; k < MAX_NAMES && metrics[i].now[k]; k++) {
            if (!read_metric(page, metrics[i].now[k], &value)) continue;
            raise_peak(g, i, value);
            break;
        }
        if (!metrics[i].peak || !read_metric(page, metrics[i].peak, &value)) continue;
        if (!g->begun) g->high_water[i] = value;
        if (value > g->high_water[i]) raise_peak(g, i, value);
    }
    g->begun = true;
}

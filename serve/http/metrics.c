/* Counts requests and tokens, and writes the /metrics page. */
#include "metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/openai.h"

/* Upper bounds of the buckets, which are vLLM's: dashboards and alerts that were made for it depend on them. */
static const double first_token_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                            1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double token_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                      0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double request_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
/* Of these, vLLM has those up to the model's context. */
static const double length_bounds[] = {1,    2,     5,     10,    20,     50,     100,    200,     500,     1000,    2000,
                                       5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000};
static const double choice_bounds[] = {1, 2, 5, 10, 20};
static const double step_bounds[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

#define LENGTH(list)      ((int32_t)(sizeof(list) / sizeof *(list)))
#define WITH_BOUNDS(list) ((metrics_histogram){.bounds = (list), .n_bounds = LENGTH(list)})

bool metrics_init(server_metrics *m, int32_t most_tenants) {
    *m = (server_metrics){
        .first_token = WITH_BOUNDS(first_token_bounds),
        .inter_token = WITH_BOUNDS(token_bounds),
        .per_token = WITH_BOUNDS(token_bounds),
        .total = WITH_BOUNDS(request_bounds),
        .queued = WITH_BOUNDS(request_bounds),
        .prefill = WITH_BOUNDS(request_bounds),
        .decode = WITH_BOUNDS(request_bounds),
        .inference = WITH_BOUNDS(request_bounds),
        .prompt_tokens = WITH_BOUNDS(length_bounds),
        .tokens = WITH_BOUNDS(length_bounds),
        .max_tokens = WITH_BOUNDS(length_bounds),
        .choices = WITH_BOUNDS(choice_bounds),
    };
    pthread_mutex_init(&m->lock, NULL);
    m->most_tenants = most_tenants;
    if (most_tenants > 0) m->tenants = calloc((size_t)most_tenants + 1, sizeof *m->tenants);
    return most_tenants == 0 || m->tenants;
}

void metrics_destroy(server_metrics *m) {
    free(m->tenants);
    pthread_mutex_destroy(&m->lock);
}

static void observe(metrics_histogram *h, double value) {
    int32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i]) i++;
    h->buckets[i]++;
    h->sum += value;
}

void metrics_first_token(server_metrics *m, double seconds) {
    pthread_mutex_lock(&m->lock);
    observe(&m->first_token, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_inter_token(server_metrics *m, double seconds) {
    pthread_mutex_lock(&m->lock);
    observe(&m->inter_token, seconds);
    pthread_mutex_unlock(&m->lock);
}

double metrics_token_s(double seconds, int64_t n_tokens, int64_t n_choices) {
    return n_tokens > n_choices ? seconds * (double)n_choices / (double)(n_tokens - n_choices) : -1;
}

void metrics_finished(server_metrics *m, const metrics_request *r) {
    int64_t n_tokens = 0;
    pthread_mutex_lock(&m->lock);
    for (int64_t i = 0; i < r->n_choices; i++) {
        observe(&m->tokens, (double)r->n_tokens[i]); /* vLLM counts each choice, too; none exceeds the context */
        n_tokens += r->n_tokens[i];
    }
    m->finished[r->finish]++;
    observe(&m->total, r->total);
    observe(&m->queued, r->queued);
    observe(&m->prefill, r->prefill);
    observe(&m->decode, r->decode);
    observe(&m->inference, r->prefill + r->decode);
    observe(&m->prompt_tokens, (double)r->n_prompt);
    observe(&m->choices, (double)r->n_choices);
    if (r->max_tokens >= 0) observe(&m->max_tokens, (double)r->max_tokens);
    const double token_s = metrics_token_s(r->decode, n_tokens, r->n_choices);
    if (token_s >= 0) observe(&m->per_token, token_s);
    pthread_mutex_unlock(&m->lock);
}

/* The row of a tenant, which is added unless there are as many as may be: then it is that of all others. */
static metrics_tenant *find_tenant(server_metrics *m, const char *name) {
    int32_t i = 0;
    while (i < m->n_tenants && strcmp(m->tenants[i].name, name) != 0) i++;
    if (i < m->n_tenants) return &m->tenants[i];
    if (i >= m->most_tenants) return &m->tenants[m->most_tenants];
    snprintf(m->tenants[i].name, sizeof m->tenants[i].name, "%s", name);
    return &m->tenants[m->n_tenants++];
}

void metrics_of_tenant(server_metrics *m, const char *tenant, int64_t n_prompt, int64_t n_cached, int64_t n_generated) {
    if (m->most_tenants == 0 || !tenant) return;
    pthread_mutex_lock(&m->lock);
    metrics_tenant *row = find_tenant(m, tenant);
    row->n_requests++;
    row->n_prompt += (uint64_t)n_prompt;
    row->n_cached += (uint64_t)n_cached;
    row->n_generated += (uint64_t)n_generated;
    pthread_mutex_unlock(&m->lock);
}

void metrics_reply(server_metrics *m, unsigned status) {
    if (status < METRICS_FIRST_STATUS || status >= METRICS_FIRST_STATUS + METRICS_N_STATUS) return;
    pthread_mutex_lock(&m->lock);
    m->replies[status - METRICS_FIRST_STATUS]++;
    pthread_mutex_unlock(&m->lock);
}

/* The page that is being written. Every sample carries the model's name as a label. */
typedef struct metrics_page {
    FILE *out;
    const char *model; /* escaped */
} metrics_page;

static void write_head(const metrics_page *p, const char *name, const char *type, const char *help) {
    fprintf(p->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_value(const metrics_page *p, const char *name, const char *type, const char *help, double value) {
    write_head(p, name, type, help);
    fprintf(p->out, "%s{model_name=\"%s\"} %.17g\n", name, p->model, value);
}

/* Buckets whose bounds are above `most`, which no value exceeds, are left out. */
static void write_histogram(const metrics_page *p, const char *name, const char *help, const metrics_histogram *h,
                            double most) {
    uint64_t count = 0, seen = 0;
    write_head(p, name, "histogram", help);
    for (int32_t i = 0; i <= h->n_bounds; i++) count += h->buckets[i];
    for (int32_t i = 0; i < h->n_bounds && h->bounds[i] <= most; i++) {
        seen += h->buckets[i];
        fprintf(p->out, "%s_bucket{model_name=\"%s\",le=\"%.15g\"} %" PRIu64 "\n", name, p->model, h->bounds[i], seen);
    }
    fprintf(p->out, "%s_bucket{model_name=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, p->model, count);
    fprintf(p->out, "%s_sum{model_name=\"%s\"} %.17g\n%s_count{model_name=\"%s\"} %" PRIu64 "\n", name, p->model, h->sum, name,
            p->model, count);
}

/* The tokens of steps: the engine counts them, since they are its steps. */
static void write_steps(const metrics_page *p, const cl_engine_stats *s) {
    static_assert(CL_STEP_SIZES == sizeof step_bounds / sizeof *step_bounds + 1, "the engine counts by the same bounds");
    metrics_histogram h = WITH_BOUNDS(step_bounds);
    for (int i = 0; i < CL_STEP_SIZES; i++) h.buckets[i] = (uint64_t)s->steps_by_rows[i];
    h.sum = (double)s->step_rows;
    write_histogram(p, "vllm:iteration_tokens_total", "Tokens that a step computes.", &h, INFINITY);
}

static void write_engine(const metrics_page *p, const cl_engine_stats *s, const cattn_stats *kv) {
    const double chunk = (double)kv->chunk_bytes;
    const uint64_t n_used = kv->chunks_live + kv->chunks_superseded; /* cannot be evicted */
    const double used = kv->chunks_capacity ? (double)n_used / (double)kv->chunks_capacity : 0;
    const struct sample {
        const char *name, *type, *help;
        double value;
    } samples[] = {
        {"vllm:num_requests_running", "gauge", "Requests that are running.", (double)s->n_running},
        {"vllm:num_requests_waiting", "gauge", "Requests that wait to be admitted.", (double)s->n_waiting},
        {"vllm:kv_cache_usage_perc", "gauge", "Share of the K/V budget that running sequences use, from 0 to 1.", used},
        {"vllm:gpu_cache_usage_perc", "gauge", "The older name of vllm:kv_cache_usage_perc.", used},
        {"vllm:prompt_tokens_total", "counter", "Prompt tokens of requests whose prompt is computed or that have ended.",
         (double)s->prompt_tokens},
        {"vllm:generation_tokens_total", "counter", "Generated tokens.", (double)s->completion_tokens},
        {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix tree.", (double)s->prompt_tokens},
        {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix tree.", (double)s->cached_tokens},
        {"vllm:gpu_prefix_cache_queries_total", "counter", "The older name of vllm:prefix_cache_queries_total.",
         (double)s->prompt_tokens},
        {"vllm:gpu_prefix_cache_hits_total", "counter", "The older name of vllm:prefix_cache_hits_total.",
         (double)s->cached_tokens},
        {"vllm:spec_decode_num_drafts_total", "counter", "Drafts that were verified.", (double)s->drafts.n_drafts},
        {"vllm:spec_decode_num_draft_tokens_total", "counter", "Drafted tokens that were verified.",
         (double)s->drafts.n_tokens},
        {"vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were accepted.",
         (double)s->drafts.n_accepted},
        {"vllm:num_preemptions_total", "counter", "Choices that left the cache before they ended, to continue later.",
         (double)s->preemptions},
        {"chunkattn_recomputed_tokens_total", "counter", "Tokens whose K/V were computed again after a preemption.",
         (double)s->recomputed_tokens},
        {"chunkattn_waiting_tokens", "gauge", "Prompt tokens of requests that wait to be admitted.", (double)s->waiting_tokens},
        {"chunkattn_prefill_tokens_computed_total", "counter", "Prompt tokens whose K/V were computed.",
         (double)s->prefill_tokens_computed},
        {"chunkattn_steps_total", "counter", "Steps of the engine.", (double)s->steps},
        {"chunkattn_prefill_seconds_total", "counter", "Seconds of steps spent on prefill.", s->prefill_s},
        {"chunkattn_decode_seconds_total", "counter", "Seconds of steps spent on decode.", s->decode_s},
        {"chunkattn_batch_peak", "gauge", "Largest number of sequences in one step.", (double)s->batch_peak},
        {"chunkattn_kv_bytes_live", "gauge", "K/V bytes over which running sequences attend; shared chunks count once.",
         chunk * (double)kv->chunks_live},
        {"chunkattn_kv_bytes_live_peak", "gauge", "Largest value of chunkattn_kv_bytes_live.",
         chunk * (double)kv->chunks_live_peak},
        {"chunkattn_kv_bytes_retained", "gauge", "K/V bytes retained for later requests only.",
         chunk * (double)kv->chunks_retained},
        {"chunkattn_kv_bytes_superseded", "gauge",
         "Of chunkattn_kv_bytes_retained, bytes that running requests continue in copies of; not evicted before they end.",
         chunk * (double)kv->chunks_superseded},
        {"chunkattn_kv_bytes_unshared", "gauge", "Bytes of whole chunks that running sequences would have without sharing.",
         chunk * (double)kv->chunks_unshared},
        {"chunkattn_kv_bytes_unshared_peak", "gauge", "Largest value of chunkattn_kv_bytes_unshared.",
         chunk * (double)kv->chunks_unshared_peak},
        {"chunkattn_kv_bytes_reserved", "gauge", "K/V bytes reserved for running sequences and not used yet.",
         chunk * (double)kv->chunks_reserved},
        {"chunkattn_kv_bytes_in_use", "gauge", "Bytes of the K/V cache including metadata and workspace.",
         (double)kv->bytes_in_use},
        {"chunkattn_kv_bytes_budget", "gauge", "Bytes that the K/V cache may use.", (double)kv->budget_bytes},
        {"chunkattn_kv_tokens_stored", "gauge", "Tokens in the prefix tree; shared tokens count once.",
         (double)kv->tokens_stored},
        {"chunkattn_kv_tokens_referenced", "gauge", "Tokens of running sequences; shared tokens count for each sequence.",
         (double)kv->tokens_referenced},
        {"chunkattn_kv_tokens_retained", "gauge", "Of chunkattn_kv_tokens_stored, tokens retained for later requests only.",
         (double)kv->tokens_retained},
        {"chunkattn_kv_tokens_evicted_total", "counter", "Tokens dropped from the prefix tree to make room.",
         (double)kv->tokens_evicted},
        {"chunkattn_kv_slots_padding", "gauge",
         "Slots of live and retained chunks that hold no token of their own: unused ones, and copies.",
         (double)kv->slots_padding},
        {"chunkattn_kv_chunks_pinned", "gauge", "Chunks that pins keep in the cache; one of two pins counts twice.",
         (double)kv->chunks_pinned},
        {"chunkattn_kv_sequences", "gauge", "Sequences in the prefix tree.", (double)kv->n_seqs},
        {"chunkattn_tier_restored_tokens_total", "counter", "Tokens whose K/V were read from the file tier.",
         (double)kv->tokens_restored},
        {"chunkattn_tier_reads_total", "counter", "Chunks read from the file tier.", (double)kv->tier_reads},
        {"chunkattn_tier_writes_total", "counter", "Chunks written to the file tier.", (double)kv->tier_writes},
        {"chunkattn_tier_refused_total", "counter", "Chunks in the file tier that were damaged or not those expected.",
         (double)kv->tier_refused},
        {"chunkattn_tier_errors_total", "counter", "System calls of the file tier that failed.", (double)kv->tier_errors},
        {"chunkattn_tier_replaced_total", "counter", "Chunks in the file tier that others have replaced.",
         (double)kv->tier_replaced},
        {"chunkattn_tier_dropped_total", "counter", "Chunks that were evicted before they were written to the file tier.",
         (double)kv->tier_dropped},
        {"chunkattn_tier_queued", "gauge", "Chunks whose read or write has not ended.", (double)kv->tier_queued},
        {"chunkattn_tier_chunks", "gauge", "Chunks in the file tier.", (double)kv->tier_chunks},
        {"chunkattn_tier_bytes", "gauge", "Bytes of the file tier's file.", (double)kv->tier_file_bytes},
        {"chunkattn_tier_read_seconds_total", "counter", "Seconds spent on reads of the file tier.", kv->tier_read_seconds},
        {"chunkattn_tier_write_seconds_total", "counter", "Seconds spent on writes of the file tier.", kv->tier_write_seconds},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        write_value(p, samples[i].name, samples[i].type, samples[i].help, samples[i].value);
}

/* Routers take the block size and the number of blocks from labels. */
static void write_cache(const metrics_page *p, int32_t chunk_size, const cattn_stats *kv) {
    static const char *const name = "vllm:cache_config_info";
    write_head(p, name, "gauge", "Always 1; the labels are the tokens of a chunk and the chunks that the K/V budget holds.");
    fprintf(p->out, "%s{model_name=\"%s\",block_size=\"%d\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n", name, p->model, chunk_size,
            kv->chunks_capacity);
}

/* Status 200 is reported from the start, so that its rate begins at 0. */
static void write_replies(const metrics_page *p, const server_metrics *m) {
    static const char *const name = "chunkattn_http_replies_total";
    write_head(p, name, "counter", "Replies, by their HTTP status.");
    for (int i = 0; i < METRICS_N_STATUS; i++)
        if (m->replies[i] || i + METRICS_FIRST_STATUS == 200)
            fprintf(p->out, "%s{model_name=\"%s\",status=\"%d\"} %" PRIu64 "\n", name, p->model, i + METRICS_FIRST_STATUS,
                    m->replies[i]);
}

static void write_requests(const metrics_page *p, const server_metrics *m, double n_ctx) {
    static const char *const name = "vllm:request_success_total";
    write_head(p, name, "counter", "Ended requests, by the reason.");
    for (int how = CL_ENGINE_STOP; how <= CL_ENGINE_ERROR; how++)
        fprintf(p->out, "%s{model_name=\"%s\",finished_reason=\"%s\"} %" PRIu64 "\n", name, p->model,
                openai_finish_name((cl_engine_finish)how), m->finished[how]);
    const struct {
        const char *name, *help;
        const metrics_histogram *values;
        double most;
    } all[] = {
        {"vllm:time_to_first_token_seconds", "Seconds from a request's arrival to its first token.", &m->first_token, INFINITY},
        {"vllm:inter_token_latency_seconds", "Seconds from one token of a choice to its next.", &m->inter_token, INFINITY},
        {"vllm:time_per_output_token_seconds", "The older name of vllm:inter_token_latency_seconds.", &m->inter_token,
         INFINITY},
        {"vllm:request_time_per_output_token_seconds", "A request's mean seconds from one token of a choice to its next.",
         &m->per_token, INFINITY},
        {"vllm:e2e_request_latency_seconds", "Seconds from a request's arrival to its end.", &m->total, INFINITY},
        {"vllm:request_queue_time_seconds", "Seconds until a request is admitted.", &m->queued, INFINITY},
        {"vllm:request_prefill_time_seconds", "Seconds from a request's admission to its first token.", &m->prefill, INFINITY},
        {"vllm:request_decode_time_seconds", "Seconds from a request's first token to its last.", &m->decode, INFINITY},
        {"vllm:request_inference_time_seconds", "Seconds from a request's admission to its last token.", &m->inference,
         INFINITY},
        {"vllm:request_prompt_tokens", "Tokens of a request's prompt.", &m->prompt_tokens, n_ctx},
        {"vllm:request_generation_tokens", "Tokens that a choice of a request generates.", &m->tokens, n_ctx},
        {"vllm:request_params_max_tokens", "Tokens that a request allows for each choice, if it says so.", &m->max_tokens,
         n_ctx},
        {"vllm:request_params_n", "The number of choices of a request.", &m->choices, INFINITY},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        write_histogram(p, all[i].name, all[i].help, all[i].values, all[i].most);
    write_replies(p, m);
}

/* A name as a label's value, allocated; NULL if memory is lacking. */
static char *escape_label(const char *name) {
    char *label = malloc(2 * strlen(name) + 1), *end = label;
    if (!label) return NULL;
    for (; *name; name++) {
        if (strchr("\\\"\n", *name)) *end++ = '\\';
        *end++ = *name;
        if (*name == '\n') end[-1] = 'n';
    }
    *end = '\0';
    return label;
}

/* What is not known has no sample. */
static void write_process(const metrics_page *p, const metrics_source *s) {
    const struct {
        const char *name, *type, *help;
        double value;
    } samples[] = {
        {"process_resident_memory_bytes", "gauge", "Bytes of the process in memory.", (double)s->process.resident_bytes},
        {"process_virtual_memory_bytes", "gauge", "Bytes of the process's addresses.", (double)s->process.virtual_bytes},
        {"process_cpu_seconds_total", "counter", "Seconds of CPU time of all threads.", s->process.cpu_seconds},
        {"process_open_fds", "gauge", "Open files, connections among them.", (double)s->process.open_files},
        {"process_max_fds", "gauge", "The limit of open files.", (double)s->process.max_open_files},
        {"process_start_time_seconds", "gauge", "When the server started, in seconds since 1970.", (double)s->started_at},
        {"chunkattn_http_connections", "gauge", "Open connections of clients.", (double)s->n_connections},
        {"chunkattn_http_max_connections", "gauge", "The limit of open connections.", (double)s->max_connections},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (samples[i].value >= 0) write_value(p, samples[i].name, samples[i].type, samples[i].help, samples[i].value);
}

/* A sample of a tenant; "" is the name of all others. */
static void write_tenant(const metrics_page *p, const char *name, const metrics_tenant *row, size_t counter) {
    char *label = escape_label(row->name);
    uint64_t value;
    memcpy(&value, (const char *)row + counter, sizeof value);
    if (label) fprintf(p->out, "%s{model_name=\"%s\",tenant=\"%s\"} %" PRIu64 "\n", name, p->model, label, value);
    free(label);
}

static void write_tenants(const metrics_page *p, const server_metrics *m) {
    static const struct {
        const char *name, *help;
        size_t counter;
    } all[] = {
        {"chunkattn_tenant_requests_total", "Ended requests of a tenant.", offsetof(metrics_tenant, n_requests)},
        {"chunkattn_tenant_prompt_tokens_total", "Prompt tokens of these.", offsetof(metrics_tenant, n_prompt)},
        {"chunkattn_tenant_cached_tokens_total", "Prompt tokens of these in the cache.", offsetof(metrics_tenant, n_cached)},
        {"chunkattn_tenant_generation_tokens_total", "Tokens that these generated.", offsetof(metrics_tenant, n_generated)},
    };
    for (size_t i = 0; m->most_tenants > 0 && i < sizeof all / sizeof *all; i++) {
        write_head(p, all[i].name, "counter", all[i].help);
        for (int32_t t = 0; t < m->n_tenants; t++) write_tenant(p, all[i].name, &m->tenants[t], all[i].counter);
        write_tenant(p, all[i].name, &m->tenants[m->most_tenants], all[i].counter);
    }
}

char *metrics_write(server_metrics *m, const metrics_source *source, size_t *size) {
    char *text = NULL, *label = escape_label(source->model_name);
    FILE *out = label ? open_memstream(&text, size) : NULL;
    if (out) {
        const metrics_page p = {out, label};
        write_engine(&p, &source->engine, &source->kv);
        write_cache(&p, source->chunk_size, &source->kv);
        write_steps(&p, &source->engine);
        write_value(&p, "chunkattn_log_lost_lines_total", "counter",
                    "Lines of the log that were lost, as nobody read it in time.", (double)source->lost_lines);
        write_value(&p, "chunkattn_request_memory_bytes", "gauge",
                    "Bytes of large requests that arrive, wait or run, of --request-memory.", (double)source->request_bytes);
        write_process(&p, source);
        pthread_mutex_lock(&m->lock);
        write_requests(&p, m, (double)source->n_ctx);
        write_tenants(&p, m);
        pthread_mutex_unlock(&m->lock);
        if (fclose(out) != 0) {
            free(text);
            text = NULL;
        }
    }
    free(label);
    return text;
}

/*
 * `batch`: answers a file of requests with one engine.
 *
 * Three threads work on a job. The main thread reads lines and submits their prompts. The engine's thread adds the events to
 * each line's result. A writing thread writes the records in the order of the input, each as soon as those before it are
 * written. Between reading and writing the lines stand in a window of limited size.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "openai/batch_line.h"
#include "openai/json.h"
#include "progress.h"
#include "session.h"

typedef struct batch_job batch_job;

/* A line in the window. */
typedef struct pending_line {
    batch_job *job; /* borrowed */
    batch_line line;
    openai_job *prompts; /* [line.request.n_prompts] */
    size_t n_open;       /* prompts whose last event has not come yet; guarded by job->lock */
} pending_line;

/* What a job did, once it is done. */
typedef struct batch_summary {
    size_t n_requests, n_failed; /* records written, and those of them that report an error */
    double total_s;
    cl_engine_stats stats;
    cattn_stats kv_stats;
} batch_summary;

struct batch_job {
    session s;
    openai_context context;
    openai_tenants tenants; /* of the lines so far */
    FILE *in, *out;
    char *buffer; /* [buffer_size], of getline */
    size_t buffer_size;
    size_t n_lines; /* read so far */
    size_t n_total; /* requests in the input; 0: unknown */
    double start;   /* clock_seconds() */
    batch_summary summary;
    progress progress; /* shown by the writing thread */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    pending_line **window;     /* ring [capacity]; the oldest line is at `first` */
    size_t first, n, capacity; /* lines */
    bool all_read;
    cl_error write_error; /* if its code is not CL_OK, a record could not be written */
};

/* ---- Reading: the main thread ---- */

/* The last events of n prompts of a line have come, or never will. */
static void close_prompts(pending_line *p, size_t n) {
    pthread_mutex_lock(&p->job->lock);
    p->n_open -= n;
    pthread_cond_broadcast(&p->job->changed);
    pthread_mutex_unlock(&p->job->lock);
}

/* On the engine's thread, the only one that uses a line's result until the last event has come. */
static void on_event(void *ctx, const cl_engine_event *event) {
    const openai_job *prompt = ctx;
    pending_line *p = prompt->owner;
    openai_result_add(&p->line.result, prompt->prompt, event, clock_seconds());
    if (event->last) close_prompts(p, 1);
}

/* Submit all prompts of a valid line. If the engine refuses one, the line fails, and the prompts before it run to their end. */
static void submit(pending_line *p) {
    const openai_request *request = &p->line.request;
    const size_t n = request->n_prompts;
    size_t n_submitted = 0;
    p->n_open = n;
    p->prompts = calloc(n, sizeof *p->prompts);
    if (p->prompts)
        n_submitted = openai_submit(request, p->job->s.engine, p, on_event, p->prompts, &p->line.error);
    else
        openai_fail_from(&p->line.error, NULL, &(cl_error){CL_ERR_NOMEM, "out of memory for the request"});
    if (n_submitted == n) return;
    p->line.failed = true;
    close_prompts(p, n - n_submitted);
}

static bool is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i]) return false;
    return true;
}

/* Parse a line, submit its prompts, and add it to the window, which has room. */
static cl_status add_line(batch_job *j, const char *text, size_t size, cl_error *error) {
    pending_line *p = calloc(1, sizeof *p);
    if (!p) return cl_fail(error, CL_ERR_NOMEM, "no memory for line %zu", j->n_lines);
    p->job = j;
    if (batch_line_parse(&p->line, j->n_lines, text, size, &j->context, &j->tenants)) submit(p);
    pthread_mutex_lock(&j->lock);
    j->window[(j->first + j->n++) % j->capacity] = p;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    return CL_OK;
}

/* Wait until the window has room. False: a record could not be written, so nothing more needs to be read. */
static bool wait_for_room(batch_job *j) {
    pthread_mutex_lock(&j->lock);
    while (j->n == j->capacity && j->write_error.code == CL_OK) pthread_cond_wait(&j->changed, &j->lock);
    const bool ok = j->write_error.code == CL_OK;
    pthread_mutex_unlock(&j->lock);
    return ok;
}

static cl_status read_lines(batch_job *j, cl_error *error) {
    cl_status status = CL_OK;
    while (status == CL_OK && wait_for_room(j)) {
        const ssize_t size = getline(&j->buffer, &j->buffer_size, j->in);
        if (size < 0) {
            if (ferror(j->in)) status = cl_fail(error, CL_ERR_FILE, "cannot read the input: %s", strerror(errno));
            break;
        }
        j->n_lines++;
        if (!is_blank(j->buffer, (size_t)size)) status = add_line(j, j->buffer, (size_t)size, error);
    }
    return status;
}

/* ---- Writing: a thread of its own ---- */

static void draw_progress(batch_job *j) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(j->s.engine, &stats);
    const size_t done = j->summary.n_requests;
    progress_show(&j->progress, &(progress_state){.done = done,
                                                  .total = j->n_total,
                                                  .tokens = (long long)stats.completion_tokens,
                                                  .seconds = clock_seconds() - j->start,
                                                  .part = j->n_total ? (double)done / (double)j->n_total : 0});
}

/* Wait until something changes, for at most 200 ms, and show the progress. With j->lock held. */
static void wait_for_change(batch_job *j) {
    const struct timespec until = clock_deadline(0.2);
    pthread_cond_timedwait(&j->changed, &j->lock, &until);
    pthread_mutex_unlock(&j->lock);
    draw_progress(j);
    pthread_mutex_lock(&j->lock);
}

/* Wait until the oldest line is done, and remove it from the window. NULL: all lines are read and removed. */
static pending_line *take_first(batch_job *j) {
    pthread_mutex_lock(&j->lock);
    while (j->n ? j->window[j->first]->n_open > 0 : !j->all_read) wait_for_change(j);
    pending_line *p = NULL;
    if (j->n) {
        p = j->window[j->first];
        j->first = (j->first + 1) % j->capacity;
        j->n--;
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&j->lock);
    return p;
}

static void pending_line_free(pending_line *p) {
    batch_line_free(&p->line);
    free(p->prompts);
    free(p);
}

/* The writing thread. It stops at the first record that it cannot write; cmd_batch frees the lines behind that. */
static void *write_lines(void *arg) {
    batch_job *j = arg;
    bool written = true, is_error;
    for (pending_line *p; written && (p = take_first(j)) != NULL;) {
        written = batch_line_print(&p->line, j->out, &is_error);
        const int cause = errno;
        j->summary.n_requests++;
        j->summary.n_failed += is_error;
        pending_line_free(p);
        if (written) continue;
        pthread_mutex_lock(&j->lock);
        cl_fail(&j->write_error, CL_ERR_FILE, "cannot write the output: %s", strerror(cause));
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->lock);
    }
    return NULL;
}

/* ---- The whole job ---- */

static cl_status process(batch_job *j, cl_error *error) {
    pthread_t writer;
    j->start = clock_seconds();
    progress_begin(&j->progress);
    j->context.n_ctx = (int32_t)cl_engine_n_ctx(j->s.engine);
    if (pthread_create(&writer, NULL, write_lines, j)) return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread");
    cl_status status = read_lines(j, error);
    pthread_mutex_lock(&j->lock);
    j->all_read = true;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    pthread_join(writer, NULL);
    progress_clear(&j->progress);
    j->summary.total_s = clock_seconds() - j->start;
    j->summary.stats.struct_size = sizeof j->summary.stats;
    j->summary.kv_stats.struct_size = sizeof j->summary.kv_stats;
    cl_engine_get_stats(j->s.engine, &j->summary.stats);
    cl_engine_get_kv_stats(j->s.engine, &j->summary.kv_stats);
    if (status == CL_OK && j->write_error.code != CL_OK) {
        *error = j->write_error;
        status = error->code;
    }
    return status;
}

/*
 * The number of lines from here on that are not blank; 0 if the input cannot be read twice. Standard input may be a file whose
 * first lines another program has read.
 */
static size_t count_requests(batch_job *j) {
    struct stat st;
    const off_t here = ftello(j->in);
    if (here < 0 || fstat(fileno(j->in), &st) || !S_ISREG(st.st_mode)) return 0;
    size_t n = 0;
    for (ssize_t size; (size = getline(&j->buffer, &j->buffer_size, j->in)) >= 0;) n += !is_blank(j->buffer, (size_t)size);
    fseeko(j->in, here, SEEK_SET); /* this also clears the end-of-file state */
    return n;
}

static bool is_input(const batch_job *j, const char *path) {
    struct stat in, out;
    return fstat(fileno(j->in), &in) == 0 && stat(path, &out) == 0 && S_ISREG(in.st_mode) && in.st_dev == out.st_dev &&
           in.st_ino == out.st_ino;
}

/* An existing output file keeps its contents until the job can begin (empty_output). */
static cl_status open_files(batch_job *j, const options *opt, cl_error *error) {
    if (!opt->input) return cl_fail(error, CL_ERR_ARG, "--input is missing; name the file of requests");
    j->in = strcmp(opt->input, "-") ? fopen(opt->input, "rb") : stdin;
    if (!j->in) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", opt->input, strerror(errno));
    if (strcmp(opt->output, "-") && is_input(j, opt->output))
        return cl_fail(error, CL_ERR_ARG, "--output %s is the file of requests; write the results to another file",
                       opt->output);
    j->out = strcmp(opt->output, "-") ? fopen(opt->output, "ab") : stdout;
    if (!j->out) return cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    j->n_total = count_requests(j);
    return CL_OK;
}

static cl_status empty_output(batch_job *j, const options *opt, cl_error *error) {
    struct stat st;
    if (j->out == stdout || fstat(fileno(j->out), &st) || !S_ISREG(st.st_mode) || ftruncate(fileno(j->out), 0) == 0)
        return CL_OK;
    return cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
}

/* Set the values of fields that a line leaves out. */
static cl_status set_defaults(batch_job *j, const options *opt, cl_error *error) {
    openai_context *c = &j->context;
    c->model = j->s.model;
    if (session_name_model(&j->s, opt, error) != CL_OK) return error->code;
    c->model_name = j->s.names.names[0];
    c->names = &j->s.names;
    openai_defaults_init(&c->defaults);
    c->defaults.sampling = session_sampling(opt);
    c->defaults.has_seed = opt->seed >= 0;
    c->defaults.max_tokens_chat = c->defaults.max_tokens_completion = opt->max_tokens;
    c->defaults.ignore_eos = opt->ignore_eos;
    c->defaults.logprobs = opt->logprobs >= 0;
    c->defaults.n_top = opt->logprobs > 0 ? (int32_t)opt->logprobs : 0;
    c->chat = session_chat(&j->s);
    c->chat_kwargs = j->s.chat_kwargs;
    return CL_OK;
}

/* ---- The summary ---- */

static uint64_t kv_bytes_peak(const cattn_stats *kv) { return kv->chunks_live_peak * kv->chunk_bytes; }
static uint64_t kv_bytes_unshared(const cattn_stats *kv) { return kv->chunks_unshared_peak * kv->chunk_bytes; }
static double per_second(int64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

/* On stderr. */
static void print_summary(const batch_summary *summary) {
    const cl_engine_stats *s = &summary->stats;
    const cattn_stats *kv = &summary->kv_stats;
    fprintf(stderr,
            "requests   %zu in %.2f s, %zu failed\n"
            "prefill    %" PRId64 " of %" PRId64 " prompt tokens computed in %.2f s: %.1f tokens/s\n"
            "decode     %" PRId64 " tokens in %.2f s: %.1f tokens/s\n"
            "drafts     %" PRId64 " of %" PRId64 " drafted tokens accepted\n"
            "K/V peak   %.1f MB; unshared it would be %.1f MB\n",
            summary->n_requests, summary->total_s, summary->n_failed, s->prefill_tokens_computed, s->prompt_tokens,
            s->prefill_s, per_second(s->prefill_tokens_computed, s->prefill_s), s->completion_tokens, s->decode_s,
            per_second(s->completion_tokens, s->decode_s), s->drafts.n_accepted, s->drafts.n_tokens,
            (double)kv_bytes_peak(kv) / 1e6, (double)kv_bytes_unshared(kv) / 1e6);
}

/* Write the summary as one JSON object to a file of its own. */
static cl_status write_summary(const batch_summary *summary, const char *path, cl_error *error) {
    const cl_engine_stats *s = &summary->stats;
    const cattn_stats *kv = &summary->kv_stats;
    json_t *object = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "prefill_tokens_computed",
                               (json_int_t)s->prefill_tokens_computed, "prompt_tokens", (json_int_t)s->prompt_tokens,
                               "completion_tokens", (json_int_t)s->completion_tokens, "prefill_s", s->prefill_s, "decode_s",
                               s->decode_s, "total_s", summary->total_s, "kv_bytes_peak", (json_int_t)kv_bytes_peak(kv),
                               "kv_bytes_unshared", (json_int_t)kv_bytes_unshared(kv), "draft_tokens",
                               (json_int_t)s->drafts.n_tokens, "draft_tokens_accepted", (json_int_t)s->drafts.n_accepted);
    if (!object) return cl_fail(error, CL_ERR_NOMEM, "no memory for the summary");
    const int failed = json_dump_file(object, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    return failed ? cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", path, strerror(errno)) : CL_OK;
}

/* ---- The command ---- */

int cmd_batch(const options *opt) {
    batch_job j = {.lock = PTHREAD_MUTEX_INITIALIZER};
    cl_error error;
    j.capacity = 4 * (size_t)opt->max_seqs + 64; /* enough to keep the engine busy while a slow line delays the output */
    j.window = calloc(j.capacity, sizeof *j.window);
    clock_cond_init(&j.changed);
    cl_status status = j.window ? CL_OK : cl_fail(&error, CL_ERR_NOMEM, "no memory for %zu lines", j.capacity);
    if (status == CL_OK) status = open_files(&j, opt, &error);
    openai_json_init();
    if (status == CL_OK) status = session_load(&j.s, opt, &error);
    session_use_grammars(&j.s, opt);
    if (status == CL_OK) status = set_defaults(&j, opt, &error);
    if (status == CL_OK) status = session_start(&j.s, opt, opt->max_seqs, &error);
    if (status == CL_OK) status = empty_output(&j, opt, &error);
    if (status == CL_OK) status = process(&j, &error);
    if (status == CL_OK) print_summary(&j.summary);
    if (status == CL_OK && opt->summary) status = write_summary(&j.summary, opt->summary, &error);
    session_close(&j.s); /* cancels what still runs; no event comes afterwards */
    for (; j.n; j.n--, j.first = (j.first + 1) % j.capacity) pending_line_free(j.window[j.first]);
    if (j.in && j.in != stdin) fclose(j.in);
    if (j.out && j.out != stdout && fclose(j.out) && status == CL_OK)
        status = cl_fail(&error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    openai_tenants_free(&j.tenants);
    pthread_cond_destroy(&j.changed);
    free(j.window);
    free(j.buffer);
    if (j.out == stdout && j.write_error.code == CL_ERR_FILE) return 1; /* main reports it */
    if (status == CL_OK && j.summary.n_failed > 0)
        status = cl_fail(&error, CL_ERR_ARG, "%zu of %zu requests failed; their records say why", j.summary.n_failed,
                         j.summary.n_requests);
    return status == CL_OK ? 0 : session_fail(CMD_BATCH, &error);
}

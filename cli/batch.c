/*
 * `batch`: a file of requests through one engine.
 *
 * The main thread reads lines, a second one writes records. Between them is a window of lines that are with the engine, which
 * tells their events on its own thread. Records leave in the order of the input, as soon as that order allows.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch_line.h"
#include "batch_summary.h"
#include "progress.h"
#include "session.h"

typedef struct job job;
typedef struct slot slot;

/* A line in the window. */
struct slot {
    job *job;
    batch_line line;
    openai_job *jobs; /* [line.request.n_prompts] */
    size_t n_open;    /* prompts whose last event is to come; under job.mutex */
};

struct job {
    session session;
    openai_context context;
    char *model_name; /* from the path; NULL: --model-name */
    FILE *in, *out;
    char *buffer; /* of getline */
    size_t buffer_size;
    size_t n_lines, n_total; /* read so far; requests in the input, 0: unknown */
    double start;            /* clock_seconds() */
    batch_summary summary;
    bool bar;

    pthread_mutex_t mutex; /* holds for what follows */
    pthread_cond_t changed;
    slot **window; /* ring of `capacity` */
    size_t first, n, capacity;
    bool all_read;
    cl_error write_error; /* code is not CL_OK: a record could not be made or written */
};

static void close_prompts(slot *s, size_t n) {
    pthread_mutex_lock(&s->job->mutex);
    s->n_open -= n;
    pthread_cond_broadcast(&s->job->changed);
    pthread_mutex_unlock(&s->job->mutex);
}

/* On the engine's thread: until the last event the line's result is touched here alone. */
static void on_event(void *ctx, const cl_engine_event *event) {
    const openai_job *submitted = ctx;
    slot *s = submitted->owner;
    openai_result_add(&s->line.result, submitted->prompt, event);
    if (event->last) close_prompts(s, 1);
}

/* Submit all prompts of a line that was read well. If one is refused, the line fails; those before it run to their end. */
static void submit(slot *s) {
    const openai_request *request = &s->line.request;
    const size_t n = request->n_prompts;
    size_t n_submitted = 0;
    s->n_open = n;
    s->jobs = calloc(n, sizeof *s->jobs);
    if (s->jobs)
        n_submitted = openai_submit(request, s->job->session.engine, s, on_event, s->jobs, &s->line.error);
    else
        openai_fail_from(&s->line.error, NULL, &(cl_error){CL_ERR_NOMEM, "out of memory for the request"});
    if (n_submitted == n) return;
    s->line.failed = true;
    close_prompts(s, n - n_submitted);
}

static bool is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i]) return false;
    return true;
}

/* Read a line, give it to the engine and to the window. */
static cl_status add_line(job *j, const char *text, size_t size, cl_error *error) {
    slot *s = calloc(1, sizeof *s);
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for line %zu", j->n_lines);
    s->job = j;
    if (batch_line_parse(&s->line, j->n_lines, text, size, &j->context)) submit(s);
    pthread_mutex_lock(&j->mutex);
    j->window[(j->first + j->n++) % j->capacity] = s;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->mutex);
    return CL_OK;
}

/* Wait for room in the window. False: a record failed, nothing needs to be read any more. */
static bool wait_room(job *j) {
    pthread_mutex_lock(&j->mutex);
    while (j->n == j->capacity && j->write_error.code == CL_OK) pthread_cond_wait(&j->changed, &j->mutex);
    const bool ok = j->write_error.code == CL_OK;
    pthread_mutex_unlock(&j->mutex);
    return ok;
}

static cl_status read_lines(job *j, cl_error *error) {
    cl_status status = CL_OK;
    while (status == CL_OK && wait_room(j)) {
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

static void draw(job *j) {
    cl_engine_stats stats;
    cl_engine_get_stats(j->session.engine, &stats);
    progress_draw(j->summary.n_requests, j->n_total, (long long)stats.completion_tokens, clock_seconds() - j->start);
}

/* Wait for something to change; with a progress bar not long, and draw it. Called with the mutex held. */
static void wait_change(job *j) {
    if (!j->bar) {
        pthread_cond_wait(&j->changed, &j->mutex);
        return;
    }
    const struct timespec until = clock_deadline(200);
    pthread_cond_timedwait(&j->changed, &j->mutex, &until);
    pthread_mutex_unlock(&j->mutex);
    draw(j);
    pthread_mutex_lock(&j->mutex);
}

/* The first line of the window once it is done, taken out; NULL when all were read and written. */
static slot *take_first(job *j) {
    pthread_mutex_lock(&j->mutex);
    while (j->n ? j->window[j->first]->n_open > 0 : !j->all_read) wait_change(j);
    slot *s = NULL;
    if (j->n) {
        s = j->window[j->first];
        j->first = (j->first + 1) % j->capacity;
        j->n--;
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&j->mutex);
    return s;
}

static cl_status write_record(job *j, const slot *s, cl_error *error) {
    json_t *record = batch_line_json(&s->line);
    if (!record) return cl_fail(error, CL_ERR_NOMEM, "line %zu: no memory for its record", s->line.number);
    const bool written = json_dumpf(record, j->out, 0) == 0 && fputc('\n', j->out) != EOF && fflush(j->out) == 0;
    const int cause = errno;
    json_decref(record);
    return written ? CL_OK : cl_fail(error, CL_ERR_FILE, "cannot write the output: %s", strerror(cause));
}

static void slot_free(slot *s) {
    batch_line_free(&s->line);
    free(s->jobs);
    free(s);
}

/* The writing thread. A record that it cannot make or write it tells, and ends; lines that are left are freed with the job. */
static void *write_lines(void *arg) {
    job *j = arg;
    cl_error error;
    cl_status status = CL_OK;
    for (slot *s; status == CL_OK && (s = take_first(j)) != NULL;) {
        status = write_record(j, s, &error);
        j->summary.n_requests++;
        j->summary.n_failed += s->line.failed || s->line.result.failed;
        slot_free(s);
        if (status == CL_OK) continue;
        pthread_mutex_lock(&j->mutex);
        j->write_error = error;
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->mutex);
    }
    return NULL;
}

static cl_status process(job *j, cl_error *error) {
    pthread_t writer;
    j->start = clock_seconds();
    j->context.n_ctx = (int32_t)cl_engine_n_ctx(j->session.engine);
    if (pthread_create(&writer, NULL, write_lines, j)) return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread");
    cl_status status = read_lines(j, error);
    pthread_mutex_lock(&j->mutex);
    j->all_read = true;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->mutex);
    pthread_join(writer, NULL);
    if (j->bar) progress_clear();
    j->summary.total_s = clock_seconds() - j->start;
    cl_engine_get_stats(j->session.engine, &j->summary.stats);
    if (status == CL_OK && j->write_error.code != CL_OK) {
        *error = j->write_error;
        status = error->code;
    }
    return status;
}

/* Lines that are not blank from here on, if the input is a file that can be read twice; it may be another's standard input. */
static size_t count_requests(job *j) {
    struct stat st;
    const off_t here = ftello(j->in);
    if (here < 0 || fstat(fileno(j->in), &st) || !S_ISREG(st.st_mode)) return 0;
    size_t n = 0;
    for (ssize_t size; (size = getline(&j->buffer, &j->buffer_size, j->in)) >= 0;) n += !is_blank(j->buffer, (size_t)size);
    fseeko(j->in, here, SEEK_SET); /* clears the end of file, too */
    return n;
}

static bool is_input(const job *j, const char *path) {
    struct stat in, out;
    return fstat(fileno(j->in), &in) == 0 && stat(path, &out) == 0 && S_ISREG(in.st_mode) && in.st_dev == out.st_dev &&
           in.st_ino == out.st_ino;
}

/* The output keeps what it holds until there is something to write (empty_output). */
static cl_status open_files(job *j, const options *opt, cl_error *error) {
    if (!opt->input) return cl_fail(error, CL_ERR_ARG, "--input, the file of requests, is missing");
    j->in = strcmp(opt->input, "-") ? fopen(opt->input, "rb") : stdin;
    if (!j->in) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", opt->input, strerror(errno));
    if (strcmp(opt->output, "-") && is_input(j, opt->output))
        return cl_fail(error, CL_ERR_ARG, "--output %s is the file of requests; write the results to another", opt->output);
    j->out = strcmp(opt->output, "-") ? fopen(opt->output, "ab") : stdout;
    if (!j->out) return cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    j->bar = isatty(STDERR_FILENO);
    if (j->bar) j->n_total = count_requests(j);
    return CL_OK;
}

static cl_status empty_output(job *j, const options *opt, cl_error *error) {
    struct stat st;
    if (j->out == stdout || fstat(fileno(j->out), &st) || !S_ISREG(st.st_mode) || ftruncate(fileno(j->out), 0) == 0)
        return CL_OK;
    return cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
}

/* What a request is given where its line says nothing. */
static cl_status set_defaults(job *j, const options *opt, cl_error *error) {
    openai_context *c = &j->context;
    c->model = j->session.model;
    if (!opt->model_name && !(j->model_name = cl_model_file_name(opt->model)))
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the model's name");
    c->model_name = opt->model_name ? opt->model_name : j->model_name;
    openai_defaults_init(&c->defaults);
    c->defaults.sampling = session_sampling(opt);
    c->defaults.has_seed = opt->seed >= 0;
    c->defaults.max_tokens_chat = c->defaults.max_tokens_completion = opt->max_tokens;
    c->defaults.ignore_eos = opt->ignore_eos;
    c->defaults.logprobs = opt->logprobs >= 0;
    c->defaults.n_top = opt->logprobs > 0 ? (int32_t)opt->logprobs : 0;
    c->chat = j->session.model->chat;
    return opt->chat_format ? cl_chat_by_name(opt->chat_format, &c->chat, error) : CL_OK;
}

int cmd_batch(const options *opt) {
    job j = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    cl_error error;
    j.capacity = 4 * (size_t)opt->max_seqs + 64; /* keeps the engine fed while a slow line holds up the output */
    j.window = calloc(j.capacity, sizeof(slot *));
    cl_status status = j.window ? CL_OK : cl_fail(&error, CL_ERR_NOMEM, "no memory");
    if (status == CL_OK) status = open_files(&j, opt, &error);
    if (status == CL_OK) status = session_load(&j.session, opt, &error);
    if (status == CL_OK) status = set_defaults(&j, opt, &error);
    if (status == CL_OK) status = session_start(&j.session, opt, opt->max_seqs, &error);
    if (status == CL_OK) status = empty_output(&j, opt, &error);
    if (status == CL_OK) status = process(&j, &error);
    if (status == CL_OK) batch_summary_print(&j.summary);
    if (status == CL_OK && opt->summary) status = batch_summary_write(&j.summary, opt->summary, &error);
    session_close(&j.session); /* cancels what is left; no event comes after it */
    for (; j.n; j.n--, j.first = (j.first + 1) % j.capacity) slot_free(j.window[j.first]);
    if (j.in && j.in != stdin) fclose(j.in);
    if (j.out && j.out != stdout && fclose(j.out) && status == CL_OK)
        status = cl_fail(&error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    free(j.window);
    free(j.buffer);
    free(j.model_name);
    if (j.out == stdout && j.write_error.code == CL_ERR_FILE) return 1; /* main tells */
    if (status == CL_OK && j.summary.n_failed > 0)
        status = cl_fail(&error, CL_ERR_ARG, "%zu of %zu requests failed; their records say why", j.summary.n_failed,
                         j.summary.n_requests);
    return status == CL_OK ? 0 : session_fail(CMD_BATCH, &error);
}

/* `batch`: answers a file of requests with one engine. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "cli/interrupt.h"
#include "cli/session.h"
#include "serve/protocol/json.h"
#include "work.h"

typedef struct batch_job {
    cli_session s;
    openai_context context;
    openai_tenants tenants; /* of the lines so far */
    batch_input input;
    plan_shard shard;
    batch_plan plan;
    batch_output output;
    batch_work work;
    double total_s; /* that the work has taken */
    cl_engine_stats stats;
    cattn_stats kv_stats;
} batch_job;

/* Set the values of fields that a line leaves out. */
static cl_status set_defaults(batch_job *j, const cli_options *opt, cl_error *error) {
    openai_context *c = &j->context;
    c->model = j->s.model;
    if (openai_names_init(&j->s.names, opt->model_name, opt->model, error) != CL_OK) return error->code;
    c->model_name = j->s.names.names[0];
    c->names = &j->s.names;
    openai_defaults_init(&c->defaults);
    const cli_sampling sampling = session_sampling(&j->s, opt, false);
    c->defaults.sampling = sampling.params;
    c->defaults.penalty_window = sampling.penalty_window;
    c->defaults.has_seed = opt->seed >= 0;
    c->defaults.max_tokens_chat = c->defaults.max_tokens_completion = opt->max_tokens;
    c->defaults.ignore_eos = opt->ignore_eos;
    c->defaults.open_objects = opt->open_objects;
    c->defaults.parse_special = opt->parse_special;
    c->defaults.logprobs = opt->logprobs >= 0;
    c->defaults.n_top = opt->logprobs > 0 ? (int32_t)opt->logprobs : 0;
    c->chat = session_chat(&j->s);
    c->chat_kwargs = j->s.chat_kwargs;
    return CL_OK;
}

/* Read --shard I/N. */
static cl_status read_shard(const cli_options *opt, plan_shard *shard, cl_error *error) {
    int end = 0;
    *shard = (plan_shard){1, 1};
    if (!opt->shard) return CL_OK;
    if (sscanf(opt->shard, "%9d/%9d%n", &shard->i, &shard->n, &end) == 2 && !opt->shard[end] && shard->i >= 1 &&
        shard->i <= shard->n)
        return CL_OK;
    return cl_fail(error, CL_ERR_ARG, "--shard is '%s'; it must be I/N with I from 1 to N, such as 1/4", opt->shard);
}

/* What the answers depend on, by the names of options; NULL: memory is lacking. */
static json_t *identity_of(const batch_job *j, const cli_options *opt) {
    char hash[20], shard[32], template[20], file[20];
    const cl_sampler_params *p = &j->context.defaults.sampling;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)j->plan.input_hash);
    snprintf(shard, sizeof shard, "%d/%d", j->shard.i, j->shard.n);
    snprintf(file, sizeof file, "%016llx", (unsigned long long)j->s.model->sample);
    snprintf(template, sizeof template, "%016llx",
             (unsigned long long)plan_hash_id(j->s.template.data ? j->s.template.data : ""));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:b, s:b, s:I, s:s, s:s, s:s, "
                     "s:i, s:i, s:i, s:I, s:b}",
                     "input", hash, "shard", shard, "model-name", opt->model_name ? opt->model_name : "", "model",
                     j->context.model_name, BATCH_MODEL_FILE, file, "max-tokens", (json_int_t)opt->max_tokens, "temperature",
                     (double)p->temperature, "top-k", (json_int_t)p->top_k, "top-p", (double)p->top_p, "min-p",
                     (double)p->min_p, "repetition-penalty", (double)p->repetition_penalty, "presence-penalty",
                     opt->presence_penalty, "frequency-penalty", opt->frequency_penalty, "seed", (json_int_t)opt->seed,
                     "ignore-eos", opt->ignore_eos, "parse-special", opt->parse_special, "logprobs", (json_int_t)opt->logprobs,
                     "chat-template", template, "chat-template-kwargs", opt->chat_kwargs ? opt->chat_kwargs : "", "chat-format",
                     opt->chat_format ? opt->chat_format : "", BATCH_PENALTY_WINDOW, (int)j->context.defaults.penalty_window,
                     "sharing", opt->sharing, "kv-type", opt->kv_type, "ctx", (json_int_t)j->context.n_ctx, "open-objects",
                     opt->open_objects);
}

/* Order the lines, and begin the output or continue it. */
static cl_status prepare(batch_job *j, const cli_options *opt, cl_error *error) {
    j->context.n_ctx = (int32_t)cl_engine_n_ctx(j->s.engine);
    j->context.n_ctx_reason = cl_engine_context_reason(j->s.engine);
    cl_status status =
        batch_plan_make(&j->plan, &j->input, &j->context, &j->tenants, opt->sharing != CATTN_PRIVATE, j->shard, error);
    if (status != CL_OK) return status;
    json_t *identity = identity_of(j, opt);
    status = identity ? batch_output_begin(&j->output, &j->plan, identity, opt->resume, error)
                      : cl_fail(error, CL_ERR_NOMEM, "no memory for the options");
    json_decref(identity);
    return status;
}

static cl_status work(batch_job *j, const cli_options *opt, cl_error *error) {
    const double start = clock_seconds();
    j->work = (batch_work){.tenants = &j->tenants,
                           .input = &j->input,
                           .output = &j->output,
                           .gate = {.engine = j->s.engine, .context = &j->context}};
    interrupt_watch();
    signal(SIGPIPE, SIG_IGN); /* if the output's reader has gone, writing fails, and the job ends in order */
    signal(SIGXFSZ, SIG_IGN); /* the same for a file that becomes too large */
    /* Those behind the running ones wait in the engine, so that a step need not wait for the next line to be parsed. */
    const cl_status status = batch_work_run(&j->work, 2 * (size_t)opt->max_seqs + 16, error);
    j->total_s = clock_seconds() - start;
    j->stats.struct_size = sizeof j->stats;
    j->kv_stats.struct_size = sizeof j->kv_stats;
    cl_engine_get_stats(j->s.engine, &j->stats);
    cl_engine_get_kv_stats(j->s.engine, &j->kv_stats);
    return status;
}

/* ---- The end ---- */

static uint64_t kv_bytes_peak(const cattn_stats *kv) { return kv->chunks_live_peak * kv->chunk_bytes; }
static uint64_t kv_bytes_unshared(const cattn_stats *kv) { return kv->chunks_unshared_peak * kv->chunk_bytes; }
static double per_second(int64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

static void print_summary(const batch_job *j) {
    const cl_engine_stats *s = &j->stats;
    if (j->output.n_kept > 0) fprintf(stderr, "kept       %zu answers that were there\n", j->output.n_kept);
    fprintf(stderr,
            "requests   %zu in %.2f s, %zu failed\n"
            "prefill    %" PRId64 " of %" PRId64 " prompt tokens computed in %.2f s: %.1f tokens/s\n"
            "decode     %" PRId64 " tokens in %.2f s: %.1f tokens/s\n"
            "drafts     %" PRId64 " of %" PRId64 " drafted tokens accepted\n"
            "K/V peak   %.1f MB; unshared it would be %.1f MB\n",
            j->work.n_written, j->total_s, j->output.n_failed, s->prefill_tokens_computed, s->prompt_tokens, s->prefill_s,
            per_second(s->prefill_tokens_computed, s->prefill_s), s->completion_tokens, s->decode_s,
            per_second(s->completion_tokens, s->decode_s), s->drafts.n_accepted, s->drafts.n_tokens,
            (double)kv_bytes_peak(&j->kv_stats) / 1e6, (double)kv_bytes_unshared(&j->kv_stats) / 1e6);
}

/* Write the summary as one JSON object to the file of --summary. */
static cl_status write_summary(const batch_job *j, const char *path, cl_error *error) {
    const cl_engine_stats *s = &j->stats;
    json_t *object = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "prefill_tokens_computed",
                               (json_int_t)s->prefill_tokens_computed, "prompt_tokens", (json_int_t)s->prompt_tokens,
                               "completion_tokens", (json_int_t)s->completion_tokens, "prefill_s", s->prefill_s, "decode_s",
                               s->decode_s, "total_s", j->total_s, "kv_bytes_peak", (json_int_t)kv_bytes_peak(&j->kv_stats),
                               "kv_bytes_unshared", (json_int_t)kv_bytes_unshared(&j->kv_stats), "draft_tokens",
                               (json_int_t)s->drafts.n_tokens, "draft_tokens_accepted", (json_int_t)s->drafts.n_accepted);
    if (!object) return cl_fail(error, CL_ERR_NOMEM, "no memory for the summary");
    const int failed = json_dump_file(object, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    return failed ? cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", path, strerror(errno)) : CL_OK;
}

/* Print an argument; one that the shell would change is put in quotes. */
static void print_argument(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*text && strspn(text, plain) == strlen(text)) {
        fputs(text, stderr);
        return;
    }
    fputc('\'', stderr);
    for (; *text; text++) *text == '\'' ? fputs("'\\''", stderr) : fputc(*text, stderr);
    fputc('\'', stderr);
}

/* Print the command of this process on stderr, as a shell reads it, with --resume. */
static void print_command(void) {
    /* The arguments as they were given, each with a zero behind it; options_parse has reordered argv. */
    FILE *f = fopen("/proc/self/cmdline", "rb");
    char *text = NULL;
    size_t capacity = 0;
    bool resumes = false;
    fputs("  ", stderr);
    for (const char *gap = ""; f && getdelim(&text, &capacity, '\0', f) > 0; gap = " ") {
        resumes |= strcmp(text, "--resume") == 0;
        fputs(gap, stderr);
        print_argument(text);
    }
    fprintf(stderr, "%s%s\n", f ? "" : "chunkllama batch ...", resumes ? "" : " --resume");
    free(text);
    if (f) fclose(f);
}

/* Say what is done and how to continue. */
static void print_stopped(const batch_job *j) {
    const char *name = interrupted == SIGINT ? "SIGINT" : "SIGTERM";
    fprintf(stderr, "chunkllama batch: stopped by %s; %zu of %zu requests are done", name, j->output.n_answers,
            j->plan.n_order);
    if (!j->output.partial_path) {
        fprintf(stderr, ". --resume continues only jobs whose --output is a file\n");
        return;
    }
    fprintf(stderr, ", and kept in %s and %s. To continue:\n", j->output.path, j->output.partial_path);
    print_command();
}

static void close_job(batch_job *j) {
    session_close(&j->s); /* cancels what still runs; no event comes afterwards */
    batch_work_free(&j->work);
    batch_plan_free(&j->plan);
    batch_input_close(&j->input);
    openai_tenants_free(&j->tenants);
}

int cmd_batch(const cli_options *opt) {
    batch_job j = {.input.fd = -1};
    cl_error error;
    cl_status status = read_shard(opt, &j.shard, &error);
    if (status == CL_OK && !opt->input) status = cl_fail(&error, CL_ERR_ARG, "--input is missing; name the file of requests");
    if (status == CL_OK) status = batch_input_open(&j.input, opt->input, &error);
    if (status == CL_OK) status = batch_output_open(&j.output, opt->output, &j.input, opt->resume, &error);
    openai_json_init();
    if (status == CL_OK) status = session_load(&j.s, opt, &error);
    session_use_grammars(&j.s, opt);
    if (status == CL_OK) status = set_defaults(&j, opt, &error);
    if (status == CL_OK) status = session_start(&j.s, opt, opt->max_seqs, &error);
    if (status == CL_OK) status = prepare(&j, opt, &error);
    if (status == CL_OK) status = work(&j, opt, &error);
    const bool complete = j.plan.n_order == j.output.n_answers, standard = j.output.out == stdout;
    const int stopped = status == CL_OK && !complete ? interrupted : 0;
    if (stopped) print_stopped(&j);
    if (status == CL_OK && !stopped) batch_output_complete(&j.output);
    if (status == CL_OK && !stopped) print_summary(&j);
    if (status == CL_OK && !stopped && opt->summary) status = write_summary(&j, opt->summary, &error);
    const bool failed_to_write = j.work.failed;
    const size_t n_answers = j.output.n_answers, n_failed = j.output.n_failed;
    close_job(&j);
    if (!batch_output_close(&j.output) && status == CL_OK)
        status = cl_fail(&error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    if (stopped) return 128 + stopped;
    if (standard && failed_to_write) return 1; /* main reports it */
    if (status == CL_OK && n_failed > 0)
        status = cl_fail(&error, CL_ERR_ARG, "%zu of %zu requests failed; their answers say why", n_failed, n_answers);
    return status == CL_OK ? 0 : session_fail(CMD_BATCH, &error);
}

/* `doctor`: says what this machine offers, what is missing, and how many users the K/V budget has room for. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "chunkattn/base/cpu.h"
#include "chunkattn/base/threads.h"
#include "chunkllama/common/str.h"
#include "chunkllama/engine/grammar.h"
#include "chunkllama/file/model_file.h"
#include "chunkllama/model/params.h"
#include "serve/http/sandbox.h"
#include "session.h"

typedef struct examination {
    bool json;
    int n_warnings;
} examination;

/* Report one thing: what was found, and the fix if that is not as it should be (NULL: it is). */
__attribute__((format(printf, 4, 5))) static void report(examination *x, const char *name, const char *fix, const char *format,
                                                         ...) {
    char found[400];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    x->n_warnings += fix != NULL;
    if (x->json) {
        char *text = cl_utf8_mended(found, strlen(found), NULL); /* a path may have any bytes */
        json_t *line = json_pack("{s:s, s:b, s:s?, s:s?}", "name", name, "ok", fix == NULL, "found", text, "fix", fix);
        if (line) json_dumpf(line, stdout, 0);
        printf("\n");
        json_decref(line);
        free(text);
    } else {
        printf("%-5s %-10s %s%s%s\n", fix ? "warn" : "ok", name, found, fix ? "; " : "", fix ? fix : "");
    }
}

/* The first line of a file; "" if it cannot be read. */
static void read_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    *line = '\0';
    if (file && fgets(line, (int)size, file)) line[strcspn(line, "\n")] = '\0';
    if (file) fclose(file);
}

static void examine_cpu(examination *x) {
    char levels[200] = "";
    const char *level;
    size_t used = 0;
    int n = 0;
    for (; (level = cattn_level_name(n)); n++)
        used += (size_t)snprintf(levels + used, sizeof levels - used, "%s%s", n ? ", " : "", level);
    report(x, "cpu", n > 1 ? NULL : "only the portable kernels run here, which are slow; use a CPU with AVX2 or better",
           "kernel levels %s", levels);
}

static void examine_threads(examination *x, const cli_options *opt) {
    const int n = opt->threads ? (int)opt->threads : ca_cpu_count();
    ca_pool *pool = ca_pool_create(n);
    const bool pins = pool && n <= ca_cpu_count() && ca_pool_pin(pool);
    report(x, "threads",
           !pool                ? "they cannot be started; lower --threads, or raise the limit of processes"
           : n > ca_cpu_count() ? "lower --threads"
                                : NULL,
           "%d threads on %d CPUs; --pin-threads %s", n, ca_cpu_count(), pins ? "works" : "does not work");
    if (pool) ca_pool_destroy(&pool);
}

enum { SHOWN_BYTES = 32 };

/* Bytes as "1.5 GiB" or "98 MiB", perhaps in the caller's text; UINT64_MAX: they are not known. */
static const char *show_bytes(uint64_t bytes, char text[SHOWN_BYTES]) {
    if (bytes == UINT64_MAX) return "unknown";
    const bool small = bytes < UINT64_C(1) << 30;
    snprintf(text, SHOWN_BYTES, small ? "%.0f MiB" : "%.1f GiB", (double)bytes / (small ? 0x1p20 : 0x1p30));
    return text;
}

static void examine_memory(examination *x, const cli_options *opt, const ca_memory *memory) {
    char total[SHOWN_BYTES], available[SHOWN_BYTES];
    report(x, "memory", (uint64_t)opt->kv_budget > memory->total ? "lower --kv-budget below that" : NULL, "total %s, free %s",
           show_bytes(memory->total, total), show_bytes(memory->free, available));
}

static void examine_pages(examination *x) {
    char line[128];
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
    const bool on = *line && !strstr(line, "[never]");
    report(x, "huge pages", on ? NULL : "write madvise to /sys/kernel/mm/transparent_hugepage/enabled",
           "transparent huge pages: %s", *line ? line : "not known");
}

static void examine_sandbox(examination *x) {
    const int version = sandbox_landlock_version();
    const bool filters = prctl(PR_GET_SECCOMP) >= 0;
    report(x, "sandbox",
           version < 1
               ? "--sandbox cannot limit files; use a kernel from 5.13 on, with landlock among the lsm= of its command line"
           : !filters ? "--sandbox cannot limit system calls; use a kernel with seccomp"
                      : NULL,
           "Landlock version %d%s, seccomp %s", version,
           version < 1   ? ""
           : version < 4 ? ", which does not limit TCP and signals"
           : version < 6 ? ", which does not limit signals"
                         : "",
           filters ? "yes" : "no");
}

static void examine_grammars(examination *x, const cli_options *opt) {
    const char *name = opt->grammar_library;
    const bool there = name ? access(name, R_OK) == 0 : cl_grammar_find(&name);
    report(x, "grammars",
           there ? NULL : "requests with a grammar are refused; install libllguidance.so, or name it with --grammar-library",
           "llguidance: %s", there ? name : "not found");
}

/* How many users fit into --kv-budget. */
static int64_t n_users(const cli_options *opt, uint64_t kv_budget, const cl_model_params *p) {
    static const uint64_t sizes[] = {4, 2, 2, 1, 1},
                          scales[] = {0, 0, 0, 4, 4}; /* bytes of a number, and of a head, by --kv-type */
    const uint64_t token = cl_params_kv_bytes(p, sizes[opt->kv_type], scales[opt->kv_type]);
    const int64_t chunk = opt->chunk_size, n_chunks = (int64_t)(kv_budget / (token * (uint64_t)chunk));
    return session_n_users(n_chunks, SHARED_TOKENS, OWN_TOKENS, chunk);
}

static void examine_tokenizer(examination *x, const cl_model_file *file) {
    cl_tokenizer *tok;
    cl_error error;
    if (cl_tokenizer_create(file, &tok, &error) != CL_OK) {
        report(x, "tokenizer", "name another file with --model", "%s", error.message);
        return;
    }
    const char *warning = cl_tokenizer_warning(tok);
    const cl_str pre = cl_tokenizer_pre(tok);
    char shown[40];
    report(x, "tokenizer", warning ? "convert the model with a newer converter" : NULL, "%s",
           warning    ? warning
           : pre.size ? cl_str_show(pre, shown, sizeof shown)
                      : "SentencePiece");
    cl_tokenizer_free(&tok);
}

static void examine_model(examination *x, const cli_options *opt, const ca_memory *memory) {
    cl_model_file *file = NULL;
    cl_model_params p = {0};
    cl_error error;
    cl_status status = cl_model_file_open(opt->model, &file, &error);
    if (status == CL_OK) status = cl_params_read(file, &p, &error);
    if (status != CL_OK) {
        report(x, "model", "name another file with --model", "%s", error.message);
    } else {
        char of_weights[SHOWN_BYTES], of_budget[SHOWN_BYTES];
        const uint64_t weights = cl_model_file_memory(file), budget = session_kv_budget(opt, memory->free, weights);
        report(x, "model",
               weights > memory->free            ? "the free memory does not hold the weights; take a smaller model"
               : budget > memory->free - weights ? "weights and --kv-budget exceed the free memory; lower --kv-budget"
                                                 : NULL,
               "%s of weights, %s of --kv-budget", show_bytes(weights, of_weights), show_bytes(budget, of_budget));
        const int64_t users = n_users(opt, budget, &p);
        report(x, "users", users < 1 ? "raise --kv-budget" : NULL,
               "room for %" PRId64 " users with a shared prompt of %d tokens and %d of their own", users, SHARED_TOKENS,
               OWN_TOKENS);
        examine_tokenizer(x, file);
    }
    cl_params_free(&p);
    if (file) cl_model_file_close(&file);
}

int cmd_doctor(const cli_options *opt) {
    examination x = {.json = opt->json};
    examine_cpu(&x);
    examine_threads(&x, opt);
    const ca_memory memory = session_memory(opt);
    examine_memory(&x, opt, &memory);
    examine_pages(&x);
    examine_sandbox(&x);
    examine_grammars(&x, opt);
    if (opt->model) examine_model(&x, opt, &memory);
    return x.n_warnings > 0;
}

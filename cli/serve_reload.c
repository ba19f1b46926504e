/* Reads the files of `serve` that may change while it runs, and applies the changes. */
#include "serve_reload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Files ---- */

/* Begin with a file, which stays open for the sandbox. path: NULL: there is none. */
static cl_status open_file(reread_file *f, const char *path, bool sandbox, cl_error *error) {
    *f = (reread_file){.path = path, .fd = -1};
    if (!path || !sandbox) return CL_OK;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    return f->fd >= 0 ? CL_OK : cl_fail(error, CL_ERR_FILE, "cannot open %.200s: %s", path, strerror(errno));
}

static void close_file(reread_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

/* Check that a file that is open still has a name: one that was replaced or removed has none. */
static cl_status check_file(const reread_file *f, cl_error *error) {
    struct stat st;
    if (f->fd < 0 || syscall(SYS_fstat, f->fd, &st) != 0 || st.st_nlink > 0) return CL_OK; /* fstat() would call newfstatat */
    return cl_fail(error, CL_ERR_FILE,
                   "%.200s was replaced by another file, which cannot be opened with --sandbox; restart the server, and from "
                   "then on write into the file",
                   f->path);
}

/* ---- Keys ---- */

static cl_status read_keys(const serve_reload *r, server_keys *keys, cl_error *error) {
    const char *key = r->opt->api_key;
    const reread_file *f = &r->keys_file;
    if (key && server_keys_add(keys, OPENAI_DEFAULT_TENANT, key, error) != CL_OK) return option_fail("api-key", error);
    if (!f->path) return CL_OK;
    cl_status status = check_file(f, error);
    if (status == CL_OK)
        status = f->fd < 0 ? server_keys_read(keys, f->path, error) : server_keys_read_open(keys, f->fd, f->path, error);
    return status == CL_OK ? CL_OK : option_fail("api-keys", error);
}

static bool has_weight(const server_keys *keys, const cl_engine_weight *wanted) {
    for (int32_t i = 0; i < keys->n_weights; i++)
        if (keys->weights[i].domain == wanted->domain) return keys->weights[i].weight == wanted->weight;
    return false;
}

/* Whether the weights are those that the engine has. */
static bool has_same_weights(const server_keys *a, const server_keys *b) {
    bool same = a->n_weights == b->n_weights;
    for (int32_t i = 0; same && i < a->n_weights; i++) same = has_weight(b, &a->weights[i]);
    return same;
}

static void reload_keys(const serve_reload *r, server *running, server_log *log) {
    server_keys keys = {0};
    log_line line;
    cl_error error;
    cl_status status = read_keys(r, &keys, &error);
    const size_t n = keys.n;
    const bool same_weights = has_same_weights(&keys, &r->keys);
    if (status == CL_OK) status = server_replace_keys(running, &keys, &error);
    server_keys_free(&keys);
    if (status != CL_OK && log_begin(&line, log, LOG_LEVEL_ERROR, "SIGHUP: the API keys stay as they were")) {
        log_text(&line, "reason", error.message);
        log_end(&line);
    }
    if (status == CL_OK && log_begin(&line, log, LOG_LEVEL_INFO, "SIGHUP: the API keys were read again")) {
        log_integer(&line, "keys", (int64_t)n);
        log_end(&line);
    }
    if (status == CL_OK && !same_weights && log_begin(&line, log, LOG_LEVEL_WARN, "SIGHUP: weights stay as they were")) {
        log_text(&line, "fix", "restart the server to apply the new weights of tenants");
        log_end(&line);
    }
}

/* ---- All ---- */

cl_status serve_reload_open(serve_reload *r, const options *opt, cl_error *error) {
    *r = (serve_reload){.opt = opt};
    if (open_file(&r->keys_file, opt->api_keys, opt->sandbox, error) != CL_OK) return option_fail("api-keys", error);
    return read_keys(r, &r->keys, error);
}

void serve_reload_close(serve_reload *r) {
    close_file(&r->keys_file);
    server_keys_free(&r->keys);
}

void serve_reload_again(serve_reload *r, server *running, server_log *log) {
    log_line line;
    if (r->keys_file.path)
        reload_keys(r, running, log);
    else if (log_begin(&line, log, LOG_LEVEL_WARN, "SIGHUP: there is no file to read again")) {
        log_text(&line, "fix", "restart the server to apply changes of options");
        log_end(&line);
    }
}

/* Reads the files of `serve` that may change while it runs, and applies the changes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

/* ---- Files ---- */

/* Look at an open file. Returns false if nothing was written into it since this was called last. */
static bool was_written(cli_serve_file *f) {
    struct stat st;
    if (syscall(SYS_fstat, f->fd, &st) != 0) return true; /* fstat() would call newfstatat, which the sandbox forbids */
    const bool written =
        st.st_mtim.tv_sec != f->written_at.tv_sec || st.st_mtim.tv_nsec != f->written_at.tv_nsec || st.st_size != f->size;
    f->written_at = st.st_mtim;
    f->size = st.st_size;
    return written;
}

/* Begin with a file, which stays open for the sandbox. path: NULL: there is none. */
static cl_status open_file(cli_serve_file *f, const char *path, bool sandbox, cl_error *error) {
    *f = (cli_serve_file){.path = path, .fd = -1};
    if (!path || !sandbox) return CL_OK;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return cl_fail(error, CL_ERR_FILE, "cannot open %.200s: %s", path, strerror(errno));
    was_written(f);
    return CL_OK;
}

static void close_file(cli_serve_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

/* Check that a file that is open still has a name: one that was replaced or removed has none. */
static cl_status check_file(const cli_serve_file *f, cl_error *error) {
    struct stat st;
    if (f->fd < 0 || syscall(SYS_fstat, f->fd, &st) != 0 || st.st_nlink > 0) return CL_OK; /* as in was_written */
    return cl_fail(error, CL_ERR_FILE,
                   "%.200s was replaced by another file, which cannot be opened with --sandbox; restart the server, and from "
                   "then on write into the file",
                   f->path);
}

static void log_unread(const cli_serving *v, const cli_serve_file *f, const char *reason, const char *fix) {
    serve_log(v, LOG_LEVEL_WARN, "SIGHUP: a file was not read again", f->path, reason, fix);
}

/*
 * Whether reading the file cannot keep the program's thread waiting, which lets requests end, as a pipe could. Otherwise the
 * log says so.
 */
static bool is_prompt(const cli_serving *v, const cli_serve_file *f) {
    struct stat st;
    if (f->fd >= 0 || stat(f->path, &st) != 0 || S_ISREG(st.st_mode)) return true;
    log_unread(v, f, "it is not a regular file", "restart the server, or name a regular file");
    return false;
}

/* Whether the file may have changed since it was read. */
static bool may_be_new(cli_serve_file *f) {
    cl_error error;
    return f->fd < 0 || check_file(f, &error) != CL_OK || was_written(f);
}

static void log_same(const cli_serving *v, const cli_serve_file *f) {
    log_unread(v, f, "nothing was written into it since it was read",
               "if its path names another file now, restart the server: --sandbox does not allow it to open that one");
}

/* Read a whole file that is open, from its beginning. */
static cl_status read_open(const cli_serve_file *f, cli_text *text, cl_error *error) {
    char buf[4096];
    ssize_t n;
    cl_status status = text_buffer_append(text, "", 0, error);
    while (status == CL_OK && (n = pread(f->fd, buf, sizeof buf, (off_t)text->size)) != 0) {
        if (n < 0) return cl_fail(error, CL_ERR_FILE, "cannot read %.200s: %s", f->path, strerror(errno));
        status = text_buffer_append(text, buf, (size_t)n, error);
    }
    return status;
}

static cl_status read_file(const cli_serve_file *f, cli_text *text, cl_error *error) {
    const cl_status status = check_file(f, error);
    if (status != CL_OK) return status;
    return f->fd < 0 ? text_buffer_read(text, f->path, error) : read_open(f, text, error);
}

/* ---- Keys ---- */

static cl_status read_keys(const cli_serving *v, server_keys *keys, cl_error *error) {
    const char *key = v->opt->api_key;
    const cli_serve_file *f = &v->keys_file;
    if (key && server_keys_add(keys, OPENAI_DEFAULT_TENANT, key, error) != CL_OK) return option_fail("api-key", error);
    if (!f->path) return CL_OK;
    cl_status status = check_file(f, error);
    if (status == CL_OK) status = server_keys_read(keys, f->path, f->fd, error);
    return status == CL_OK ? CL_OK : option_fail("api-keys", error);
}

static float weight_of(const server_keys *keys, uint32_t domain) {
    for (int32_t i = 0; i < keys->n_weights; i++)
        if (keys->weights[i].domain == domain) return keys->weights[i].weight;
    return 1;
}

/* Whether the tenants of these keys have the weights that they had at the start. */
static bool has_same_weights(const server_keys *keys, const server_keys *start) {
    bool same = true;
    for (size_t i = 0; same && i < keys->n; i++)
        same = weight_of(keys, keys->keys[i].domain) == weight_of(start, keys->keys[i].domain);
    return same;
}

static void reload_keys(const cli_serving *v) {
    server_keys keys = {0};
    log_line line;
    cl_error error;
    cl_status status = read_keys(v, &keys, &error);
    const size_t n = keys.n;
    const bool same_weights = has_same_weights(&keys, &v->keys);
    if (status == CL_OK) status = server_replace_keys(v->running, &keys, &error);
    server_keys_free(&keys);
    if (status != CL_OK) {
        serve_log(v, LOG_LEVEL_ERROR, "SIGHUP: the API keys stay as they were", NULL, error.message, NULL);
        return;
    }
    if (log_begin(&line, v->log, LOG_LEVEL_INFO, "SIGHUP: the API keys were read again")) {
        log_integer(&line, "keys", (int64_t)n);
        log_end(&line);
    }
    if (!same_weights)
        serve_log(v, LOG_LEVEL_WARN, "SIGHUP: weights stay as they were", NULL, NULL,
                  "restart the server to apply the new weights of tenants");
}

/* ---- The certificate ---- */

/* Read both files, and create v->tls, or replace what it has. */
static cl_status read_tls(cli_serving *v, cl_error *error) {
    cli_text cert = {0}, key = {0};
    cl_status status = read_file(&v->cert_file, &cert, error);
    if (status != CL_OK) option_fail("tls-cert", error);
    if (status == CL_OK && (status = read_file(&v->key_file, &key, error)) != CL_OK) option_fail("tls-key", error);
    if (status == CL_OK) {
        const tls_file cert_text = {.path = v->cert_file.path, .text = cert.data},
                       key_text = {.path = v->key_file.path, .text = key.data};
        status = v->tls ? tls_replace(v->tls, &cert_text, &key_text, error) : tls_create(&v->tls, &cert_text, &key_text, error);
    }
    text_buffer_free(&cert);
    text_buffer_free(&key);
    return status;
}

void serve_log_tls(const cli_serving *v, const char *message) {
    log_line line;
    if (!v->tls) return;
    const double days = (double)(tls_expires_at(v->tls) - (int64_t)time(NULL)) / 86400;
    const bool expired = days <= 0;
    if (!log_begin(&line, v->log, expired ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
                   expired ? "the certificate has expired, so clients will refuse it" : message))
        return;
    log_text(&line, "certificate", v->cert_file.path);
    if (!expired) log_integer(&line, "days_left", (int64_t)days);
    log_text(&line, "fix", expired ? "renew it, and send SIGHUP" : NULL);
    log_end(&line);
}

static void reload_tls(cli_serving *v) {
    cl_error error;
    if (read_tls(v, &error) == CL_OK)
        serve_log_tls(v, "SIGHUP: the certificate was read again");
    else
        serve_log(v, LOG_LEVEL_ERROR, "SIGHUP: the certificate stays as it was", NULL, error.message, NULL);
}

/* ---- All ---- */

cl_status serve_files_open(cli_serving *v, cl_error *error) {
    const cli_options *opt = v->opt;
    const bool sandbox = opt->sandbox, tls = opt->tls_cert && opt->tls_key;
    if (open_file(&v->keys_file, opt->api_keys, sandbox, error) != CL_OK) return option_fail("api-keys", error);
    if (read_keys(v, &v->keys, error) != CL_OK) return error->code;
    if (!tls && (opt->tls_cert || opt->tls_key))
        return cl_fail(error, CL_ERR_ARG, "--tls-cert and --tls-key belong together; set --tls-%s, too",
                       opt->tls_cert ? "key" : "cert");
    if (open_file(&v->cert_file, opt->tls_cert, sandbox, error) != CL_OK) return option_fail("tls-cert", error);
    if (open_file(&v->key_file, opt->tls_key, sandbox, error) != CL_OK) return option_fail("tls-key", error);
    return tls ? read_tls(v, error) : CL_OK;
}

void serve_files_close(cli_serving *v) {
    close_file(&v->keys_file);
    close_file(&v->cert_file);
    close_file(&v->key_file);
    tls_destroy(&v->tls);
    server_keys_free(&v->keys);
}

void serve_files_reread(cli_serving *v) {
    const bool has_keys = v->keys_file.path && is_prompt(v, &v->keys_file);
    const bool has_tls = v->tls && is_prompt(v, &v->cert_file) && is_prompt(v, &v->key_file);
    const bool new_keys = has_keys && may_be_new(&v->keys_file), new_cert = has_tls && may_be_new(&v->cert_file);
    const bool new_tls = (has_tls && may_be_new(&v->key_file)) || new_cert;
    if (new_keys) reload_keys(v);
    if (new_tls) reload_tls(v);
    /* Where one of them was written, the signal was not for the others. */
    if (has_keys && !new_keys && !new_tls) log_same(v, &v->keys_file);
    if (has_tls && !new_keys && !new_tls) log_same(v, &v->cert_file);
    if (!v->keys_file.path && !v->tls)
        serve_log(v, LOG_LEVEL_WARN, "SIGHUP: there is no file to read again", NULL, NULL,
                  "restart the server to apply changes of options");
}

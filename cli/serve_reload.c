/* Reads the files of `serve` that may change while it runs, and applies the changes. */
#include "serve_reload.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "text_buffer.h"

/* ---- Files ---- */

/* Look at an open file. Returns false if nothing was written into it since this was called last. */
static bool was_written(reread_file *f) {
    struct stat st;
    if (syscall(SYS_fstat, f->fd, &st) != 0) return true; /* fstat() would call newfstatat, which the sandbox forbids */
    const bool written =
        st.st_mtim.tv_sec != f->written_at.tv_sec || st.st_mtim.tv_nsec != f->written_at.tv_nsec || st.st_size != f->size;
    f->written_at = st.st_mtim;
    f->size = st.st_size;
    return written;
}

/* Begin with a file, which stays open for the sandbox. path: NULL: there is none. */
static cl_status open_file(reread_file *f, const char *path, bool sandbox, cl_error *error) {
    *f = (reread_file){.path = path, .fd = -1};
    if (!path || !sandbox) return CL_OK;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return cl_fail(error, CL_ERR_FILE, "cannot open %.200s: %s", path, strerror(errno));
    was_written(f);
    return CL_OK;
}

static void close_file(reread_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

/* Check that a file that is open still has a name: one that was replaced or removed has none. */
static cl_status check_file(const reread_file *f, cl_error *error) {
    struct stat st;
    if (f->fd < 0 || syscall(SYS_fstat, f->fd, &st) != 0 || st.st_nlink > 0) return CL_OK; /* as in was_written */
    return cl_fail(error, CL_ERR_FILE,
                   "%.200s was replaced by another file, which cannot be opened with --sandbox; restart the server, and from "
                   "then on write into the file",
                   f->path);
}

static void log_unread(const reread_file *f, server_log *log, const char *reason, const char *fix) {
    log_line line;
    if (!log_begin(&line, log, LOG_LEVEL_WARN, "SIGHUP: a file was not read again")) return;
    log_text(&line, "file", f->path);
    log_text(&line, "reason", reason);
    log_text(&line, "fix", fix);
    log_end(&line);
}

/* Whether reading the file cannot keep the thread waiting that ends the program, as a pipe could. Otherwise the log says so. */
static bool is_prompt(const reread_file *f, server_log *log) {
    struct stat st;
    if (f->fd >= 0 || stat(f->path, &st) != 0 || S_ISREG(st.st_mode)) return true;
    log_unread(f, log, "it is not a regular file", "restart the server, or name a regular file");
    return false;
}

/* Whether the file may have changed since it was read. */
static bool may_be_new(reread_file *f) {
    cl_error error;
    return f->fd < 0 || check_file(f, &error) != CL_OK || was_written(f);
}

static void log_same(const reread_file *f, server_log *log) {
    log_unread(f, log, "nothing was written into it since it was read",
               "if its path names another file now, restart the server: --sandbox does not allow it to open that one");
}

/* Read a whole file that is open, from its beginning. */
static cl_status read_open(const reread_file *f, text_buffer *text, cl_error *error) {
    char buf[4096];
    ssize_t n;
    cl_status status = text_buffer_append(text, "", 0, error);
    while (status == CL_OK && (n = pread(f->fd, buf, sizeof buf, (off_t)text->size)) != 0) {
        if (n < 0) return cl_fail(error, CL_ERR_FILE, "cannot read %.200s: %s", f->path, strerror(errno));
        status = text_buffer_append(text, buf, (size_t)n, error);
    }
    return status;
}

static cl_status read_file(const reread_file *f, text_buffer *text, cl_error *error) {
    const cl_status status = check_file(f, error);
    if (status != CL_OK) return status;
    return f->fd < 0 ? text_buffer_read(text, f->path, error) : read_open(f, text, error);
}

/* ---- Keys ---- */

static cl_status read_keys(const serve_reload *r, server_keys *keys, cl_error *error) {
    const char *key = r->opt->api_key;
    const reread_file *f = &r->keys_file;
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

static void reload_keys(const serve_reload *r, http_server *running, server_log *log) {
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

/* ---- The certificate ---- */

/* Read both files, and create r->tls, or replace what it has. */
static cl_status read_tls(serve_reload *r, cl_error *error) {
    text_buffer cert = {0}, key = {0};
    cl_status status = read_file(&r->cert_file, &cert, error);
    if (status != CL_OK) option_fail("tls-cert", error);
    if (status == CL_OK && (status = read_file(&r->key_file, &key, error)) != CL_OK) option_fail("tls-key", error);
    if (status == CL_OK) {
        const tls_file cert_text = {.path = r->cert_file.path, .text = cert.data},
                       key_text = {.path = r->key_file.path, .text = key.data};
        status = r->tls ? tls_replace(r->tls, &cert_text, &key_text, error) : tls_create(&r->tls, &cert_text, &key_text, error);
    }
    text_buffer_free(&cert);
    text_buffer_free(&key);
    return status;
}

void serve_reload_log_tls(const serve_reload *r, server_log *log, const char *message) {
    log_line line;
    if (!r->tls) return;
    const double days = (double)(tls_expires_at(r->tls) - (int64_t)time(NULL)) / 86400;
    if (days > 0 && log_begin(&line, log, LOG_LEVEL_INFO, message)) {
        log_text(&line, "certificate", r->cert_file.path);
        log_integer(&line, "days_left", (int64_t)days);
        log_end(&line);
    } else if (days <= 0 && log_begin(&line, log, LOG_LEVEL_WARN, "the certificate has expired, so clients will refuse it")) {
        log_text(&line, "certificate", r->cert_file.path);
        log_text(&line, "fix", "renew it, and send SIGHUP");
        log_end(&line);
    }
}

static void reload_tls(serve_reload *r, server_log *log) {
    log_line line;
    cl_error error;
    if (read_tls(r, &error) == CL_OK)
        serve_reload_log_tls(r, log, "SIGHUP: the certificate was read again");
    else if (log_begin(&line, log, LOG_LEVEL_ERROR, "SIGHUP: the certificate stays as it was")) {
        log_text(&line, "reason", error.message);
        log_end(&line);
    }
}

/* ---- All ---- */

cl_status serve_reload_open(serve_reload *r, const options *opt, cl_error *error) {
    *r = (serve_reload){.opt = opt, .cert_file.fd = -1, .key_file.fd = -1};
    if (open_file(&r->keys_file, opt->api_keys, opt->sandbox, error) != CL_OK) return option_fail("api-keys", error);
    if (read_keys(r, &r->keys, error) != CL_OK) return error->code;
    if (!opt->tls_cert && !opt->tls_key) return CL_OK;
    if (!opt->tls_cert || !opt->tls_key)
        return cl_fail(error, CL_ERR_ARG, "--tls-cert and --tls-key belong together; set --tls-%s, too",
                       opt->tls_cert ? "key" : "cert");
    if (open_file(&r->cert_file, opt->tls_cert, opt->sandbox, error) != CL_OK) return option_fail("tls-cert", error);
    if (open_file(&r->key_file, opt->tls_key, opt->sandbox, error) != CL_OK) return option_fail("tls-key", error);
    return read_tls(r, error);
}

void serve_reload_close(serve_reload *r) {
    close_file(&r->keys_file);
    close_file(&r->cert_file);
    close_file(&r->key_file);
    tls_destroy(&r->tls);
    server_keys_free(&r->keys);
}

void serve_reload_again(serve_reload *r, http_server *running, server_log *log) {
    log_line line;
    if (r->keys_file.path && is_prompt(&r->keys_file, log)) {
        if (may_be_new(&r->keys_file))
            reload_keys(r, running, log);
        else
            log_same(&r->keys_file, log);
    }
    if (r->tls && is_prompt(&r->cert_file, log) && is_prompt(&r->key_file, log)) {
        const bool new_cert = may_be_new(&r->cert_file), new_key = may_be_new(&r->key_file);
        if (new_cert || new_key)
            reload_tls(r, log);
        else
            log_same(&r->cert_file, log);
    }
    if (!r->keys_file.path && !r->tls && log_begin(&line, log, LOG_LEVEL_WARN, "SIGHUP: there is no file to read again")) {
        log_text(&line, "fix", "restart the server to apply changes of options");
        log_end(&line);
    }
}

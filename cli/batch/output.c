/* Opens and writes the files of a job's answers. */
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

cl_status batch_output_fail(cl_error *error, const char *action, const char *path) {
    return cl_fail(error, CL_ERR_FILE, "cannot %s %s: %s", action, path, strerror(errno));
}

static bool is_regular(FILE *f) {
    struct stat st;
    return fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
}

/* ---- Beginning ---- */

cl_status batch_output_open(batch_output *o, const char *path, const batch_input *in, bool resume, cl_error *error) {
    const bool standard = strcmp(path, "-") == 0;
    o->path = standard ? "standard output" : path;
    o->made_at = in->made_at;
    if (standard && resume) return cl_fail(error, CL_ERR_ARG, "--resume continues an existing output; name it with --output");
    if (!standard && batch_input_is(in, path))
        return cl_fail(error, CL_ERR_ARG, "--output %s is the file of requests; write the results to another file", path);
    struct stat st;
    const bool has_reader = !standard && stat(path, &st) == 0 && !S_ISREG(st.st_mode); /* or is a device */
    o->out = standard ? stdout : fopen(path, has_reader ? "ab" : "ab+");
    if (!o->out) return batch_output_fail(error, "write", path);
    if (standard) return CL_OK;
    if (!is_regular(o->out))
        return resume ? cl_fail(error, CL_ERR_ARG, "--resume: --output %s is no regular file, so nothing can be in it", path)
                      : CL_OK;
    if (flock(fileno(o->out), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return cl_fail(error, CL_ERR_FILE, "another job writes --output %s; wait until it has ended", path);
    o->partial_path = malloc(strlen(path) + sizeof ".partial");
    if (!o->partial_path) return cl_fail(error, CL_ERR_NOMEM, "no memory for the name of a file");
    strcat(strcpy(o->partial_path, path), ".partial");
    return CL_OK;
}

/* Open the partial file; what it has stays. */
static cl_status open_partial(batch_output *o, cl_error *error) {
    int fd = -1;
    if (o->partial_path) {
        o->partial = fopen(o->partial_path, "ab+");
        return o->partial ? CL_OK : batch_output_fail(error, "write", o->partial_path);
    }
    fd = batch_scratch_open(error);
    if (fd < 0) return CL_ERR_FILE;
    o->partial = fdopen(fd, "w+b");
    if (o->partial) return CL_OK;
    close(fd);
    return cl_fail(error, CL_ERR_NOMEM, "no memory for the scratch file of answers");
}

/* Empty both files, the output first: as long as the partial file is there, it says for which job they are. */
static cl_status empty_files(batch_output *o, cl_error *error) {
    if (!o->partial_path) return CL_OK;
    if (ftruncate(fileno(o->out), 0) != 0) return batch_output_fail(error, "write", o->path);
    return ftruncate(fileno(o->partial), 0) == 0 ? CL_OK : batch_output_fail(error, "write", o->partial_path);
}

/* Write the first line of the partial file, if there is none. */
static cl_status write_identity(batch_output *o, const json_t *identity, cl_error *error) {
    if (!o->partial_path || fseeko(o->partial, 0, SEEK_END) != 0 || ftello(o->partial) > 0) return CL_OK;
    json_t *line = json_copy((json_t *)identity);
    errno = ENOMEM;
    const bool ok = line && json_object_set_new(line, BATCH_MADE_AT, json_integer((json_int_t)o->made_at)) == 0 &&
                    json_dumpf(line, o->partial, JSON_COMPACT) == 0 && fputc('\n', o->partial) != EOF &&
                    fflush(o->partial) == 0;
    json_decref(line);
    return ok ? CL_OK : batch_output_fail(error, "write", o->partial_path);
}

/* Skip the lines of other shards. */
static void skip_others(batch_output *o) {
    while (o->next < o->plan->n_lines && !o->plan->lines[o->next].mine) o->next++;
}

cl_status batch_output_begin(batch_output *o, const batch_plan *plan, const json_t *identity, bool resume, cl_error *error) {
    o->plan = plan;
    o->saved = calloc(plan->n_lines + 1, sizeof *o->saved);
    if (!o->saved) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu answers", plan->n_lines);
    skip_others(o);
    cl_status status = open_partial(o, error);
    if (status == CL_OK) status = resume ? batch_output_resume(o, identity, error) : empty_files(o, error);
    if (status == CL_OK) status = write_identity(o, identity, error);
    return status == CL_OK && !batch_output_follow(o) ? batch_output_fail(error, "write", o->path) : status;
}

/* ---- Answers ---- */

bool batch_output_has(const batch_output *o, size_t line) { return line < o->next || o->saved[line].size > 0; }

/* Append a saved answer to the output. */
static bool copy(batch_output *o, const batch_saved *saved) {
    char piece[16384];
    for (size_t at = 0; at < saved->size;) {
        const size_t most = saved->size - at < sizeof piece ? saved->size - at : sizeof piece;
        const ssize_t n = pread(fileno(o->partial), piece, most, saved->offset + (int64_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0 || fwrite(piece, 1, (size_t)n, o->out) != (size_t)n) return false;
        at += (size_t)n;
    }
    return true;
}

bool batch_output_follow(batch_output *o) {
    const size_t first = o->next;
    for (; o->next < o->plan->n_lines && o->saved[o->next].size > 0; skip_others(o)) {
        if (!copy(o, &o->saved[o->next])) return false;
        o->next++;
    }
    return o->next == first || fflush(o->out) == 0;
}

/* Append the answer to the partial file. */
static bool save(batch_output *o, size_t line, const batch_line *done, bool *is_error) {
    FILE *f = o->partial;
    if (fseeko(f, 0, SEEK_END) != 0 || fprintf(f, "%zu ", o->plan->lines[line].number) < 0) return false;
    const int64_t offset = ftello(f);
    if (!batch_line_print(done, f, is_error)) return false;
    o->saved[line] = (batch_saved){offset, (size_t)(ftello(f) - offset)};
    return true;
}

bool batch_output_add(batch_output *o, size_t line, const batch_line *done) {
    bool is_error;
    const bool is_next = line == o->next;
    if (!(is_next ? batch_line_print(done, o->out, &is_error) : save(o, line, done, &is_error))) return false;
    o->n_answers++;
    o->n_failed += is_error;
    if (!is_next) return true;
    o->next++;
    skip_others(o);
    return batch_output_follow(o);
}

/* ---- The end ---- */

void batch_output_complete(batch_output *o) {
    if (o->partial_path) unlink(o->partial_path);
}

bool batch_output_close(batch_output *o) {
    bool ok = true;
    if (o->partial) fclose(o->partial);
    if (o->out && o->out != stdout) ok = fclose(o->out) == 0;
    free(o->partial_path);
    free(o->saved);
    *o = (batch_output){0};
    return ok;
}

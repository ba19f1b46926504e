/* Opens, cuts and appends to the files of a batch's records. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const members[OUTPUT_KINDS] = {"output", "errors"};

static cl_status fail(cl_error *error, const char *action) {
    return cl_fail(error, CL_ERR_FILE, "cannot %s the output of a batch: %s", action, strerror(errno));
}

/* ---- What a file has ---- */

/* Where a record ends, and its number. */
typedef struct record_end {
    int64_t number, end;
} record_end;

typedef struct scan {
    record_end *records; /* [n] owned */
    size_t n, capacity;
    char head[40]; /* the first bytes of the line */
    size_t n_head;
} scan;

static bool add_record(scan *s, int64_t number, int64_t end) {
    if (s->n == s->capacity) {
        const size_t capacity = 2 * s->capacity + 1024;
        record_end *larger = realloc(s->records, capacity * sizeof *larger);
        if (!larger) return false;
        s->records = larger;
        s->capacity = capacity;
    }
    s->records[s->n++] = (record_end){number, end};
    return true;
}

/* The number of the record whose first bytes were seen; 0: it is none. */
static int64_t number_of(const scan *s) {
    int64_t number;
    return sscanf(s->head, "{\"id\": \"batch_req_%" SCNd64 "\"", &number) == 1 && number > 0 ? number : 0;
}

/* Add the records that end in a piece of the file at `offset`. *damaged: a line is no record, and ends the scan. */
static bool scan_piece(scan *s, const char *piece, size_t size, int64_t offset, bool *damaged) {
    for (size_t i = 0; i < size; i++) {
        if (piece[i] != '\n') {
            if (s->n_head + 1 < sizeof s->head) s->head[s->n_head++] = piece[i];
            s->head[s->n_head] = '\0';
            continue;
        }
        const int64_t number = number_of(s);
        *damaged = !number || (s->n > 0 && number <= s->records[s->n - 1].number);
        if (*damaged) return true;
        if (!add_record(s, number, offset + (int64_t)i + 1)) return false;
        s->n_head = 0;
        s->head[0] = '\0';
    }
    return true;
}

static cl_status scan_file(scan *s, int fd, cl_error *error) {
    char piece[16384];
    bool damaged = false;
    for (int64_t offset = 0; !damaged;) {
        const ssize_t n = pread(fd, piece, sizeof piece, offset);
        if (n == 0) return CL_OK;
        if (n < 0) return fail(error, "read");
        if (!scan_piece(s, piece, (size_t)n, offset, &damaged))
            return cl_fail(error, CL_ERR_NOMEM, "no memory for the output of a batch");
        offset += n;
    }
    return CL_OK;
}

/* The number of the last record before the first one that is missing in both files. */
static int64_t last_of_all(const scan s[OUTPUT_KINDS]) {
    size_t at[OUTPUT_KINDS] = {0};
    for (int64_t number = 1;; number++) {
        int kind = 0;
        while (kind < OUTPUT_KINDS && !(at[kind] < s[kind].n && s[kind].records[at[kind]].number == number)) kind++;
        if (kind == OUTPUT_KINDS) return number - 1;
        at[kind]++;
    }
}

/* Cut a file behind its last record that is not above `last`. */
static cl_status cut(output *o, output_kind kind, const scan *s, int64_t last, cl_error *error) {
    size_t n = s->n;
    while (n > 0 && s->records[n - 1].number > last) n--;
    o->n[kind] = (int64_t)n;
    o->size[kind] = n > 0 ? s->records[n - 1].end : 0;
    return ftruncate(o->fd[kind], o->size[kind]) == 0 ? CL_OK : fail(error, "cut");
}

/* ---- Opening ---- */

cl_status output_open(output *o, store *s, const json_t *record, bool gaps, cl_error *error) {
    scan scans[OUTPUT_KINDS] = {0};
    cl_status status = CL_OK;
    *o = (output){.fd = {-1, -1}};
    for (int kind = 0; status == CL_OK && kind < OUTPUT_KINDS; kind++) {
        o->fd[kind] = store_append_data(s, json_string_value(json_object_get(record, members[kind])), error);
        status = o->fd[kind] < 0 ? CL_ERR_FILE : scan_file(&scans[kind], o->fd[kind], error);
    }
    const int64_t last = status != CL_OK ? 0 : gaps ? INT64_MAX : last_of_all(scans);
    for (int kind = 0; status == CL_OK && kind < OUTPUT_KINDS; kind++)
        status = cut(o, (output_kind)kind, &scans[kind], last, error);
    for (int kind = 0; kind < OUTPUT_KINDS; kind++) free(scans[kind].records);
    if (status != CL_OK) output_close(o);
    return status;
}

void output_close(output *o) {
    for (int kind = 0; kind < OUTPUT_KINDS; kind++) {
        if (o->fd[kind] >= 0) close(o->fd[kind]);
        o->fd[kind] = -1;
    }
}

/* ---- Writing ---- */

cl_status output_add(output *o, output_kind kind, const char *record, size_t size, cl_error *error) {
    /* What a call before has left, which could not be removed then, must not stand before a whole record. */
    if (o->torn[kind] && ftruncate(o->fd[kind], o->size[kind]) != 0) return fail(error, "cut");
    o->torn[kind] = !folder_write(o->fd[kind], record, size);
    if (o->torn[kind]) {
        const cl_status status = fail(error, "write");
        o->torn[kind] = ftruncate(o->fd[kind], o->size[kind]) != 0;
        return status;
    }
    o->size[kind] += (int64_t)size;
    o->n[kind]++;
    return CL_OK;
}

cl_status output_sync(const output *o, cl_error *error) {
    for (int kind = 0; kind < OUTPUT_KINDS; kind++)
        if (fsync(o->fd[kind]) != 0) return fail(error, "write");
    return CL_OK;
}

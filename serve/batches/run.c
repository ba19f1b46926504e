/* A batch that is computed: from its input to its last record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "serve/protocol/json.h"
#include "worker_state.h"

/* ---- Creation ---- */

static slot *slot_at(const run *r, size_t i) { return r->window[(r->first + i) % r->capacity]; }

run *run_create(worker *w, const json_t *record) {
    run *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->w = w;
    r->record = store_copy(record);
    r->input = -1;
    r->out = (output){.fd = {-1, -1}};
    r->domain = store_owner_of(record).domain;
    r->expires_at = json_integer_value(json_object_get(store_object(record), "expires_at"));
    snprintf(r->id, sizeof r->id, "%s", store_id(record));
    r->capacity = 4 * (size_t)w->config.max_choices + 16; /* keeps the engine busy while a slow request delays the output */
    r->window = calloc(r->capacity, sizeof *r->window);
    if (r->window && r->record) return r;
    run_free(r);
    return NULL;
}

void run_free(run *r) {
    if (!r) return;
    for (size_t i = 0; r->window && i < r->n; i++) slot_free(slot_at(r, i));
    free((void *)r->window);
    lines_free(&r->in);
    output_close(&r->out);
    if (r->input >= 0) close(r->input);
    json_decref(r->record);
    free(r);
}

/* ---- Changing the record ---- */

/* Something failed: try again later. Returns false. */
static bool retry(run *r) {
    r->retry_at = clock_seconds() + r->w->config.retry_s;
    return false;
}

/* Change the record on disk. False: it cannot be written now. A batch that is cancelled meanwhile is cut. */
static bool set(run *r, const batch_change *change) {
    cl_error error;
    json_t *record = NULL;
    const cl_status status = batch_set(r->w->config.store, r->id, change, true, &record, &error);
    const bool cancelled = record && batch_has_status(record, "cancelling");
    json_decref(record);
    if (status != CL_OK) return retry(r);
    if (cancelled && r->end == RUN_GOES_ON) run_cut(r, RUN_CANCELLED);
    return true;
}

/* Show how far the batch is. It is not written to disk, where the records say it. */
static void show_counts(run *r) {
    cl_error error;
    r->counts.completed = r->out.n[OUTPUT_ANSWERS];
    r->counts.failed = r->out.n[OUTPUT_ERRORS];
    batch_set(r->w->config.store, r->id, &(batch_change){.counts = &r->counts}, false, NULL, &error);
}

/* ---- Beginning ---- */

static const char *input_id(const run *r) {
    return json_string_value(json_object_get(store_object(r->record), "input_file_id"));
}

/* Fail with one error of the whole input. */
static bool fail_input(run *r, const char *code, const char *message) {
    json_t *errors = json_pack("[{s:s, s:n, s:s, s:n}]", "code", code, "line", "message", message, "param");
    const bool ok = errors && set(r, &(batch_change){.status = "failed", .errors = errors});
    json_decref(errors);
    return ok || retry(r);
}

static bool stops_check(void *ctx) { return atomic_load(&((run *)ctx)->w->stopping); }

/* Check the input. False: try again later. *failed: the batch has ended. */
static bool check_input(run *r, bool *failed) {
    json_t *errors = NULL;
    cl_error error;
    const char *endpoint = json_string_value(json_object_get(store_object(r->record), "endpoint"));
    const cl_status status =
        batch_check(r->input, endpoint, r->w->config.max_line, stops_check, r, &r->counts.total, &errors, &error);
    bool ok = status == CL_OK && !stops_check(r);
    *failed = ok && json_array_size(errors) > 0;
    if (*failed)
        ok = set(r, &(batch_change){.status = "failed", .errors = errors});
    else if (ok)
        ok = set(r, &(batch_change){.status = "in_progress", .counts = &r->counts});
    json_decref(errors);
    *failed = *failed && ok;
    return ok || retry(r);
}

/* Pass over the requests of the input whose records exist. */
static bool skip_written(run *r) {
    lines_begin(&r->in, r->input, r->w->config.max_line);
    for (; r->n_read < r->n_written; r->n_read++) {
        const char *text;
        size_t size;
        if (lines_next(&r->in, &text, &size) != LINES_OK) return false;
    }
    return true;
}

/* Open the files, and check the input of a new batch. False: try again later. *ended: the batch has failed. */
static bool begin(run *r, bool *ended) {
    cl_error error;
    const bool cancelled = batch_has_status(r->record, "cancelling");
    if (r->input < 0) r->input = store_open_data(r->w->config.store, input_id(r));
    if (r->input < 0 && !cancelled) {
        *ended = fail_input(r, "file_not_found", "the input file cannot be read");
        return *ended;
    }
    if (batch_has_status(r->record, "validating")) {
        if (!check_input(r, ended)) return false;
        if (*ended) return true;
    } else {
        json_unpack(json_object_get(store_object(r->record), "request_counts"), "{s:I}", "total", &r->counts.total);
    }
    if (output_open(&r->out, r->w->config.store, r->record, cancelled, &error) != CL_OK) return retry(r);
    r->n_written = r->out.n[OUTPUT_ANSWERS] + r->out.n[OUTPUT_ERRORS];
    r->opened = true;
    if (cancelled) run_cut(r, RUN_CANCELLED);
    if (r->end == RUN_GOES_ON && !skip_written(r)) {
        output_close(&r->out);
        r->opened = false;
        r->n_read = 0;
        return retry(r);
    }
    show_counts(r);
    return true;
}

/* ---- Reading ---- */

/* Read the next request into the window, unless that is full. False: there is none, or memory is lacking. */
static bool read_next(run *r) {
    const char *text;
    size_t size;
    const lines_status status = lines_next(&r->in, &text, &size);
    if (status == LINES_END) r->all_read = true;
    if (status != LINES_OK) return status == LINES_END ? false : retry(r);
    if (r->n > 0 && r->n_bytes + size > r->w->config.max_line) {
        lines_back(&r->in, text);
        return false;
    }
    slot *s = slot_create(r, r->n_read + 1, text, size);
    if (!s) {
        lines_back(&r->in, text);
        return retry(r);
    }
    r->n_read++;
    r->window[(r->first + r->n++) % r->capacity] = s;
    r->n_bytes += size;
    return true;
}

bool run_submit(run *r) {
    worker *w = r->w;
    if (!r->opened || r->end != RUN_GOES_ON || clock_seconds() < r->retry_at) return false;
    for (size_t i = 0; i < r->n; i++) {
        slot *s = slot_at(r, i);
        if (s->state == SLOT_REFUSED) return false; /* the order of the input */
        if (s->state != SLOT_READY) continue;
        const int64_t n = (int64_t)s->line.request.n_prompts * s->line.request.params.n;
        if (w->n_choices > 0 && w->n_choices + n > w->config.max_choices) return false;
        if (slot_submit(s)) return true;
        return retry(r);
    }
    return w->n_choices < w->config.max_choices && r->n < r->capacity && !r->all_read && read_next(r);
}

/* ---- Writing ---- */

static bool add(run *r, output_kind kind, char *record, size_t size) {
    cl_error error;
    const bool ok = record && output_add(&r->out, kind, record, size, &error) == CL_OK;
    free(record);
    r->n_written += ok;
    return ok || retry(r);
}

/* Write the record of a request that has ended. False: try again later. */
static bool add_answer(run *r, const slot *s) {
    size_t size = 0;
    char *record = batch_line_record(&s->line, &size);
    return add(r, batch_line_has_error(&s->line) ? OUTPUT_ERRORS : OUTPUT_ANSWERS, record, size);
}

/* Write the record of a request that the batch has no time for. id: its custom_id, borrowed; NULL: it is not known. */
static bool add_expired(run *r, int64_t number, json_t *id) {
    char name[40];
    size_t size = 0;
    openai_writer w = {.spaced = true};
    snprintf(name, sizeof name, "batch_req_%lld", (long long)number);
    writer_open(&w, NULL, '{');
    writer_string(&w, "id", name);
    writer_value(&w, "custom_id", id ? json_incref(id) : json_null());
    writer_null(&w, "response");
    writer_open(&w, "error", '{');
    writer_string(&w, "code", "batch_expired");
    writer_string(&w, "message", "the batch's completion_window ended before this request");
    writer_close(&w);
    writer_close(&w);
    writer_raw(&w, "\n");
    char *record = writer_end(&w, &size);
    return add(r, OUTPUT_ERRORS, record, size);
}

/* Write what a request that was not answered leaves. False: nothing more can be written now. */
static bool add_unanswered(run *r, const slot *s) {
    switch (r->end) {
    case RUN_CANCELLED: return true;
    case RUN_EXPIRED: return add_expired(r, (int64_t)s->line.number, s->line.id);
    default: return false;
    }
}

void run_write(run *r, bool *progress) {
    bool written = false;
    while (r->n > 0) {
        slot *s = slot_at(r, 0);
        if (s->state == SLOT_RUNNING || s->state == SLOT_REFUSED) break;
        if (s->state == SLOT_READY || s->cut ? !add_unanswered(r, s) : !add_answer(r, s)) break;
        r->n_bytes -= s->size;
        slot_free(s);
        r->first = (r->first + 1) % r->capacity;
        r->n--;
        written = true;
    }
    if (written) show_counts(r);
    *progress |= written;
}

/* Write the records of the requests that were not read. False: try again later. */
static bool expire_rest(run *r) {
    const char *text;
    size_t size;
    lines_status status;
    while ((status = lines_next(&r->in, &text, &size)) == LINES_OK) {
        openai_error error;
        json_t *line = openai_json_parse("line", text, size, &error);
        const bool known = line || error.status < 500;
        const bool ok = known ? add_expired(r, r->n_read + 1, json_object_get(line, "custom_id")) : retry(r);
        json_decref(line);
        if (!ok) {
            lines_back(&r->in, text);
            return false;
        }
        r->n_read++;
    }
    return status == LINES_END || retry(r);
}

/* ---- The end ---- */

void run_cut(run *r, run_end end) {
    if (r->end == RUN_GOES_ON) r->end = end;
    for (size_t i = 0; i < r->n; i++) slot_cancel(slot_at(r, i));
}

bool run_update(run *r) {
    bool idle = true;
    for (size_t i = 0; i < r->n; i++) {
        slot *s = slot_at(r, i);
        slot_update(s);
        idle &= s->state == SLOT_READY || s->state == SLOT_DONE;
    }
    return idle;
}

/* Make a file that clients can read of the records of one kind. *id: the file's; NULL: there are no records. */
static bool add_file(run *r, output_kind kind, const char **id) {
    static const char *const members[OUTPUT_KINDS] = {"output", "errors"}, *const names[OUTPUT_KINDS] = {"output", "error"};
    store *s = r->w->config.store;
    const store_owner owner = store_owner_of(r->record);
    char name[STORE_ID + 20], file[STORE_ID];
    const char *planned = json_string_value(json_object_get(r->record, members[kind]));
    *id = NULL;
    if (r->out.size[kind] == 0) {
        store_remove_data(s, planned);
        return true;
    }
    *id = planned;
    if (store_has(s, STORE_FILE, r->domain, planned)) return true; /* from before a crash */
    snprintf(name, sizeof name, "%s_%s.jsonl", r->id, names[kind]);
    snprintf(file, sizeof file, "%s", planned);
    cl_error error;
    json_t *object = store_file_object(name, "batch_output", r->out.size[kind]);
    return object && store_add(s, STORE_FILE, &owner, file, object, NULL, NULL, &error) == CL_OK;
}

static const char *last_status(const run *r) {
    return r->end == RUN_CANCELLED ? "cancelled" : r->end == RUN_EXPIRED ? "expired" : "completed";
}

/* End the batch, whose records are written. Each part may be repeated. False: try again later. */
static bool finish(run *r) {
    cl_error error;
    const char *output, *errors, *status;
    if (r->end == RUN_GOES_ON && !set(r, &(batch_change){.status = "finalizing"})) return false;
    if (output_sync(&r->out, &error) != CL_OK) return retry(r);
    if (!add_file(r, OUTPUT_ANSWERS, &output) || !add_file(r, OUTPUT_ERRORS, &errors)) return retry(r);
    do {
        status = last_status(r);
        if (!set(r, &(batch_change){.status = status, .counts = &r->counts, .output_file_id = output, .error_file_id = errors}))
            return false;
    } while (status != last_status(r)); /* it was cancelled meanwhile */
    return true;
}

/* ---- All together ---- */

/* Notice that the batch was cancelled, or has expired. */
static void look_for_end(run *r) {
    if (r->end != RUN_GOES_ON) return;
    json_t *record = store_get(r->w->config.store, STORE_BATCH, r->domain, r->id);
    if (record && batch_has_status(record, "cancelling"))
        run_cut(r, RUN_CANCELLED);
    else if ((int64_t)time(NULL) >= r->expires_at)
        run_cut(r, RUN_EXPIRED);
    json_decref(record);
}

bool run_advance(run *r, bool *progress) {
    bool ended = false;
    if (clock_seconds() < r->retry_at) return true;
    if (!r->opened) {
        if (!begin(r, &ended)) return true;
        *progress = true;
        if (ended) return false;
    }
    look_for_end(r);
    run_update(r);
    run_write(r, progress);
    if (clock_seconds() < r->retry_at || r->n > 0 || (r->end == RUN_GOES_ON && !r->all_read)) return true;
    if (r->end == RUN_EXPIRED && !expire_rest(r)) return true;
    show_counts(r);
    return !finish(r);
}

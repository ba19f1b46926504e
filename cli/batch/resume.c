/* Reads the answers of a job that was ended, and refuses those of another one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkllama/common/json_text.h"
#include "output.h"

typedef struct resume {
    batch_output *o;
    char *line; /* [capacity] of getline */
    size_t capacity;
    size_t number; /* of the line in its file */
    size_t n_torn; /* bytes of an incomplete last line, which is in `line` */
} resume;

/* ---- An answer ---- */

/* The value of an answer's usage.prompt_tokens; -1: it has none. */
static int64_t prompt_tokens_of(const json_t *answer) {
    const json_t *response = json_object_get(answer, "response");
    const json_t *holder = response ? json_object_get(response, "body") : answer;
    const json_t *n = json_object_get(json_object_get(holder, "usage"), "prompt_tokens");
    return json_is_integer(n) ? json_integer_value(n) : -1;
}

static bool is_error(const json_t *answer) {
    const json_t *response = json_object_get(answer, "response");
    return response ? json_integer_value(json_object_get(response, "status_code")) != 200
                    : json_object_get(answer, "error") != NULL;
}

/* Whether an answer may be that of a line, by its id and the number of its prompt's tokens. */
static bool belongs(const json_t *answer, const plan_line *line) {
    const json_t *response = json_object_get(answer, "response");
    const json_t *id = json_object_get(answer, response ? "custom_id" : "id");
    char *text = id ? cl_json_dumps(id, JSON_ENCODE_ANY) : NULL;
    const int64_t n_tokens = prompt_tokens_of(answer);
    const bool same = text && plan_hash_id(text) == line->id_hash && (n_tokens < 0 || n_tokens == line->n_tokens);
    free(text);
    return same;
}

/* Count the answer text [size], if it is one of the line. */
static bool take_answer(batch_output *o, const char *text, size_t size, const plan_line *line) {
    json_error_t ignored;
    json_t *answer = cl_json_load(text, size, JSON_ALLOW_NUL, &ignored);
    const bool ok = json_is_object(answer) && belongs(answer, line);
    if (ok) {
        o->n_failed += is_error(answer);
        o->n_answers++;
        o->n_kept++;
    }
    json_decref(answer);
    return ok;
}

/* ---- The files ---- */

/* Read the next line. 0: none that is whole is left; *end is behind the last one that was. */
static size_t next_line(resume *r, FILE *f, int64_t *end) {
    const ssize_t size = getline(&r->line, &r->capacity, f);
    if (size <= 0 || r->line[size - 1] != '\n') {
        r->n_torn = size > 0 ? (size_t)size : 0;
        return 0;
    }
    *end += size;
    r->number++;
    return (size_t)size;
}

static cl_status cut(FILE *f, const char *path, int64_t end, cl_error *error) {
    if (ferror(f)) return batch_output_fail(error, "read", path);
    if (ftruncate(fileno(f), end) != 0) return batch_output_fail(error, "cut", path);
    return fseeko(f, 0, SEEK_END) == 0 ? CL_OK : batch_output_fail(error, "read", path);
}

static cl_status not_ours(const batch_output *o, size_t number, cl_error *error) {
    return cl_fail(error, CL_ERR_ARG,
                   "--resume: line %zu of %s is not the answer that belongs to the input there; name the output of this input, "
                   "or leave --resume out to begin anew",
                   number, o->path);
}

/* Read the output, whose lines must be answers of the shard's first lines, in order. *end: where the last whole one ends. */
static cl_status read_output(resume *r, int64_t *end, cl_error *error) {
    static const char start[] = "{\"id\": ";
    batch_output *o = r->o;
    r->number = 0;
    rewind(o->out);
    for (size_t size; (size = next_line(r, o->out, end)) > 0;) {
        if (o->next == o->plan->n_lines || !take_answer(o, r->line, size, &o->plan->lines[o->next]))
            return not_ours(o, r->number, error);
        do o->next++;
        while (o->next < o->plan->n_lines && !o->plan->lines[o->next].mine);
    }
    const size_t n = r->n_torn < strlen(start) ? r->n_torn : strlen(start);
    return memcmp(r->line ? r->line : "", start, n) == 0 ? CL_OK : not_ours(o, r->number + 1, error);
}

/* The parts of the identity that are no options: how they may differ, and what to do then. */
static const struct {
    const char *name, *difference;
} not_options[] = {
    {"input", "other requests than those of --input; name the output of this input"},
    {BATCH_MODEL_FILE, "another model than --model has now, though of the same name; use that one"},
    {BATCH_PENALTY_WINDOW, "penalties that count another number of tokens; use the same --repetition-penalty, set or left out"},
};

/* Compare what the partial file was begun with. */
static cl_status compare(const batch_output *o, const json_t *begun, const json_t *identity, cl_error *error) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)identity, name, value) {
        const json_t *old = json_object_get(begun, name);
        if (old && json_equal(old, value)) continue;
        for (size_t i = 0; i < sizeof not_options / sizeof *not_options; i++)
            if (strcmp(name, not_options[i].name) == 0)
                return cl_fail(error, CL_ERR_ARG, "--resume: %s was begun with %s, or leave --resume out to begin anew",
                               o->path, not_options[i].difference);
        char *was = old ? json_dumps(old, JSON_ENCODE_ANY) : NULL, *is = json_dumps(value, JSON_ENCODE_ANY);
        cl_fail(error, CL_ERR_ARG,
                "--resume: %s was begun with --%s %s, and now it is %s; use the same options, or leave --resume out to begin "
                "anew",
                o->path, name, was ? was : "unknown", is ? is : "unknown");
        free(was);
        free(is);
        return CL_ERR_ARG;
    }
    return CL_OK;
}

/* Read the first line of the partial file, and take its time over. *end: where it ends; 0: it is torn, or the file is new. */
static cl_status read_identity(resume *r, const json_t *identity, int64_t *end, cl_error *error) {
    rewind(r->o->partial);
    const size_t size = next_line(r, r->o->partial, end);
    if (size == 0) return CL_OK;
    json_t *begun = json_loadb(r->line, size, 0, NULL);
    const cl_status status = compare(r->o, begun, identity, error);
    const json_t *made_at = json_object_get(begun, BATCH_MADE_AT);
    if (json_is_integer(made_at)) r->o->made_at = json_integer_value(made_at);
    json_decref(begun);
    return status;
}

static int compare_numbers(const void *key, const void *line) {
    const size_t a = *(const size_t *)key, b = ((const plan_line *)line)->number;
    return a < b ? -1 : a > b;
}

/* Note the answer that a line [size] of the partial file, which ends at `end`, has. False: it has none of this job. */
static bool take_saved(resume *r, size_t size, int64_t end) {
    batch_output *o = r->o;
    char *rest;
    const size_t number = strtoull(r->line, &rest, 10), head = (size_t)(rest - r->line) + 1;
    const plan_line *line = bsearch(&number, o->plan->lines, o->plan->n_lines, sizeof *line, compare_numbers);
    if (!line || !line->mine || *rest != ' ' || head >= size) return false;
    const size_t i = (size_t)(line - o->plan->lines);
    if (batch_output_has(o, i)) return true;
    if (!take_answer(o, r->line + head, size - head, line)) return false;
    o->saved[i] = (batch_saved){end - (int64_t)(size - head), size - head};
    return true;
}

/* Read the answers behind the first line of the partial file. What follows a line that is none is computed again. */
static void read_saved(resume *r, int64_t *end) {
    int64_t read_to = *end;
    if (*end == 0) return;
    for (size_t size; (size = next_line(r, r->o->partial, &read_to)) > 0 && take_saved(r, size, read_to);) *end = read_to;
}

cl_status batch_output_resume(batch_output *o, const json_t *identity, cl_error *error) {
    resume r = {.o = o};
    int64_t out_end = 0, partial_end = 0; /* nothing is cut before all is checked */
    cl_status status = read_identity(&r, identity, &partial_end, error);
    if (status == CL_OK) status = read_output(&r, &out_end, error);
    if (status == CL_OK) read_saved(&r, &partial_end);
    if (status == CL_OK) status = cut(o->out, o->path, out_end, error);
    if (status == CL_OK) status = cut(o->partial, o->partial_path, partial_end, error);
    free(r.line);
    return status;
}

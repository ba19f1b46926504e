/* `cattn-bench render`: make the page of stored results again from their lines of JSON, without measuring. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/shared/results.h"

enum { MAX_PATH = 4096 };

static int fail(const char *path, const char *why) {
    fprintf(stderr, "cattn-bench render: %s: %s\n", path, why);
    return 1;
}

/* The head, and the rows appended to an array; NULL with a message on stderr. */
static json_t *load(const char *path, json_t *rows) {
    FILE *f = fopen(path, "re");
    json_error_t error = {.text = ""};
    if (!f) {
        fail(path, strerror(errno));
        return NULL;
    }
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, &error);
    for (json_t *row; head && (row = json_loadf(f, JSON_DISABLE_EOF_CHECK, &error));) json_array_append_new(rows, row);
    const bool complete = feof(f), described = json_is_string(json_object_get(head, "results"));
    fclose(f);
    if (described && complete) return head;
    fail(path, head && !described ? "its first line does not describe results" : error.text);
    json_decref(head);
    return NULL;
}

static int render(const char *path) {
    char folder[MAX_PATH];
    json_t *rows = json_array(), *head = load(path, rows);
    snprintf(folder, sizeof folder, "%s", path);
    const bool ok = head && results_write_page(head, rows, dirname(folder));
    json_decref(head);
    json_decref(rows);
    return ok ? 0 : 1;
}

int bench_render(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        fputs("usage: cattn-bench render FILE.jsonl...\n\nwrites NAME.md beside each file\n", argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    int status = 0;
    for (int i = 1; i < argc; i++) status |= render(argv[i]);
    return status;
}

/* `cattn-bench render`: make the pages of stored results again from their lines of JSON, without measuring. */
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

static bool is_head(const json_t *line) { return json_is_string(json_object_get(line, "results")); }

/* The results of a file, each an array of its head and its rows; NULL with a message on stderr. */
static json_t *load(const char *path) {
    FILE *f = fopen(path, "re");
    json_error_t error = {.text = ""};
    if (!f) {
        fail(path, strerror(errno));
        return NULL;
    }
    json_t *all = json_array(), *line;
    bool described = true;
    while (described && (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, &error))) {
        if (is_head(line)) json_array_append_new(all, json_array());
        described = json_array_append_new(json_array_get(all, json_array_size(all) - 1), line) == 0;
    }
    const bool complete = feof(f) && json_array_size(all) > 0;
    fclose(f);
    if (complete) return all;
    fail(path, described ? error.text : "its first line does not describe results");
    json_decref(all);
    return NULL;
}

static bool write_page(json_t *lines, const char *folder) {
    json_t *head = json_incref(json_array_get(lines, 0));
    json_array_remove(lines, 0);
    const bool ok = results_write_page(head, lines, folder);
    json_decref(head);
    return ok;
}

static int render(const char *path) {
    char copy[MAX_PATH];
    snprintf(copy, sizeof copy, "%s", path);
    const char *folder = dirname(copy);
    json_t *all = load(path), *lines;
    bool ok = all != NULL;
    size_t i;
    json_array_foreach(all, i, lines) ok = write_page(lines, folder) && ok;
    json_decref(all);
    return ok ? 0 : 1;
}

int bench_render(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        fputs("usage: cattn-bench render FILE.jsonl...\n\nwrites NAME.md beside the file for each result in it\n",
              argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    int status = 0;
    for (int i = 1; i < argc; i++) status |= render(argv[i]);
    return status;
}

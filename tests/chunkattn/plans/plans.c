/* Plans as text: see plans.h. */
#include "plans.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"

static void print_record(const plan_records *r, const int64_t *record, FILE *file) {
    const char *list = r->fields;
    fprintf(file, "%s", r->name);
    for (plan_field f; plan_next_field(&list, &f); record++)
        if (*record != f.simplest) fprintf(file, " %s=%" PRId64, f.name, *record);
    fprintf(file, "\n");
}

void plan_print(const plan_kind *kind, const void *plan, FILE *file) {
    for (size_t k = 0; k < kind->n_records; k++) {
        const plan_records *r = &kind->records[k];
        const int64_t *count = plan_count(r, plan);
        for (int64_t i = 0; i < (count ? *count : 1); i++) print_record(r, plan_record(r, plan, i), file);
    }
}

/* ---- Reading ---- */

static bool read_field(const plan_records *r, int64_t *record, const char *word) {
    const char *list = r->fields, *equals = strchr(word, '=');
    const size_t length = equals ? (size_t)(equals - word) : 0;
    for (plan_field f; equals && plan_next_field(&list, &f); record++) {
        if (length != strlen(f.name) || memcmp(word, f.name, length) != 0) continue;
        *record = strtoll(equals + 1, NULL, 10);
        return true;
    }
    fprintf(stderr, "%s has no field \"%s\"\n", r->name, word);
    return false;
}

static bool read_record(const plan_records *r, int64_t *record) {
    const char *list = r->fields;
    int64_t *value = record;
    for (plan_field f; plan_next_field(&list, &f);) *value++ = f.simplest;
    assert((size_t)(value - record) * sizeof *record == r->size);
    for (char *word; (word = strtok(NULL, " \n"));)
        if (!read_field(r, record, word)) return false;
    return true;
}

static bool read_line(const plan_kind *kind, void *plan, char *line) {
    const char *name = strtok(line, " \n");
    if (!name) return true;
    for (size_t k = 0; k < kind->n_records; k++) {
        const plan_records *r = &kind->records[k];
        int64_t *count = plan_count(r, plan);
        if (strcmp(name, r->name) != 0 || (count && *count == r->most)) continue;
        return read_record(r, plan_record(r, plan, count ? (*count)++ : 0));
    }
    fprintf(stderr, "\"%s\" is the name of no record, or there are too many of them\n", name);
    return false;
}

bool plan_read(const plan_kind *kind, void *plan, FILE *file) {
    char line[1024];
    while (fgets(line, sizeof line, file))
        if (!read_line(kind, plan, line)) return false;
    return true;
}

/* The queue of inspections: see inspection.h. */
#include "inspection.h"

#include <stdlib.h>

#include "chunkattn/base/clock.h"

cl_inspection *cl_inspection_create(void (*fn)(void *ctx, const cattn_cache *cache), void *ctx) {
    cl_inspection *inspection = malloc(sizeof *inspection);
    if (inspection) *inspection = (cl_inspection){.fn = fn, .ctx = ctx};
    return inspection;
}

void cl_inspection_free(cl_inspection *inspection) { free(inspection); }

void cl_inspections_post(cl_inspection **posted, cl_inspection *inspection) {
    inspection->next = *posted;
    *posted = inspection;
}

void cl_inspections_append(cl_inspection **due, cl_inspection **posted) {
    cl_inspection *in_order = NULL;
    while (*posted) {
        cl_inspection *last = *posted;
        *posted = last->next;
        cl_inspections_post(&in_order, last);
    }
    while (*due) due = &(*due)->next;
    *due = in_order;
}

void cl_inspections_call(cl_inspection **due, const cattn_cache *cache, double seconds) {
    if (!*due) return;
    const double until = clock_seconds() + seconds;
    do {
        cl_inspection *first = *due;
        *due = first->next;
        first->fn(first->ctx, cache);
        cl_inspection_free(first);
    } while (*due && clock_seconds() < until);
}

#include "report.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double report_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

json_t *report_number(double x) { return x > 0 ? json_real(x) : json_null(); }

void report_add_machine(json_t *object) {
    json_object_set_new(object, "cpu", json_string(ca_cpu_name()));
    json_object_set_new(object, "compiler", json_string("gcc " __VERSION__));
}

void report_print(json_t *object) {
    json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
    putchar('\n');
    fflush(stdout);
    json_decref(object);
}

/* Files about the system's memory are read, and the K/V budget follows them. */
#include "serve/http/pressure.h"

#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static void put(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_stalls(unsigned some_us) {
    char text[256];
    snprintf(text, sizeof text,
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=%u\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=999999999\n",
             some_us);
    put("memory.pressure", text);
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/pressure_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    static const char *const names[] = {"memory.pressure", "memory.current", "memory.stat", "memory.high", "memory.max"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static http_pressure *open_folder(void) {
    char path[128];
    cl_error error = {.message = ""};
    http_pressure *p;
    snprintf(path, sizeof path, "%s/memory.pressure", folder);
    if (pressure_open(path, &p, &error) != CL_OK) fail_msg("%s", error.message);
    return p;
}

static void stalls_are_a_part_of_the_time(void **state) {
    (void)state;
    put_stalls(5000000);
    http_pressure *p = open_folder();
    assert_true(pressure_read(p, 100).stalled == 0); /* nothing to compare with */
    put_stalls(5500000);
    assert_float_equal(pressure_read(p, 102).stalled, 0.25, 1e-9);
    assert_true(pressure_read(p, 103).stalled == 0);
    put_stalls(9900000);
    assert_true(pressure_read(p, 104).stalled == 1); /* a late reading must not exceed it */
    put_stalls(100);                                 /* as after the file's owner was replaced */
    assert_true(pressure_read(p, 105).stalled == 0);
    put("memory.pressure", "");
    assert_true(pressure_read(p, 106).stalled == 0);
    put_stalls(100100);
    assert_float_equal(pressure_read(p, 107).stalled, 0.05, 1e-9); /* since the last number */
    assert_true(pressure_read(p, 107).used == 0);                  /* no limit */
    pressure_close(&p);
    pressure_close(&p);
}

static void used_memory_is_what_cannot_be_dropped(void **state) {
    (void)state;
    put_stalls(0);
    put("memory.current", "1000\n");
    put("memory.stat", "anon 500\nfile 400\nshmem 0\ninactive_file 300\nactive_file 100\n");
    put("memory.high", "max\n");
    put("memory.max", "max\n");
    http_pressure *p = open_folder();
    assert_true(pressure_read(p, 1).used == 0);
    put("memory.max", "1200\n");
    assert_float_equal(pressure_read(p, 2).used, 0.5, 1e-9);
    put("memory.high", "800\n");
    assert_float_equal(pressure_read(p, 3).used, 0.75, 1e-9);
    put("memory.high", "4000\n");
    put("memory.current", "390\n"); /* the files do not change at once */
    assert_true(pressure_read(p, 4).used == 0);
    pressure_close(&p);
}

static void files_that_cannot_be_read_are_named(void **state) {
    (void)state;
    http_pressure *p;
    cl_error error;
    char path[128];
    snprintf(path, sizeof path, "%s/memory.pressure", folder);
    assert_int_equal(pressure_open(path, &p, &error), CL_ERR_FILE);
    assert_null(p);
    if (!strstr(error.message, path) || !strstr(error.message, "No such file")) fail_msg("%s", error.message);
    put("memory.pressure", "no numbers\n");
    assert_int_equal(pressure_open(path, &p, &error), CL_ERR_FILE);
    if (!strstr(error.message, "it has no line with total=; name memory.pressure")) fail_msg("%s", error.message);
}

/* This machine's own file, where it has one. */
static void the_systems_file_is_found(void **state) {
    (void)state;
    http_pressure *p;
    cl_error error;
    if (pressure_open("auto", &p, &error) != CL_OK) {
        print_message("%s\n", error.message);
        skip();
    }
    const pressure_sample sample = pressure_read(p, 1);
    assert_true(sample.stalled == 0 && sample.used >= 0);
    pressure_close(&p);
}

/* ---- The decision ---- */

static uint64_t decide(pressure_budget *b, double stalled, double used, uint64_t in_use, double now) {
    const pressure_sample sample = {stalled, used};
    pressure_decide(b, &sample, in_use, now);
    return b->bytes;
}

static void pressure_lowers_and_calm_raises(void **state) {
    (void)state;
    pressure_budget b = {.whole = 8000, .bytes = 8000};
    assert_int_equal(decide(&b, 0.10, 0.95, 6000, 1), 8000); /* at the limits, and not beyond them */
    assert_int_equal(decide(&b, 0.11, 0, 6000, 2), 4500);    /* of the memory in use, so that some returns */
    assert_int_equal(decide(&b, 0, 0.96, 6000, 3), 3375);    /* the engine has not followed yet */
    for (int i = 0; i < 10; i++) decide(&b, 1, 0, 3000, 4 + i);
    assert_int_equal(b.bytes, 1000); /* an eighth stays */
    assert_int_equal(decide(&b, 0.05, 0, 900, 20), 1000);
    assert_int_equal(decide(&b, 0, 0, 900, 29.9), 1000); /* 10 s after the last stalls */
    assert_int_equal(decide(&b, 0, 0, 900, 30), 2000);
    assert_int_equal(decide(&b, 0, 0.9, 900, 39), 2000); /* not calm */
    assert_int_equal(decide(&b, 0, 0, 900, 40), 2000);
    for (int i = 1; i <= 6; i++) assert_int_equal(decide(&b, 0.01, 0.85, 900, 39 + 10 * i), i < 6 ? 2000 + 1000 * i : 8000);
    assert_int_equal(decide(&b, 0, 0, 900, 200), 8000);
}

/* Samples between the limits keep the budget: it does not swing. */
static void between_the_limits_nothing_changes(void **state) {
    (void)state;
    pressure_budget b = {.whole = 8000, .bytes = 3000};
    for (int i = 0; i < 100; i++) assert_int_equal(decide(&b, 0.02 + 0.0008 * i, 0.86 + 0.0008 * i, 2500, i), 3000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stalls_are_a_part_of_the_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(used_memory_is_what_cannot_be_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_that_cannot_be_read_are_named, set_up, tear_down),
        cmocka_unit_test(the_systems_file_is_found),
        cmocka_unit_test(pressure_lowers_and_calm_raises),
        cmocka_unit_test(between_the_limits_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

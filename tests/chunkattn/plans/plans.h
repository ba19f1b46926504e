/*
 * Plans: everything that happens in a run of a test, as records of whole numbers. A plan is made from a seed or read from text;
 * a run of it always does the same. A run that fails is repeated, and its plan is shrunk and printed.
 *
 * Runs are in a child process, so that a crash or an assertion is a failure like any other.
 */
#ifndef TESTS_CHUNKATTN_PLANS_PLANS_H
#define TESTS_CHUNKATTN_PLANS_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * An array of records in a plan's struct. A record's struct has an int64_t for each word of `fields`, in this order: the name,
 * then ":KIND" if the value is the index of a record of that kind, then "=VALUE", the value that shrinking prefers, without it
 * 0.
 */
typedef struct plan_records {
    const char *name; /* at the beginning of a line of text */
    const char *fields;
    size_t size, at; /* bytes of a record, and of the plan before the array */
    size_t count;    /* bytes of the plan before the number of records, an int64_t; PLAN_ONE: there is exactly one */
    int64_t most;    /* records in the array */
} plan_records;

#define PLAN_ONE SIZE_MAX

typedef struct plan_kind {
    size_t size; /* of the struct */
    const plan_records *records;
    size_t n_records;
} plan_kind;

/* A line for each record: its name, then name=value of each field that has not the simplest value. */
void plan_print(const plan_kind *kind, const void *plan, FILE *file);

/* The reverse, into a plan whose bytes are zero. False: the text is not a plan, and a message was printed to stderr. */
bool plan_read(const plan_kind *kind, void *plan, FILE *file);

/* Find a smaller plan for which `fails` returns true, as it does for *plan, by removing and simplifying until nothing helps. */
void plan_shrink(const plan_kind *kind, void *plan, bool (*fails)(const void *plan));

/* ---- runs.c: runs in a child process ---- */

/* Memory of zeros that children share with their parent. The program ends if there is none. */
void *plan_shared(size_t size);

/* Run a task in a child. False: it failed. */
bool plan_run(void (*task)(const void *arg), const void *arg);

/* In a child: print what is wrong, and end. The format is the same for the same mistake. */
_Noreturn void plan_fail(const char *format, const char *message);

/* Shrink a plan whose run has failed to the smallest one that fails in the same way, print it, and run it again. */
void plan_report(const plan_kind *kind, void *plan, void (*run)(const void *plan));

/* Run the plan in a file, and report it if it fails. `plan` has room for it. Returns the program's exit status. */
int plan_run_file(const plan_kind *kind, const char *path, void *plan, void (*run)(const void *plan));

#endif

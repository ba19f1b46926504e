/* The functions that templates can call: filters, tests, functions, and methods of strings and collections. */
#ifndef CHUNKLLAMA_JINJA_BUILTINS_H
#define CHUNKLLAMA_JINJA_BUILTINS_H

#include "value.h"

/* The arguments of a call. Of a filter or test the first is the value, of a method the object. */
typedef struct cj_args {
    const cj_value *at; /* [n] */
    size_t n;
    const cj_text *names;  /* [n_named] */
    const cj_value *named; /* [n_named] */
    size_t n_named;
} cj_args;

typedef struct cj_builtin {
    const char *name;
    cj_value (*run)(cj_run *r, const cj_args *args);
    /*
     * The names of the parameters, separated by spaces; "-" is one that has no name. `run` then gets exactly these in args.at,
     * with CJ_ABSENT for those that are not passed, of which the first n_required never are. NULL: any arguments, as passed.
     */
    const char *parameters;
    int n_required;
} cj_builtin;

/* A row ends with an empty name. */
extern const cj_builtin cj_filters_of_text[], cj_filters_of_lists[], cj_tests[], cj_functions[];
extern const cj_builtin cj_str_methods[], cj_dict_methods[];

/* NULL: there is none of the name. */
const cj_builtin *cj_find_builtin(const cj_builtin *table, cl_str name);
const cj_builtin *cj_find_filter(cl_str name);
const cj_builtin *cj_find_test(cl_str name);

/* Fail because there is no filter, test, function or the like of the name here; Jinja may have it. */
_Noreturn void cj_fail_unsupported(cj_run *r, const char *what, cl_str name);

/* Match the arguments with the parameters, and run. what: "filter", "test" or "function", for messages. */
cj_value cj_run_builtin(cj_run *r, const cj_builtin *builtin, const char *what, const cj_args *args);

/* ---- Reading arguments ---- */

/* Whether the i-th argument was passed; one that was not counts as false. */
static inline bool cj_has(const cj_args *a, size_t i) { return a->at[i].kind != CJ_ABSENT; }
/* The i-th argument, a string or an integer; `otherwise` if it was not passed. Fails for other types. */
cj_text cj_arg_text(cj_run *r, const cj_args *a, size_t i);
int64_t cj_arg_int(cj_run *r, const cj_args *a, size_t i, int64_t otherwise);
/* The same as a string, whatever it is. */
cj_text cj_arg_str(cj_run *r, const cj_args *a, size_t i);

struct cj_function {
    const cj_builtin *builtin;
    cj_value self; /* CJ_ABSENT: none */
};

/* A method as a value. */
cj_value cj_bound(cj_run *r, const cj_builtin *method, const cj_value *self);

/* ---- Attributes ---- */

/* object.name and object[key], as the sandbox looks them up; undefined if there is no such. */
cj_value cj_attribute(cj_run *r, const cj_value *object, cl_str name);
cj_value cj_item(cj_run *r, const cj_value *object, const cj_value *key);

#endif

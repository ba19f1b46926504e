/* The values of a template: undefined, numbers, strings with the origin of their bytes, collections, functions. */
#ifndef CHUNKLLAMA_JINJA_VALUE_H
#define CHUNKLLAMA_JINJA_VALUE_H

#include <stdbool.h>

#include "run.h"
#include "text.h"

typedef enum cj_kind {
    CJ_ABSENT, /* an argument that was not passed; no value of a template */
    CJ_UNDEFINED,
    CJ_NONE,
    CJ_BOOL,
    CJ_INT,
    CJ_FLOAT,
    CJ_LONG_NUMBER, /* of the caller, beyond what 64 bits hold: it can only be written, digit for digit */
    CJ_STRING,
    CJ_LIST,
    CJ_TUPLE,
    CJ_RANGE,
    CJ_VIEW,     /* the results of dict.items() and .keys() */
    CJ_ITERATOR, /* the result of filters such as map; can be read once */
    CJ_DICT,
    CJ_NAMESPACE, /* the only thing that a template can change */
    CJ_LOOP,
    CJ_MACRO,
    CJ_FUNCTION
} cj_kind;

typedef struct cj_value cj_value;
typedef struct cj_list cj_list;
typedef struct cj_dict cj_dict;
typedef struct cj_loop cj_loop;
typedef struct cj_macro cj_macro;
typedef struct cj_function cj_function;

/* Passed by value. The memory that it points to lives as long as the run, or the template. */
struct cj_value {
    cj_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        cj_text text;  /* CJ_STRING; of CJ_LONG_NUMBER as it is written; of CJ_UNDEFINED the name of what is undefined */
        cj_list *list; /* CJ_LIST to CJ_ITERATOR */
        cj_dict *dict; /* CJ_DICT and CJ_NAMESPACE */
        cj_loop *loop;
        cj_macro *macro;
        cj_function *function;
    };
};

struct cj_list {
    cj_value *at; /* [n] */
    size_t n, capacity;
    bool used;        /* CJ_ITERATOR: it has been read */
    const char *name; /* CJ_VIEW and CJ_ITERATOR: its type's name in Python */
};

typedef struct cj_entry {
    cj_value key, value;
} cj_entry;

/* In the order of insertion. */
struct cj_dict {
    cj_entry *at; /* [n] */
    size_t n, capacity;
};

struct cj_loop {
    const cj_list *items;
    size_t index;
};

/* ---- Making values ---- */

static inline cj_value cj_none(void) { return (cj_value){.kind = CJ_NONE}; }
static inline cj_value cj_bool(bool b) { return (cj_value){.kind = CJ_BOOL, .boolean = b}; }
static inline cj_value cj_int(int64_t i) { return (cj_value){.kind = CJ_INT, .integer = i}; }
static inline cj_value cj_float(double f) { return (cj_value){.kind = CJ_FLOAT, .real = f}; }
static inline cj_value cj_string(cj_text text) { return (cj_value){.kind = CJ_STRING, .text = text}; }
static inline cj_value cj_sequence(cj_kind kind, cj_list *list) { return (cj_value){.kind = kind, .list = list}; }
/* what: its name, or some words in place of it, for messages */
static inline cj_value cj_undefined(cj_text what) { return (cj_value){.kind = CJ_UNDEFINED, .text = what}; }

cj_list *cj_list_new(cj_run *r, size_t capacity);
void cj_list_add(cj_run *r, cj_list *list, cj_value v);
cj_value cj_pair(cj_run *r, cj_value a, cj_value b);
cj_value cj_iterator(cj_list *list, const char *name);

cj_dict *cj_dict_new(cj_run *r);
/* Set the value of a key. Fails for a key that Python cannot hash. */
void cj_dict_set(cj_run *r, cj_dict *dict, cj_value key, cj_value value);
/* NULL: no such key. */
const cj_value *cj_dict_get(cj_run *r, const cj_dict *dict, const cj_value *key);
const cj_value *cj_dict_get_name(cj_run *r, const cj_dict *dict, cj_text name);

/* ---- Reading values ---- */

/* The type's name in Python, for messages. */
const char *cj_type(const cj_value *v);

bool cj_truth(const cj_value *v);
/* Whether v is an integer of 64 bits, *i, or any number; Python's True and False are. */
bool cj_is_int(const cj_value *v, int64_t *i);
bool cj_is_number(const cj_value *v);
bool cj_is_long_int(const cj_value *v);

bool cj_equal(cj_run *r, const cj_value *a, const cj_value *b);
/* Negative, 0 or positive. Fails for others than numbers, strings, and lists of these. */
int cj_compare(cj_run *r, const cj_value *a, const cj_value *b);
bool cj_contains(cj_run *r, const cj_value *container, const cj_value *v);
/* Fails for values that cannot be the key of a dict; tuples are not supported there. */
void cj_check_hashable(cj_run *r, const cj_value *v);

/* Whether `for` can loop over v. */
bool cj_is_iterable(const cj_value *v);
/* The elements of anything that can be looped over: borrowed, or made for a string or a dict. An iterator is used up. */
const cj_list *cj_elements(cj_run *r, const cj_value *v);
/* The result of Python's len. Fails if v has no length. */
size_t cj_length(cj_run *r, const cj_value *v);
bool cj_has_length(const cj_value *v);

/* Fail because v is undefined, or because a number has more than 64 bits. */
_Noreturn void cj_fail_undefined(cj_run *r, const cj_value *v);
_Noreturn void cj_fail_long(cj_run *r);

#endif

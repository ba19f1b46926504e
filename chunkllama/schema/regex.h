/*
 * Regular expressions of clients, as llguidance reads them. It reads those of Rust, in which \d, \w and \s stand for characters
 * of all scripts, and classes may stand in each other with operators between them, as in [a-z&&[^b]]. Clients write them for
 * JavaScript, Python or a peer's grammar engine, and mean ASCII's, and classes in which [, && and -- stand for themselves.
 */
#ifndef CHUNKLLAMA_SCHEMA_REGEX_H
#define CHUNKLLAMA_SCHEMA_REGEX_H

#include <stdbool.h>
#include <stddef.h>

enum { CL_REGEX_MAX_BYTES = 64 * 1024 };

/*
 * Write a regular expression [size] for llguidance: \d, \w, \s, \D, \W and \S are about ASCII, also in classes, unless the flag
 * u is set, as in (?u) or (?u:...); a class ends with its first closing bracket, as in JavaScript; a brace that begins no count
 * stands for itself. \cA and \Z are written as Rust has them. Returns a terminated text of *n bytes for the caller to free;
 * NULL: memory is lacking. What is no regular expression stays none. A text of more than CL_REGEX_MAX_BYTES, which the engine
 * refuses, stays as it is.
 */
char *cl_regex_ascii(const char *text, size_t size, size_t *n);

/* Whether it is a regular expression that llguidance reads. */
bool cl_regex_is_valid(const char *text);

/* Whether it looks ahead, looks behind or refers to a group, which no grammar engine can follow. */
bool cl_regex_looks_around(const char *text);

#endif

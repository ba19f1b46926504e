/* What references name: a JSON pointer, an anchor, or the $id of a part of the schema. */
#include <stdlib.h>
#include <string.h>

#include "schema_pass.h"

/* ---- Pointers ---- */

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decode a step of a pointer [size] to `step`: %25 and ~0 ~1. */
static void decode_step(const char *text, size_t size, char *step) {
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '%' && i + 2 < size && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
            c = (char)(hex(text[i + 1]) * 16 + hex(text[i + 2]));
            i += 2;
        } else if (c == '~' && i + 1 < size && (text[i + 1] == '0' || text[i + 1] == '1')) {
            c = text[++i] == '0' ? '~' : '/';
        }
        *step++ = c;
    }
    *step = 0;
}

static const json_t *take_step(const json_t *at, const char *step) {
    char *end;
    if (!json_is_array(at)) return json_object_get(at, step);
    const unsigned long i = strtoul(step, &end, 10);
    return *step && !*end ? json_array_get(at, i) : NULL;
}

/* The value that a pointer such as /a/0 names. */
static const json_t *follow(schema_pass *p, const json_t *at, const char *pointer) {
    char *step = malloc(strlen(pointer) + 1);
    p->no_memory |= !step;
    while (step && at && *pointer == '/') {
        const size_t size = strcspn(++pointer, "/");
        if (size == 0 && !pointer[0] && at == p->root) break; /* "#/" is the root for llguidance */
        decode_step(pointer, size, step);
        at = take_step(at, step);
        pointer += size;
    }
    free(step);
    return step ? at : NULL;
}

/* ---- Names ---- */

/* A string of a schema, which is counted; NULL: it has none. */
static const char *string_of(schema_pass *p, const json_t *schema, const char *key) {
    const json_t *string = json_object_get(schema, key);
    return schema_work(p, json_string_length(string) / 32) ? json_string_value(string) : NULL;
}

/* Whether a relative $id [length] is this one [size], if it is resolved against the root's. */
static bool is_resolved(schema_pass *p, const char *own, size_t length, const char *id, size_t size) {
    const char *root = string_of(p, p->root, "$id");
    const size_t before = size - length;
    return root && strncmp(root, id, before) == 0 && strncmp(id + before, own, length) == 0 &&
           (id[before - 1] == '/' || own[0] == '/');
}

/* Whether a schema has this $id: the whole, the end of its path, or as a relative one. */
static bool has_id(schema_pass *p, const json_t *schema, const char *id, size_t size) {
    const char *own = string_of(p, schema, "$id");
    const size_t length = own ? strcspn(own, "#") : 0;
    if (length > 0 && length < size) return is_resolved(p, own, length, id, size);
    if (length < size || size == 0 || strncmp(own + length - size, id, size) != 0) return false;
    return length == size || own[length - size - 1] == '/';
}

/* Whether it has this anchor, which drafts up to 7 write as the $id "#name". */
static bool has_anchor(schema_pass *p, const json_t *schema, const char *name, size_t size) {
    const char *anchor = string_of(p, schema, "$anchor"), *id = string_of(p, schema, "$id");
    return size > 0 && ((anchor && strlen(anchor) == size && strncmp(anchor, name, size) == 0) ||
                        (id && id[0] == '#' && strlen(id + 1) == size && strncmp(id + 1, name, size) == 0));
}

/* What is searched for: the only schema with a name. */
typedef struct search {
    bool (*has)(schema_pass *p, const json_t *schema, const char *name, size_t size);
    const char *name;
    size_t size, n_found;
    const json_t *found; /* the first one */
} search;

static void look_in(schema_pass *p, const json_t *at, search *s) {
    const char *key;
    json_t *member;
    size_t i;
    if (schema_enter(p, NULL)) { /* the members are counted one by one */
        if (s->has(p, at, s->name, s->size) && s->n_found++ == 0) s->found = at;
        json_object_foreach((json_t *)at, key, member) look_in(p, member, s);
        json_array_foreach(at, i, member) look_in(p, member, s);
    }
    schema_leave(p);
}

/* The schema with a name; NULL: there is none, or several. */
static const json_t *find(schema_pass *p, const json_t *at, bool (*has)(schema_pass *, const json_t *, const char *, size_t),
                          const char *name, size_t size) {
    search s = {.has = has, .name = name, .size = size};
    look_in(p, at, &s);
    return s.n_found == 1 ? s.found : NULL;
}

const json_t *schema_resolve(schema_pass *p, const json_t *reference) {
    const char *text = json_string_value(reference);
    if (!text) {
        schema_refuse(p, "$ref", "must be a string");
        return NULL;
    }
    schema_work(p, schema_text_work(strlen(text)));
    const size_t size = strcspn(text, "#");
    const char *fragment = text[size] ? text + size + 1 : "";
    const json_t *target = size == 0 || has_id(p, p->root, text, size) ? p->root : find(p, p->root, has_id, text, size);
    if (target && *fragment == '/')
        target = follow(p, target, fragment);
    else if (target && *fragment)
        target = find(p, target, has_anchor, fragment, strlen(fragment));
    if (!target && p->options.lenient) {
        schema_weaken(p, "$ref");
        return schema_keep(p, SCHEMA_PACK(p, "{sb}", "additionalProperties", 1));
    }
    if (!target) schema_refuse(p, text, "is a reference to no schema in this one, or to several");
    return target;
}

const json_t *schema_behind(schema_pass *p, const json_t *schema) {
    for (int i = 0; i < CL_SCHEMA_MAX_DEPTH && schema_is_reference(p, schema); i++)
        schema = schema_resolve(p, json_object_get(schema, "$ref"));
    return schema;
}

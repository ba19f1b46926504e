/* The index of files and batches, and their records on disk. */
#include "store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static const char *const prefixes[STORE_KINDS] = {"file-", "batch_"};
static const char *const object_names[STORE_KINDS] = {"file", "batch"};

struct store {
    folder folder;
    pthread_mutex_t writing; /* held while a record is changed on disk, so that changes come one after another; before `lock` */
    pthread_mutex_t lock;    /* guards what follows */
    json_t *records[STORE_KINDS]; /* objects of records by id, in the order in which they were made */
    int64_t sequence;             /* of the latest record */
};

/* ---- Records ---- */

/* Where memory is lacking, jansson may leave out a part of the value, and not say so. */
json_t *store_copy(const json_t *value) {
    json_t *copy = json_deep_copy(value);
    if (json_equal(copy, value)) return copy;
    json_decref(copy);
    return NULL;
}

json_t *store_object(const json_t *record) { return json_object_get(record, "object"); }

const char *store_id(const json_t *record) { return json_string_value(json_object_get(store_object(record), "id")); }

store_owner store_owner_of(const json_t *record) {
    return (store_owner){.tenant = json_string_value(json_object_get(record, "tenant")),
                         .domain = (uint32_t)json_integer_value(json_object_get(record, "domain"))};
}

bool store_batch_ended(const json_t *object) {
    static const char *const ends[] = {"completed", "failed", "expired", "cancelled"};
    const char *status = json_string_value(json_object_get(object, "status"));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!status || strcmp(status, ends[i]) == 0) return true;
    return false;
}

static void record_name(const char *id, const char *suffix, char name[80]) { snprintf(name, 80, "%.60s.%s", id, suffix); }

bool store_new_id(store_kind kind, char *id) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) return false;
    snprintf(id, STORE_ID, "%s%012" PRIx64 "%012" PRIx64, prefixes[kind], random[0] >> 16, random[1] >> 16);
    return true;
}

/* ---- Reading the folder ---- */

typedef struct loading {
    store *s;
    json_t *found; /* array of records, of all kinds */
    cl_status status;
    cl_error *error;
} loading;

static bool has_suffix(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* Whether a record has the members that are relied on. */
static bool is_record(const json_t *record, const char *name) {
    const json_t *object = store_object(record);
    const char *id = json_string_value(json_object_get(object, "id"));
    return id && strlen(id) < STORE_ID && strncmp(name, id, strlen(id)) == 0 && strcmp(name + strlen(id), ".json") == 0 &&
           json_is_string(json_object_get(record, "tenant")) && json_is_integer(json_object_get(record, "domain")) &&
           json_is_integer(json_object_get(record, "sequence"));
}

static void load_record(void *ctx, const char *name) {
    loading *l = ctx;
    if (l->status != CL_OK || !has_suffix(name, ".json")) return;
    json_t *record = NULL;
    l->status = folder_read_json(&l->s->folder, name, &record, l->error);
    if (l->status == CL_OK && !is_record(record, name)) l->status = folder_damaged(name, l->error);
    if (l->status == CL_OK && json_array_append(l->found, record) != 0)
        l->status = cl_fail(l->error, CL_ERR_NOMEM, "no memory for the records of --files-dir");
    json_decref(record);
}

static int compare(const void *a, const void *b) {
    const json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "sequence"));
    const json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "sequence"));
    return (x > y) - (x < y);
}

static bool is_of(const json_t *record, store_kind kind) {
    return strncmp(store_id(record), prefixes[kind], strlen(prefixes[kind])) == 0;
}

/* Put the records into the index, in their order. */
static bool index_records(store *s, const json_t *found) {
    const size_t n = json_array_size(found);
    json_t **sorted = calloc(n + 1, sizeof *sorted);
    bool ok = sorted;
    for (size_t i = 0; ok && i < n; i++) sorted[i] = json_array_get(found, i);
    if (ok) qsort((void *)sorted, n, sizeof *sorted, compare);
    for (size_t i = 0; ok && i < n; i++) {
        const store_kind kind = is_of(sorted[i], STORE_BATCH) ? STORE_BATCH : STORE_FILE;
        ok = json_object_set(s->records[kind], store_id(sorted[i]), sorted[i]) == 0;
        s->sequence = json_integer_value(json_object_get(sorted[i], "sequence"));
    }
    free((void *)sorted);
    return ok;
}

/* Whether contents belong to a file, or to a batch that may still run. */
static bool is_used(store *s, const char *id) {
    const char *key;
    json_t *record;
    if (json_object_get(s->records[STORE_FILE], id)) return true;
    json_object_foreach(s->records[STORE_BATCH], key, record) {
        if (store_batch_ended(store_object(record))) continue;
        const char *output = json_string_value(json_object_get(record, "output"));
        const char *errors = json_string_value(json_object_get(record, "errors"));
        if ((output && strcmp(output, id) == 0) || (errors && strcmp(errors, id) == 0)) return true;
    }
    return false;
}

static void remove_unused(void *ctx, const char *name) {
    loading *l = ctx;
    char id[80];
    snprintf(id, sizeof id, "%.79s", name);
    if (has_suffix(name, ".data")) id[strlen(id) - strlen(".data")] = '\0';
    if (has_suffix(name, ".part") || has_suffix(name, ".tmp") || (has_suffix(name, ".data") && !is_used(l->s, id)))
        folder_remove(&l->s->folder, name);
}

cl_status store_open(const char *path, store **opened, cl_error *error) {
    store *s = calloc(1, sizeof *s);
    *opened = NULL;
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for --files-dir");
    pthread_mutex_init(&s->writing, NULL);
    pthread_mutex_init(&s->lock, NULL);
    s->folder.fd = -1;
    loading l = {.s = s, .found = json_array(), .error = error};
    bool ok = l.found;
    for (int kind = 0; kind < STORE_KINDS; kind++) ok = (s->records[kind] = json_object()) && ok;
    cl_status status = ok ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for --files-dir");
    if (status == CL_OK) status = folder_open(&s->folder, path, error);
    if (status == CL_OK) status = folder_list(&s->folder, load_record, &l, error);
    if (status == CL_OK) status = l.status;
    if (status == CL_OK && !index_records(s, l.found))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the records of --files-dir");
    if (status == CL_OK) status = folder_list(&s->folder, remove_unused, &l, error);
    json_decref(l.found);
    if (status != CL_OK) {
        store_close(&s);
        return status;
    }
    *opened = s;
    return CL_OK;
}

void store_close(store **address) {
    store *s = address ? *address : NULL;
    if (!s) return;
    *address = NULL;
    folder_close(&s->folder);
    for (int kind = 0; kind < STORE_KINDS; kind++) json_decref(s->records[kind]);
    pthread_mutex_destroy(&s->writing);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- Reading the index ---- */

/* A tenant's record, borrowed; NULL: there is none. With s->lock held. */
static const json_t *find(const store *s, store_kind kind, uint32_t domain, const char *id) {
    const json_t *record = json_object_get(s->records[kind], id);
    return record && store_owner_of(record).domain == domain ? record : NULL;
}

json_t *store_get(store *s, store_kind kind, uint32_t domain, const char *id) {
    pthread_mutex_lock(&s->lock);
    json_t *copy = store_copy(find(s, kind, domain, id));
    pthread_mutex_unlock(&s->lock);
    return copy;
}

bool store_has(store *s, store_kind kind, uint32_t domain, const char *id) {
    pthread_mutex_lock(&s->lock);
    const bool has = find(s, kind, domain, id);
    pthread_mutex_unlock(&s->lock);
    return has;
}

void store_each_batch(store *s, bool (*use)(void *ctx, const json_t *record), void *ctx) {
    const char *key;
    json_t *record;
    pthread_mutex_lock(&s->lock);
    json_object_foreach(s->records[STORE_BATCH], key, record) {
        if (!use(ctx, record)) break;
    }
    pthread_mutex_unlock(&s->lock);
}

/* The objects of a tenant's records [*n], the oldest first, borrowed, for the caller to free. With s->lock held. */
static json_t **select_objects(store *s, store_kind kind, uint32_t domain, const char *purpose, size_t *n) {
    json_t **objects = calloc(json_object_size(s->records[kind]) + 1, sizeof *objects);
    const char *key;
    json_t *record;
    *n = 0;
    if (!objects) return NULL;
    json_object_foreach(s->records[kind], key, record) {
        json_t *object = store_object(record);
        const char *has = json_string_value(json_object_get(object, "purpose"));
        if (store_owner_of(record).domain == domain && (!purpose || (has && strcmp(has, purpose) == 0)))
            objects[(*n)++] = object;
    }
    return objects;
}

static void reverse(json_t **objects, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        json_t *other = objects[n - 1 - i];
        objects[n - 1 - i] = objects[i];
        objects[i] = other;
    }
}

static json_t *id_of(const json_t *data, size_t i) {
    const json_t *id = json_object_get(json_array_get(data, i), "id");
    return id ? json_copy((json_t *)id) : json_null();
}

/* OpenAI's list of objects from index `first` on. */
static json_t *make_list(json_t *const *objects, size_t n, size_t first, int64_t limit) {
    json_t *data = json_array();
    bool ok = data;
    size_t end = first;
    for (; ok && end < n && (int64_t)(end - first) < limit; end++)
        ok = json_array_append_new(data, store_copy(objects[end])) == 0;
    if (!ok) {
        json_decref(data);
        return NULL;
    }
    json_t *first_id = id_of(data, 0), *last_id = id_of(data, json_array_size(data) - 1);
    return json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "data", data, "first_id", first_id, "last_id", last_id,
                     "has_more", end < n);
}

json_t *store_list(store *s, store_kind kind, uint32_t domain, const store_query *query, bool *found) {
    size_t n, first = 0;
    json_t *list = NULL;
    *found = true;
    pthread_mutex_lock(&s->lock);
    json_t **objects = select_objects(s, kind, domain, query->purpose, &n);
    if (objects && !query->oldest_first) reverse(objects, n);
    if (objects && query->after) {
        while (first < n && strcmp(json_string_value(json_object_get(objects[first], "id")), query->after) != 0) first++;
        *found = first++ < n;
    }
    if (objects && *found) list = make_list(objects, n, first, query->limit);
    pthread_mutex_unlock(&s->lock);
    free((void *)objects);
    return list;
}

/* ---- Writing ---- */

/* Write a record to the folder, unless to_disk is false, and into the index. With s->writing held. */
static cl_status put(store *s, store_kind kind, json_t *record, bool to_disk, cl_error *error) {
    char name[80];
    record_name(store_id(record), "json", name);
    json_t *copy = store_copy(record);
    if (!copy) return cl_fail(error, CL_ERR_NOMEM, "no memory for the record");
    const cl_status status = to_disk ? folder_write_json(&s->folder, name, record, error) : CL_OK;
    if (status != CL_OK) {
        json_decref(copy);
        return status;
    }
    pthread_mutex_lock(&s->lock);
    const bool ok = json_object_set_new(s->records[kind], store_id(record), copy) == 0; /* needs no memory if it is there */
    pthread_mutex_unlock(&s->lock);
    return ok ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for the record");
}

static bool remove_record(store *s, const char *id) {
    char name[80];
    record_name(id, "json", name);
    return folder_remove(&s->folder, name);
}

/* A record with the next number. */
static json_t *make_record(store *s, const store_owner *owner, json_t *object, json_t *more) {
    json_t *record = json_pack("{s:s, s:I, s:I, s:O}", "tenant", owner->tenant, "domain", (json_int_t)owner->domain, "sequence",
                               (json_int_t)s->sequence + 1, "object", object);
    if (record && more && json_object_update(record, more) != 0) {
        json_decref(record);
        return NULL;
    }
    return record;
}

cl_status store_add(store *s, store_kind kind, const store_owner *owner, char *id, json_t *object, json_t *more,
                    json_t **record, cl_error *error) {
    cl_status status = CL_OK;
    json_t *added = NULL;
    if (!*id && !store_new_id(kind, id)) status = cl_fail(error, CL_ERR_FILE, "the system has no random numbers");
    const bool named = status == CL_OK && json_object_set_new(object, "id", json_string(id)) == 0 &&
                       json_object_set_new(object, "created_at", json_integer((json_int_t)time(NULL))) == 0;
    pthread_mutex_lock(&s->writing);
    if (status == CL_OK && json_object_size(s->records[kind]) >= STORE_MAX_RECORDS)
        status = cl_fail(error, CL_ERR_LIMIT, "there are %d of kind %s, the limit; delete files that are not needed any more",
                         STORE_MAX_RECORDS, object_names[kind]);
    if (status == CL_OK && !(named && (added = make_record(s, owner, object, more))))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the record");
    if (added) {
        status = put(s, kind, added, true, error);
        if (status == CL_OK)
            s->sequence++;
        else
            remove_record(s, id); /* it may be there, though not for sure */
    }
    pthread_mutex_unlock(&s->writing);
    json_decref(object);
    if (status == CL_OK && record) *record = json_incref(added);
    json_decref(added);
    return status;
}

cl_status store_change(store *s, store_kind kind, const char *id, bool to_disk, bool (*change)(json_t *object, void *ctx),
                       void *ctx, json_t **record, cl_error *error) {
    cl_status status = CL_OK;
    pthread_mutex_lock(&s->writing);
    pthread_mutex_lock(&s->lock);
    const json_t *now = json_object_get(s->records[kind], id);
    const bool exists = now;
    json_t *before = exists ? store_copy(now) : NULL, *after = exists ? store_copy(now) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (exists && (!before || !after)) status = cl_fail(error, CL_ERR_NOMEM, "no memory for the record");
    const bool changed = status == CL_OK && after && change(store_object(after), ctx);
    if (changed) status = put(s, kind, after, to_disk, error);
    pthread_mutex_unlock(&s->writing);
    if (record) *record = json_incref(changed && status == CL_OK ? after : before);
    json_decref(after);
    json_decref(before);
    return status;
}

cl_status store_remove(store *s, store_kind kind, const char *id, cl_error *error) {
    pthread_mutex_lock(&s->writing);
    const bool removed = remove_record(s, id);
    pthread_mutex_lock(&s->lock);
    if (removed) json_object_del(s->records[kind], id);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->writing);
    if (!removed) return cl_fail(error, CL_ERR_FILE, "cannot remove %s from the folder of --files-dir", id);
    if (kind == STORE_FILE) store_remove_data(s, id);
    return CL_OK;
}

/* ---- Contents ---- */

int store_open_data(store *s, const char *id) {
    char name[80];
    record_name(id, "data", name);
    return folder_read(&s->folder, name);
}

int store_append_data(store *s, const char *id, cl_error *error) {
    char name[80];
    record_name(id, "data", name);
    return folder_append(&s->folder, name, error);
}

void store_remove_data(store *s, const char *id) {
    char name[80];
    record_name(id, "data", name);
    folder_remove(&s->folder, name);
}

const folder *store_folder(const store *s) { return &s->folder; }

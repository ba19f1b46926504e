/* Reads API keys, and finds the one that a client sent. */
#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkllama/common/error.h"
#include "chunkllama/common/str.h"

void server_keys_free(server_keys *keys) {
    openai_tenants_free(&keys->tenants);
    free(keys->weights);
    free(keys->quotas);
    free(keys->keys);
    *keys = (server_keys){0};
}

/* ---- Finding ---- */

/*
 * All bytes of all keys are compared, also after the right key, so that the time reveals neither a key's length nor how much of
 * it was right.
 */
const server_key *server_keys_find(const server_keys *keys, const char *sent, size_t size) {
    char padded[SERVER_MAX_KEY] = {0};
    const server_key *found = NULL;
    if (size == 0 || size > sizeof padded || memchr(sent, 0, size)) return NULL;
    memcpy(padded, sent, size);
    for (size_t i = 0; i < keys->n; i++) {
        unsigned char differs = 0;
        for (size_t c = 0; c < sizeof padded; c++) differs |= (unsigned char)(keys->keys[i].text[c] ^ padded[c]);
        if (!differs) found = &keys->keys[i];
    }
    return found;
}

/* ---- Tenants ---- */

const char *server_keys_tenant(const server_keys *keys, size_t i) {
    return openai_tenants_name(&keys->tenants, keys->keys[i].domain);
}

bool server_keys_find_tenant(const server_keys *keys, const char *name, uint32_t *domain) {
    *domain = 0;
    if (!keys || keys->n == 0) return strcmp(name, OPENAI_DEFAULT_TENANT) == 0;
    size_t i = 0;
    while (i < keys->n && strcmp(server_keys_tenant(keys, i), name) != 0) i++;
    if (i == keys->n) return false;
    *domain = keys->keys[i].domain;
    return true;
}

/* Whether an earlier key is of the same tenant. */
static bool is_repeated(const server_keys *keys, size_t i) {
    size_t first = 0;
    while (keys->keys[first].domain != keys->keys[i].domain) first++;
    return first < i;
}

void server_keys_list_tenants(const server_keys *keys, char *text, size_t size) {
    static const char more[] = "...";
    size_t used = (size_t)snprintf(text, size, "%s", keys->n == 0 ? OPENAI_DEFAULT_TENANT : "");
    for (size_t i = 0; i < keys->n; i++) {
        if (is_repeated(keys, i)) continue;
        const char *name = server_keys_tenant(keys, i), *comma = used > 0 ? ", " : "";
        if (used + strlen(comma) + strlen(name) + strlen(", ") + sizeof more > size) {
            snprintf(text + used, size - used, "%s%s", comma, more);
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", comma, name);
    }
}

/* ---- Adding ---- */

/* An array with one more element, zeroed; NULL if memory is lacking, and the old one stays. */
static void *grown(void *array, size_t n, size_t size) {
    char *larger = realloc(array, (n + 1) * size);
    if (larger) memset(larger + n * size, 0, size);
    return larger;
}

cl_status server_keys_add(server_keys *keys, const char *tenant, const char *text, cl_error *error) {
    uint32_t domain;
    const size_t size = strlen(text);
    const cl_status status = openai_tenants_domain(&keys->tenants, tenant, &domain, error);
    if (status != CL_OK) return status;
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return cl_fail(error, CL_ERR_ARG, "byte %zu of the key is no printable ASCII character, or a blank", i);
    if (size == 0 || size > SERVER_MAX_KEY)
        return cl_fail(error, CL_ERR_ARG, "the key has %zu characters; it must have 1 to %d", size, SERVER_MAX_KEY);
    if (server_keys_find(keys, text, size)) return cl_fail(error, CL_ERR_ARG, "the key is there twice; leave one out");
    if (keys->n == SERVER_MAX_KEYS)
        return cl_fail(error, CL_ERR_ARG, "there are more than %d keys; leave some out", SERVER_MAX_KEYS);
    server_key *larger = grown(keys->keys, keys->n, sizeof *larger);
    if (!larger) return cl_fail(error, CL_ERR_NOMEM, "no memory for the keys");
    keys->keys = larger;
    memcpy(larger[keys->n].text, text, size);
    larger[keys->n++].domain = domain;
    keys->has_tenants |= domain != 0;
    return CL_OK;
}

/* ---- Files ---- */

/* Whether the text is a weight that an engine accepts. */
static bool is_weight(const char *text, float *weight) {
    char *end;
    *weight = strtof(text, &end);
    return end != text && !*end && *weight >= 0.001f && *weight <= 1000;
}

static cl_status add_weight(server_keys *keys, const char *text, uint32_t domain, cl_error *error) {
    float weight;
    if (!is_weight(text, &weight))
        return cl_fail(error, CL_ERR_ARG,
                       "the third word must be a weight from 0.001 to 1000, or a quota such as tokens_per_minute=100000");
    for (int32_t i = 0; i < keys->n_weights; i++)
        if (keys->weights[i].domain == domain)
            return cl_fail(error, CL_ERR_ARG, "an earlier line has the tenant's weight; write it once");
    cl_engine_weight *larger = grown(keys->weights, (size_t)keys->n_weights, sizeof *larger);
    if (!larger) return cl_fail(error, CL_ERR_NOMEM, "no memory for the weights");
    keys->weights = larger;
    larger[keys->n_weights++] = (cl_engine_weight){.domain = domain, .weight = weight};
    return CL_OK;
}

/* The words with which quotas begin. */
static const char requests_word[] = "requests_per_minute=", tokens_word[] = "tokens_per_minute=";

/* The number in a word that begins so; NULL: it begins in another way. */
static const char *after(const char *word, const char *beginning) {
    const size_t size = strlen(beginning);
    return strncmp(word, beginning, size) == 0 ? word + size : NULL;
}

static bool is_quota(const char *word) { return after(word, requests_word) || after(word, tokens_word); }

/* The limits of a domain, which are added if there are none; NULL: memory is lacking. */
static quota_limit *find_quota(server_keys *keys, uint32_t domain) {
    for (size_t i = 0; i < keys->n_quotas; i++)
        if (keys->quotas[i].domain == domain) return &keys->quotas[i];
    quota_limit *larger = grown(keys->quotas, keys->n_quotas, sizeof *larger);
    if (!larger) return NULL;
    keys->quotas = larger;
    larger[keys->n_quotas].domain = domain;
    return &larger[keys->n_quotas++];
}

static cl_status add_quota(server_keys *keys, const char *word, uint32_t domain, cl_error *error) {
    const bool requests = after(word, requests_word);
    const char *name = requests ? requests_word : tokens_word, *text = after(word, name);
    char *end;
    const long long number = strtoll(text, &end, 10);
    if (*end || *text < '0' || *text > '9' || number < 1 || number > QUOTA_MOST)
        return cl_fail(error, CL_ERR_ARG, "%sN must have a whole number from 1 to %d in place of N", name, QUOTA_MOST);
    quota_limit *limit = find_quota(keys, domain);
    if (!limit) return cl_fail(error, CL_ERR_NOMEM, "no memory for the quotas");
    int64_t *value = requests ? &limit->requests : &limit->tokens;
    if (*value) return cl_fail(error, CL_ERR_ARG, "an earlier word has the tenant's %sN; write it once", name);
    *value = number;
    return CL_OK;
}

enum { MAX_WORDS = 6 }; /* of a line: one more than it may have */

static cl_status add_line(server_keys *keys, char *line, cl_error *error) {
    char *words[MAX_WORDS], *rest = NULL;
    size_t n_all = 0;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word && n_all < MAX_WORDS; word = strtok_r(NULL, " \t\r\n", &rest))
        words[n_all++] = word;
    if (n_all == 0 || *words[0] == '#') return CL_OK;
    float weight;
    size_t n = n_all;
    while (n > 0 && is_quota(words[n - 1])) n--;
    if (n < 2 && n < n_all) /* the only other word may be a name whose key is missing, which would be an easy key to guess */
        return cl_fail(error, CL_ERR_ARG,
                       "a name or a key is missing before the quotas; write NAME KEY %sN, "
                       "and '%s' for NAME if the key has none",
                       after(words[n], requests_word) ? requests_word : tokens_word, OPENAI_DEFAULT_TENANT);
    if (n == 2 && strstr(words[1], "_per_minute"))
        return cl_fail(error, CL_ERR_ARG, "the second word is no key; quotas are %sN and %sN", requests_word, tokens_word);
    if (n > 3)
        return cl_fail(error, CL_ERR_ARG,
                       "there are more than three words before the quotas; write NAME KEY WEIGHT, NAME KEY or KEY");
    if (n == 2 && is_weight(words[1], &weight))
        return cl_fail(error, CL_ERR_ARG, "the second word is a weight, not a key; write NAME KEY WEIGHT, NAME KEY or KEY");
    cl_status status = server_keys_add(keys, n == 1 ? OPENAI_DEFAULT_TENANT : words[0], words[n > 1], error);
    if (status == CL_OK && n == 3) status = add_weight(keys, words[2], keys->keys[keys->n - 1].domain, error);
    for (size_t i = n; i < n_all && status == CL_OK; i++)
        status = add_quota(keys, words[i], keys->keys[keys->n - 1].domain, error);
    return status;
}

static cl_status read_lines(server_keys *keys, const char *path, FILE *file, cl_error *error) {
    cl_error cause;
    cl_status status = CL_OK;
    char *line = NULL;
    size_t capacity = 0, number = 0;
    const size_t n_before = keys->n;
    for (ssize_t size; status == CL_OK && (size = getline(&line, &capacity, file)) >= 0;) {
        const size_t mark = number++ == 0 ? cl_utf8_mark_size(line, (size_t)size) : 0;
        status = strlen(line) == (size_t)size ? add_line(keys, line + mark, &cause)
                                              : cl_fail(&cause, CL_ERR_ARG, "there is a zero character; remove it");
    }
    const int problem = ferror(file) ? errno : 0;
    free(line);
    if (problem)
        return cl_fail(error, CL_ERR_FILE, "cannot read %.200s: %s; name a file with a key on each line", path,
                       strerror(problem));
    if (status == CL_ERR_NOMEM) return cl_fail(error, status, "%s", cause.message);
    if (status != CL_OK) return cl_fail(error, CL_ERR_FORMAT, "%.200s, line %zu: %s", path, number, cause.message);
    if (keys->n == n_before)
        return cl_fail(error, CL_ERR_FORMAT, "%.200s has no key; write NAME KEY, or KEY, in a line for each", path);
    return CL_OK;
}

cl_status server_keys_read(server_keys *keys, const char *path, int fd, cl_error *error) {
    const int copy = fd < 0 ? open(path, O_RDONLY | O_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy >= 0 && (fd < 0 || lseek(copy, 0, SEEK_SET) == 0) ? fdopen(copy, "r") : NULL;
    if (!file) {
        const int failure = errno;
        if (copy >= 0) close(copy);
        return cl_fail(error, CL_ERR_FILE, "cannot open %.200s: %s; name a file with a key on each line", path,
                       strerror(failure));
    }
    const cl_status status = read_lines(keys, path, file, error);
    fclose(file);
    return status;
}

/* The traces of `cattn-bench retention`. */
#include "trace.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const trace_names[TRACE_KINDS] = {"workloads", "cyclic", "zipf",    "chats", "agents",
                                              "washed",    "swept",  "tenants", "batch"};

/* ---- Random numbers and arrays ---- */

/* One step of splitmix64. */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t next_random(uint64_t *state) { return mix(*state += UINT64_C(0x9e3779b97f4a7c15)); }
static int64_t random_below(uint64_t *state, int64_t n) { return (int64_t)(next_random(state) % (uint64_t)n); }
static int64_t random_from(uint64_t *state, int64_t low, int64_t high) { return low + random_below(state, high - low + 1); }

/* Make room for `need` elements. */
static void *grow(void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return array;
    *capacity = need > 2 * *capacity ? need : 2 * *capacity;
    void *grown = realloc(array, *capacity * size);
    if (!grown) abort();
    return grown;
}

/* ---- Writing requests ---- */

static void begin_request(trace *t) {
    t->requests = grow(t->requests, &t->capacity, t->n + 1, sizeof *t->requests);
    t->requests[t->n++] = (trace_request){.first = t->n_tokens};
}

static void add_token(trace *t, int32_t token) {
    t->tokens = grow(t->tokens, &t->tokens_capacity, t->n_tokens + 1, sizeof *t->tokens);
    t->tokens[t->n_tokens++] = token;
}

/* A text is a number; its i-th token follows from it. */
static void add_text(trace *t, uint64_t text, int64_t n) {
    for (int64_t i = 0; i < n; i++) add_token(t, (int32_t)(mix(text ^ mix((uint64_t)i)) & INT32_MAX));
}

/* What has been added so far is the prompt; what follows is the completion. */
static void end_prompt(trace *t) {
    trace_request *r = &t->requests[t->n - 1];
    r->n_prompt = (int64_t)(t->n_tokens - r->first);
}

static void end_request(trace *t) {
    trace_request *r = &t->requests[t->n - 1];
    r->n_completion = (int64_t)(t->n_tokens - r->first) - r->n_prompt;
    const int64_t n = r->n_prompt + r->n_completion;
    if (n > t->longest) t->longest = n;
}

static void complete(trace *t, uint64_t *random, int64_t n) {
    end_prompt(t);
    add_text(t, next_random(random), n);
    end_request(t);
}

/* ---- The traces that follow from a seed ---- */

static void make_cyclic(trace *t, int64_t n_requests, uint64_t random) {
    enum { PROMPTS = 16 };
    const uint64_t seed = random;
    for (int64_t i = 0; i < n_requests; i++) {
        const uint64_t text = mix(seed + (uint64_t)(i % PROMPTS));
        begin_request(t);
        add_text(t, text, 512 + (int64_t)(text % 1024));
        complete(t, &random, 32);
    }
}

/* A number below n, of which i comes up in proportion to 1 / (i + 1). */
static int64_t zipf_below(uint64_t *random, int64_t n) {
    double total = 0, at = (double)(next_random(random) >> 11) * 0x1p-53;
    for (int64_t i = 1; i <= n; i++) total += 1.0 / (double)i;
    int64_t i = 0;
    for (at *= total; i < n - 1 && at > 1.0 / (double)(i + 1); i++) at -= 1.0 / (double)(i + 1);
    return i;
}

/* One of 400 prefixes, which follow from `seed`, and tokens of the request's own. */
static void add_zipf(trace *t, uint64_t seed, uint64_t *random) {
    enum { PREFIXES = 400 };
    const uint64_t text = mix(seed + (uint64_t)zipf_below(random, PREFIXES));
    begin_request(t);
    add_text(t, text, 256 + (int64_t)(text % 1792));
    add_text(t, next_random(random), random_from(random, 16, 128));
    complete(t, random, 64);
}

static void make_zipf(trace *t, int64_t n_requests, uint64_t random) {
    const uint64_t seed = random;
    for (int64_t i = 0; i < n_requests; i++) add_zipf(t, seed, &random);
}

/* A conversation so far: texts one after the other. */
typedef struct conversation {
    struct {
        uint64_t text;
        int64_t n;
    } parts[64];
    int n_parts, n_turns;
} conversation;

static void add_part(conversation *c, uint64_t text, int64_t n) {
    c->parts[c->n_parts].text = text;
    c->parts[c->n_parts++].n = n;
}

static void add_conversation(trace *t, const conversation *c) {
    for (int i = 0; i < c->n_parts; i++) add_text(t, c->parts[i].text, c->parts[i].n);
}

/* The request whose prompt is the conversation; its completion becomes part of it. */
static void add_turn(trace *t, conversation *c, uint64_t text, int64_t n) {
    begin_request(t);
    add_conversation(t, c);
    end_prompt(t);
    add_part(c, text, n);
    add_text(t, text, n);
    end_request(t);
}

/* The next turn of a chat; after its last one another chat begins, with the same system prompt. */
static void add_chat_turn(trace *t, conversation *c, uint64_t system, uint64_t *random) {
    enum { MAX_TURNS = 8 };
    if (c->n_turns == 0) {
        *c = (conversation){.n_turns = (int)random_from(random, 1, MAX_TURNS)};
        add_part(c, system, 200);
    }
    add_part(c, next_random(random), random_from(random, 20, 300));
    add_turn(t, c, next_random(random), random_from(random, 50, 250));
    c->n_turns--;
}

static void make_chats(trace *t, int64_t n_requests, uint64_t random) {
    enum { OPEN = 32 };
    conversation chats[OPEN] = {0};
    const uint64_t system = next_random(&random);
    for (int64_t i = 0; i < n_requests; i++) add_chat_turn(t, &chats[random_below(&random, OPEN)], system, &random);
}

/* An agent's steps so far, each a conversation. */
static void make_agents(trace *t, int64_t n_requests, uint64_t random) {
    enum { AGENTS = 4, STEPS = 12 };
    static conversation steps[AGENTS][STEPS];
    int n_steps[AGENTS] = {0};
    const uint64_t trunk = next_random(&random);
    for (int64_t i = 0; i < n_requests; i++) {
        const int64_t agent = random_below(&random, AGENTS);
        conversation *own = steps[agent], *to = &own[n_steps[agent]];
        if (n_steps[agent] == 0) {
            *to = (conversation){0};
            add_part(to, trunk, 2000);
            add_part(to, next_random(&random), random_from(&random, 100, 600));
        } else {
            const int last = n_steps[agent] - 1;
            *to = own[random_below(&random, 2) ? last : random_below(&random, n_steps[agent])];
            add_part(to, next_random(&random), random_from(&random, 20, 200));
        }
        add_turn(t, to, next_random(&random), random_from(&random, 30, 150));
        n_steps[agent] = (n_steps[agent] + 1) % STEPS;
    }
}

static void make_washed(trace *t, int64_t n_requests, uint64_t random) {
    enum { SYSTEMS = 16 };
    const uint64_t seed = random;
    for (int64_t i = 0; i < n_requests; i++) {
        begin_request(t);
        if (random_below(&random, 5) == 0) {
            const uint64_t text = mix(seed + (uint64_t)random_below(&random, SYSTEMS));
            add_text(t, text, 512 + (int64_t)(text % 1024));
            add_text(t, next_random(&random), random_from(&random, 16, 128));
        } else {
            add_text(t, next_random(&random), random_from(&random, 400, 1200));
        }
        complete(t, &random, 64);
    }
}

static void make_swept(trace *t, int64_t n_requests, uint64_t random) {
    enum { DOCUMENTS = 24, TURNS_AFTER = 2 };
    conversation c = {0};
    for (int64_t i = 0, place = 0, n_turns = 0; i < n_requests; i++, place++) {
        if (place == n_turns + DOCUMENTS + TURNS_AFTER) place = 0;
        if (place == 0) {
            n_turns = random_from(&random, 4, 8);
            c = (conversation){0};
            add_part(&c, next_random(&random), 900);
        }
        if (place >= n_turns && place < n_turns + DOCUMENTS) {
            begin_request(t);
            add_text(t, next_random(&random), 330);
            complete(t, &random, 16);
        } else {
            add_part(&c, next_random(&random), random_from(&random, 20, 100));
            add_turn(t, &c, next_random(&random), random_from(&random, 20, 100));
        }
    }
}

/* A document, which is read once, behind instructions, which follow from `seed`. */
static void add_document(trace *t, uint64_t seed, uint64_t *random) {
    begin_request(t);
    add_text(t, seed, 200);
    add_text(t, next_random(random), 330);
    complete(t, random, 16);
}

/* Chats of account 1, and far more requests of account 0. */
static void make_flooded(trace *t, int64_t n_requests, uint64_t random, void (*add_other)(trace *, uint64_t, uint64_t *)) {
    enum { OPEN = 8, EACH = 13 };
    conversation chats[OPEN] = {0};
    const uint64_t system = next_random(&random), seed = next_random(&random);
    for (int64_t i = 1; i <= n_requests; i++) {
        if (i % EACH != 0) {
            add_other(t, seed, &random);
            continue;
        }
        add_chat_turn(t, &chats[random_below(&random, OPEN)], system, &random);
        t->requests[t->n - 1].account = 1;
    }
}

static void make_tenants(trace *t, int64_t n_requests, uint64_t random) {
    t->weights[0] = t->weights[1] = 1;
    make_flooded(t, n_requests, random, add_zipf);
}

static void make_batch(trace *t, int64_t n_requests, uint64_t random) {
    t->weights[0] = 0.125F;
    t->weights[1] = 1;
    make_flooded(t, n_requests, random, add_document);
}

/* ---- The bundled workloads ---- */

/* A token for each word and for each other character. */
static void add_words(trace *t, const char *text) {
    while (*text) {
        uint64_t hash = 0;
        const char *at = text;
        do hash = mix(hash ^ (unsigned char)*at++);
        while (isalnum((unsigned char)at[-1]) && isalnum((unsigned char)*at));
        text = at;
        add_token(t, (int32_t)(hash & INT32_MAX));
    }
}

static bool add_line(trace *t, FILE *file, uint64_t *random) {
    json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
    if (!line) return false;
    const json_t *messages = json_object_get(line, "messages"), *message;
    size_t i;
    begin_request(t);
    if (json_string_value(json_object_get(line, "prompt"))) add_words(t, json_string_value(json_object_get(line, "prompt")));
    json_array_foreach(messages, i, message) {
        add_words(t, json_string_value(json_object_get(message, "role")));
        add_words(t, json_string_value(json_object_get(message, "content")));
    }
    json_decref(line);
    complete(t, random, 64);
    return true;
}

static bool make_workloads(trace *t, int64_t n_requests, uint64_t random, const char *folder) {
    enum { FILES = 4 };
    static const char *const names[FILES] = {"chatbot", "document_qa", "few_shot", "tool_planning"};
    FILE *files[FILES];
    int n_open = 0;
    for (char path[4096]; n_open < FILES; n_open++) {
        snprintf(path, sizeof path, "%s/%s.jsonl", folder, names[n_open]);
        files[n_open] = fopen(path, "re");
        if (files[n_open]) continue;
        fprintf(stderr, "cattn-bench: cannot open %s: %s\n", path, strerror(errno));
        break;
    }
    for (int64_t i = 0; n_open == FILES && i < n_requests && add_line(t, files[i % FILES], &random);) i++;
    for (int i = 0; i < n_open; i++) fclose(files[i]);
    return n_open == FILES;
}

/* ---- What is worth keeping ---- */

enum { BLOCK = 16 }; /* tokens are counted in blocks of this size */

/* A set of hashes with open addressing; 0 is no member. Returns the place of `hash`, or the free place where it belongs. */
static size_t place_of(const uint64_t *set, size_t mask, uint64_t hash) {
    size_t i = hash & mask;
    while (set[i] && set[i] != hash) i = (i + 1) & mask;
    return i;
}

/* Set working_set. A block is known by the hash of all tokens up to its end. */
static void measure_working_set(trace *t) {
    size_t size = 1, n_waited = 0; /* blocks times the requests from one use to the next */
    while (size < t->n_tokens / BLOCK * 2 + 2) size *= 2;
    uint64_t *set = calloc(size, sizeof *set);
    size_t *last_use = calloc(size, sizeof *last_use);
    if (!set || !last_use) abort();
    for (size_t r = 0; r < t->n; r++) {
        const int32_t *tokens = t->tokens + t->requests[r].first;
        uint64_t hash = 0;
        for (int64_t i = 0; i + BLOCK <= t->requests[r].n_prompt + t->requests[r].n_completion; i += BLOCK) {
            for (int k = 0; k < BLOCK; k++) hash = mix(hash ^ (uint64_t)tokens[i + k]);
            const size_t place = place_of(set, size - 1, hash | 1);
            if (set[place]) n_waited += r - last_use[place];
            set[place] = hash | 1;
            last_use[place] = r;
        }
    }
    t->working_set = t->n > 0 ? (int64_t)(n_waited * BLOCK / t->n) : 0;
    free(set);
    free(last_use);
}

bool trace_make(trace *t, int kind, int64_t n_requests, uint64_t seed, const char *workloads) {
    static void (*const makers[TRACE_KINDS])(trace *, int64_t, uint64_t) = {
        NULL, make_cyclic, make_zipf, make_chats, make_agents, make_washed, make_swept, make_tenants, make_batch};
    *t = (trace){0};
    if (makers[kind])
        makers[kind](t, n_requests, mix(seed));
    else if (!make_workloads(t, n_requests, mix(seed), workloads))
        return false;
    measure_working_set(t);
    return true;
}

void trace_free(trace *t) {
    free(t->tokens);
    free(t->requests);
    *t = (trace){0};
}

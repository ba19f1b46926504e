/*
 * Every text of a request has its bound before work: each place of openapi.json where a body may have a string gets 15 MB, and
 * the bytes that are allocated meanwhile say that it was neither copied, converted, rendered nor tokenized. (The fake tokenizer
 * allocates a token for each byte.)
 */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_malloc.h"
#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/dialect.h"

enum { MAX_DEPTH = 12, BIG = 15 << 20, MOST_ALLOCATED = 2 << 20, MANY_PLACES = 300 };

static json_t *description, *big;

/* ---- Bodies from their schemas ---- */

/*
 * A place is one of a schema where a value may have a string; they are numbered. A sample is the smallest value of a schema
 * that has the big string at the place; with a place < 0, any small value.
 */
static int count_places(const json_t *schema, int depth);
static json_t *sample(const json_t *schema, int place, int depth);

/* The schema behind "#/a/b/c". */
static const json_t *resolve(const json_t *schema) {
    const char *path = json_string_value(json_object_get(schema, "$ref"));
    if (!path) return schema;
    const json_t *at = description;
    char name[64];
    for (path += strlen("#/"); *path; path += *path == '/') {
        const size_t size = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)size, path);
        at = json_object_get(at, name);
        path += size;
    }
    assert_non_null(at);
    return resolve(at);
}

static bool has_type(const json_t *schema, const char *name) {
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type)) return strcmp(json_string_value(type), name) == 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        if (strcmp(json_string_value(json_array_get(type, i)), name) == 0) return true;
    return false;
}

static bool is_any(const json_t *schema) {
    static const char *const keys[] = {"type", "anyOf", "allOf", "oneOf", "const", "enum", "items", "properties", "required"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(schema, keys[i])) return false;
    return true;
}

/* Whether a string may stand here, if only one of a few. */
static bool takes_string(const json_t *schema) {
    const json_t *values = json_object_get(schema, "enum");
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_is_string(json_array_get(values, i))) return true;
    return is_any(schema) || has_type(schema, "string") || json_is_string(json_object_get(schema, "const"));
}

static bool takes_object(const json_t *schema) {
    return is_any(schema) || has_type(schema, "object") || json_object_get(schema, "properties");
}

/* The schema of an array's first element; NULL: this is no array. */
static const json_t *element_of(const json_t *schema) {
    const json_t *first = json_array_get(json_object_get(schema, "prefixItems"), 0);
    return first ? first : json_object_get(schema, "items");
}

/* In objects without listed members: a member's value, and its name. */
enum { FREE_PLACES = 2 };

static int count_in_object(const json_t *schema, int depth) {
    const json_t *properties = json_object_get(schema, "properties");
    const char *name;
    json_t *value;
    int n = properties ? 0 : FREE_PLACES;
    json_object_foreach((json_t *)properties, name, value) n += count_places(value, depth + 1);
    return n;
}

static const json_t *alternatives_of(const json_t *schema) {
    const json_t *any = json_object_get(schema, "anyOf");
    return any ? any : json_object_get(schema, "oneOf");
}

static int count_places(const json_t *schema, int depth) {
    schema = resolve(schema);
    if (depth > MAX_DEPTH) return 0;
    const json_t *alternatives = alternatives_of(schema), *all = json_object_get(schema, "allOf"),
                 *element = element_of(schema);
    int n = takes_string(schema);
    for (size_t i = 0; i < json_array_size(alternatives); i++) n += count_places(json_array_get(alternatives, i), depth + 1);
    for (size_t i = 0; i < json_array_size(all); i++) n += count_places(json_array_get(all, i), depth + 1);
    if (element) n += count_places(element, depth + 1);
    return n + (takes_object(schema) ? count_in_object(schema, depth) : 0);
}

/* Of members of which a value must have one, the first is. */
static bool is_required(const json_t *schema, const char *name) {
    const json_t *required = json_object_get(schema, "required");
    if (json_array_size(json_object_get(schema, "anyOf")) > 0 &&
        is_required(json_array_get(json_object_get(schema, "anyOf"), 0), name))
        return true;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (strcmp(json_string_value(json_array_get(required, i)), name) == 0) return true;
    return false;
}

static json_t *sample_object(const json_t *schema, int place, int depth) {
    const json_t *properties = json_object_get(schema, "properties");
    json_t *object = json_object(), *value;
    const char *name;
    if (!properties && place == 0) json_object_set(object, "description", big);
    if (!properties && place == 1) json_object_setn_new_nocheck(object, json_string_value(big), BIG, json_integer(1));
    json_object_foreach((json_t *)properties, name, value) {
        const int n = count_places(value, depth + 1);
        const bool here = place >= 0 && place < n;
        if (here || is_required(schema, name)) json_object_set_new(object, name, sample(value, here ? place : -1, depth + 1));
        place -= n;
    }
    return object;
}

/* A small value without a big string. */
static json_t *small_value(const json_t *schema, int depth) {
    const json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    const json_t *examples = json_object_get(schema, "examples"), *alternatives = alternatives_of(schema);
    if (one) return json_deep_copy(one);
    if (values) return json_deep_copy(json_array_get(values, 0));
    if (examples) return json_deep_copy(json_array_get(examples, json_array_size(examples) > 1));
    if (alternatives) return sample(json_array_get(alternatives, 0), -1, depth + 1);
    if (takes_object(schema)) return sample_object(schema, -1, depth);
    if (has_type(schema, "string")) return json_string("x");
    if (element_of(schema)) return json_pack("[o]", sample(element_of(schema), -1, depth + 1));
    return has_type(schema, "boolean") ? json_true() : json_integer(1);
}

/* All parts of an object in one. */
static json_t *sample_all(const json_t *all, int place, int depth) {
    json_t *object = json_object();
    for (size_t i = 0; i < json_array_size(all); i++) {
        const int n = count_places(json_array_get(all, i), depth + 1);
        json_t *part = sample(json_array_get(all, i), place >= 0 && place < n ? place : -1, depth + 1);
        json_object_update(object, part);
        json_decref(part);
        place -= n;
    }
    return object;
}

static json_t *sample(const json_t *schema, int place, int depth) {
    schema = resolve(schema);
    const json_t *alternatives = alternatives_of(schema), *all = json_object_get(schema, "allOf"),
                 *element = element_of(schema);
    if (all) return sample_all(all, place - (place >= 0 && takes_string(schema)), depth);
    if (place < 0) return small_value(schema, depth);
    if (takes_string(schema) && place-- == 0) return json_incref(big);
    for (size_t i = 0; i < json_array_size(alternatives); i++) {
        const int n = count_places(json_array_get(alternatives, i), depth + 1);
        if (place < n) return sample(json_array_get(alternatives, i), place, depth + 1);
        place -= n;
    }
    const int in_element = element ? count_places(element, depth + 1) : 0;
    if (place >= in_element) return sample_object(schema, place - in_element, depth);
    json_t *array = json_pack("[o]", sample(element, place, depth + 1));
    for (size_t i = 1; i < json_array_size(json_object_get(schema, "prefixItems")); i++)
        json_array_append_new(array, json_integer(1));
    return array;
}

/* ---- What reads them ---- */

typedef bool answer_function(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);
typedef bool parse_function(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

static answer_function *answer_of(const char *path) {
    static const struct {
        const char *path;
        answer_function *answer;
    } answers[] = {{"/tokenize", openai_tokenize},
                   {"/detokenize", openai_detokenize},
                   {"/apply-template", llama_server_apply_template},
                   {"/api/show", ollama_show},
                   {"/v1/chat/completions/render", openai_render_chat},
                   {"/v1/completions/render", openai_render_completion},
                   {"/v1/messages/count_tokens", anthropic_count_tokens}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(answers[i].path, path) == 0) return answers[i].answer;
    return NULL;
}

static parse_function *parser_of(const char *path) {
    for (size_t i = 0; i < OPENAI_N_DIALECTS; i++)
        if (strcmp(openai_dialects[i]->path, path) == 0) return openai_dialects[i]->parse;
    return strncmp(path, "/cache/", strlen("/cache/")) == 0 ? openai_pin_parse : NULL;
}

/* The bytes that are allocated while a body is read, with a context of n_ctx tokens. */
static size_t allocated_in(int32_t n_ctx, const char *path, const json_t *body, openai_error *error) {
    openai_context context = fake_context();
    openai_writer w = {0};
    openai_request request;
    context.n_ctx = n_ctx;
    answer_function *answer = answer_of(path);
    parse_function *read = parser_of(path);
    assert_true(answer || read);
    *error = (openai_error){0};
    count_malloc();
    if (answer)
        answer(&context, body, &w, error);
    else if (read(&context, body, &request, error))
        openai_request_free(&request);
    const size_t n = counted_malloc();
    writer_free(&w);
    return n;
}

static size_t allocated_for(const char *path, const json_t *body) {
    openai_error error;
    return allocated_in(1000, path, body, &error);
}

static int try_path(const char *path, const json_t *schema) {
    const int n = count_places(schema, 0);
    for (int place = 0; place < n; place++) {
        json_t *body = sample(schema, place, 0);
        const size_t n_bytes = allocated_for(path, body);
        char *text = n_bytes > MOST_ALLOCATED ? json_dumps(body, JSON_COMPACT) : NULL;
        if (text) fail_msg("%s, place %d: %zu bytes were allocated for %.300s", path, place, n_bytes, text);
        json_decref(body);
    }
    return n;
}

static void no_text_is_worked_on_before_its_bound(void **state) {
    (void)state;
    description = json_load_file(OPENAPI, 0, NULL);
    char *text = malloc(BIG);
    memset(text, 'a', BIG);
    big = json_stringn_nocheck(text, BIG);
    free(text);
    const char *path;
    json_t *methods;
    int n = 0;
    json_object_foreach(json_object_get(description, "paths"), path, methods) {
        const json_t *body = resolve(json_object_get(json_object_get(methods, "post"), "requestBody"));
        const json_t *json = json_object_get(json_object_get(body, "content"), "application/json");
        if (json && strcmp(path, "/v1/batches") != 0) n += try_path(path, json_object_get(json, "schema"));
    }
    assert_true(n > MANY_PLACES);
    json_decref(big);
    json_decref(description);
}

/* An object with these names, which are freed as an array. */
static json_t *named_by(json_t *names) {
    json_t *object = json_object(), *name;
    size_t i;
    json_array_foreach(names, i, name) json_object_set_new(object, json_string_value(name), json_integer(1));
    json_decref(names);
    return object;
}

/* Many short texts are as much work as a long one. */
static void texts_are_counted_together(void **state) {
    (void)state;
    static const char *const forms[] = {"logit_bias", "bad_words", "guided_choice", "stop", "prompt", "logit_bias"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        json_t *all = json_array();
        if (i == 4) json_array_append_new(all, json_integer(1)); /* so that the texts are one prompt */
        for (int k = 0; k < 1000; k++) {
            char text[1001];
            snprintf(text, sizeof text, "%0999dx", k);
            json_array_append_new(all, i == 0 ? json_pack("[si]", text, 1) : json_string(text));
        }
        json_t *body = json_pack("{s:s}", "prompt", "x");
        json_object_set_new(body, forms[i], i == 5 ? named_by(all) : all);
        const size_t n = allocated_for("/v1/completions", body);
        if (n > MOST_ALLOCATED) fail_msg("%s: %zu bytes were allocated", forms[i], n);
        json_decref(body);
    }
}

/* ---- What answers repeat ---- */

enum { LONG_CONTEXT = 1 << 20, MOST_WITHOUT_ANSWER = 48 << 20, LONG_PIECE = 64 << 10 };

static json_t *ids_of(int id, size_t n) {
    json_t *array = json_array(), *value = json_integer(id);
    for (size_t i = 0; i < n; i++) json_array_append(array, value);
    json_decref(value);
    return array;
}

static json_t *text_of(size_t n) {
    char *text = malloc(n);
    memset(text, 'a', n);
    json_t *value = json_stringn_nocheck(text, n);
    free(text);
    return value;
}

static void assert_bounded(const char *path, json_t *body, const char *param) {
    openai_error error;
    const size_t n = allocated_in(LONG_CONTEXT, path, body, &error);
    if (error.status != 400 || strcmp(error.param, param) != 0 || n > MOST_WITHOUT_ANSWER)
        fail_msg("%s, %s: %d %s: %s; %zu bytes were allocated", path, param, error.status, error.param, error.message, n);
    json_decref(body);
}

/* A body gets no answer, and no memory for one, that has many times its bytes. */
static void answers_are_bounded_before_they_are_made(void **state) {
    (void)state;
    static const struct {
        const char *path, *field;
        int id; /* of the tokens in the field; 0: it is a text */
        size_t n;
        const char *more, *param;
    } cases[] = {
        /* token ids, and their texts */
        {"/detokenize", "tokens", FAKE_BOS, 300, "{}", "tokens"},
        {"/completion", "prompt", FAKE_BOS, 300, "{}", "prompt"},
        {"/v1/completions", "prompt", FAKE_BOS, 300, "{\"echo\":true}", "prompt"},
        /* texts, and their tokens */
        {"/tokenize", "content", 0, (128 << 10) + 1, "{\"with_pieces\":true}", "content"},
        {"/tokenize", "content", 0, (2 << 20) + 1, "{}", "content"},
        {"/tokenize", "prompt", 0, (1 << 20) + 1, "{\"return_token_strs\":true}", "prompt"},
        {"/infill", "input_prefix", 0, (1 << 20) + 1, "{}", "prompt"},
        /* choices, each of which repeats the prompt */
        {"/completion", "prompt", FAKE_BOS, 32, "{\"n_cmpl\":128}", "n"},
        {"/v1/completions", "prompt", FAKE_BOS, 32, "{\"echo\":true,\"n\":128}", "n"},
        {"/v1/completions", "prompt", 'a', 20000, "{\"return_token_ids\":true,\"n\":128}", "n"},
        {"/v1/completions", "prompt", 'a', 50000, "{\"echo\":true,\"logprobs\":20,\"n\":2}", "n"},
        {"/v1/completions", "prompt", 'a', 15000, "{\"prompt_logprobs\":20,\"n\":2}", "n"},
    };
    char *piece = calloc(1, LONG_PIECE + 1);
    memset(piece, 'a', LONG_PIECE);
    fake_name_bos(piece);
    fake_fill_gaps(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *body = json_loads(cases[i].more, 0, NULL);
        json_object_set_new(body, cases[i].field, cases[i].id ? ids_of(cases[i].id, cases[i].n) : text_of(cases[i].n));
        assert_bounded(cases[i].path, body, cases[i].param);
    }
    fake_fill_gaps(false);
    fake_name_bos(NULL);
    free(piece);
}

/* The answer has the parameters of each prompt. */
static void rendered_parameters_are_bounded(void **state) {
    (void)state;
    json_t *prompts = json_array(), *prompt = json_string("a");
    for (int i = 0; i < OPENAI_MAX_PROMPTS; i++) json_array_append(prompts, prompt);
    json_decref(prompt);
    assert_bounded("/v1/completions/render", json_pack("{s:o, s:o}", "prompt", prompts, "guided_regex", text_of(200000)),
                   "prompt");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_is_worked_on_before_its_bound),
        cmocka_unit_test(texts_are_counted_together),
        cmocka_unit_test(answers_are_bounded_before_they_are_made),
        cmocka_unit_test(rendered_parameters_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * What JSON schemas and regular expressions of clients allow, by schemas.json: values that answers may have, and values that
 * they may not. The engine's matcher says which; CHUNKLLAMA_GRAMMAR_LIBRARY names its shared object, and without it only errors
 * are tested.
 */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/small_vocab.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/engine/grammar.h"
#include "chunkllama/schema/regex.h"
#include "chunkllama/schema/schema.h"

enum { MAX_VALUE = 4096 };

typedef struct scene {
    json_t *cases;
    gguf_bytes bytes;
    cl_model_file *file;
    cl_tokenizer *tok;
    int32_t end;
    cl_grammar_library *library; /* NULL: it is not there */
} scene;

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = malloc(1 << 20);
    *size = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

static int set_up(void **state) {
    static scene s;
    small_vocab v = byte_level_vocab("smollm");
    size_t size;
    json_error_t wrong;
    cl_error error;
    v.eos = s.end = add_piece(&v, "<|endoftext|>", 3, 0);
    s.file = open_vocab(&v, &s.bytes);
    if (cl_tokenizer_create(s.file, &s.tok, NULL) != CL_OK) abort();
    const char *path = getenv("CHUNKLLAMA_GRAMMAR_LIBRARY");
    if (path && *path && cl_grammar_open(path, s.tok, cl_tokenizer_n_vocab(s.tok), false, &s.library, &error) != CL_OK)
        fail_msg("%s", error.message);
    char *text = read_file(SCHEMAS, &size);
    s.cases = cl_json_load(text, size, 0, &wrong);
    free(text);
    if (!s.cases) fail_msg("%s in line %d", wrong.text, wrong.line);
    *state = &s;
    return 0;
}

static int tear_down(void **state) {
    scene *s = *state;
    if (s->library) s->library->free(s->library);
    cl_tokenizer_free(&s->tok);
    cl_model_file_close(&s->file);
    free(s->bytes.data);
    json_decref(s->cases);
    return 0;
}

static const char *text_of(const json_t *c, const char *key) {
    const char *text = json_string_value(json_object_get(c, key));
    return text ? text : "";
}

/* Compile the grammar of a case; its error otherwise. */
static cl_status compile(const scene *s, const json_t *c, cl_grammar **g, cl_error *error) {
    const char *regex = text_of(c, "regex");
    const cl_schema_options options = {.open = strstr(text_of(c, "options"), "open"),
                                       .lenient = strstr(text_of(c, "options"), "lenient")};
    char weaker[CL_SCHEMA_WEAKER_BYTES] = "", *text;
    size_t size;
    json_t *schema = NULL;
    cl_status status = CL_OK;
    *g = NULL;
    if (*regex) {
        text = cl_regex_ascii(regex, strlen(regex), &size);
    } else {
        status = cl_schema_rewrite(json_object_get(c, "schema"), &options, &schema, weaker, error);
        text = status == CL_OK ? cl_json_dumps(schema, JSON_COMPACT) : NULL;
        size = text ? strlen(text) : 0;
    }
    json_decref(schema);
    if (status == CL_OK && strcmp(weaker, text_of(c, "weaker")) != 0)
        fail_msg("%s: '%s' is weaker", text_of(c, "name"), weaker);
    const cl_grammar_kind kind = *regex ? CL_GRAMMAR_REGEX : CL_GRAMMAR_JSON_SCHEMA;
    if (text && s->library) status = s->library->compile(s->library, 0, kind, text, size, g, error);
    free(text);
    return status;
}

/* Whether a completion may be this text; its tokens are its bytes. */
static bool accepts(const scene *s, cl_grammar *g, const char *text) {
    int32_t tokens[MAX_VALUE + 1];
    int32_t n = 0;
    for (; text[n]; n++) tokens[n] = (unsigned char)text[n];
    tokens[n++] = s->end;
    cl_matcher *m = g->start(g);
    const int32_t n_valid = m->count_valid(m, tokens, n);
    m->free(m);
    return n_valid == n;
}

/* Check the values of a member: JSON, unless they are texts as they stand. */
static void expect(const scene *s, cl_grammar *g, const json_t *c, const char *member, bool as_text, bool allowed) {
    json_t *value;
    size_t i;
    json_array_foreach(json_object_get(c, member), i, value) {
        char *text = as_text ? strdup(json_string_value(value)) : cl_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (accepts(s, g, text) != allowed) fail_msg("%s: %s is %s", text_of(c, "name"), text, allowed ? "refused" : "allowed");
        free(text);
    }
}

static void answers_are_those_of_the_schema(void **state) {
    const scene *s = *state;
    json_t *c;
    size_t i;
    json_array_foreach(s->cases, i, c) {
        cl_grammar *g;
        cl_error error = {.message = ""};
        const char *wanted = text_of(c, "error");
        const bool as_text = json_object_get(c, "regex");
        const cl_status status = compile(s, c, &g, &error);
        const bool expected = status == CL_OK ? !*wanted || !s->library : *wanted && strstr(error.message, wanted);
        if (!expected) fail_msg("%s: %s", text_of(c, "name"), error.message);
        if (!g) continue;
        expect(s, g, c, "accepts", as_text, true);
        expect(s, g, c, "refuses", as_text, false);
        expect(s, g, c, "texts", true, true);
        expect(s, g, c, "refuses_texts", true, false);
        g->free(g);
    }
    if (!s->library) skip(); /* only the errors of the pass were tested */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_those_of_the_schema)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

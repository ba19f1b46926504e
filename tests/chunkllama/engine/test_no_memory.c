/*
 * Every allocation fails that the calling thread makes when it loads a model, tokenizes, creates an engine or submits a
 * request, alone or with all later ones: the call reports CL_ERR_NOMEM and leaves nothing, and when it is repeated the engine
 * reports what it reports otherwise. What the engine's own thread allocates fails in tests/chunkattn/sim.
 */
#include "tests/support/testing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../model/small_vocab.h"
#include "recording.h"
#include "tests/serve/protocol/failing_malloc.h"
#include "tests/support/failing_threads.h"

enum { EMBD = 64, FF = 96, HEAD_DIM = 32, LAYERS = 2, TEXT = 48 };

/* ---- A model's file ---- */

static void put_row(gguf_bytes *b, uint64_t n, uint32_t *seed) {
    for (uint64_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        put_f32(b, (float)(*seed >> 8) / (1 << 24) - 0.5f);
    }
}

typedef struct shape {
    const char *name;
    uint64_t n_in, n_out;
} shape;

/* Write the shapes of all tensors, or, if seed is not NULL, their data. Returns their number. */
static uint64_t put_tensors(gguf_bytes *b, uint64_t n_vocab, uint32_t *seed) {
    const shape shapes[] = {{"blk.%d.attn_norm.weight", EMBD, 1},     {"blk.%d.ffn_norm.weight", EMBD, 1},
                            {"blk.%d.attn_q.weight", EMBD, EMBD},     {"blk.%d.attn_k.weight", EMBD, HEAD_DIM},
                            {"blk.%d.attn_v.weight", EMBD, HEAD_DIM}, {"blk.%d.attn_output.weight", EMBD, EMBD},
                            {"blk.%d.ffn_gate.weight", EMBD, FF},     {"blk.%d.ffn_up.weight", EMBD, FF},
                            {"blk.%d.ffn_down.weight", FF, EMBD},     {"output_norm.weight", EMBD, 1},
                            {"token_embd.weight", EMBD, n_vocab}};
    uint64_t n = 0, offset = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const shape *s = &shapes[i];
            char name[64];
            if (layer > 0 && strncmp(s->name, "blk", 3) != 0) continue;
            snprintf(name, sizeof name, s->name, layer);
            if (seed)
                put_row(b, s->n_in * s->n_out, seed);
            else
                put_tensor(b, name, CL_TENSOR_F32, s->n_in, s->n_out, offset);
            offset += s->n_in * s->n_out * sizeof(float);
            n++;
        }
    return n;
}

static void write_model(char path[32]) {
    small_vocab v = byte_level_vocab("smollm");
    v.chat_template = "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content }}<|im_end|>{% endfor %}";
    add_piece(&v, "<|im_start|>", 3, 0);
    v.eos = add_piece(&v, "<|im_end|>", 3, 0);
    v.bos = v.eos;
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 0);
    uint64_t n_keys = put_vocab(&b, &v);
    put_key_string(&b, "general.architecture", "llama"), n_keys++;
    put_key_u32(&b, "llama.block_count", LAYERS), n_keys++;
    put_key_u32(&b, "llama.embedding_length", EMBD), n_keys++;
    put_key_u32(&b, "llama.feed_forward_length", FF), n_keys++;
    put_key_u32(&b, "llama.context_length", 256), n_keys++;
    put_key_u32(&b, "llama.attention.head_count", EMBD / HEAD_DIM), n_keys++;
    put_key_u32(&b, "llama.attention.head_count_kv", 1), n_keys++;
    put_key(&b, "llama.attention.layer_norm_rms_epsilon", CL_META_FLOAT32), n_keys++;
    put_f32(&b, 1e-5f);
    const uint64_t n_tensors = put_tensors(&b, (uint64_t)v.n, NULL);
    put_padding(&b, 32);
    uint32_t seed = 1;
    put_tensors(&b, (uint64_t)v.n, &seed);
    memcpy(b.data + 8, &n_tensors, sizeof n_tensors);
    memcpy(b.data + 16, &n_keys, sizeof n_keys);
    strcpy(path, "/tmp/no_memory_XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, b.data, b.size) == (ssize_t)b.size && close(fd) == 0);
    free(b.data);
}

/* ---- Calls ---- */

/* Which allocation of a call fails next; a call is repeated until none does. */
typedef struct failure {
    int n;
    bool all, done;
} failure;

static void begin(const failure *f) { fail_malloc(f->n, f->all); }

/* To be called after the call. True: it has failed as it must, and is to be repeated with the next failure. */
static bool again(failure *f, cl_status status, const cl_error *error) {
    f->done = !mend_malloc();
    f->n++;
    if (f->done && status != CL_OK) fail_msg("without a failure: %s", error->message);
    if (status == CL_OK) return false;
    assert_int_equal(status, CL_ERR_NOMEM);
    assert_int_equal(error->code, CL_ERR_NOMEM);
    assert_true(strlen(error->message) > 0);
    return true;
}

/* The grammar engine's shared object; NULL: none, and requests have no grammar. */
static const char *library;

static const char text[TEXT] = "Hello, world! 12345 <|im_start|>";

/* What a model makes of text and of a chat. */
typedef struct tokens {
    cl_token_list text, chat;
} tokens;

static void free_tokens(tokens *t) {
    cl_token_list_free(&t->text);
    cl_token_list_free(&t->chat);
}

static cl_status make_tokens(const cl_model *m, tokens *t, cl_error *error) {
    static const cl_chat_message message = {"user", "Hi there", 8};
    *t = (tokens){0};
    const cl_status status = cl_model_tokenize(m, text, strlen(text), CL_TOKENIZE_SPECIAL, &t->text, error);
    return status == CL_OK ? cl_model_format_chat(m, NULL, &message, 1, &t->chat, error) : status;
}

static bool same_tokens(const cl_token_list *a, const cl_token_list *b) {
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0;
}

void *__real_malloc(size_t size);

/* Jansson is spared, with which chat templates are tried, since it does not notice all failures (chunkllama/common/json_doc.c).
 */
static cl_status load(const char *path, int n_threads, cl_model **m, cl_error *error) {
    cl_model_options options;
    json_set_alloc_funcs(__real_malloc, free);
    cl_model_options_init(&options);
    options.n_threads = n_threads;
    return cl_model_load(path, &options, m, error);
}

static cl_status start(const cl_model *m, int n_threads, cl_engine **e, cl_error *error) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.kv_budget_bytes = 4 << 20;
    config.max_step_rows = 64;
    config.max_seqs = 4;
    config.n_threads = n_threads;
    config.speculate = true;
    config.kv_type = CATTN_I8;
    config.grammar_library = library;
    config.grammars_in_process = true; /* since allocations fail in this process */
    return cl_engine_create(m, &config, e, error);
}

static cl_status submit(cl_engine *e, const cl_token_list *prompt, recording *r, uint64_t *id, cl_error *error) {
    static const char *const stop[] = {"never", "at all"};
    cl_engine_request request;
    cl_engine_request_init(&request);
    request.prompt = prompt->ids;
    request.n_prompt = (int64_t)prompt->n;
    request.max_tokens = 12;
    request.n = 2;
    request.sampling.temperature = 1;
    request.logprobs = true;
    request.n_top = 2;
    request.stop = stop;
    request.n_stop = 2;
    static const cl_logit_bias bias = {7, 1};
    static const int32_t tokens[] = {5, 6, 7}, sizes[] = {1, 2};
    request.logit_bias = &bias;
    request.n_logit_bias = 1;
    request.bad_words = tokens;
    request.bad_word_sizes = sizes;
    request.n_bad_words = 2;
    request.shown_tokens = tokens;
    request.n_shown_tokens = 3;
    request.min_tokens = 2;
    request.salt = "salt";
    request.salt_size = 4;
    if (library) {
        request.grammar_kind = CL_GRAMMAR_REGEX;
        request.grammar = "[a-z]+ (forced)*";
        request.grammar_size = strlen(request.grammar);
    }
    request.on_event = recording_event;
    request.ctx = r;
    return cl_engine_submit(e, &request, id, error);
}

/* ---- Tests ---- */

typedef struct scene {
    char path[32];
    cl_model *model;
    tokens tokens;
    recording *expected;
} scene;

/* What is reported of the prompt on an engine of its own. */
static recording *run(const cl_model *m, const cl_token_list *prompt) {
    cl_error error;
    cl_engine *e;
    uint64_t id;
    recording *r = recording_create();
    if (start(m, 1, &e, &error) != CL_OK || submit(e, prompt, r, &id, &error) != CL_OK) fail_msg("%s", error.message);
    recording_wait(r);
    cl_engine_destroy(&e);
    return r;
}

static int set_up(void **state) {
    static scene s;
    cl_error error;
    library = getenv("CHUNKLLAMA_GRAMMAR_LIBRARY");
    if (library && !*library) library = NULL;
    write_model(s.path);
    if (load(s.path, 1, &s.model, &error) != CL_OK) fail_msg("%s", error.message);
    if (make_tokens(s.model, &s.tokens, &error) != CL_OK) fail_msg("%s", error.message);
    s.expected = run(s.model, &s.tokens.text);
    *state = &s;
    return 0;
}

static int tear_down(void **state) {
    scene *s = *state;
    recording_free(s->expected);
    free_tokens(&s->tokens);
    cl_model_free(&s->model);
    return unlink(s->path);
}

static void models_are_loaded_whole_or_not(void **state) {
    const scene *s = *state;
    for (int all = 0; all < 2; all++) {
        failure f = {.n = 1, .all = all};
        while (!f.done) {
            cl_model *m;
            cl_error error = {.message = ""};
            begin(&f);
            const cl_status status = load(s->path, 1, &m, &error);
            if (again(&f, status, &error)) {
                assert_null(m);
                continue;
            }
            tokens t;
            assert_string_equal(cl_model_chat_format(m), "template");
            assert_int_equal(make_tokens(m, &t, NULL), CL_OK);
            assert_true(same_tokens(&t.text, &s->tokens.text) && same_tokens(&t.chat, &s->tokens.chat));
            if (f.done) {
                recording *r = run(m, &t.text);
                assert_true(recording_equal(r, s->expected));
                recording_free(r);
            }
            free_tokens(&t);
            cl_model_free(&m);
        }
        assert_true(f.n > 50);
    }
}

static void text_becomes_all_tokens_or_none(void **state) {
    const scene *s = *state;
    for (int all = 0; all < 2; all++) {
        failure f = {.n = 1, .all = all};
        while (!f.done) {
            tokens t;
            cl_error error = {.message = ""};
            begin(&f);
            const cl_status status = make_tokens(s->model, &t, &error);
            if (again(&f, status, &error))
                assert_true(t.chat.n == 0 && (t.text.n == 0 || t.text.n == s->tokens.text.n));
            else
                assert_true(same_tokens(&t.text, &s->tokens.text) && same_tokens(&t.chat, &s->tokens.chat));
            free_tokens(&t);
        }
        assert_true(f.n > 2);
    }
}

static void engines_are_created_whole_or_not(void **state) {
    const scene *s = *state;
    for (int all = 0; all < 2; all++) {
        failure f = {.n = 1, .all = all};
        while (!f.done) {
            cl_engine *e;
            cl_error error = {.message = ""};
            begin(&f);
            const cl_status status = start(s->model, 1, &e, &error);
            if (again(&f, status, &error)) {
                assert_null(e);
                continue;
            }
            recording *r = recording_create();
            uint64_t id;
            if (submit(e, &s->tokens.text, r, &id, &error) != CL_OK) fail_msg("%s", error.message);
            recording_wait(r);
            assert_true(recording_equal(r, s->expected));
            recording_free(r);
            cl_engine_destroy(&e);
        }
        assert_true(f.n > 20);
    }
}

/* On one engine, so that what failed before is in nobody's way. */
static void requests_are_queued_whole_or_not(void **state) {
    const scene *s = *state;
    cl_engine *e;
    cl_error error = {.message = ""};
    if (start(s->model, 1, &e, &error) != CL_OK) fail_msg("%s", error.message);
    uint64_t last_id = 0;
    for (int all = 0; all < 2; all++) {
        failure f = {.n = 1, .all = all};
        while (!f.done) {
            recording *r = recording_create();
            uint64_t id;
            begin(&f);
            const cl_status status = submit(e, &s->tokens.text, r, &id, &error);
            if (again(&f, status, &error)) {
                assert_int_equal(id, 0);
                assert_int_equal(r->n_events, 0);
            } else {
                recording_wait(r);
                assert_int_equal(id, ++last_id);
                assert_true(recording_equal(r, s->expected));
            }
            recording_free(r);
        }
        assert_true(f.n > 2);
    }
    cl_engine_destroy(&e);
}

static void questions_are_asked_whole_or_not(void **state) {
    const scene *s = *state;
    cl_engine *e;
    cl_error error = {.message = ""};
    if (start(s->model, 1, &e, &error) != CL_OK) fail_msg("%s", error.message);
    for (int all = 0; all < 2; all++) {
        failure f = {.n = 1, .all = all};
        while (!f.done) {
            cattn_explanation why = {.struct_size = sizeof why, .end = CATTN_MATCH_PRIVATE};
            cl_engine_request request;
            cl_engine_request_init(&request);
            request.prompt = s->tokens.text.ids;
            request.n_prompt = (int64_t)s->tokens.text.n;
            begin(&f);
            const cl_status status = cl_engine_explain(e, &request, &why, &error);
            assert_int_equal(why.end, again(&f, status, &error) ? CATTN_MATCH_PRIVATE : CATTN_MATCH_ENDS);
        }
        assert_true(f.n > 1);
    }
    cl_engine_destroy(&e);
}

/* Loading takes two threads beside the caller's, and an engine one more. */
static void threads_may_be_lacking(void **state) {
    const scene *s = *state;
    for (int n = 0; library && n < 3; n++) { /* grammars have two */
        cl_engine *e;
        threads_left = n;
        assert_int_equal(start(s->model, 1, &e, NULL), CL_ERR_NOMEM);
        assert_null(e);
        assert_int_equal(threads_left, -1);
    }
    library = NULL;
    for (int n = 0; n < 3; n++) {
        cl_model *m = NULL;
        cl_engine *e;
        cl_error error = {.message = ""};
        threads_left = n;
        const cl_status loaded = load(s->path, 3, &m, &error);
        assert_int_equal(loaded, n < 2 ? CL_ERR_NOMEM : CL_OK);
        assert_true((m != NULL) == (loaded == CL_OK));
        if (n < 2) assert_string_equal(error.message, "cannot start 3 threads; lower n_threads");
        cl_model_free(&m);
        threads_left = n;
        assert_int_equal(start(s->model, 3, &e, &error), CL_ERR_NOMEM);
        assert_null(e);
        assert_non_null(strstr(error.message, n < 2 ? "cannot start 3 threads" : "the engine's thread cannot be started"));
        assert_int_equal(threads_left, -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_loaded_whole_or_not),   cmocka_unit_test(text_becomes_all_tokens_or_none),
        cmocka_unit_test(engines_are_created_whole_or_not), cmocka_unit_test(requests_are_queued_whole_or_not),
        cmocka_unit_test(questions_are_asked_whole_or_not), cmocka_unit_test(threads_may_be_lacking),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* What the server counts for an answer before it is made is about what it allocates, by a count of all allocations. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_malloc.h"
#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/dialect.h"

enum { N_PROMPTS = 3, N_TOKENS = 400, N_EMBD = 2000, N_TOP = 20, FIXED = 64 << 10 };

static cl_sampler_logprob top[N_TOP];
static float embedding[N_EMBD];

/* Add a prompt's events but those of choices' tokens. */
static void add_events(openai_result *result, size_t i) {
    const openai_request *r = result->request;
    const cl_engine_request *p = &r->params;
    for (int64_t k = p->prompt_logprobs_from; p->prompt_logprobs && k < (int64_t)r->prompts[i].tokens.n; k++) {
        const cl_engine_event e = {
            .kind = CL_EVENT_PROMPT,
            .token = {r->prompts[i].tokens.ids[k], 1, k, {r->prompts[i].tokens.ids[k], -1.5f}, top, k ? p->n_top : 0}};
        openai_result_add(result, i, &e, 0);
    }
    for (int32_t c = 0; c < p->n; c++) {
        const bool embeds = p->pooling != CL_ENGINE_POOL_NONE;
        const cl_engine_event e = {
            .kind = CL_EVENT_END,
            .choice = c,
            .last = c + 1 == p->n,
            .text = "",
            .end = {.finish = CL_ENGINE_LENGTH, .embedding = embeds ? embedding : NULL, .n_embedding = embeds ? N_EMBD : 0}};
        openai_result_add(result, i, &e, 0);
    }
}

/* {"FIELD": [[97, 97, ...], ...], more} */
static json_t *body_of(const char *field, const char *more) {
    json_t *body = json_loads(more, 0, NULL), *prompts = json_array();
    assert_non_null(body);
    for (int i = 0; i < N_PROMPTS; i++) {
        json_t *tokens = json_array();
        for (int k = 0; k < N_TOKENS; k++) json_array_append_new(tokens, json_integer('a'));
        json_array_append_new(prompts, tokens);
    }
    if (field) json_object_set_new(body, field, prompts);
    if (!field) json_decref(prompts);
    return body;
}

/* Fails unless a half to three times of what is allocated is counted. A block that grows is allocated several times. */
static void check(const openai_dialect *dialect, const char *field, const char *more) {
    openai_context context = fake_context();
    cl_model model = *context.model;
    model.params.n_embd = N_EMBD;
    context.model = &model;
    openai_request request;
    openai_error error;
    json_t *body = body_of(field, more);
    if (!dialect->parse(&context, body, &request, &error)) fail_msg("%s: %s", more, error.message);
    json_decref(body);
    const size_t counted = openai_answer_bytes(&context, &request);
    openai_result result;
    openai_writer w = {0};
    count_malloc();
    assert_true(openai_result_init(&result, &context, &request));
    for (size_t i = 0; i < request.n_prompts; i++) add_events(&result, i);
    dialect->write_answer(&w, NULL, &result);
    free(writer_end(&w, NULL));
    const size_t allocated = counted_malloc();
    const size_t beside = FIXED + result.n_choices * 2048; /* which counts, or is bounded, elsewhere */
    if (allocated > 2 * counted + beside || counted > 3 * allocated + beside)
        fail_msg("%s: %zu bytes are counted, and %zu allocated", more, counted, allocated);
    openai_result_free(&result);
    openai_request_free(&request);
}

static void answers_are_counted(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *field, *more;
    } cases[] = {
        {&openai_completion, "prompt", "{}"},
        {&openai_completion, "prompt", "{\"prompt_logprobs\":20}"},
        {&openai_completion, "prompt", "{\"prompt_logprobs\":0}"},
        {&openai_completion, "prompt", "{\"prompt_logprobs\":20,\"logprob_start_len\":390}"},
        {&openai_completion, "prompt", "{\"prompt_logprobs\":5,\"n\":4}"},
        {&openai_completion, "prompt", "{\"echo\":true,\"logprobs\":20}"},
        {&openai_completion, "prompt", "{\"echo\":true,\"logprobs\":0}"},
        {&openai_completion, "prompt", "{\"echo\":true,\"logprobs\":3,\"n\":4}"},
        {&openai_completion, "prompt", "{\"return_token_ids\":true}"},
        {&openai_completion, "prompt", "{\"echo\":true,\"n\":20}"},
        {&openai_embedding, "input", "{}"},
        {&openai_embedding, "input", "{\"dimensions\":1000}"},
        {&openai_embedding, "input", "{\"encoding_format\":\"base64\"}"},
        {&openai_score, NULL, "{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\",\"d\",\"e\",\"f\",\"g\"],\"pooling\":\"last\"}"},
    };
    for (int i = 0; i < N_TOP; i++) top[i] = (cl_sampler_logprob){'b' + i, -0.123456f * (float)i};
    for (int i = 0; i < N_EMBD; i++) embedding[i] = 1.0f / (float)(i + 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(cases[i].dialect, cases[i].field, cases[i].more);
    check(&openai_chat, NULL, CHAT("\"prompt_logprobs\":20,\"n\":2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

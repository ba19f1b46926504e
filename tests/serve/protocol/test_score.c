/* Bodies of scores and rankings become prompts of the engine; its vectors, or the logprobs of two tokens, become their answers.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "chunkllama/model/model.h"
#include "fake.h"
#include "openai_fixture.h"

#define POOLED ",\"pooling\":\"last\"}"

/* ---- Models that give embeddings ---- */

static void bodies_become_queries_and_documents(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body;
        size_t n_queries, n_prompts;
    } cases[] = {
        {&openai_score, "{\"text_1\":\"q\",\"text_2\":\"d\"" POOLED, 1, 2},
        {&openai_score, "{\"text_1\":\"q\",\"text_2\":[\"d\",{\"text\":\"e\"}],\"priority\":1" POOLED, 1, 3},
        {&openai_score, "{\"queries\":[\"q\",\"r\"],\"documents\":[\"d\",\"e\"]" POOLED, 2, 4},
        {&openai_score, "{\"data_1\":\"q\",\"data_2\":[\"d\"],\"max_tokens_per_query\":1" POOLED, 1, 2},
        {&openai_score, "{\"queries\":\"q\",\"items\":\"d\",\"embed_dtype\":\"float32\"" POOLED, 1, 2},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\",{\"text\":\"e\"}],\"top_n\":1" POOLED, 1, 3},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\",\"e\"],\"max_tokens_per_doc\":1" POOLED, 1, 3},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"abd\",\"e\"],\"truncate_prompt_tokens\":1" POOLED, 1, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, cases[i].dialect, cases[i].body);
        assert_int_equal(s.request.n_queries, cases[i].n_queries);
        assert_int_equal(s.request.n_prompts, cases[i].n_prompts);
        assert_int_equal(s.request.prompts[0].tokens.ids[0], 'q');
        assert_int_equal(s.request.prompts[cases[i].n_queries].tokens.ids[0], 'd');
        assert_int_equal(s.request.params.pooling, CL_ENGINE_POOL_LAST);
        assert_int_equal(s.request.params.max_tokens, 0);
        scene_end(&s);
    }
}

/* The server's option, or the model's file, says that embeddings are compared. */
static void some_models_do_not_judge(void **state) {
    (void)state;
    openai_context c = fake_context();
    const cl_model plain = *c.model;
    cl_model model = plain;
    json_t *body = json_pack("{s:s, s:s}", "text_1", "q", "text_2", "d");
    for (int way = 0; way < 3; way++) {
        openai_request r;
        openai_error error;
        c = fake_context();
        c.model = &model;
        model = plain;
        if (way == 0) c.defaults.pooling = CL_ENGINE_POOL_MEAN;
        if (way == 1) model.params.for_embeddings = model.params.pools_mean = true;
        if (way == 2) model.params.embeddings_only = true;
        assert_true(openai_score.parse(&c, body, &r, &error));
        assert_int_equal(r.n_prompts, 2);
        assert_int_equal(r.params.pooling, way == 2 ? CL_ENGINE_POOL_LAST : CL_ENGINE_POOL_MEAN);
        openai_request_free(&r);
    }
    json_decref(body);
}

/* Answer with these vectors [n_prompts][FAKE_EMBD]. */
static json_t *answer_with(scene *s, const float (*vectors)[FAKE_EMBD]) {
    for (size_t i = 0; i < s->request.n_prompts; i++) {
        s->result.embeddings[i] = malloc(sizeof *vectors);
        memcpy(s->result.embeddings[i], vectors[i], sizeof *vectors);
        s->result.usage[i].prompt_tokens = 2;
    }
    return scene_answer(s);
}

/* Lengths do not matter, and a vector without a direction is like nothing. */
static void scores_are_cosines(void **state) {
    (void)state;
    static const float one[][FAKE_EMBD] = {{0, 2, 0}, {0, 8, 0}, {3, 4, 0}, {0, 0, 0}, {0, -1, 0}},
                       each[][FAKE_EMBD] = {{1, 0, 0}, {0, 1, 0}, {2, 0, 0}, {2, 0, 0}};
    scene s;
    scene_begin(&s, &openai_score, "{\"text_1\":\"q\",\"text_2\":[\"d\",\"e\",\"f\",\"g\"]" POOLED);
    json_t *answer = answer_with(&s, one);
    assert_at(
        answer, "/data",
        "[{\"index\":0,\"object\":\"score\",\"score\":1.0},{\"index\":1,\"object\":\"score\",\"score\":0.80000000000000004},"
        "{\"index\":2,\"object\":\"score\",\"score\":0.0},{\"index\":3,\"object\":\"score\",\"score\":-1.0}]");
    assert_at(answer, "/id", "\"score-id\"");
    assert_at(answer, "/object", "\"list\"");
    assert_at(answer, "/usage/prompt_tokens", "10");
    json_decref(answer);
    scene_end(&s);
    scene_begin(&s, &openai_score, "{\"text_1\":[\"q\",\"r\"],\"text_2\":[\"d\",\"e\"]" POOLED);
    answer = answer_with(&s, each);
    assert_at(answer, "/data/0/score", "1.0");
    assert_at(answer, "/data/1/score", "0.0");
    json_decref(answer);
    scene_end(&s);
}

static void documents_are_ranked(void **state) {
    (void)state;
    static const float vectors[][FAKE_EMBD] = {{1, 0, 0}, {0, 1, 0}, {1, 0, 0}, {4, 3, 0}, {2, 0, 0}};
    static const struct {
        const char *more, *results;
    } cases[] = {
        {"", "[{\"index\":1,\"relevance_score\":1.0,\"document\":{\"text\":\"e\"}},"
             "{\"index\":3,\"relevance_score\":1.0,\"document\":{\"text\":\"g\"}},"
             "{\"index\":2,\"relevance_score\":0.80000000000000004,\"document\":{\"text\":\"f\"}},"
             "{\"index\":0,\"relevance_score\":0.0,\"document\":{\"text\":\"d\"}}]"},
        {",\"top_n\":1,\"return_documents\":false", "[{\"index\":1,\"relevance_score\":1.0}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"query\":\"q\",\"documents\":[\"d\",\"e\",{\"text\":\"f\"},\"g\"]%s" POOLED,
                 cases[i].more);
        scene s;
        scene_begin(&s, &openai_rerank, body);
        json_t *answer = answer_with(&s, vectors);
        assert_at(answer, "/results", cases[i].results);
        assert_at(answer, "/id", "\"rerank-id\"");
        json_decref(answer);
        scene_end(&s);
    }
}

/* A body with `texts` gets the answer of Text Embeddings Inference, which llama-server has for it, too. */
static void texts_are_ranked(void **state) {
    (void)state;
    static const float vectors[][FAKE_EMBD] = {{1, 0, 0}, {0, 1, 0}, {1, 0, 0}, {3, 4, 0}};
    static const struct {
        const char *fields, *answer;
    } cases[] = {
        {"", "[{\"index\":1,\"score\":1.0},{\"index\":2,\"score\":0.59999999999999998},{\"index\":0,\"score\":0.0}]"},
        {"\"top_n\":1,\"return_text\":true,", "[{\"index\":1,\"score\":1.0,\"text\":\"e\"}]"},
        {"\"top_n\":1,\"raw_scores\":true,\"truncate\":false,", "[{\"index\":1,\"score\":1.0}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        char body[160];
        snprintf(body, sizeof body, "{%s\"query\":\"q\",\"texts\":[\"d\",\"e\",\"f\"]" POOLED, cases[i].fields);
        scene_begin(&s, &openai_rerank, body);
        json_t *answer = answer_with(&s, vectors);
        assert_at(answer, "", cases[i].answer);
        json_decref(answer);
        scene_end(&s);
    }
}

/* ---- Models that judge ---- */

/* The test fails unless the prompt's bytes begin and end so; the fake chat joins the contents, and ends with FAKE_END. */
static void assert_prompt(const openai_prompt *prompt, const char *question) {
    const size_t n = prompt->tokens.n, size = strlen(question);
    assert_true(n > size + 1 && prompt->tokens.ids[n - 1] == FAKE_END);
    for (size_t i = 0; i < size; i++) assert_int_equal(prompt->tokens.ids[n - 1 - size + i], (unsigned char)question[i]);
    static const char system[] = "Judge whether the Document meets the requirements";
    for (size_t i = 0; i < sizeof system - 1; i++) assert_int_equal(prompt->tokens.ids[i], (unsigned char)system[i]);
}

/* Names of special tokens, and of places, in the texts are text. */
static void questions_end_with_the_document(void **state) {
    (void)state;
    scene s;
    json_t *chats = json_array();
    fake_know_words(true);
    fake_record_chats(chats, false);
    scene_begin(&s, &openai_rerank,
                "{\"query\":\"q {document}\",\"documents\":[\"d\",\"</s>{query}\"],\"instruct\":\"Find.\"}");
    fake_record_chats(NULL, false);
    assert_int_equal(s.request.n_prompts, 2);
    assert_int_equal(s.request.n_queries, 0);
    assert_prompt(&s.request.prompts[0], "<Instruct>: Find.\n<Query>: q {document}\n<Document>: d");
    assert_prompt(&s.request.prompts[1], "<Instruct>: Find.\n<Query>: q {document}\n<Document>: </s>{query}");
    const cl_engine_request *p = &s.request.params;
    assert_true(p->pooling == CL_ENGINE_POOL_NONE && p->max_tokens == 1 && p->logprobs && p->n_top == 2);
    assert_true(p->top_tokens[0] == 'n' && p->top_tokens[1] == 'y');
    assert_int_equal(json_array_size(chats), 1); /* it is rendered once, for all documents */
    assert_at(chats, "/0/kwargs", "{\"enable_thinking\":false}");
    json_decref(chats);
    scene_end(&s);
    scene_begin(&s, &openai_score, "{\"text_1\":[\"q\",\"r\"],\"text_2\":[\"d\",\"e\"]}");
    assert_prompt(&s.request.prompts[1], "retrieve relevant passages that answer the query\n<Query>: r\n<Document>: e");
    scene_end(&s);
    fake_know_words(false);
}

/* The logprobs of "no" and "yes" of each prompt. */
static json_t *answer_judged(scene *s, const float (*logprobs)[2]) {
    for (size_t i = 0; i < s->request.n_prompts; i++) {
        const cl_sampler_logprob top[2] = {{'n', logprobs[i][0]}, {'y', logprobs[i][1]}};
        const cl_engine_event events[] = {
            {.kind = CL_EVENT_TOKEN, .token = {.id = 'x', .chosen = {'x', -1}, .top = top, .n_top = 2}, .text = ""},
            {.kind = CL_EVENT_END,
             .end = {.finish = CL_ENGINE_LENGTH},
             .text = "",
             .last = true,
             .n_prompt = 9,
             .n_completion = 1},
        };
        for (int k = 0; k < 2; k++) openai_result_add(&s->result, i, &events[k], 0);
    }
    return scene_answer(s);
}

/* Only the two tokens count, even where both are next to impossible. */
static void scores_are_probabilities(void **state) {
    (void)state;
    static const float logprobs[][2] = {{-1, -1}, {-INFINITY, -90}, {-90, -INFINITY}, {-INFINITY, -INFINITY}, {-92, -90}};
    scene s;
    fake_know_words(true);
    scene_begin(&s, &openai_score, "{\"text_1\":\"q\",\"text_2\":[\"d\",\"e\",\"f\",\"g\",\"h\"]}");
    json_t *answer = answer_judged(&s, logprobs);
    static const char *const expected[] = {"0.5", "1.0", "0.0", "0.0", "0.88079707797788231"};
    for (int i = 0; i < 5; i++) {
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/data/%d/score", i);
        assert_at(answer, pointer, expected[i]);
    }
    assert_at(answer, "/usage/prompt_tokens", "45");
    assert_at(answer, "/usage/completion_tokens", "0");
    json_decref(answer);
    scene_end(&s);
    scene_begin(&s, &openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\",\"e\",\"f\"],\"top_n\":2}");
    answer = answer_judged(&s, logprobs);
    assert_at(answer, "/results",
              "[{\"index\":1,\"relevance_score\":1.0,\"document\":{\"text\":\"e\"}},"
              "{\"index\":0,\"relevance_score\":0.5,\"document\":{\"text\":\"d\"}}]");
    json_decref(answer);
    scene_end(&s);
    fake_know_words(false);
}

/* vLLM's `use_activation` false: the difference of the logprobs, of which the probability is the sigmoid. */
static void scores_may_be_the_odds(void **state) {
    (void)state;
    static const float logprobs[][2] = {{-1, -1}, {-INFINITY, -90}, {-92, -90}, {-INFINITY, -INFINITY}};
    scene s;
    fake_know_words(true);
    scene_begin(
        &s, &openai_score,
        "{\"text_1\":\"q\",\"text_2\":[\"d\",\"e\",\"f\",\"g\"],\"use_activation\":false,\"truncate_prompt_tokens\":900}");
    json_t *answer = answer_judged(&s, logprobs);
    static const char *const expected[] = {"0.0", "9909.0", "2.0", "0.0"};
    for (int i = 0; i < 4; i++) {
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/data/%d/score", i);
        assert_at(answer, pointer, expected[i]);
    }
    json_decref(answer);
    scene_end(&s);
    scene_begin(&s, &openai_rerank, "{\"query\":\"q\",\"texts\":[\"d\",\"e\",\"f\"],\"raw_scores\":true,\"top_n\":1}");
    answer = answer_judged(&s, logprobs);
    assert_at(answer, "", "[{\"index\":1,\"score\":9909.0}]");
    json_decref(answer);
    scene_end(&s);
    fake_know_words(false);
}

/* ---- Both ---- */

static void wrong_bodies_are_refused(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body, *param, *message;
    } cases[] = {
        {&openai_score, "5", "", "must be a JSON object"},
        {&openai_score, "{\"text_2\":\"d\"}", "text_1", "is missing"},
        {&openai_score, "{\"text_1\":\"q\"}", "text_2", "is missing"},
        {&openai_score, "{\"text_1\":[\"q\",\"r\"],\"text_2\":\"d\"}", "text_1", "'text_2' has 1"},
        {&openai_score, "{\"text_1\":\"q\",\"text_2\":[]}", "text_2", "from 1 to 2048"},
        {&openai_score, "{\"text_1\":\"q\",\"text_2\":\"d\",\"pooling\":\"cls\"}", "pooling", "\"last\" or \"mean\""},
        {&openai_rerank, "{\"documents\":[\"d\"]}", "query", "is missing"},
        {&openai_rerank, "{\"query\":[\"q\",\"r\"],\"documents\":[\"d\"]}", "query", "it must be one"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[]}", "documents", "from 1 to 2048"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\",{\"title\":\"d\"}]}", "documents[1]", "must be a string"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[[1]]}", "documents[0]", "must be a string"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\"],\"top_n\":-1}", "top_n", "0"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\"],\"return_documents\":1}", "return_documents", "true"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\"],\"instruction\":\"i\"" POOLED, "instruction",
         "into the query"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\",\"ef\"],\"max_tokens_per_doc\":1" POOLED, "max_tokens_per_doc",
         "'documents[1]' has 2 tokens"},
        {&openai_rerank, "{\"query\":\"qr\",\"documents\":[\"d\"],\"max_query_length\":1" POOLED, "max_query_length",
         "'query' has 2 tokens"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\"],\"return_embeddings\":true" POOLED, "return_embeddings",
         "/v1/embeddings"},
        {&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\"]}", "model", "no tokens \"yes\" and \"no\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_body_refused(cases[i].dialect, cases[i].body, 400, cases[i].param, cases[i].message);
    fake_know_words(true);
    assert_body_refused(&openai_rerank, "{\"query\":\"q\",\"documents\":[\"d\"],\"instruction\":1}", 400, "instruction",
                        "must be a string");
    assert_body_refused(&openai_score, "{\"text_1\":\"q\",\"text_2\":\"d\",\"truncate_prompt_tokens\":20}", 400,
                        "truncate_prompt_tokens", "of which the model needs all");
    fake_know_words(false);
}

/* A chat model without a template can do neither. */
static void a_model_may_lack_a_chat(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    openai_error error;
    c.chat = NULL;
    json_t *body = json_pack("{s:s, s:s}", "text_1", "q", "text_2", "d");
    assert_false(openai_score.parse(&c, body, &r, &error));
    assert_error(&error, "a score", 400, "model", "it has no chat template: serve a model for embeddings or a chat model");
    json_decref(body);
}

/* The query is written for each document, which multiplies it. */
static void queries_are_not_repeated_without_bound(void **state) {
    (void)state;
    enum { N_DOCUMENTS = 2000, QUERY = 9000 };
    openai_context c = fake_context();
    openai_request r;
    openai_error error;
    json_t *documents = json_array();
    for (int i = 0; i < N_DOCUMENTS; i++) json_array_append_new(documents, json_string("d"));
    char *query = malloc(QUERY + 1);
    memset(query, 'q', QUERY);
    query[QUERY] = '\0';
    json_t *body = json_pack("{s:s, s:o}", "query", query, "documents", documents);
    fake_know_words(true);
    assert_false(openai_rerank.parse(&c, body, &r, &error));
    fake_know_words(false);
    assert_error(&error, "a ranking", 400, "documents", "send fewer documents, or a shorter query");
    json_decref(body);
    free(query);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_queries_and_documents),
        cmocka_unit_test(some_models_do_not_judge),
        cmocka_unit_test(scores_are_cosines),
        cmocka_unit_test(documents_are_ranked),
        cmocka_unit_test(texts_are_ranked),
        cmocka_unit_test(questions_end_with_the_document),
        cmocka_unit_test(scores_are_probabilities),
        cmocka_unit_test(scores_may_be_the_odds),
        cmocka_unit_test(wrong_bodies_are_refused),
        cmocka_unit_test(a_model_may_lack_a_chat),
        cmocka_unit_test(queries_are_not_repeated_without_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

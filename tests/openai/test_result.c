/* The engine's events become OpenAI's answers and the chunks of its streams. */
#include "../support/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "openai_fixture.h"

/* A request and its result. */
typedef struct scene {
    openai_context context;
    openai_request request;
    openai_result result;
} scene;

static void begin(scene *s, openai_endpoint endpoint, const char *body) {
    s->context = fake_context();
    parse_ok(&s->context, endpoint, body, &s->request);
    assert_true(openai_result_init(&s->result, &s->context, &s->request));
    strcpy(s->result.id, "id");
    s->result.created = 1;
}

static void end(scene *s) {
    openai_result_free(&s->result);
    openai_request_free(&s->request);
}

static const cl_sampler_logprob top[2] = {{'a', -0.5f}, {0xc3, -INFINITY}};

static cl_engine_event token(int32_t choice, int32_t id, int64_t position, const char *text) {
    return (cl_engine_event){
        .choice = choice,
        .token = id,
        .position = position,
        .text = text,
        .text_size = strlen(text),
        .chosen = {id, -1.5f},
        .top = top,
        .n_top = 2,
        .n_prompt = 1,
    };
}

static cl_engine_event last(int32_t choice, cl_engine_finish finish, const char *text, int64_t n_completion) {
    return (cl_engine_event){.choice = choice,
                             .token = -1,
                             .text = text,
                             .text_size = strlen(text),
                             .finish = finish,
                             .last = true,
                             .n_prompt = 1,
                             .n_cached = 0,
                             .n_completion = n_completion};
}

static void assert_json(json_t *json, const char *expected) {
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, expected);
    free(text);
    json_decref(json);
}

/* The text that a writer holds as JSON; the writer is empty afterwards. */
static json_t *written(openai_writer *w) {
    char *text = writer_end(w, NULL);
    assert_non_null(text);
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static void assert_written(openai_writer *w, const char *expected) {
    char *text = writer_end(w, NULL);
    assert_string_equal(text, expected);
    free(text);
}

static void add(scene *s, cl_engine_event event) { openai_result_add(&s->result, 0, &event); }

static void chat_logprobs_have_bytes(void **state) {
    (void)state;
    scene s;
    begin(&s, OPENAI_CHAT, CHAT("\"logprobs\":true,\"top_logprobs\":2"));
    add(&s, token(0, 0xc3, 2, ""));
    add(&s, token(0, 0xa9, 3, "\xc3\xa9"));
    add(&s, last(0, CL_ENGINE_STOP, "", 2));
    assert_true(openai_result_done(&s.result));
    openai_writer w = {0};
    openai_write_answer(&w, NULL, &s.result);
    assert_written(&w,
                   "{\"id\":\"id\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"fake\",\"choices\":[{\"index\":0,"
                   "\"message\":{\"role\":\"assistant\",\"content\":\"\xc3\xa9\",\"refusal\":null},\"logprobs\":{\"content\":["
                   "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1.5,\"bytes\":[195],\"top_logprobs\":["
                   "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.0,"
                   "\"bytes\":[195]}]},"
                   "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1.5,\"bytes\":[169],\"top_logprobs\":["
                   "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.0,"
                   "\"bytes\":[195]}]}"
                   "],\"refusal\":null},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,"
                   "\"total_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":0}}}");
    end(&s);
}

static void echo_reports_the_prompts_logprobs(void **state) {
    (void)state;
    scene s;
    begin(&s, OPENAI_COMPLETION, "{\"prompt\":[120,195,169],\"echo\":true,\"logprobs\":2,\"return_token_ids\":true}");
    for (int i = 0; i < 3; i++) {
        cl_engine_event event = token(0, s.request.prompts[0].tokens.ids[i], i, "");
        event.prompt = true;
        if (i == 0) event.n_top = 0;
        add(&s, event);
    }
    add(&s, token(0, 'b', 3, "b"));
    add(&s, last(0, CL_ENGINE_LENGTH, "c", 1));
    openai_writer w = {0};
    openai_write_answer(&w, NULL, &s.result);
    json_t *answer = written(&w);
    json_t *choice = json_incref(json_array_get(json_object_get(answer, "choices"), 0));
    json_decref(answer);
    assert_json(choice,
                "{\"index\":0,\"text\":\"x\xc3\xa9"
                "bc\",\"logprobs\":{\"tokens\":[\"x\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"b\"],\"token_logprobs\":[null,-1.5,"
                "-1.5,-1.5],\"top_logprobs\":[null,{\"a\":-0.5,\"bytes:\\\\xc3\":-1.5},{\"a\":-0.5,\"bytes:\\\\xc3\":-9999.0,"
                "\"bytes:\\\\xa9\":-1.5},{\"a\":-0.5,\"bytes:\\\\xc3\":-9999.0,\"b\":-1.5}],\"text_offset\":[0,1,2,2]},"
                "\"finish_reason\":\"length\",\"token_ids\":[98],\"prompt_token_ids\":[120,195,169]}");
    end(&s);
}

/* What a stream says about an event, without its head; NULL: nothing. */
static void assert_chunk(scene *s, cl_engine_event event, const char *expected) {
    add(s, event);
    assert_true(openai_has_chunk(&s->request, &event) == (expected != NULL));
    if (!expected) return;
    openai_writer w = {0};
    openai_write_chunk(&w, &s->result, 0, &event);
    json_t *chunk = written(&w);
    json_t *choices = json_incref(json_object_get(chunk, "choices"));
    json_decref(chunk);
    assert_json(choices, expected);
}

static void streams_tell_each_event(void **state) {
    (void)state;
    scene s;
    begin(&s, OPENAI_CHAT, CHAT("\"n\":2,\"stream\":true"));
    assert_chunk(&s, token(1, 'a', 2, ""), NULL);
    assert_chunk(
        &s, token(1, 'b', 3, "ab"),
        "[{\"index\":1,\"delta\":{\"role\":\"assistant\",\"content\":\"ab\"},\"logprobs\":null,\"finish_reason\":null}]");
    assert_chunk(&s, token(1, 'c', 4, "c"),
                 "[{\"index\":1,\"delta\":{\"content\":\"c\"},\"logprobs\":null,\"finish_reason\":null}]");
    assert_chunk(&s, last(0, CL_ENGINE_LENGTH, "", 0),
                 "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":"
                 "\"length\"}]");
    assert_chunk(&s, last(1, CL_ENGINE_STOP, "d", 3),
                 "[{\"index\":1,\"delta\":{\"content\":\"d\"},\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    assert_string_equal(s.result.choices[1].text, "abcd");
    end(&s);

    begin(&s, OPENAI_COMPLETION, COMPLETION("\"echo\":true,\"logprobs\":0,\"stream\":true"));
    cl_engine_event prompt = token(0, 'x', 0, "");
    prompt.prompt = true;
    assert_chunk(&s, prompt, NULL);
    cl_engine_event event = token(0, 'a', 1, "");
    event.n_top = 0;
    assert_chunk(&s, event,
                 "[{\"index\":0,\"text\":\"x\",\"logprobs\":{\"tokens\":[\"x\",\"a\"],\"token_logprobs\":[null,-1.5],"
                 "\"top_logprobs\":[null,null],\"text_offset\":[0,1]},\"finish_reason\":null}]");
    assert_chunk(&s, event,
                 "[{\"index\":0,\"text\":\"\",\"logprobs\":{\"tokens\":[\"a\"],\"token_logprobs\":[-1.5],"
                 "\"top_logprobs\":[null],\"text_offset\":[2]},\"finish_reason\":null}]");
    end(&s);
}

/* A choice of n equal tokens; all choices but the last of a prompt end before it. */
static void add_choice(scene *s, size_t prompt, int32_t choice, int32_t id, float logprob, int n) {
    const char text[2] = {(char)id, '\0'};
    for (int i = 0; i < n; i++) {
        cl_engine_event event = token(choice, id, 1 + i, text);
        event.chosen.logprob = logprob;
        event.n_top = 0;
        openai_result_add(&s->result, prompt, &event);
    }
    cl_engine_event event = last(choice, CL_ENGINE_STOP, "", 10);
    event.last = choice == s->request.params.n - 1;
    openai_result_add(&s->result, prompt, &event);
}

/* By the mean logprob of their tokens and not the sum; equal ones in the order in which they were generated; usage of all. */
static void the_best_choices_are_returned(void **state) {
    (void)state;
    scene s;
    begin(&s, OPENAI_COMPLETION, "{\"prompt\":[\"x\",\"y\"],\"n\":2,\"best_of\":4}");
    for (size_t prompt = 0; prompt < 2; prompt++) {
        const int32_t base = prompt ? 'A' : 'a';
        add_choice(&s, prompt, 0, base, -3, 1);
        add_choice(&s, prompt, 1, base + 1, -2, 5);
        add_choice(&s, prompt, 2, base + 2, prompt ? -2 : -1, 3);
        add_choice(&s, prompt, 3, base + 3, -2, 1);
    }
    assert_true(openai_result_done(&s.result));
    openai_writer w = {0};
    openai_write_answer(&w, NULL, &s.result);
    json_t *answer = written(&w);
    json_t *choices = json_incref(json_object_get(answer, "choices")), *usage = json_incref(json_object_get(answer, "usage"));
    json_decref(answer);
    assert_json(choices, "[{\"index\":0,\"text\":\"ccc\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
                         "{\"index\":1,\"text\":\"bbbbb\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
                         "{\"index\":2,\"text\":\"BBBBB\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
                         "{\"index\":3,\"text\":\"CCC\",\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    assert_json(usage, "{\"prompt_tokens\":2,\"completion_tokens\":20,\"total_tokens\":22,\"prompt_tokens_details\":{"
                       "\"cached_tokens\":0}}");
    end(&s);
}

/* What a beam search finds comes in order, whatever the means are. */
static void beams_stay_in_order(void **state) {
    (void)state;
    scene s;
    begin(&s, OPENAI_COMPLETION, COMPLETION("\"n\":1,\"best_of\":2,\"use_beam_search\":true"));
    add_choice(&s, 0, 0, 'a', -3, 1);
    add_choice(&s, 0, 1, 'b', -2, 1);
    openai_writer w = {0};
    openai_write_answer(&w, NULL, &s.result);
    json_t *answer = written(&w);
    json_t *choices = json_incref(json_object_get(answer, "choices"));
    json_decref(answer);
    assert_json(choices, "[{\"index\":0,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    end(&s);
}

static void failures_become_errors(void **state) {
    (void)state;
    scene s;
    begin(&s, OPENAI_COMPLETION, COMPLETION("\"n\":1"));
    cl_engine_event event = last(0, CL_ENGINE_ERROR, "", 0);
    event.error = &(cl_error){CL_ERR_LIMIT, "7 tokens, 5 allowed"};
    add(&s, event);
    assert_true(s.result.failed);
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    openai_write_error(&w, &s.result.error);
    writer_close(&w);
    assert_written(&w, "{\"error\":{\"message\":\"7 tokens, 5 allowed\",\"type\":\"invalid_request_error\",\"param\":null,"
                       "\"code\":\"context_length_exceeded\"}}");
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_logprobs_have_bytes), cmocka_unit_test(echo_reports_the_prompts_logprobs),
        cmocka_unit_test(streams_tell_each_event),  cmocka_unit_test(the_best_choices_are_returned),
        cmocka_unit_test(beams_stay_in_order),      cmocka_unit_test(failures_become_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

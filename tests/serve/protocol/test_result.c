/* The engine's events become OpenAI's answers and the chunks of its streams. */
#include "tests/support/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "openai_fixture.h"

static const cl_sampler_logprob top[2] = {{'a', -0.5f}, {0xc3, -INFINITY}};

static cl_engine_event token(int32_t choice, int32_t id, int64_t position, const char *text) {
    return (cl_engine_event){
        .choice = choice,
        .kind = CL_EVENT_TOKEN,
        .token = {id, 0, position, {id, -1.5f}, top, 2},
        .text = text,
        .text_size = strlen(text),
        .n_prompt = 1,
    };
}

static cl_engine_event last(int32_t choice, cl_engine_finish finish, const char *text, int64_t n_completion) {
    return (cl_engine_event){.choice = choice,
                             .kind = CL_EVENT_END,
                             .end = {.finish = finish},
                             .text = text,
                             .text_size = strlen(text),
                             .last = true,
                             .n_prompt = 1,
                             .n_cached = 0,
                             .n_completion = n_completion};
}

static void add(scene *s, cl_engine_event event) { openai_result_add(&s->result, 0, &event, 1); }

static void chat_logprobs_have_bytes(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_chat, CHAT("\"logprobs\":true,\"top_logprobs\":2"));
    add(&s, token(0, 0xc3, 2, ""));
    add(&s, token(0, 0xa9, 3, "\xc3\xa9"));
    add(&s, last(0, CL_ENGINE_STOP, "", 2));
    assert_true(openai_result_done(&s.result));
    json_t *answer = scene_answer(&s);
    assert_at(
        answer, "",
        "{\"id\":\"chatcmpl-id\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"fake\",\"choices\":[{\"index\":0,"
        "\"message\":{\"role\":\"assistant\",\"content\":\"\xc3\xa9\",\"refusal\":null},\"logprobs\":{\"content\":["
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1.5,\"bytes\":[195],\"top_logprobs\":["
        "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.0,"
        "\"bytes\":[195]}]},"
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1.5,\"bytes\":[169],\"top_logprobs\":["
        "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.0,"
        "\"bytes\":[195]}]}"
        "],\"refusal\":null},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,"
        "\"total_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":0}}}");
    json_decref(answer);
    scene_end(&s);
}

static void echo_reports_the_prompts_logprobs(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, "{\"prompt\":[120,195,169],\"echo\":true,\"logprobs\":2,\"return_token_ids\":true}");
    for (int i = 0; i < 3; i++) {
        cl_engine_event event = token(0, s.request.prompts[0].tokens.ids[i], i, "");
        event.kind = CL_EVENT_PROMPT;
        if (i == 0) event.token.n_top = 0;
        add(&s, event);
    }
    add(&s, token(0, 'b', 3, "b"));
    add(&s, last(0, CL_ENGINE_LENGTH, "c", 1));
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/choices/0",
              "{\"index\":0,\"text\":\"x\xc3\xa9"
              "bc\",\"logprobs\":{\"tokens\":[\"x\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"b\"],\"token_logprobs\":[null,-1.5,"
              "-1.5,-1.5],\"top_logprobs\":[null,{\"a\":-0.5,\"bytes:\\\\xc3\":-1.5},{\"a\":-0.5,\"bytes:\\\\xc3\":-9999.0,"
              "\"bytes:\\\\xa9\":-1.5},{\"a\":-0.5,\"bytes:\\\\xc3\":-9999.0,\"b\":-1.5}],\"text_offset\":[0,1,2,2]},"
              "\"finish_reason\":\"length\",\"token_ids\":[98],\"prompt_token_ids\":[120,195,169]}");
    json_decref(answer);
    scene_end(&s);
}

/* vLLM's: by token id, the prompt's token first, with ranks; more likely ones than the answer's logprobs show. */
static void prompt_logprobs_are_by_id(void **state) {
    (void)state;
    static const char expected[] = "[null,{\"195\":{\"logprob\":-1.5,\"rank\":7,\"decoded_token\":\"\xef\xbf\xbd\"},"
                                   "\"97\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"a\"}}]";
    for (int chat = 0; chat < 2; chat++) {
        scene s;
        if (chat)
            scene_begin(&s, &openai_chat, CHAT("\"prompt_logprobs\":2,\"logprobs\":true"));
        else
            scene_begin(&s, &openai_completion, "{\"prompt\":[120,195],\"prompt_logprobs\":2,\"logprobs\":1}");
        assert_true(s.request.params.n_top == 2);
        for (int i = 0; i < 2; i++) {
            cl_engine_event event = token(0, i ? 0xc3 : 120, i, "");
            event.kind = CL_EVENT_PROMPT;
            event.token.rank = 7;
            add(&s, event);
        }
        add(&s, token(0, 'b', 2, "b"));
        add(&s, last(0, CL_ENGINE_STOP, "", 1));
        json_t *answer = scene_answer(&s);
        assert_at(answer, chat ? "/prompt_logprobs" : "/choices/0/prompt_logprobs", expected);
        assert_at(answer, chat ? "/choices/0/logprobs/content" : "/choices/0/logprobs/top_logprobs",
                  chat ? "[{\"token\":\"b\",\"logprob\":-1.5,\"bytes\":[98],\"top_logprobs\":[]}]"
                       : "[{\"a\":-0.5,\"b\":-1.5}]");
        json_decref(answer);
        scene_end(&s);
    }
}

/* Tokens before the position from which logprobs are wanted have none; places stay those of the prompt. */
static void logprobs_may_begin_within_the_prompt(void **state) {
    (void)state;
    static const struct {
        int start;
        const char *echoed, *by_id;
    } cases[] = {
        {0, "[null,-1.5,-1.5,-1.5]",
         "[null,{\"98\":{\"logprob\":-1.5,\"rank\":0,\"decoded_token\":\"b\"}},"
         "{\"99\":{\"logprob\":-1.5,\"rank\":0,\"decoded_token\":\"c\"}}]"},
        {1, "[null,null,-1.5,-1.5]", "[null,null,{\"99\":{\"logprob\":-1.5,\"rank\":0,\"decoded_token\":\"c\"}}]"},
        {2, "[null,null,null,-1.5]", "[null,null,null]"},
        {9, "[null,null,null,-1.5]", "[null,null,null]"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char body[160];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"abc\",\"echo\":true,\"logprobs\":0,\"prompt_logprobs\":0,\"logprob_start_len\":%d}",
                 cases[k].start);
        scene s;
        scene_begin(&s, &openai_completion, body);
        for (int i = cases[k].start + 1; i < 3; i++) {
            cl_engine_event event = token(0, 'a' + i, i, "");
            event.kind = CL_EVENT_PROMPT;
            event.token.n_top = 0;
            add(&s, event);
        }
        cl_engine_event drawn = token(0, 'd', 3, "d");
        drawn.token.n_top = 0;
        add(&s, drawn);
        add(&s, last(0, CL_ENGINE_LENGTH, "", 1));
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/choices/0/logprobs/token_logprobs", cases[k].echoed);
        assert_at(answer, "/choices/0/logprobs/text_offset", "[0,1,2,3]");
        assert_at(answer, "/choices/0/prompt_logprobs", cases[k].by_id);
        json_decref(answer);
        scene_end(&s);
    }
}

static void tokens_are_named_by_ids(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, COMPLETION("\"logprobs\":2,\"return_tokens_as_token_ids\":true"));
    add(&s, token(0, 'b', 1, "b"));
    add(&s, last(0, CL_ENGINE_STOP, "", 1));
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/choices/0/logprobs",
              "{\"tokens\":[\"token_id:98\"],\"token_logprobs\":[-1.5],\"top_logprobs\":[{\"token_id:97\":-0.5,"
              "\"token_id:195\":-9999.0,\"token_id:98\":-1.5}],\"text_offset\":[0]}");
    json_decref(answer);
    scene_end(&s);
    scene_begin(&s, &openai_chat, CHAT("\"logprobs\":true,\"return_tokens_as_token_ids\":true"));
    cl_engine_event event = token(0, 'b', 1, "b");
    event.token.n_top = 0;
    add(&s, event);
    add(&s, last(0, CL_ENGINE_STOP, "", 1));
    answer = scene_answer(&s);
    assert_at(answer, "/choices/0/logprobs/content",
              "[{\"token\":\"token_id:98\",\"logprob\":-1.5,\"bytes\":[98],\"top_logprobs\":[]}]");
    json_decref(answer);
    scene_end(&s);
}

static double number(const json_t *timings, const char *name) {
    const json_t *value = json_object_get(timings, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Counts are those of usage; rates follow from counts and times, which are not negative. */
static void timings_are_measured(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, "{\"prompt\":\"abc\",\"timings\":true}");
    s.result.times.begun = 10;
    for (int i = 0; i < 4; i++) {
        cl_engine_event event = token(0, 'b', 3 + i, "b");
        event.n_prompt = 3;
        event.n_cached = 1;
        event.n_completion = i + 1;
        openai_result_add(&s.result, 0, &event, i == 3 ? 12.5 : 10.5 + i);
    }
    cl_engine_event event = last(0, CL_ENGINE_STOP, "", 4);
    event.n_prompt = 3;
    event.n_cached = 1;
    openai_result_add(&s.result, 0, &event, 20); /* no token */
    json_t *answer = scene_answer(&s);
    const json_t *t = json_object_get(answer, "timings");
    assert_true(number(t, "cache_n") == 1 && number(t, "prompt_n") == 2 && number(t, "predicted_n") == 4);
    assert_true(number(t, "prompt_ms") == 500 && number(t, "prompt_per_token_ms") == 250);
    assert_true(number(t, "prompt_per_second") == 4 && number(t, "predicted_ms") == 2000);
    assert_true(number(t, "predicted_per_token_ms") == 500 && number(t, "predicted_per_second") == 2);
    json_decref(answer);
    scene_end(&s);
}

/* A stream has them in the last chunk of a choice, or in all; a request that does not ask has none. */
static void streams_have_timings(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool first, last;
    } cases[] = {
        {CHAT("\"stream\":true"), false, false},
        {CHAT("\"stream\":true,\"timings\":true"), false, true},
        {CHAT("\"stream\":true,\"timings_per_token\":true"), true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, &openai_chat, cases[i].body);
        for (int k = 0; k < 2; k++) {
            const cl_engine_event event = k ? last(0, CL_ENGINE_STOP, "", 1) : token(0, 'a', 2, "a");
            add(&s, event);
            json_t *chunk = scene_chunk(&s, &event, 0);
            assert_true((json_object_get(chunk, "timings") != NULL) == (k ? cases[i].last : cases[i].first));
            json_decref(chunk);
        }
        assert_true(s.result.times.first > 0); /* other dialects report them in any case */
        scene_end(&s);
    }
}

static void the_request_names_the_answer(void **state) {
    (void)state;
    const openai_context c = fake_context();
    for (int chat = 0; chat < 2; chat++) {
        openai_request r;
        openai_result result;
        if (chat)
            parse_ok(&c, OPENAI_CHAT, CHAT("\"request_id\":\"mine\""), &r);
        else
            parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"request_id\":\"mine\""), &r);
        assert_true(openai_result_init(&result, &c, &r));
        assert_string_equal(result.id, chat ? "chatcmpl-mine" : "cmpl-mine");
        openai_result_free(&result);
        openai_request_free(&r);
    }
}

/* A stream's part for an event, without its head; NULL: nothing. */
static void assert_chunk(scene *s, cl_engine_event event, const char *expected) {
    add(s, event);
    assert_int_equal(openai_n_chunks(&s->result, &event), expected != NULL);
    if (!expected) return;
    json_t *chunk = scene_chunk(s, &event, 0);
    assert_at(chunk, "/choices", expected);
    json_decref(chunk);
}

static void streams_tell_each_event(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_chat, CHAT("\"n\":2,\"stream\":true"));
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
    assert_string_equal(s.result.choices[1].text.data, "abcd");
    scene_end(&s);

    scene_begin(&s, &openai_completion, COMPLETION("\"echo\":true,\"logprobs\":0,\"stream\":true"));
    cl_engine_event prompt = token(0, 'x', 0, "");
    prompt.kind = CL_EVENT_PROMPT;
    assert_chunk(&s, prompt, NULL);
    cl_engine_event event = token(0, 'a', 1, "");
    event.token.n_top = 0;
    assert_chunk(&s, event,
                 "[{\"index\":0,\"text\":\"x\",\"logprobs\":{\"tokens\":[\"x\",\"a\"],\"token_logprobs\":[null,-1.5],"
                 "\"top_logprobs\":[null,null],\"text_offset\":[0,1]},\"finish_reason\":null}]");
    assert_chunk(&s, event,
                 "[{\"index\":0,\"text\":\"\",\"logprobs\":{\"tokens\":[\"a\"],\"token_logprobs\":[-1.5],"
                 "\"top_logprobs\":[null],\"text_offset\":[2]},\"finish_reason\":null}]");
    scene_end(&s);
}

static void chunks_may_report_the_usage_so_far(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion,
                COMPLETION("\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}"));
    for (int i = 1; i <= 2; i++) {
        const cl_engine_event event = token(0, 'a', i, "a");
        add(&s, event);
        json_t *chunk = scene_chunk(&s, &event, 0);
        assert_at(chunk, "/usage/prompt_tokens", "1");
        assert_at(chunk, "/usage/completion_tokens", i == 1 ? "1" : "2");
        assert_at(chunk, "/usage/total_tokens", i == 1 ? "2" : "3");
        json_decref(chunk);
    }
    scene_end(&s);
}

/* A choice of n equal tokens; all choices but the last of a prompt end before it. */
static void add_choice(scene *s, size_t prompt, int32_t choice, int32_t id, float logprob, int n) {
    const char text[2] = {(char)id, '\0'};
    for (int i = 0; i < n; i++) {
        cl_engine_event event = token(choice, id, 1 + i, text);
        event.token.chosen.logprob = logprob;
        event.token.n_top = 0;
        openai_result_add(&s->result, prompt, &event, 0);
    }
    cl_engine_event event = last(choice, CL_ENGINE_STOP, "", 10);
    event.last = choice == s->request.params.n - 1;
    openai_result_add(&s->result, prompt, &event, 0);
}

/* By the mean logprob of their tokens and not the sum; equal ones in the order in which they were generated; usage of all. */
static void the_best_choices_are_returned(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, "{\"prompt\":[\"x\",\"y\"],\"n\":2,\"best_of\":4}");
    for (size_t prompt = 0; prompt < 2; prompt++) {
        const int32_t base = prompt ? 'A' : 'a';
        add_choice(&s, prompt, 0, base, -3, 1);
        add_choice(&s, prompt, 1, base + 1, -2, 5);
        add_choice(&s, prompt, 2, base + 2, prompt ? -2 : -1, 3);
        add_choice(&s, prompt, 3, base + 3, -2, 1);
    }
    assert_true(openai_result_done(&s.result));
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/choices",
              "[{\"index\":0,\"text\":\"ccc\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
              "{\"index\":1,\"text\":\"bbbbb\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
              "{\"index\":2,\"text\":\"BBBBB\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
              "{\"index\":3,\"text\":\"CCC\",\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    assert_at(answer, "/usage",
              "{\"prompt_tokens\":2,\"completion_tokens\":20,\"total_tokens\":22,\"prompt_tokens_details\":{"
              "\"cached_tokens\":0}}");
    json_decref(answer);
    scene_end(&s);
}

/* The results of a beam search come in order, also with equal or missing means. */
static void beams_stay_in_order(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, COMPLETION("\"n\":1,\"best_of\":2,\"use_beam_search\":true"));
    add_choice(&s, 0, 0, 'a', -3, 1);
    add_choice(&s, 0, 1, 'b', -2, 1);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/choices", "[{\"index\":0,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    json_decref(answer);
    scene_end(&s);
}

/* A grammar's limit is not the context's, which makes clients shorten the conversation. */
static void limits_of_grammars_name_the_grammar(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, COMPLETION("\"guided_regex\":\"a+\""));
    cl_engine_event event = last(0, CL_ENGINE_ERROR, "", 0);
    event.end.error = &(cl_error){.code = CL_ERR_LIMIT, .message = "grammar has too many expressions", .field = "grammar"};
    add(&s, event);
    assert_string_equal(s.result.error.param, "guided_regex");
    assert_true(s.result.error.says_param);
    assert_string_equal(s.result.error.message, "has too many expressions");
    assert_null(s.result.error.code);
    cl_error cause = {.code = CL_ERR_LIMIT, .message = "7 tokens, 5 allowed"};
    openai_error error;
    openai_fail_from_engine(&error, s.result.request, &cause);
    assert_string_equal(error.code, "context_length_exceeded");
    assert_string_equal(error.param, "");
    scene_end(&s);
}

static void failures_become_errors(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_completion, COMPLETION("\"n\":1"));
    cl_engine_event event = last(0, CL_ENGINE_ERROR, "", 0);
    event.end.error = &(cl_error){.code = CL_ERR_LIMIT, .message = "7 tokens, 5 allowed"};
    add(&s, event);
    assert_true(s.result.failed);
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    openai_write_error(&w, &s.result.error);
    writer_close(&w);
    char *text = writer_end(&w, NULL);
    assert_string_equal(text,
                        "{\"error\":{\"message\":\"7 tokens, 5 allowed\",\"type\":\"invalid_request_error\",\"param\":null,"
                        "\"code\":\"context_length_exceeded\"}}");
    free(text);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_logprobs_are_by_id),
        cmocka_unit_test(logprobs_may_begin_within_the_prompt),
        cmocka_unit_test(tokens_are_named_by_ids),
        cmocka_unit_test(timings_are_measured),
        cmocka_unit_test(streams_have_timings),
        cmocka_unit_test(the_request_names_the_answer),
        cmocka_unit_test(chat_logprobs_have_bytes),
        cmocka_unit_test(echo_reports_the_prompts_logprobs),
        cmocka_unit_test(streams_tell_each_event),
        cmocka_unit_test(chunks_may_report_the_usage_so_far),
        cmocka_unit_test(the_best_choices_are_returned),
        cmocka_unit_test(beams_stay_in_order),
        cmocka_unit_test(limits_of_grammars_name_the_grammar),
        cmocka_unit_test(failures_become_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Answers when memory is lacking: for every n the n-th allocation of an answer fails, alone or with all later ones. What comes
 * out is the whole answer, to the byte, or an error.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_malloc.h"
#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/batch_line.h"
#include "serve/protocol/json.h"

/* ---- Events ---- */

static const cl_sampler_logprob top[2] = {{'a', -0.5f}, {0xc3, -INFINITY}};

static cl_engine_event token(int32_t choice, int32_t id, int64_t position, bool prompt) {
    return (cl_engine_event){.choice = choice,
                             .kind = prompt ? CL_EVENT_PROMPT : CL_EVENT_TOKEN,
                             .token = {id, 0, position, {id, -1.5f}, top, position ? 2 : 0},
                             .text = "\xc3\xa9\xff",
                             .text_size = prompt ? 0 : 3,
                             .n_prompt = 2};
}

/* A piece of the calls that a request with tools gets, then of text. */
static void set_call_text(cl_engine_event *event, int32_t i) {
    static const char *const pieces[] = {"<tool_", "call>{\"name\": \"add\", \"argum", "ents\": {\"a\": \"\xc3\xa9\"", "}}",
                                         "</tool_call>"};
    event->text = pieces[i % 5];
    event->text_size = strlen(event->text);
}

static cl_engine_event end_of(int32_t choice, bool is_last) {
    return (cl_engine_event){.choice = choice,
                             .kind = CL_EVENT_END,
                             .end = {.finish = CL_ENGINE_STOP},
                             .text = "!",
                             .text_size = 1,
                             .last = is_last,
                             .n_prompt = 2,
                             .n_completion = 6};
}

enum { MAX_EVENTS = 64, N_TOKENS = 20 };

/*
 * The events of the only prompt: its tokens with echo and logprobs, N_TOKENS tokens for each choice, and the ends; or its
 * embedding.
 */
static size_t list_events(const openai_request *r, cl_engine_event *events) {
    static const float embedding[FAKE_EMBD] = {3, 4, 12};
    size_t n = 0;
    if (r->params.pooling) {
        events[0] = end_of(0, true);
        events[0].end.embedding = embedding;
        events[0].end.n_embedding = FAKE_EMBD;
        return 1;
    }
    for (int32_t i = 0; r->params.prompt_logprobs && i < (int32_t)r->prompts[0].tokens.n; i++)
        events[n++] = token(0, r->prompts[0].tokens.ids[i], i, true);
    for (int32_t i = 0; i < N_TOKENS; i++)
        for (int32_t c = 0; c < r->params.n; c++) {
            events[n] = token(c, i % 2 ? 0xa9 : 'b', 2 + i, false);
            if (json_array_size(r->tools) > 0) set_call_text(&events[n], i);
            n++;
        }
    for (int32_t c = 0; c < r->params.n; c++) events[n++] = end_of(c, c + 1 == r->params.n);
    assert_true(n <= MAX_EVENTS);
    for (size_t i = 0; i < n; i++)
        if (events[i].kind != CL_EVENT_END && events[i].token.n_top > r->params.n_top) events[i].token.n_top = r->params.n_top;
    return n;
}

/* ---- Kinds of answers ---- */

/* How one answer is made. */
typedef struct recipe {
    const char *name;
    const openai_dialect *dialect;
    const char *body;
    char *(*write)(const struct recipe *recipe, bool *is_error); /* the answer's text, allocated */
    const char *id;                                              /* of a batch output line, as JSON */
} recipe;

/* n and all: which allocations fail, counted from the first event; n == 0: none. */
static int fail_at;
static bool fail_all;
static bool did_fail;
static int error_status; /* of an output line's error; 0: none was noted */

/* As programs do, jansson notes its failures, some of which it does not report. */
static void begin_failing(void) {
    fail_malloc(fail_at, fail_all);
    openai_json_init();
}

/* An answer in the making. */
typedef struct scene {
    openai_context context;
    openai_request request;
    openai_result result;
    cl_engine_event events[MAX_EVENTS];
    size_t n_events;
} scene;

/* The request in the recipe's dialect. */
static void parse_body(const recipe *c, scene *s) {
    openai_error error;
    json_t *body = json_loads(c->body, 0, NULL);
    assert_non_null(body);
    if (!c->dialect->parse(&s->context, body, &s->request, &error)) fail_msg("%s: %s", c->name, error.message);
    json_decref(body);
}

static void begin(const recipe *c, scene *s) {
    s->context = fake_context();
    parse_body(c, s);
    assert_true(openai_result_init(&s->result, &s->context, &s->request));
    strcpy(s->result.id, "id");
    s->result.created = 1;
    s->result.call_key = 1;
    s->n_events = list_events(&s->request, s->events);
    begin_failing();
}

/* The text that was written. */
static char *finish(scene *s, openai_writer *w, bool *is_error) {
    char *text = writer_end(w, NULL);
    *is_error = s->result.failed || !text;
    did_fail = mend_malloc();
    openai_result_free(&s->result);
    openai_request_free(&s->request);
    return text;
}

static char *write_whole(const recipe *c, bool *is_error) {
    scene s;
    openai_writer w = {0};
    begin(c, &s);
    for (size_t i = 0; i < s.n_events; i++) openai_result_add(&s.result, 0, &s.events[i], 0);
    if (!s.result.failed) c->dialect->write_answer(&w, NULL, &s.result);
    return finish(&s, &w, is_error);
}

/* All events of a stream; an error ends them. */
static char *write_events(const recipe *c, bool *is_error) {
    scene s;
    openai_writer w = {0};
    begin(c, &s);
    c->dialect->stream_begin(&w, &s.result);
    for (size_t i = 0; i < s.n_events && !s.result.failed; i++) {
        openai_result_add(&s.result, 0, &s.events[i], 0);
        if (!s.result.failed) c->dialect->stream_event(&w, &s.result, 0, &s.events[i]);
    }
    if (!s.result.failed) c->dialect->stream_end(&w, &s.result, NULL);
    return finish(&s, &w, is_error);
}

/* An output line is JSON, has its line's id, unless memory was lacking before the id was known, and has an error if it says so.
 */
static void check_output(const recipe *c, const char *text, bool is_error) {
    json_t *output = json_loads(text, 0, NULL), *expected = json_loads(c->id, JSON_DECODE_ANY, NULL);
    if (!output) fail_msg("%s: not JSON: %s", c->name, text);
    const bool openai_form = json_object_get(output, "custom_id");
    const json_t *id = json_object_get(output, openai_form ? "custom_id" : "id");
    const json_t *error =
        json_object_get(openai_form ? json_object_get(json_object_get(output, "response"), "body") : output, "error");
    if (!json_equal(id, expected) && !(json_is_null(id) && is_error)) fail_msg("%s: another id: %s", c->name, text);
    assert_true(json_is_object(error) == is_error);
    json_decref(output);
    json_decref(expected);
}

static char *write_output(const recipe *c, bool *is_error) {
    openai_context context = fake_context();
    context.can_pin = true;
    cl_engine_event events[MAX_EVENTS];
    batch_line line = {0};
    openai_tenants tenants = {0};
    begin_failing();
    if (batch_line_parse(&line, 7, c->body, strlen(c->body), &context, &tenants)) {
        strcpy(line.result.id, "id");
        line.result.created = 1;
        line.result.call_key = 1;
        const size_t n = list_events(&line.request, events);
        for (size_t i = 0; i < n; i++) openai_result_add(&line.result, 0, &events[i], 0);
    }
    bool says_error;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_true(batch_line_print(&line, out, &says_error));
    did_fail = mend_malloc();
    fclose(out);
    error_status = line.error.status;
    batch_line_free(&line);
    openai_tenants_free(&tenants);
    check_output(c, text, says_error);
    *is_error = says_error;
    return text;
}

typedef bool handler(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

/* The answer of a function of tokens.c. */
static char *write_handled(const recipe *c, handler *handle, bool *is_error) {
    openai_context context = fake_context();
    openai_writer w = {0};
    openai_error error = {.status = 500};
    json_t *body = json_loads(c->body, 0, NULL);
    context.n_ctx = 40;
    begin_failing();
    const bool ok = handle(&context, body, &w, &error);
    char *text = ok ? writer_end(&w, NULL) : NULL;
    did_fail = mend_malloc();
    writer_free(&w);
    json_decref(body);
    if (!ok && error.status < 500) fail_msg("%s: %s", c->name, error.message);
    *is_error = !text;
    return text;
}

static bool parse_embedding(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    openai_request r;
    if (!openai_embedding_parse(context, body, &r, error)) return false;
    openai_request_free(&r);
    writer_raw(w, "parsed");
    return true;
}

/* The questions about documents are longer than the other requests. */
static bool parse_ranking(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    openai_context wide = *context;
    openai_request r;
    wide.n_ctx = 0;
    if (!openai_rerank.parse(&wide, body, &r, error)) return false;
    openai_request_free(&r);
    writer_raw(w, "parsed");
    return true;
}

static char *write_ranked(const recipe *c, bool *is_error) { return write_handled(c, parse_ranking, is_error); }
static char *write_parsed(const recipe *c, bool *is_error) { return write_handled(c, parse_embedding, is_error); }
static char *write_tokenized(const recipe *c, bool *is_error) { return write_handled(c, openai_tokenize, is_error); }
static char *write_detokenized(const recipe *c, bool *is_error) { return write_handled(c, openai_detokenize, is_error); }

#define OPEN_LINE(fields) "{\"custom_id\":\"a\\u00e9\",\"tenant\":\"t\",\"body\":" fields "}"

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]"

static const recipe recipes[] = {
    {"chat", &openai_chat, CHAT("\"n\":2"), write_whole, NULL},
    {"chat with logprobs", &openai_chat, CHAT("\"logprobs\":true,\"top_logprobs\":2,\"return_token_ids\":true"), write_whole,
     NULL},
    {"record of required calls", &openai_chat,
     "{\"id\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"required\",\"tools\":[{\"type\":"
     "\"function\","
     "\"function\":{\"name\":\"add\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\",\"description\":\"d\"}}}}}]}",
     write_output, "1"},
    {"completion", &openai_completion, COMPLETION("\"n\":3"), write_whole, NULL},
    {"completion with logprobs", &openai_completion,
     "{\"prompt\":[120,195,169],\"echo\":true,\"logprobs\":2,\"return_token_ids\":true}", write_whole, NULL},
    {"chunks of a chat", &openai_chat,
     CHAT("\"stream\":true,\"stream_options\":{\"include_usage\":true},\"logprobs\":true,\"top_logprobs\":2"), write_events,
     NULL},
    {"chunks of a completion", &openai_completion,
     "{\"prompt\":[120,195,169],\"echo\":true,\"logprobs\":2,\"return_token_ids\":true,\"stream\":true,\"n\":2,"
     "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}",
     write_events, NULL},
    {"calls", &openai_chat, CHAT(TOOLS ",\"n\":2"), write_whole, NULL},
    {"chunks of calls", &openai_chat, CHAT(TOOLS ",\"stream\":true"), write_events, NULL},
    {"record of calls", &openai_chat, "{\"id\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," TOOLS "}", write_output,
     "1"},
    {"record of OpenAI's form", &openai_chat, OPEN_LINE(CHAT("\"n\":2,\"logprobs\":true")), write_output, "\"aé\""},
    {"record of the short form", &openai_completion, "{\"id\":{\"a\":[1]},\"prompt\":\"xy\",\"logprobs\":2}", write_output,
     "{\"a\": [1]}"},
    {"completion with prompt_logprobs", &openai_completion,
     "{\"prompt\":[120,195,169],\"prompt_logprobs\":2,\"logprobs\":1,\"return_tokens_as_token_ids\":true}", write_whole, NULL},
    {"chat with prompt_logprobs", &openai_chat,
     CHAT("\"prompt_logprobs\":1,\"logprobs\":true,\"return_tokens_as_token_ids\":true"), write_whole, NULL},
    {"record of a request with rules", &openai_completion,
     "{\"prompt\":\"xy\",\"logit_bias\":[[5,1],[\"ab\",2]],\"allowed_token_ids\":[1,2],\"bad_words\":[\"ab\",\"c\"],"
     "\"cache_salt\":\"s\",\"request_id\":\"r\",\"truncate_prompt_tokens\":1,\"echo\":true}",
     write_output, "7"},
    {"record of a request with a schema", &openai_completion,
     "{\"prompt\":\"xy\",\"structured_outputs\":{\"json\":\"{\\\"a\\\":1}\",\"disable_any_whitespace\":true}}", write_output,
     "7"},
    {"record of a request with choices", &openai_completion, "{\"prompt\":\"xy\",\"guided_choice\":[\"a\",\"b\"]}",
     write_output, "7"},
    {"record of a request with a grammar", &openai_completion,
     "{\"prompt\":\"xy\",\"grammar\":\"root ::= \\\"a\\\" root | [b-c]* <[5]> x\\nx ::= \\\"ab\\\"\"}", write_output, "7"},
    {"record of a wrong request", &openai_completion, "{\"prompt\":\"xy\",\"temperature\":-9}", write_output, "7"},
    {"record without an id", &openai_completion, "{\"prompt\":\"xy\"}", write_output, "7"},
    {"record of a response", &openai_chat,
     "{\"custom_id\":\"a\",\"url\":\"/v1/"
     "responses\",\"body\":{\"instructions\":\"be\",\"input\":[{\"role\":\"user\",\"content\":"
     "\"x\"},{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]},{\"type\":\"function_call\","
     "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":"
     "\"y\"}],\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}],\"metadata\":{\"a\":\"b\"}}}",
     write_output, "\"a\""},
    {"record of a message", &openai_chat,
     "{\"custom_id\":\"a\",\"url\":\"/v1/"
     "messages\",\"body\":{\"system\":[{\"type\":\"text\",\"text\":\"be\"}],\"cache_control\":{\"type\":\"ephemeral\"},"
     "\"messages\":[{"
     "\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\"},{"
     "\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{\"a\":1}}]},{\"role\":\"user\",\"content\":[{\"type\":"
     "\"tool_result\",\"tool_use_id\":\"c\",\"content\":\"y\"}]}],\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],"
     "\"thinking\":{\"type\":\"disabled\"}}}",
     write_output, "\"a\""},
    {"record of a wrong response", &openai_chat,
     "{\"custom_id\":\"a\",\"url\":\"/v1/responses\",\"body\":{\"input\":\"x\",\"temperature\":-1}}", write_output, "\"a\""},
    {"events of a response", &openai_responses, "{\"input\":\"x\",\"instructions\":\"be\",\"stream\":true}", write_events,
     NULL},
    {"events of a message", &anthropic_messages, CHAT("\"stream\":true"), write_events, NULL},
    {"lines of Ollama's chat", &ollama_chat, CHAT(TOOLS), write_events, NULL},
    {"Ollama's text", &ollama_generate, "{\"prompt\":\"x\",\"logprobs\":true,\"stream\":false}", write_whole, NULL},
    {"embeddings", &openai_embedding, "{\"input\":\"ab\"}", write_whole, NULL},
    {"request for embeddings", NULL,
     "{\"input\":[\"ab\",[1,2]],\"pooling\":\"mean\",\"cache_salt\":\"s\",\"request_id\":\"r\"}", write_parsed, NULL},
    {"request to compare embeddings", NULL, "{\"query\":\"q\",\"documents\":[\"d\",\"e\"],\"pooling\":\"last\"}", write_ranked,
     NULL},
    {"request to judge", NULL, "{\"query\":\"q\",\"documents\":[\"d\",{\"text\":\"e\"}]}", write_ranked, NULL},
    {"embeddings as base64", &openai_embedding, "{\"input\":\"ab\",\"encoding_format\":\"base64\"}", write_whole, NULL},
    {"tokens with strings", NULL, "{\"prompt\":\"a</s>b\",\"return_token_strs\":true}", write_tokenized, NULL},
    {"tokens of a chat", NULL, CHAT("\"max_tokens\":1"), write_tokenized, NULL},
    {"tokens with pieces", NULL, "{\"content\":\"a\\u00e4\",\"with_pieces\":true}", write_tokenized, NULL},
    {"text of tokens", NULL, "{\"tokens\":[97,257,98]}", write_detokenized, NULL},
};

/* The answer's text; NULL: an error in its place. */
static char *make(const recipe *c, int n, bool all) {
    fail_at = n;
    fail_all = all;
    error_status = 0;
    bool is_error = false;
    char *text = c->write(c, &is_error);
    if (!is_error) return text;
    free(text);
    return NULL;
}

static void answers_are_whole_or_errors(void **state) {
    (void)state;
    fake_know_words(true);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const recipe *c = &recipes[i];
        char *whole = make(c, 0, false);
        int n = 1;
        for (; n == 1 || did_fail; n++) {
            for (int all = 0; all < 2; all++) {
                char *text = make(c, n, all);
                if (!text && whole && error_status == 400) fail_msg("%s, allocation %d: it is the client's fault", c->name, n);
                if (text && (!whole || strcmp(text, whole) != 0))
                    print_error("%s, allocation %d%s fails: %.300s\n", c->name, n, all ? " and later" : "", text), fail();
                free(text);
            }
        }
        free(whole);
        assert_true(n > 5); /* allocations did fail */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_whole_or_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Events as an engine would send them, for targets that write answers; and a check of what is written. */
#ifndef TESTS_FUZZ_ANSWER_H
#define TESTS_FUZZ_ANSWER_H

#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "serve/protocol/dialect.h"
#include "tests/serve/protocol/fake.h"

/*
 * The text must be one JSON value. JSON allows what jansson refuses: a zero character in the name of a field, and a number that
 * no double holds. Integers of more than 64 bits it reads only as reals. A client may have all of them in an id.
 */
static inline void check_json(const char *text, size_t size) {
    enum { FLAGS = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL };
    json_error_t error;
    json_t *json = json_loadb(text, size, FLAGS, &error);
    FUZZ_CHECK(json || strstr(error.text, "NUL byte in object key") || strstr(error.text, "real number overflow"),
               "%s in <%.*s>", error.text, (int)size, text);
    json_decref(json);
}

static inline void check_written(openai_writer *w) {
    size_t size = 0;
    char *text = writer_end(w, &size);
    FUZZ_CHECK(text, "no memory");
    check_json(text, size);
    free(text);
}

/* The text must be whole server-sent events, whose data are JSON but for the end of OpenAI's older streams; or lines of JSON.
 */
static inline void check_events(openai_writer *w, const openai_dialect *dialect) {
    size_t size = 0;
    char *text = writer_end(w, &size);
    FUZZ_CHECK(text && strlen(text) == size, "no memory, or a zero character");
    if (dialect->stream_type) {
        FUZZ_CHECK(size == 0 || text[size - 1] == '\n', "a line without an end: %s", text);
        for (char *at = text, *line; (line = strsep(&at, "\n")) && at;) check_json(line, strlen(line));
        free(text);
        return;
    }
    FUZZ_CHECK(size == 0 || (size > 2 && strcmp(text + size - 2, "\n\n") == 0), "an event without an end: %s", text);
    for (char *at = text, *line; (line = strsep(&at, "\n"));) {
        const bool is_data = strncmp(line, "data: ", 6) == 0, is_name = strncmp(line, "event: ", 7) == 0;
        FUZZ_CHECK(is_data || is_name || !*line, "<%s>", line);
        if (is_data && strcmp(line + 6, "[DONE]") != 0) check_json(line + 6, strlen(line + 6));
    }
    free(text);
}

static inline void send_event(openai_result *result, const openai_dialect *dialect, size_t prompt, cl_engine_event event) {
    openai_writer w = {0};
    event.struct_size = sizeof event;
    if (!event.text) event.text = "";
    openai_result_add(result, prompt, &event, 0);
    if (!result->request->stream) return;
    dialect->stream_event(&w, result, prompt, &event);
    check_events(&w, dialect);
}

/* The events of one prompt: those of its tokens, if they are reported, and two tokens and the end of each choice. */
static inline void send_text(openai_result *result, const openai_dialect *dialect, size_t prompt) {
    static const char *const texts[] = {
        "", "<tool_call>{\"name\": \"a\", \"argu", "ments\": {}}<think>", "a", "\xc3\xa9\"\\", "\xff\x01\n"};
    const openai_request *r = result->request;
    const cl_token_list *tokens = &r->prompts[prompt].tokens;
    const cl_sampler_logprob top[2] = {{'a', -0.5f}, {0xc3, -INFINITY}};
    const int32_t n_top = r->params.n_top < 2 ? r->params.n_top : 2;
    for (size_t i = (size_t)r->params.prompt_logprobs_from; r->params.prompt_logprobs && i < tokens->n; i++)
        send_event(
            result, dialect, prompt,
            (cl_engine_event){.kind = CL_EVENT_PROMPT,
                              .token = {tokens->ids[i], 0, (int64_t)i, {i ? tokens->ids[i] : -1, -1.5f}, top, i ? n_top : 0}});
    for (int32_t c = 0; c < r->params.n; c++) {
        for (int i = 0; i < 2; i++) {
            const char *text = texts[((size_t)c + (size_t)i + tokens->n) % 6];
            send_event(result, dialect, prompt,
                       (cl_engine_event){.choice = c,
                                         .kind = CL_EVENT_TOKEN,
                                         .token = {i ? 0xc3 : 'a', 0, (int64_t)tokens->n + i, {'a', -0.25f}, top, n_top},
                                         .text = text,
                                         .text_size = strlen(text)});
        }
        send_event(result, dialect, prompt,
                   (cl_engine_event){.choice = c,
                                     .kind = CL_EVENT_END,
                                     .end = {.finish = CL_ENGINE_STOP},
                                     .last = c + 1 == r->params.n,
                                     .n_prompt = (int64_t)tokens->n,
                                     .n_completion = 2 * (c + 1)});
    }
}

/* The event of one prompt whose embedding is wanted. */
static inline void send_embedding(openai_result *result, const openai_dialect *dialect, size_t prompt) {
    static const float x[FAKE_EMBD] = {-3, 0, 1e-30f};
    send_event(result, dialect, prompt,
               (cl_engine_event){.kind = CL_EVENT_END, .end = {CL_ENGINE_LENGTH, 0, NULL, x, FAKE_EMBD}, .last = true});
}

static inline void send_events(openai_result *result, const openai_dialect *dialect, size_t prompt) {
    (result->request->params.pooling ? send_embedding : send_text)(result, dialect, prompt);
}

#endif

/* Refuses fields of OpenAI's, vLLM's and llama-server's requests that are not offered here and would change the result. */
#include "parse.h"

enum { CHAT = 1u << OPENAI_CHAT, COMPLETION = 1u << OPENAI_COMPLETION, EMBEDDING = 1u << OPENAI_EMBEDDING };

typedef struct refused_field {
    const char *name;
    const char *neutral[2]; /* values, as JSON, that change nothing and are accepted; null is always accepted */
    const char *instead;    /* the message's suggestion; NULL: "leave it out" */
    bool strict;            /* false, 0, "", [] and {} are refused, too */
    unsigned endpoints;     /* a set of CHAT, COMPLETION and EMBEDDING; 0: all */
} refused_field;

static const refused_field refused_fields[] = {
    /* OpenAI's */
    {.name = "audio"},
    {.name = "echo", .endpoints = CHAT},
    {.name = "function_call", .neutral = {"\"none\"", "\"auto\""}, .instead = "use 'tool_choice'"},
    {.name = "functions", .instead = "use 'tools'"},
    {.name = "modalities", .neutral = {"[\"text\"]"}},
    {.name = "suffix", .endpoints = CHAT | EMBEDDING},
    {.name = "tool_choice", .neutral = {"\"none\"", "\"auto\""}, .endpoints = COMPLETION},
    {.name = "tools", .endpoints = COMPLETION},
    {.name = "web_search_options"},
    /* vLLM's */
    {.name = "add_generation_prompt", .neutral = {"true"}, .strict = true, .endpoints = COMPLETION},
    {.name = "add_special_tokens", .endpoints = CHAT},
    {.name = "add_special_tokens", .neutral = {"true"}, .instead = "use token ids", .strict = true, .endpoints = COMPLETION},
    {.name = "chat_template", .instead = "start it with --chat-template"},
    {.name = "chat_template_kwargs", .endpoints = COMPLETION},
    {.name = "continue_final_message", .endpoints = COMPLETION},
    {.name = "documents", .endpoints = COMPLETION},
    {.name = "logits_processors"},
    {.name = "prompt_embeds"},
    {.name = "structural_tag"},
    /* llama-server's */
    {.name = "dry_multiplier"},
    {.name = "dynatemp_range"},
    {.name = "grammar_lazy"},
    {.name = "lora"},
    {.name = "mirostat"},
    {.name = "n_probs", .instead = "use 'logprobs'", .endpoints = CHAT},
    {.name = "post_sampling_probs"},
    {.name = "top_n_sigma", .neutral = {"-1"}},
    {.name = "typical_p", .neutral = {"1"}},
    {.name = "xtc_probability"},
};

/* Whether a value equals the JSON in text; 1 equals 1.0. */
static bool equals(const json_t *value, const char *text) {
    json_t *other = json_loads(text, JSON_DECODE_ANY, NULL);
    const bool numbers = json_is_number(value) && json_is_number(other);
    const bool equal = numbers ? json_number_value(value) == json_number_value(other) : json_equal(value, other);
    json_decref(other);
    return equal;
}

static bool is_neutral(const refused_field *r, const json_t *value) {
    for (size_t i = 0; i < sizeof r->neutral / sizeof *r->neutral; i++)
        if (r->neutral[i] && equals(value, r->neutral[i])) return true;
    return false;
}

static bool is_requested(const refused_field *r, openai_endpoint endpoint, const json_t *body) {
    if (r->endpoints && !(r->endpoints >> endpoint & 1)) return false;
    const json_t *value = r->strict ? field_get(body, r->name) : field_get_requested(body, r->name);
    return value && !is_neutral(r, value);
}

bool openai_check_offered(openai_endpoint endpoint, const json_t *body, openai_error *error) {
    for (size_t i = 0; i < sizeof refused_fields / sizeof *refused_fields; i++) {
        const refused_field *r = &refused_fields[i];
        if (!is_requested(r, endpoint, body)) continue;
        const char *neutral = r->instead ? NULL : r->neutral[0];
        openai_refuse(error, r->name, "is not supported by this server; %s%s%s", r->instead ? r->instead : "leave it out",
                      neutral ? " or send " : "", neutral ? neutral : "");
        return openai_set_status(error, 400, "unsupported_parameter");
    }
    return true;
}

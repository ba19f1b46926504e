/* Fields of OpenAI's and vLLM's requests that are not offered here: refused where they would change the result. */
#include "openai_field.h"
#include "openai_parse.h"

/*
 * What a field may say because it asks for nothing that is not done anyway, as JSON; null, false, 0 and everything empty
 * always may.
 */
static const struct refused {
    const char *name, *harmless;
} refused[] = {
    {"add_generation_prompt", "true"},
    {"allowed_token_ids", NULL},
    {"audio", NULL},
    {"bad_words", NULL},
    {"best_of", "1"},
    {"cache_salt", NULL},
    {"chat_template", NULL},
    {"chat_template_kwargs", NULL},
    {"continue_final_message", NULL},
    {"documents", NULL},
    {"function_call", "\"none\""},
    {"functions", NULL},
    {"guided_choice", NULL},
    {"guided_grammar", NULL},
    {"guided_json", NULL},
    {"guided_regex", NULL},
    {"include_stop_str_in_output", NULL},
    {"length_penalty", "1.0"},
    {"logit_bias", NULL},
    {"min_tokens", NULL},
    {"modalities", "[\"text\"]"},
    {"response_format", "{\"type\": \"text\"}"},
    {"skip_special_tokens", "true"},
    {"structured_outputs", NULL},
    {"suffix", NULL},
    {"tool_choice", "\"none\""},
    {"tools", NULL},
    {"truncate_prompt_tokens", NULL},
    {"use_beam_search", NULL},
    {"web_search_options", NULL},
};

static bool says_nothing(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0;
    case JSON_TRUE: return false;
    default: return true;
    }
}

static bool equals(const json_t *value, const char *text) {
    json_t *other = json_loads(text, JSON_DECODE_ANY, NULL);
    const bool equal = json_equal(value, other);
    json_decref(other);
    return equal;
}

bool openai_check_offered(const json_t *body, openai_error *error) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct refused *r = &refused[i];
        const json_t *value = field_get(body, r->name);
        if (!value || says_nothing(value) || (r->harmless && equals(value, r->harmless))) continue;
        openai_fail(error, r->name, "'%s' is not supported by this server: leave it out%s%s", r->name,
                    r->harmless ? " or say " : "", r->harmless ? r->harmless : "");
        error->code = "unsupported_parameter";
        return false;
    }
    return true;
}

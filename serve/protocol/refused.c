/* Refuses fields of other servers' requests that are not offered here and would change the result. */
#include "parse.h"

enum { CHAT = 1u << OPENAI_CHAT, COMPLETION = 1u << OPENAI_COMPLETION, EMBEDDING = 1u << OPENAI_EMBEDDING };

typedef struct refused_field {
    const char *name;
    const char *neutral[2]; /* values, as JSON, that change nothing and are accepted; null is always accepted */
    const char *instead;    /* the message's suggestion; NULL: "leave it out" */
    bool strict;            /* false, 0, "", [] and {} are refused, too */
    bool below_zero;        /* numbers below 0 change nothing */
    unsigned endpoints;     /* a set of CHAT, COMPLETION and EMBEDDING; 0: all */
} refused_field;

/* Suggestions for several fields: why they are not there, and what to do. */
#define NO_SERVICE  "the server calls no other service; leave it out"
#define NO_IMAGES   "the server reads text alone; leave it out"
#define NO_ADAPTERS "the server has the model of its file alone; merge the adapter into it, or leave it out"
#define NO_CODE     "requests cannot bring code; leave it out"
#define ONE_PROCESS "one process computes prompt and answer; leave it out"
#define NO_PREFIXES "put the words that the model was trained with before the text"
#define FORMATS     "use 'encoding_format'"
#define CUTS        "use 'top_p', 'min_p' or 'top_k'"
#define PENALTIES   "use 'repetition_penalty' or 'frequency_penalty'"
#define BUDGETS     "use 'thinking_token_budget'"

static const refused_field refused_fields[] = {
    /* OpenAI's */
    {.name = "audio", .instead = "answers are text; leave it out"},
    {.name = "echo", .endpoints = CHAT},
    {.name = "function_call", .neutral = {"\"none\"", "\"auto\""}, .instead = "use 'tool_choice'"},
    {.name = "functions", .instead = "use 'tools'"},
    {.name = "modalities", .neutral = {"[\"text\"]"}},
    {.name = "moderation", .instead = NO_SERVICE},
    {.name = "suffix", .endpoints = CHAT | EMBEDDING},
    {.name = "tool_choice", .neutral = {"\"none\"", "\"auto\""}, .endpoints = COMPLETION},
    {.name = "tools", .endpoints = COMPLETION},
    {.name = "verbosity", .neutral = {"\"medium\""}, .instead = "say in a message how long the answer should be"},
    {.name = "web_search_options", .instead = NO_SERVICE},
    /* vLLM's */
    {.name = "add_generation_prompt", .neutral = {"true"}, .strict = true, .endpoints = COMPLETION},
    {.name = "add_special_tokens", .endpoints = CHAT},
    {.name = "chat_template", .instead = "start it with --chat-template"},
    {.name = "chat_template_kwargs", .endpoints = COMPLETION | EMBEDDING},
    {.name = "continue_final_message", .endpoints = COMPLETION},
    {.name = "documents", .endpoints = COMPLETION},
    {.name = "ec_transfer_params", .instead = ONE_PROCESS},
    {.name = "embed_dtype", .neutral = {"\"float32\""}, .endpoints = EMBEDDING},
    {.name = "endianness", .neutral = {"\"little\"", "\"native\""}, .endpoints = EMBEDDING},
    {.name = "kv_transfer_params", .instead = ONE_PROCESS},
    {.name = "logits_processors", .instead = NO_CODE},
    {.name = "logprob_token_ids", .instead = "use 'top_logprobs' or 'logprobs', the likeliest tokens"},
    {.name = "messages", .instead = "send texts", .endpoints = EMBEDDING},
    {.name = "padding", .neutral = {"\"do_not_pad\""}, .endpoints = EMBEDDING},
    {.name = "prompt_embeds", .instead = "send text or token ids"},
    {.name = "repetition_detection", .instead = "use 'frequency_penalty' or 'max_tokens'"},
    {.name = "return_prompt_text", .instead = "use /v1/chat/completions/render"},
    {.name = "structural_tag", .instead = "use 'tools' or a grammar"},
    {.name = "truncation_side", .neutral = {"\"left\""}},
    {.name = "vllm_xargs", .instead = NO_CODE},
    {.name = "watermarking"},
    /* SGLang's */
    {.name = "bootstrap_host", .instead = ONE_PROCESS},
    {.name = "bootstrap_port", .instead = ONE_PROCESS},
    {.name = "bootstrap_room", .instead = ONE_PROCESS},
    {.name = "custom_logit_processor", .instead = NO_CODE},
    {.name = "custom_params", .instead = NO_CODE},
    {.name = "extra_key", .instead = "use 'cache_salt'"},
    {.name = "image_data", .instead = NO_IMAGES},
    {.name = "images_config", .instead = NO_IMAGES},
    {.name = "input_ids", .instead = "send token ids as 'prompt' to /v1/completions"},
    {.name = "lora_path", .instead = NO_ADAPTERS},
    {.name = "max_dynamic_patch", .instead = NO_IMAGES},
    {.name = "min_dynamic_patch", .instead = NO_IMAGES},
    {.name = "return_cached_tokens_details", .instead = "read 'usage.prompt_tokens_details.cached_tokens'"},
    {.name = "return_hidden_states", .instead = "use /v1/embeddings"},
    {.name = "return_meta_info", .instead = "use 'timings' and 'usage'"},
    {.name = "return_routed_experts"},
    {.name = "session_params", .instead = "send the whole conversation: what was computed is found in the cache"},
    {.name = "stop_regex", .instead = "use 'stop', or a grammar"},
    {.name = "stream_reasoning", .neutral = {"true"}, .strict = true},
    {.name = "task"},
    {.name = "use_audio_in_video", .instead = NO_IMAGES},
    /* llama-server's */
    {.name = "adaptive_target", .below_zero = true},
    {.name = "embd_normalize",
     .neutral = {"2", "-1"},
     .strict = true,
     .instead = "vectors have the length 1, or with -1 that of the model's states"},
    {.name = "dry_multiplier", .instead = PENALTIES},
    {.name = "dynatemp_range", .instead = "use 'temperature'"},
    {.name = "grammar_lazy", .instead = "use 'tools'"},
    {.name = "lora", .instead = NO_ADAPTERS},
    {.name = "mirostat", .instead = CUTS},
    {.name = "parse_special", .instead = "only the chat template makes special tokens", .endpoints = CHAT},
    {.name = "n_probs", .instead = "use 'logprobs'", .endpoints = CHAT},
    {.name = "parse_tool_calls", .neutral = {"true"}, .strict = true, .instead = "leave out 'tools'"},
    {.name = "post_sampling_probs", .instead = "use 'logprobs', those of the model's own distribution"},
    {.name = "reasoning_budget_message", .instead = "put the text into a message"},
    {.name = "response_fields", .instead = "pick the fields of the answer yourself"},
    {.name = "top_n_sigma", .below_zero = true, .instead = CUTS},
    {.name = "typical_p", .neutral = {"1"}},
    {.name = "xtc_probability", .instead = CUTS},
    /* Jina's, Cohere's, and those of Text Embeddings Inference */
    {.name = "embedding_type", .neutral = {"\"float\"", "[\"float\"]"}, .instead = FORMATS, .endpoints = EMBEDDING},
    {.name = "embedding_types", .neutral = {"[\"float\"]"}, .instead = FORMATS, .endpoints = EMBEDDING},
    {.name = "image", .instead = NO_IMAGES, .endpoints = EMBEDDING},
    {.name = "images", .instead = NO_IMAGES, .endpoints = EMBEDDING},
    {.name = "input_type", .instead = NO_PREFIXES, .endpoints = EMBEDDING},
    {.name = "late_chunking", .endpoints = EMBEDDING},
    {.name = "max_chunks_per_doc", .instead = "documents are scored whole; leave it out", .endpoints = EMBEDDING},
    {.name = "max_tokens", .instead = "use 'truncate_prompt_tokens'", .endpoints = EMBEDDING},
    {.name = "output_dimension", .instead = "use 'dimensions'", .endpoints = EMBEDDING},
    {.name = "prompt_name", .instead = NO_PREFIXES, .endpoints = EMBEDDING},
    {.name = "rank_fields", .neutral = {"[\"text\"]"}, .endpoints = EMBEDDING},
    {.name = "return_embeddings", .instead = "use /v1/embeddings", .endpoints = EMBEDDING},
    {.name = "return_multivector", .endpoints = EMBEDDING},
    /* of other servers, and of earlier versions */
    {.name = "adapter_id", .instead = NO_ADAPTERS},
    {.name = "audio_data", .instead = NO_IMAGES},
    {.name = "ban_eos_token", .instead = "use 'ignore_eos'"},
    {.name = "banned_tokens", .instead = "use 'bad_words'"},
    {.name = "do_sample",
     .neutral = {"true"},
     .strict = true,
     .instead = "use 'temperature', which is 0 for the likeliest token"},
    {.name = "dynatemp_max", .instead = "use 'temperature'"},
    {.name = "dynatemp_min", .instead = "use 'temperature'"},
    {.name = "enable_search", .instead = NO_SERVICE},
    {.name = "epsilon_cutoff", .instead = CUTS},
    {.name = "eta_cutoff", .instead = CUTS},
    {.name = "grammar_string", .instead = "use 'grammar'"},
    {.name = "guidance_scale", .neutral = {"1"}},
    {.name = "lora_name", .instead = NO_ADAPTERS},
    {.name = "lora_request", .instead = NO_ADAPTERS},
    {.name = "max_new_tokens", .instead = "use 'max_tokens'", .endpoints = CHAT | COMPLETION},
    {.name = "max_reasoning_tokens", .instead = BUDGETS},
    {.name = "max_thinking_tokens", .instead = BUDGETS},
    {.name = "mirostat_mode", .instead = CUTS},
    {.name = "negative_prompt"},
    {.name = "no_repeat_ngram_size", .instead = PENALTIES},
    {.name = "num_beams", .neutral = {"1"}, .instead = "use 'use_beam_search' and 'n'"},
    {.name = "penalty_alpha"},
    {.name = "random_seed", .strict = true, .instead = "use 'seed'"},
    {.name = "reasoning_budget", .neutral = {"-1"}, .strict = true, .instead = BUDGETS},
    {.name = "safe_prompt", .instead = "put the rules into a system message"},
    {.name = "sampler_order", .instead = "use 'samplers'"},
    {.name = "search_parameters", .instead = NO_SERVICE},
    {.name = "smoothing_factor", .instead = CUTS},
    {.name = "stop_sequences", .instead = "use 'stop'", .endpoints = CHAT | COMPLETION},
    {.name = "stopping_strings", .instead = "use 'stop'"},
    {.name = "tfs", .neutral = {"1"}},
    {.name = "tfs_z", .neutral = {"1"}},
    {.name = "top_a", .instead = CUTS},
    {.name = "top_nsigma", .below_zero = true, .instead = CUTS},
    {.name = "typical", .neutral = {"1"}},
    {.name = "video_data", .instead = NO_IMAGES},
    {.name = "watermark"},
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
    if (r->below_zero && json_number_value(value) < 0) return true;
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

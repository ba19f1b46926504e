/* Reads which tokens may be drawn: logit_bias, allowed_token_ids, bad_words and min_tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

void openai_rules_free(openai_rules *rules) {
    free(rules->bias);
    free(rules->allowed);
    cl_token_list_free(&rules->bad_words);
    free(rules->bad_word_sizes);
    *rules = (openai_rules){0};
}

/*
 * Append the tokens of text that is not at the beginning of a prompt. What the rules of a request have of such text is limited,
 * since it takes time, in which all requests behind this one wait.
 */
static bool encode(const openai_context *context, const char *where, const char *text, size_t size, openai_rules *rules,
                   cl_token_list *list, openai_error *error) {
    cl_error cause;
    rules->n_bytes += size;
    if (rules->n_bytes > OPENAI_MAX_RULE_BYTES)
        return openai_refuse(error, where,
                             "is text beyond %d bytes, which all of 'logit_bias' and 'bad_words' may have: shorten "
                             "it, or send token ids",
                             OPENAI_MAX_RULE_BYTES);
    return cl_tokenizer_encode(context->model->tok, text, size, false, list, &cause) == CL_OK ||
           openai_fail_from(error, where, &cause);
}

/* ---- logit_bias ---- */

static bool add_bias(openai_request *r, int32_t token, float bias, openai_error *error) {
    openai_rules *rules = &r->rules;
    cl_engine_request *p = &r->params;
    if (p->n_logit_bias == OPENAI_MAX_LOGIT_BIAS)
        return openai_refuse(error, "logit_bias", "has more than %d tokens: send fewer", OPENAI_MAX_LOGIT_BIAS);
    if ((size_t)p->n_logit_bias == rules->bias_capacity) {
        const size_t capacity = 2 * rules->bias_capacity + 16;
        cl_logit_bias *grown = realloc(rules->bias, capacity * sizeof *grown);
        if (!grown) return openai_fail_memory(error);
        rules->bias = grown;
        rules->bias_capacity = capacity;
    }
    rules->bias[p->n_logit_bias++] = (cl_logit_bias){token, bias};
    p->logit_bias = rules->bias;
    return true;
}

/* A number, or llama-server's false for tokens that are never drawn. */
static bool read_bias(const json_t *value, const char *where, float *bias, openai_error *error) {
    const double x = json_is_false(value) ? -INFINITY : json_number_value(value);
    if (!json_is_number(value) && !json_is_false(value))
        return openai_refuse(error, where, "must be a number from -100 to 100, or false, not %s", field_kind(value));
    if (json_is_number(value) && !(x >= -100 && x <= 100))
        return openai_refuse(error, where, "is %g; it must be from -100 to 100, or false", x);
    *bias = (float)x;
    return true;
}

/* The bias of all tokens of a text. */
static bool add_text_bias(const openai_context *context, cl_str text, float bias, const char *where, openai_request *r,
                          openai_error *error) {
    cl_token_list list = {0};
    bool ok = encode(context, where, text.data, text.size, &r->rules, &list, error);
    for (size_t i = 0; i < list.n && ok; i++) ok = add_bias(r, list.ids[i], bias, error);
    cl_token_list_free(&list);
    return ok;
}

/* The bias of a token by its id, written as a number. */
static bool add_id_bias(const openai_context *context, const char *id, float bias, openai_request *r, openai_error *error) {
    const long long x = strtoll(id, NULL, 10);
    const int32_t n_vocab = cl_tokenizer_n_vocab(context->model->tok);
    if (id[0] < '0' || id[0] > '9' || x >= n_vocab)
        return openai_refuse(error, "logit_bias", "names the token '%.32s'; token ids of this model are from 0 to %d", id,
                             n_vocab - 1);
    return add_bias(r, (int32_t)x, bias, error);
}

static bool is_number(const char *text) {
    char *end;
    strtoll(text, &end, 10);
    return !*end;
}

/* OpenAI's form: {"token id": bias}; in llama-server's, names that are no numbers are texts. */
static bool parse_bias_object(const openai_context *context, const json_t *object, openai_request *r, openai_error *error) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        float bias = 0;
        const field_path where = path_of("logit_bias.%.32s", name);
        if (!read_bias(value, where.text, &bias, error)) return false;
        if (is_number(name) ? !add_id_bias(context, name, bias, r, error)
                            : !add_text_bias(context, cl_str_of(name), bias, where.text, r, error))
            return false;
    }
    return true;
}

/* llama-server's form: [[token id or text, bias]]. */
static bool parse_bias_array(const openai_context *context, const json_t *array, openai_request *r, openai_error *error) {
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *pair = json_array_get(array, i), *token = json_array_get(pair, 0);
        int32_t id = 0;
        float bias = 0;
        const field_path path = path_of("logit_bias[%zu]", i);
        const char *where = path.text;
        if (json_array_size(pair) != 2)
            return openai_refuse(error, where, "must be an array of a token id, or a text, and a bias");
        if (!read_bias(json_array_get(pair, 1), where, &bias, error)) return false;
        const cl_str text = {json_string_value(token), json_string_length(token)};
        if (json_is_string(token) ? !add_text_bias(context, text, bias, where, r, error)
                                  : !field_token(token, where, context->model, &id, error) || !add_bias(r, id, bias, error))
            return false;
    }
    return true;
}

static bool parse_bias(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *field = field_get(body, "logit_bias");
    if (!field) return true;
    if (cl_json_is_object(field)) return parse_bias_object(context, field, r, error);
    if (json_is_array(field)) return parse_bias_array(context, field, r, error);
    return openai_refuse(error, "logit_bias", "must be an object of token ids, or texts, and numbers, not %s",
                         field_kind(field));
}

/* ---- allowed_token_ids ---- */

static bool parse_allowed(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *ids;
    if (!field_array(body, "allowed_token_ids", "token ids", INT32_MAX, &ids, error)) return false;
    if (json_array_size(ids) == 0) return true;
    r->rules.allowed = calloc(json_array_size(ids), sizeof *r->rules.allowed);
    if (!r->rules.allowed) return openai_fail_memory(error);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const field_path where = path_of("allowed_token_ids[%zu]", i);
        if (!field_token(json_array_get(ids, i), where.text, context->model, &r->rules.allowed[i], error)) return false;
    }
    r->params.allowed_tokens = r->rules.allowed;
    r->params.n_allowed_tokens = (int32_t)json_array_size(ids);
    return true;
}

/* ---- bad_words ---- */

/* Whether the second word is the first one after another token, so that the first one excludes it, too. */
static bool is_contained(const int32_t *first, size_t n_first, const int32_t *second, size_t n_second) {
    return n_second == n_first + 1 && memcmp(second + 1, first, n_first * sizeof *first) == 0;
}

/* Add the tokens of a word from `start` in the list on, unless there are none. */
static void end_word(openai_request *r, size_t start) {
    const size_t n = r->rules.bad_words.n - start;
    if (n > 0) r->rules.bad_word_sizes[r->params.n_bad_words++] = (int32_t)n;
}

/* Add a word as it is within a text, after a space and not, as vLLM does. */
static bool add_bad_word(const openai_context *context, const json_t *value, const char *where, openai_request *r,
                         openai_error *error) {
    char spaced[OPENAI_MAX_BAD_WORD_BYTES + 2] = " ";
    if (!json_is_string(value)) return openai_refuse(error, where, "must be a string, not %s", field_kind(value));
    const char *text = json_string_value(value);
    size_t size = json_string_length(value);
    for (; size > 0 && *text == ' '; size--) text++;
    if (size == 0 || size > OPENAI_MAX_BAD_WORD_BYTES)
        return openai_refuse(error, where, "has %zu bytes beside spaces before it; it must have from 1 to %d", size,
                             OPENAI_MAX_BAD_WORD_BYTES);
    memcpy(spaced + 1, text, size);
    cl_token_list *list = &r->rules.bad_words;
    const size_t start = list->n;
    if (!encode(context, where, text, size, &r->rules, list, error)) return false;
    const size_t middle = list->n;
    end_word(r, start);
    if (!encode(context, where, spaced, size + 1, &r->rules, list, error)) return false;
    if (is_contained(list->ids + start, middle - start, list->ids + middle, list->n - middle)) list->n = middle;
    end_word(r, middle);
    return true;
}

static bool parse_bad_words(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *words;
    if (!field_array(body, "bad_words", "strings", OPENAI_MAX_BAD_WORDS, &words, error)) return false;
    if (json_array_size(words) == 0) return true;
    r->rules.bad_word_sizes = calloc(2 * json_array_size(words), sizeof *r->rules.bad_word_sizes);
    if (!r->rules.bad_word_sizes) return openai_fail_memory(error);
    for (size_t i = 0; i < json_array_size(words); i++) {
        const field_path where = path_of("bad_words[%zu]", i);
        if (!add_bad_word(context, json_array_get(words, i), where.text, r, error)) return false;
    }
    r->params.bad_words = r->rules.bad_words.ids;
    r->params.bad_word_sizes = r->rules.bad_word_sizes;
    return true;
}

bool openai_parse_rules(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    return parse_bias(context, body, r, error) && parse_allowed(context, body, r, error) &&
           parse_bad_words(context, body, r, error) &&
           field_int(body, "min_tokens", INT64_MIN, INT64_MAX, &r->params.min_tokens, error);
}

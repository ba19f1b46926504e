/*
 * The dialects of /v1/score and /v1/rerank: how well documents fit a query.
 *
 * A model that was trained to give embeddings scores by the cosine of two of them. Any other one judges: it is asked in a chat,
 * as Qwen3-Reranker was trained, and the score is the probability of "yes" against "no". In that chat the document comes last,
 * so all documents of a query share what was computed of it.
 */
#define _GNU_SOURCE /* memmem */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dialect.h"
#include "parse.h"

/* ---- Names of fields; a NULL ends them, and the first one that the body has counts ---- */

static const char *const first_names[] = {"text_1", "queries", "data_1", NULL};
static const char *const second_names[] = {"text_2", "documents", "items", "data_2", NULL};
static const char *const query_names[] = {"query", NULL};
static const char *const ranked_names[] = {"documents", "texts", NULL};
static const char *const query_limits[] = {"max_tokens_per_query", "max_query_length", NULL};
static const char *const document_limits[] = {"max_tokens_per_doc", "max_doc_length", NULL};
static const char *const instruction_names[] = {"instruct", "instruction", NULL};

/* If the body has none of them, the first of all. */
static const char *name_in(const json_t *body, const char *const *names) {
    for (size_t i = 0; names[i]; i++)
        if (field_get(body, names[i])) return names[i];
    return names[0];
}

/* ---- Texts ---- */

/* The texts of a field, borrowed from the body. */
typedef struct texts {
    const char *name; /* the field's */
    const json_t *value;
    size_t n;
} texts;

/* Text i: a string, or the `text` of an object. NULL: it is neither. */
static const json_t *text_at(const texts *t, size_t i) {
    const json_t *element = json_is_array(t->value) ? json_array_get(t->value, i) : t->value;
    const json_t *text = cl_json_is_object(element) ? json_object_get(element, "text") : element;
    return json_is_string(text) ? text : NULL;
}

static cl_str str_at(const texts *t, size_t i) {
    return (cl_str){json_string_value(text_at(t, i)), json_string_length(text_at(t, i))};
}

static field_path path_at(const texts *t, size_t i) {
    return json_is_array(t->value) ? path_of("%s[%zu]", t->name, i) : path_of("%s", t->name);
}

/* Read a field by one of its names. */
static bool read_texts(const openai_context *context, const json_t *body, const char *const *names, texts *t,
                       openai_error *error) {
    t->name = name_in(body, names);
    t->value = field_get(body, t->name);
    t->n = json_is_array(t->value) ? json_array_size(t->value) : 1;
    if (!t->value) return openai_refuse(error, t->name, "is missing; send a string or an array of strings");
    if (t->n == 0 || t->n > OPENAI_MAX_INPUTS)
        return openai_refuse(error, t->name, "has %zu texts; it must have from 1 to %d", t->n, OPENAI_MAX_INPUTS);
    for (size_t i = 0; i < t->n; i++) {
        const field_path where = path_at(t, i);
        if (!text_at(t, i))
            return openai_refuse(error, where.text, "must be a string, or an object with a string as its 'text'");
        if (!openai_check_size(context, where.text, str_at(t, i).size, error)) return false;
    }
    return true;
}

/*
 * Refuse texts with more tokens than a limit that the body may have by one of these names. Other servers would cut them, and
 * here none is cut.
 */
static bool check_lengths(const openai_context *context, const json_t *body, const char *const *names, const texts *t,
                          openai_error *error) {
    const char *name = name_in(body, names);
    int32_t most = 0; /* no limit */
    if (!field_int32(body, name, 0, INT32_MAX, &most, error)) return false;
    for (size_t i = 0; most > 0 && i < t->n; i++) {
        const cl_str text = str_at(t, i);
        if (text.size < (size_t)most) continue; /* a token has a byte */
        cl_token_list tokens = {0};
        cl_error cause;
        const cl_status status = cl_tokenizer_encode(context->model->tok, text.data, text.size, true, &tokens, &cause);
        const size_t n = tokens.n;
        cl_token_list_free(&tokens);
        if (status != CL_OK) return openai_fail_from(error, path_at(t, i).text, &cause);
        if (n > (size_t)most)
            return openai_refuse(error, name,
                                 "is %d, and '%s' has %zu tokens; no text is cut here: shorten it, or raise the limit", most,
                                 path_at(t, i).text, n);
    }
    return true;
}

static bool allocate_prompts(openai_request *r, size_t n, openai_error *error) {
    r->prompts = calloc(n, sizeof *r->prompts);
    if (r->prompts) r->n_prompts = n;
    return r->prompts || openai_fail_memory(error);
}

/* ---- Embeddings ---- */

static bool add_prompts(const openai_context *context, const texts *t, openai_request *r, openai_prompt *prompts,
                        openai_error *error) {
    for (size_t i = 0; i < t->n; i++)
        if (!openai_parse_prompt(context, text_at(t, i), path_at(t, i).text, r, &prompts[i], error)) return false;
    return true;
}

/* Each query and each document is a prompt. */
static bool embed(const openai_context *context, const json_t *body, const texts *queries, const texts *documents,
                  openai_request *r, openai_error *error) {
    const char *name = name_in(body, instruction_names);
    if (field_get_requested(body, name))
        return openai_refuse(error, name,
                             "is for models that judge documents, and this one gives embeddings: put it into the query");
    r->n_queries = queries->n;
    return allocate_prompts(r, queries->n + documents->n, error) && add_prompts(context, queries, r, r->prompts, error) &&
           add_prompts(context, documents, r, r->prompts + queries->n, error) && openai_embedding_end(context, r, error);
}

/* ---- Judging ---- */

/* Qwen3-Reranker's words. The template writes the three names in place of texts. */
#define SYSTEM                                                                                                                 \
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "                         \
    "Note that the answer can only be \"yes\" or \"no\"."
#define QUESTION "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
static const char *const places[] = {"{instruction}", "{query}", "{document}"};
static const char default_instruction[] = "Given a web search query, retrieve relevant passages that answer the query";
enum { N_PLACES = sizeof places / sizeof *places };

/* The chat with the names in it. */
typedef struct form {
    cl_prompt chat; /* owned */
    size_t at[N_PLACES];
    cl_str instruction; /* borrowed */
} form;

static bool read_instruction(const openai_context *context, const json_t *body, cl_str *text, openai_error *error) {
    const char *name = name_in(body, instruction_names);
    const json_t *value = field_get(body, name);
    *text = cl_str_of(default_instruction);
    if (!value) return true;
    if (!json_is_string(value)) return openai_refuse(error, name, "must be a string, not %s", field_kind(value));
    *text = (cl_str){json_string_value(value), json_string_length(value)};
    return openai_check_size(context, name, text->size, error);
}

/* Refuse to judge, for a reason that lies in the model. */
static bool fail_model(openai_error *error, const char *reason) {
    return openai_fail(
        error, "model",
        "this model was not trained to give embeddings, and cannot judge documents, because %s: serve a model for "
        "embeddings or a chat model such as Qwen3-Reranker, or send 'pooling' to compare its embeddings all the "
        "same",
        reason);
}

static bool render(const openai_context *context, openai_request *r, form *f, openai_error *error) {
    json_t *chat = json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:{s:b}}", "messages", "role", "system", "content", SYSTEM, "role",
                             "user", "content", QUESTION, "chat_template_kwargs", "enable_thinking", 0);
    const bool ok = chat ? openai_render_messages(context, chat, r, &f->chat, error) : openai_fail_memory(error);
    json_decref(chat);
    for (int i = 0; ok && i < N_PLACES; i++) {
        const size_t from = i > 0 ? f->at[i - 1] : 0;
        const char *found = memmem(f->chat.text + from, f->chat.size - from, places[i], strlen(places[i]));
        if (!found) return fail_model(error, "its chat template leaves out a part of the question");
        f->at[i] = (size_t)(found - f->chat.text);
    }
    return ok;
}

/* Find the tokens by which the model answers. */
static bool find_labels(const openai_context *context, openai_request *r, openai_error *error) {
    static const char *const words[] = {"no", "yes"};
    for (int i = 0; i < 2; i++) {
        cl_token_list tokens = {0};
        cl_error cause;
        const cl_status status = cl_tokenizer_encode(context->model->tok, words[i], strlen(words[i]), false, &tokens, &cause);
        const bool single = tokens.n == 1;
        if (single) r->labels[i] = tokens.ids[0];
        cl_token_list_free(&tokens);
        if (status != CL_OK) return openai_fail_from(error, NULL, &cause);
        if (!single) return fail_model(error, "its vocabulary has no tokens \"yes\" and \"no\"");
    }
    return true;
}

/* Whether the query is short enough for its documents: it is written and tokenized for each of them. */
static bool check_repeated(const form *f, const texts *queries, const texts *documents, openai_error *error) {
    const size_t n = f->chat.size + f->instruction.size + (queries->n == 1 ? str_at(queries, 0).size : 0);
    if (n <= OPENAI_MAX_QUERIES / documents->n) return true;
    return openai_refuse(
        error, documents->name,
        "has %zu texts, each of them behind %zu bytes of query and instruction; together these may be %d: send "
        "fewer documents, or a shorter query",
        documents->n, n, OPENAI_MAX_QUERIES);
}

/* The form with texts in place of the names, as token ids. where: the document's name in messages. */
static bool fill(const openai_context *context, const form *f, cl_str query, cl_str document, const char *where,
                 openai_prompt *prompt, openai_error *error) {
    const cl_str filled[N_PLACES] = {f->instruction, query, document};
    cl_prompt text = {0};
    cl_error cause;
    size_t at = 0;
    for (int i = 0; i < N_PLACES; i++) {
        cl_prompt_add_part(&text, &f->chat, at, f->at[i]);
        cl_prompt_add(&text, filled[i]);
        at = f->at[i] + strlen(places[i]);
    }
    cl_prompt_add_part(&text, &f->chat, at, f->chat.size);
    bool ok = !text.no_memory || openai_fail_memory(error);
    ok = ok && openai_check_size(context, where, text.size, error);
    if (ok && cl_tokenizer_encode_spans(context->model->tok, text.text, text.size, true, text.own, text.n_own, &prompt->tokens,
                                        &cause) != CL_OK)
        ok = openai_fail_from(error, where, &cause);
    cl_prompt_free(&text);
    return ok;
}

/* Refuse a question that the request would have cut, by which it would lose the query. */
static bool check_whole(const openai_request *r, const openai_prompt *prompt, const char *where, openai_error *error) {
    return r->truncate <= 0 || prompt->tokens.n <= (size_t)r->truncate ||
           openai_refuse(
               error, "truncate_prompt_tokens",
               "is %lld, and the question about '%s' has %zu tokens, of which the model needs all: shorten the text, or "
               "raise the limit",
               (long long)r->truncate, where, prompt->tokens.n);
}

static bool fill_all(const openai_context *context, const form *f, const texts *queries, const texts *documents,
                     openai_request *r, openai_error *error) {
    if (!check_repeated(f, queries, documents, error) || !allocate_prompts(r, documents->n, error)) return false;
    for (size_t i = 0; i < documents->n; i++) {
        const field_path where = path_at(documents, i);
        openai_prompt *prompt = &r->prompts[i];
        if (!fill(context, f, str_at(queries, queries->n == 1 ? 0 : i), str_at(documents, i), where.text, prompt, error) ||
            !check_whole(r, prompt, where.text, error))
            return false;
    }
    return true;
}

/* Each document is a prompt, behind its query; the first token of an answer tells the score. */
static bool judge(const openai_context *context, const json_t *body, const texts *queries, const texts *documents,
                  openai_request *r, openai_error *error) {
    cl_engine_request *p = &r->params;
    form f = {0};
    p->pooling = CL_ENGINE_POOL_NONE;
    p->max_tokens = 1;
    p->sampling.temperature = 0;
    p->logprobs = true;
    p->top_tokens = r->labels;
    p->n_top = 2;
    if (!context->chat) return fail_model(error, "it has no chat template");
    const bool ok = find_labels(context, r, error) && read_instruction(context, body, &f.instruction, error) &&
                    render(context, r, &f, error) && fill_all(context, &f, queries, documents, r, error);
    cl_prompt_free(&f.chat);
    return ok;
}

/* ---- Bodies ---- */

/* Whether the model is asked, and its embeddings are not compared. */
static bool judges(const openai_context *context, const json_t *body) {
    const cl_model_params *p = &context->model->params;
    return !p->for_embeddings && !p->embeddings_only && !context->defaults.pooling && !field_get(body, "pooling");
}

static bool make_prompts(const openai_context *context, const json_t *body, const texts *queries, const texts *documents,
                         openai_request *r, openai_error *error) {
    return check_lengths(context, body, query_limits, queries, error) &&
           check_lengths(context, body, document_limits, documents, error) &&
           (judges(context, body) ? judge : embed)(context, body, queries, documents, r, error);
}

/* Begin a new request, and read the fields of both: vLLM's `use_activation` says whether scores are probabilities. */
static bool begin(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    bool activated = true;
    if (!openai_embedding_begin(context, body, r, error) || !field_bool(body, "use_activation", &activated, error))
        return false;
    r->raw = !activated;
    return true;
}

static bool parse_score(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    texts queries = {0}, documents = {0};
    bool ok = begin(context, body, r, error) && read_texts(context, body, first_names, &queries, error) &&
              read_texts(context, body, second_names, &documents, error);
    r->id_prefix = "score-";
    if (ok && queries.n != 1 && queries.n != documents.n)
        ok = openai_refuse(error, queries.name, "has %zu texts, and '%s' has %zu; send one, or as many", queries.n,
                           documents.name, documents.n);
    if (ok && make_prompts(context, body, &queries, &documents, r, error)) return true;
    openai_request_free(r);
    return false;
}

/* Keep the documents for the answer. */
static bool keep_documents(const texts *documents, openai_request *r, openai_error *error) {
    for (size_t i = 0; i < documents->n; i++) {
        openai_prompt *prompt = &r->prompts[r->n_queries + i];
        const cl_str text = str_at(documents, i);
        prompt->text = malloc(text.size + 1);
        if (!prompt->text) return openai_fail_memory(error);
        memcpy(prompt->text, text.data, text.size + 1);
        prompt->text_size = text.size;
    }
    return true;
}

/*
 * Read what differs where the documents are `texts`, as in Text Embeddings Inference and llama-server; and whether the answer
 * repeats them.
 */
static bool read_form(const json_t *body, openai_request *r, bool *returned, openai_error *error) {
    bool raw = false;
    r->only_ranks = strcmp(name_in(body, ranked_names), "texts") == 0;
    *returned = !r->only_ranks;
    if (!field_bool(body, "return_text", returned, error) || !field_bool(body, "return_documents", returned, error) ||
        !field_bool(body, "raw_scores", &raw, error))
        return false;
    r->raw = r->raw || raw;
    return true;
}

static bool parse_rerank(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    texts queries = {0}, documents = {0};
    bool returned = true;
    bool ok = begin(context, body, r, error) && field_int32(body, "top_n", 0, INT32_MAX, &r->top_n, error) &&
              read_form(body, r, &returned, error) && read_texts(context, body, query_names, &queries, error) &&
              read_texts(context, body, ranked_names, &documents, error);
    r->id_prefix = "rerank-";
    if (ok && queries.n != 1) ok = openai_refuse(error, "query", "has %zu texts; it must be one", queries.n);
    if (ok && make_prompts(context, body, &queries, &documents, r, error) &&
        (!returned || keep_documents(&documents, r, error)))
        return true;
    openai_request_free(r);
    return false;
}

/* ---- Answers ---- */

static double dot(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* 0 if one of them has no direction. */
static double cosine(const float *a, const float *b, int32_t n) {
    const double lengths = sqrt(dot(a, a, n) * dot(b, b, n));
    return lengths > 0 ? dot(a, b, n) / lengths : 0;
}

/* The probability of the second label among the two; 0 if both are impossible. */
static double probability(const cl_sampler_logprob *labels) {
    const double odds = (double)labels[0].logprob - (double)labels[1].logprob;
    return isnan(odds) ? 0 : 1 / (1 + exp(odds));
}

/* The logarithm of its odds, of which the probability is the sigmoid; finite, as JSON needs it. */
static double log_odds(const cl_sampler_logprob *labels) {
    return openai_reported(labels[1].logprob) - openai_reported(labels[0].logprob);
}

static double score_of(const openai_result *result, size_t document) {
    const openai_request *r = result->request;
    if (r->n_queries == 0) return (r->raw ? log_odds : probability)(result->choices[document].logprobs.top);
    return cosine(result->embeddings[r->n_queries == 1 ? 0 : document], result->embeddings[r->n_queries + document],
                  r->dimensions);
}

/* Judging takes a token, which is not reported. */
static void write_end(openai_writer *w, const openai_result *result) {
    openai_usage usage = openai_result_usage(result);
    usage.completion_tokens = 0;
    openai_write_usage(w, "usage", &usage);
    writer_close(w);
}

static size_t n_documents(const openai_request *r) { return r->n_prompts - r->n_queries; }

static void write_scores(openai_writer *w, const char *key, const openai_result *result) {
    writer_open(w, key, '{');
    openai_write_head(w, result, "list");
    writer_open(w, "data", '[');
    for (size_t i = 0; i < n_documents(result->request); i++) {
        writer_open(w, NULL, '{');
        writer_integer(w, "index", (int64_t)i);
        writer_string(w, "object", "score");
        writer_real(w, "score", score_of(result, i));
        writer_close(w);
    }
    writer_close(w);
    write_end(w, result);
}

typedef struct ranked {
    size_t document;
    double score;
} ranked;

/* The highest score first; equal ones in the order of the body. */
static int compare(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->document < y->document ? -1 : 1;
}

static void write_rank(openai_writer *w, const openai_request *r, const ranked *rank) {
    const openai_prompt *prompt = &r->prompts[r->n_queries + rank->document];
    const bool within = !r->only_ranks; /* the text is within another object */
    writer_open(w, NULL, '{');
    writer_integer(w, "index", (int64_t)rank->document);
    writer_real(w, within ? "relevance_score" : "score", rank->score);
    if (prompt->text && within) writer_open(w, "document", '{');
    if (prompt->text) writer_bytes(w, "text", prompt->text, prompt->text_size);
    if (prompt->text && within) writer_close(w);
    writer_close(w);
}

/* Write an array of the best documents. */
static void write_ranks(openai_writer *w, const char *key, const openai_result *result) {
    const openai_request *r = result->request;
    const size_t n = n_documents(r), n_written = r->top_n > 0 && (size_t)r->top_n < n ? (size_t)r->top_n : n;
    ranked *ranks = calloc(n, sizeof *ranks);
    if (!ranks) writer_fail(w);
    for (size_t i = 0; ranks && i < n; i++) ranks[i] = (ranked){i, score_of(result, i)};
    if (ranks) qsort(ranks, n, sizeof *ranks, compare);
    writer_open(w, key, '[');
    for (size_t i = 0; ranks && i < n_written; i++) write_rank(w, r, &ranks[i]);
    writer_close(w);
    free(ranks);
}

static void write_ranking(openai_writer *w, const char *key, const openai_result *result) {
    if (result->request->only_ranks) {
        write_ranks(w, key, result);
        return;
    }
    writer_open(w, key, '{');
    openai_write_head(w, result, "list");
    write_ranks(w, "results", result);
    write_end(w, result);
}

/* Neither streams. */
#define IN_COMMON                                                                                                              \
    .write_error = openai_write_error_body, .no_memory_body = "{" OPENAI_NO_MEMORY_ERROR "}",                                  \
    .no_memory_end = "data: {" OPENAI_NO_MEMORY_ERROR "}\n\n"

const openai_dialect openai_score = {.path = "/v1/score", .parse = parse_score, .write_answer = write_scores, IN_COMMON};
const openai_dialect openai_rerank = {.path = "/v1/rerank", .parse = parse_rerank, .write_answer = write_ranking, IN_COMMON};

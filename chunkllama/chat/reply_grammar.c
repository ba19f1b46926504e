/* The grammars of replies with calls: one for each syntax, each with calls required or among text. */
#include "reply_grammar.h"

#include <stdio.h>
#include <stdlib.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/schema/schema.h"
#include "reply_grammar_writer.h"

/* ---- Text ---- */

void reply_put(reply_writer *w, const char *text) { reply_text_add(&w->out, text, strlen(text)); }

void reply_put_literal(reply_writer *w, const char *text) {
    reply_put(w, "\"");
    for (; *text; text++) reply_text_add_escaped(&w->out, *text);
    reply_put(w, "\" ");
}

void reply_put_marker(reply_writer *w, const char *marker, int32_t id) {
    char token[32];
    if (id < 0) {
        reply_put_literal(w, marker);
        return;
    }
    snprintf(token, sizeof token, "<[%d]> ", id);
    reply_put(w, token);
}

void reply_put_rule(reply_writer *w, const char *name, size_t i) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s_%zu ", name, i);
    reply_put(w, rule);
}

static void put_json(reply_writer *w, const json_t *json) {
    char *text = json ? cl_json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    w->no_memory |= !text;
    reply_put(w, "%json ");
    if (text) reply_put(w, text);
    reply_put(w, "\n");
    free(text);
}

/* ---- Schemas ---- */

static bool set(json_t *object, const char *key, json_t *value) { return json_object_set_new_nocheck(object, key, value) == 0; }

/* The schema of a function's arguments as its client sent it, a new reference: always an object; NULL: memory is lacking. */
static json_t *parameters_of(const json_t *function) {
    const json_t *given = json_object_get(function, "parameters");
    json_t *schema = cl_json_is_object(given) ? cl_json_copy(given) : json_object();
    bool ok = schema;
    if (ok && !cl_json_is_object(given)) ok = set(schema, "additionalProperties", json_false());
    if (ok && !cl_schema_is_type(schema, "object")) ok = set(schema, "type", json_string_nocheck("object"));
    if (ok) return schema;
    json_decref(schema);
    return NULL;
}

static const json_t *function_at(const reply_writer *w, size_t i) {
    return json_object_get(json_array_get(w->g->tools, i), "function");
}

static const char *name_at(const reply_writer *w, size_t i) {
    return json_string_value(json_object_get(function_at(w, i), "name"));
}

/* ---- Calls: the rule "body", a call without its markers ---- */

static void put_body(reply_writer *w) {
    reply_put(w, "body: ");
    for (size_t i = 0; i < json_array_size(w->g->tools); i++) {
        if (i > 0) reply_put(w, "| ");
        reply_put_rule(w, "call", i);
    }
    reply_put(w, "\n");
}

/* The first failure is kept. */
static void fail(reply_writer *w, size_t i, const cl_error *cause) {
    if (w->status == CL_OK) w->status = cl_fail(w->error, cause->code, "the tool '%.64s': %s", name_at(w, i), cause->message);
}

static void put_arguments(reply_writer *w, size_t i) {
    const json_t *function = function_at(w, i);
    const bool strict = json_is_true(json_object_get(function, "strict"));
    const cl_schema_options options = {.open = w->g->open, .lenient = !strict, .work = &w->schema_work};
    json_t *parameters = parameters_of(function), *schema = NULL;
    cl_error cause;
    if (parameters && cl_schema_rewrite(parameters, &options, &schema, w->g->weaker, &cause) != CL_OK) fail(w, i, &cause);
    reply_put_rule(w, "arguments", i);
    reply_put(w, ": ");
    put_json(w, schema);
    json_decref(schema);
    json_decref(parameters);
}

static void put_json_call(reply_writer *w, size_t i) {
    reply_put_literal(w, "{\"name\": \"");
    reply_put_literal(w, name_at(w, i));
    reply_put_literal(w, "\", \"");
    reply_put_literal(w, w->g->format->arguments);
    reply_put_literal(w, "\": ");
    reply_put_rule(w, "arguments", i);
    reply_put_literal(w, "}");
}

static void put_mistral_call(reply_writer *w, size_t i) {
    reply_put_literal(w, name_at(w, i));
    reply_put_marker(w, "[ARGS]", w->args);
    reply_put_rule(w, "arguments", i);
}

/* A name, what ends it, and the arguments. */
static void put_named_call(reply_writer *w, const char *end, size_t i) {
    reply_put_literal(w, name_at(w, i));
    reply_put_literal(w, end);
    reply_put_rule(w, "arguments", i);
}

static void put_calls(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    const bool literal = f->syntax == CL_REPLY_GEMMA || f->syntax == CL_REPLY_PYTHON;
    put_body(w);
    for (size_t i = 0; i < json_array_size(w->g->tools); i++) {
        reply_put_rule(w, "call", i);
        reply_put(w, ": ");
        if (literal)
            reply_put_literal_call(w, function_at(w, i), i);
        else if (f->syntax == CL_REPLY_MISTRAL && !f->array)
            put_mistral_call(w, i);
        else if (f->syntax == CL_REPLY_FUNCTION || f->syntax == CL_REPLY_RECIPIENT)
            put_named_call(w, f->syntax == CL_REPLY_FUNCTION ? ">" : "\n", i);
        else
            put_json_call(w, i);
        reply_put(w, "\n");
        if (!literal) put_arguments(w, i);
    }
    if (literal) reply_put_literal_values(w);
}

/* ---- The text around calls: the rule "rest", behind the marker of their beginning ---- */

static void put_rest(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    reply_put(w, "rest: ");
    if (f->array)
        reply_put(w, w->g->parallel ? "/ ?\\[/ body (\", \" body)* \"]\" " : "/ ?\\[/ body \"]\" ");
    else
        reply_put(w, f->syntax == CL_REPLY_JSON ? "/\\n?/ body /\\n?/ " : "body ");
    if (f->end[0]) reply_put_marker(w, f->end, w->end);
    reply_put(w, "\n");
}

/* Whether a reply begins with a call as it is; of Functionary the prompt has the marker. */
static bool begins_without_marker(const cl_reply_format *f) {
    return f->syntax == CL_REPLY_BARE || f->syntax == CL_REPLY_RECIPIENT;
}

/* The rule "calls" of a reply in which calls are required. */
static void put_required(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    const bool several = w->g->parallel && !f->array;
    reply_put(w, "calls: call ");
    if (several)
        reply_put(w, f->syntax == CL_REPLY_JSON        ? "(\"\\n\" call)*"
                     : f->syntax == CL_REPLY_BARE      ? "(\"; \" call)*"
                     : f->syntax == CL_REPLY_RECIPIENT ? "(\">>>\" call)*"
                                                       : "call*");
    reply_put(w, "\ncall: ");
    if (!begins_without_marker(f) && f->begin[0]) reply_put_marker(w, f->begin, w->begin);
    reply_put(w, "rest\n");
}

/*
 * The rule "told": text up to a tool as its recipient, and the call of it. Other recipients are text, since their marker stands
 * in other text, too.
 */
static void put_told(reply_writer *w) {
    const size_t n = json_array_size(w->g->tools);
    reply_put(w, "told: ");
    for (size_t i = 0; i < n; i++) {
        reply_put(w, i > 0 ? "| " : "");
        reply_put_rule(w, "head", i);
        reply_put_rule(w, "arguments", i);
    }
    for (size_t i = 0; i < n; i++) {
        char rule[64];
        snprintf(rule, sizeof rule, "\nhead_%zu[lazy]: TEXT ", i);
        reply_put(w, rule);
        reply_put_literal(w, w->g->format->begin);
        reply_put_literal(w, name_at(w, i));
        reply_put_literal(w, "\n");
    }
    reply_put(w, "\n");
}

/* The rule "head": text up to the marker of a call, as a special token or spelled out. */
static void put_head(reply_writer *w) {
    const char *marker = w->g->format->begin;
    if (w->begin >= 0) {
        reply_put(w, "head: spelled | TEXT ");
        reply_put_marker(w, marker, w->begin);
        reply_put(w, "\n");
    }
    reply_put(w, w->begin >= 0 ? "spelled[lazy]: TEXT " : "head[lazy]: TEXT ");
    reply_put_literal(w, marker);
    reply_put(w, "\n");
}

/* The rule "any" of a reply in which calls may stand among text. */
static void put_optional(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    const bool several = w->g->parallel && !f->array;
    if (f->syntax == CL_REPLY_RECIPIENT) {
        put_required(w);
        reply_put(w, several ? "any: \"all\\n\" told* TEXT | calls\n" : "any: \"all\\n\" (TEXT | told) | calls\n");
        put_told(w);
    } else if (f->syntax == CL_REPLY_BARE || f->syntax == CL_REPLY_PYTHON) {
        put_required(w);
        reply_put(w, "any: plain | calls\nplain: /([ \\t\\r\\n]*[^ \\t\\r\\n");
        reply_put(w, f->syntax == CL_REPLY_BARE ? "{" : "\\[");
        reply_put(w, f->think[0] == '<' ? "<" : f->think[0] ? "\\[" : ""); /* behind a thought a call may begin */
        reply_put(w, "](.|\\n)*)?/\n");
    } else {
        reply_put(w, several ? "any: (head rest)* TEXT\n" : "any: TEXT | head rest\n");
        put_head(w);
    }
}

/* ---- The reply ---- */

/* The rule "thought": reasoning up to its end, and the white space behind it. */
static void put_thought(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    if (w->answer >= 0) {
        reply_put(w, "thought: TEXT ");
        reply_put_marker(w, f->answer, w->answer);
        reply_put(w, "SPACE\n");
    } else {
        reply_put(w, "thought: thinking SPACE\nthinking[lazy]: TEXT ");
        reply_put_literal(w, f->answer);
        reply_put(w, "\n");
    }
    reply_put(w, "SPACE: /[ \\n\\r\\t]{0,4}/\n");
}

static void put_start(reply_writer *w) {
    const cl_reply_grammar *g = w->g;
    reply_put(w, "start: ");
    if (g->in_reasoning) {
        reply_put(w, "thought ");
    } else if (g->reasons) {
        reply_put(w, "(");
        reply_put_marker(w, g->format->think, w->think);
        reply_put(w, "thought)? ");
    }
    reply_put(w, !g->tools ? "answer\n" : g->required ? "calls\n" : g->answer ? "(calls | answer)\n" : "any\n");
    if (g->in_reasoning || g->reasons) put_thought(w);
}

/* A regular expression, around which Lark has slashes; so a slash in it is written as an escape. */
static void put_regex(reply_writer *w, const char *regex) {
    for (const char *at = regex; *at; at++) {
        const bool is_escape = at[0] == '\\' && at[1];
        if (is_escape && at[1] != '/') reply_text_add(&w->out, at, 1);
        at += is_escape;
        *at == '/' ? reply_put(w, "\\x2F") : reply_text_add(&w->out, at, 1);
    }
}

/* The rule "answer": a grammar of the request. The names of rules in one of Lark's do not clash with those here. */
static void put_answer(reply_writer *w) {
    static const char *const around[][2] = {[CL_GRAMMAR_JSON_SCHEMA] = {"%json ", "\n"},
                                            [CL_GRAMMAR_REGEX] = {"/", "/\n"},
                                            [CL_GRAMMAR_LARK] = {"%lark {\n", "\n}\n"}};
    const cl_reply_grammar *g = w->g;
    if (!g->answer || g->required) return;
    reply_put(w, "answer: ");
    reply_put(w, around[g->kind][0]);
    (g->kind == CL_GRAMMAR_REGEX ? put_regex : reply_put)(w, g->answer);
    reply_put(w, around[g->kind][1]);
}

static bool find_markers(reply_writer *w, cl_error *error) {
    const cl_reply_format *f = w->g->format;
    const struct {
        const char *text;
        int32_t *id;
    } markers[] = {{f->begin, &w->begin},   {f->end, &w->end},    {f->think, &w->think},
                   {f->answer, &w->answer}, {"[ARGS]", &w->args}, {"<escape>", &w->quote}};
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
        if (cl_reply_special_token(w->g->tok, markers[i].text, markers[i].id, error) != CL_OK) return false;
    return true;
}

cl_status cl_reply_grammar_write(const cl_reply_grammar *grammar, char **text, cl_error *error) {
    reply_writer w = {.g = grammar, .error = error};
    *text = NULL;
    if (!find_markers(&w, error)) return CL_ERR_NOMEM;
    put_start(&w);
    if (grammar->tools) {
        grammar->required || grammar->answer ? put_required(&w) : put_optional(&w);
        put_rest(&w);
        put_calls(&w);
    }
    put_answer(&w);
    reply_put(&w, "TEXT: /(.|\\n)*/\n");
    reply_text_add(&w.out, "", 1);
    if (w.status == CL_OK && (w.no_memory || w.out.no_memory))
        w.status = cl_fail(error, CL_ERR_NOMEM, "no memory for the grammar of the tools");
    if (w.status == CL_OK)
        *text = w.out.data;
    else
        free(w.out.data);
    return w.status;
}

cl_status cl_reply_special_token(const cl_tokenizer *tok, const char *text, int32_t *id, cl_error *error) {
    cl_token_list list = {0};
    char nothing[1];
    *id = -1;
    cl_status status = CL_OK;
    if (*text) status = cl_tokenizer_encode_template(tok, text, strlen(text), false, &list, error);
    if (status == CL_OK && list.n == 1 && cl_tokenizer_piece(tok, list.ids[0], false, nothing, 0) == 0) *id = list.ids[0];
    cl_token_list_free(&list);
    return status;
}

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

/* The special token with which a text begins, and its size; -1: there is none. */
static int32_t special_at(reply_writer *w, const char *text, size_t *size) {
    char name[CL_REPLY_MAX_MARKER];
    const char *end = *text == '<' ? strchr(text, '>') : *text == '[' ? strchr(text, ']') : NULL;
    int32_t id = -1;
    cl_error cause;
    *size = end ? (size_t)(end + 1 - text) : 0;
    if (!end || *size >= sizeof name) return -1;
    memcpy(name, text, *size);
    name[*size] = '\0';
    w->no_memory |= cl_reply_special_token(w->g->tok, name, &id, &cause) != CL_OK;
    return id;
}

void reply_put_marker(reply_writer *w, const char *marker) {
    char token[32], text[CL_REPLY_MAX_MARKER];
    size_t n = 0, size;
    for (; *marker; marker += size) {
        const int32_t id = special_at(w, marker, &size);
        if (id < 0) {
            text[n++] = *marker;
            size = 1;
        }
        text[n] = '\0';
        if (n > 0 && (id >= 0 || !marker[1])) reply_put_literal(w, text);
        if (id < 0) continue;
        n = 0;
        snprintf(token, sizeof token, "<[%d]> ", id);
        reply_put(w, token);
    }
}

bool reply_has_special(reply_writer *w, const char *marker) {
    size_t size;
    for (; *marker; marker++)
        if (special_at(w, marker, &size) >= 0) return true;
    return false;
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

void reply_put_schema(reply_writer *w, const json_t *schema, size_t i) {
    const bool strict = json_is_true(json_object_get(function_at(w, i), "strict"));
    const cl_schema_options options = {.open = w->g->open, .lenient = !strict, .work = &w->schema_work};
    json_t *rewritten = NULL;
    cl_error cause;
    if (schema && cl_schema_rewrite(schema, &options, &rewritten, w->g->weaker, &cause) != CL_OK) fail(w, i, &cause);
    put_json(w, rewritten);
    json_decref(rewritten);
}

static void put_arguments(reply_writer *w, size_t i) {
    json_t *parameters = parameters_of(function_at(w, i));
    reply_put_rule(w, "arguments", i);
    reply_put(w, ": ");
    reply_put_schema(w, parameters, i);
    json_decref(parameters);
}

static void put_json_call(reply_writer *w, size_t i) {
    const cl_reply_format *f = w->g->format;
    reply_put_literal(w, "{\"");
    if (f->id) {
        reply_put_literal(w, f->id);
        reply_put(w, "\"\\\": \\\"\" ID \"\\\", \\\"\" ");
    }
    reply_put_literal(w, f->function);
    reply_put_literal(w, "\": \"");
    reply_put_literal(w, name_at(w, i));
    reply_put_literal(w, "\", \"");
    reply_put_literal(w, w->g->format->arguments);
    reply_put_literal(w, "\": ");
    reply_put_rule(w, "arguments", i);
    reply_put_literal(w, "}");
}

static void put_mistral_call(reply_writer *w, size_t i) {
    reply_put_literal(w, name_at(w, i));
    reply_put_marker(w, "[ARGS]");
    reply_put_rule(w, "arguments", i);
}

/* A name before text that ends with a marker. */
static void put_call_by_name(reply_writer *w, size_t i) {
    const cl_reply_format *f = w->g->format;
    if (*f->prefix) reply_put_literal(w, f->prefix);
    reply_put_literal(w, name_at(w, i));
    if (f->numbered) reply_put(w, "\":\" ID ");
    reply_put_marker(w, f->between);
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
    const bool tagged = f->syntax == CL_REPLY_TAGS || f->tagged;
    put_body(w);
    for (size_t i = 0; i < json_array_size(w->g->tools); i++) {
        reply_put_rule(w, "call", i);
        reply_put(w, ": ");
        if (literal)
            reply_put_literal_call(w, function_at(w, i), i);
        else if (tagged)
            reply_put_tagged_call(w, function_at(w, i), i);
        else if (f->syntax == CL_REPLY_NAMED)
            put_call_by_name(w, i);
        else if (f->syntax == CL_REPLY_MISTRAL && !f->array)
            put_mistral_call(w, i);
        else if (f->syntax == CL_REPLY_FUNCTION || f->syntax == CL_REPLY_RECIPIENT)
            put_named_call(w, f->syntax == CL_REPLY_FUNCTION ? ">" : "\n", i);
        else
            put_json_call(w, i);
        reply_put(w, "\n");
        if (!literal && !tagged) put_arguments(w, i);
    }
    if (literal) reply_put_literal_values(w);
    if (f->numbered || f->id) reply_put(w, "ID: /[0-9]{1,3}/\n");
}

/* ---- The text around calls: the rule "rest", behind the marker of their beginning ---- */

static void put_rest(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    const bool lines = f->syntax == CL_REPLY_JSON || f->syntax == CL_REPLY_TAGS;
    reply_put(w, "rest: ");
    if (f->array)
        reply_put(w, w->g->parallel ? "OPEN body (/,[ \\n]{0,8}/ body)* CLOSE " : "OPEN body CLOSE ");
    else if (f->open[0])
        reply_put(w, w->g->parallel ? "each (/\\n?/ each)* /\\n?/ " : "each /\\n?/ ");
    else
        reply_put(w, lines ? "/\\n?/ body /\\n?/ " : "body ");
    reply_put_marker(w, f->end);
    if (f->array) reply_put(w, "\nOPEN: /[ \\n]{0,2}\\[[ \\n]{0,8}/\nCLOSE: /[ \\n]{0,2}\\]/");
    if (f->open[0]) {
        reply_put(w, "\neach: ");
        reply_put_marker(w, f->open);
        reply_put(w, "body ");
        reply_put_marker(w, f->close);
    }
    reply_put(w, "\n");
}

/* Whether several calls stand behind one marker each. */
static bool are_apart(const reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    return w->g->parallel && !f->array && !f->open[0] && !f->single;
}

/* Whether a reply begins with a call as it is; of Functionary the prompt has the marker. */
static bool begins_without_marker(const cl_reply_format *f) {
    return f->syntax == CL_REPLY_BARE || f->syntax == CL_REPLY_RECIPIENT;
}

/* The rule "calls" of a reply in which calls are required. */
static void put_required(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    reply_put(w, "calls: call ");
    if (are_apart(w))
        reply_put(w, f->syntax == CL_REPLY_JSON        ? "(\"\\n\" call)*"
                     : f->syntax == CL_REPLY_TAGS      ? "(/\\n?/ call)*"
                     : f->syntax == CL_REPLY_BARE      ? "(\"; \" call)*"
                     : f->syntax == CL_REPLY_RECIPIENT ? "(\">>>\" call)*"
                                                       : "call*");
    reply_put(w, "\ncall: ");
    if (!begins_without_marker(f)) reply_put_marker(w, f->begin);
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

/* The rule "talk": text with the markers around content and reasoning. */
static void put_talk(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    reply_put(w, "talk: TEXT (");
    for (const char *const *marker = f->around; *marker; marker++) {
        reply_put_marker(w, *marker);
        reply_put(w, "TEXT | ");
    }
    reply_put_marker(w, f->think);
    reply_put(w, "TEXT | ");
    reply_put_marker(w, f->answer);
    reply_put(w, "TEXT)*\n");
}

/* The rule "head": text up to the marker of a call, with special tokens or spelled out. */
static void put_head(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    const bool is_special = reply_has_special(w, f->begin);
    if (is_special) {
        reply_put(w, f->around ? "head: spelled | talk " : "head: spelled | TEXT ");
        reply_put_marker(w, f->begin);
        reply_put(w, "\n");
    }
    reply_put(w, is_special ? "spelled[lazy]: TEXT " : "head[lazy]: TEXT ");
    reply_put_literal(w, f->begin);
    reply_put(w, "\n");
}

/* The rule "any" of a reply in which calls may stand among text. */
static void put_optional(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    if (f->syntax == CL_REPLY_RECIPIENT) {
        put_required(w);
        reply_put(w, are_apart(w) ? "any: \"all\\n\" told* TEXT | calls\n" : "any: \"all\\n\" (TEXT | told) | calls\n");
        put_told(w);
    } else if (f->syntax == CL_REPLY_BARE || !f->begin[0]) {
        put_required(w);
        reply_put(w, "any: plain | calls\nplain: /([ \\t\\r\\n]*[^ \\t\\r\\n");
        reply_put(w, f->syntax == CL_REPLY_BARE ? "{" : "\\[");
        reply_put(w, f->think[0] == '<' ? "<" : f->think[0] ? "\\[" : ""); /* behind a thought a call may begin */
        reply_put(w, "](.|\\n)*)?/\n");
    } else {
        const char *text = f->around ? "talk" : "TEXT";
        reply_put(w, are_apart(w) ? "any: (head rest)* " : "any: head rest | ");
        reply_put(w, text);
        reply_put(w, "\n");
        put_head(w);
        if (f->around) put_talk(w);
    }
}

/* ---- The reply ---- */

/* The rule "thought": reasoning up to its end, and the white space behind it. */
static void put_thought(reply_writer *w) {
    const cl_reply_format *f = w->g->format;
    if (reply_has_special(w, f->answer)) {
        reply_put(w, "thought: TEXT ");
        reply_put_marker(w, f->answer);
        reply_put(w, "SPACE");
    } else {
        reply_put(w, "thought: thinking SPACE");
    }
    if (*f->resume) reply_put(w, " ");
    reply_put_marker(w, f->resume);
    if (!reply_has_special(w, f->answer)) {
        reply_put(w, "\nthinking[lazy]: TEXT ");
        reply_put_literal(w, f->answer);
    }
    reply_put(w, "\n");
    reply_put(w, "SPACE: /[ \\n\\r\\t]{0,4}/\n");
}

/* The rule "answer", and what models write before an answer. */
static void put_answer_name(reply_writer *w) {
    const char *const *around = w->g->format->around;
    if (around) {
        reply_put(w, "(");
        reply_put_marker(w, *around);
        reply_put(w, ")? ");
    }
    reply_put(w, "answer");
}

static void put_start(reply_writer *w) {
    const cl_reply_grammar *g = w->g;
    reply_put(w, "start: ");
    if (g->in_reasoning) {
        reply_put(w, "thought ");
    } else if (g->reasons) {
        reply_put(w, "(");
        reply_put_marker(w, g->format->think);
        reply_put(w, "thought)? ");
    }
    reply_put(w, !g->tools ? "" : g->required ? "calls" : g->answer ? "(calls | " : "any");
    if (g->answer && !(g->tools && g->required)) put_answer_name(w);
    reply_put(w, g->tools && !g->required && g->answer ? ")\n" : "\n");
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

cl_status cl_reply_grammar_write(const cl_reply_grammar *grammar, char **text, cl_error *error) {
    reply_writer w = {.g = grammar, .error = error};
    *text = NULL;
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

static bool is_special(const cl_tokenizer *tok, int32_t id) {
    char nothing[1];
    return cl_tokenizer_piece(tok, id, false, nothing, 0) == 0;
}

cl_status cl_reply_special_tokens(const cl_tokenizer *tok, const char *marker, cl_token_list *ids, cl_error *error) {
    cl_token_list list = {0};
    cl_status status = CL_OK;
    if (*marker) status = cl_tokenizer_encode_template(tok, marker, strlen(marker), false, &list, error);
    for (size_t i = 0; status == CL_OK && i < list.n; i++)
        if (is_special(tok, list.ids[i])) status = cl_token_list_add(ids, list.ids[i], error);
    cl_token_list_free(&list);
    return status;
}

cl_status cl_reply_special_token(const cl_tokenizer *tok, const char *text, int32_t *id, cl_error *error) {
    cl_token_list list = {0};
    *id = -1;
    cl_status status = CL_OK;
    if (*text) status = cl_tokenizer_encode_template(tok, text, strlen(text), false, &list, error);
    if (status == CL_OK && list.n == 1 && is_special(tok, list.ids[0])) *id = list.ids[0];
    cl_token_list_free(&list);
    return status;
}

/* The known chat formats. A prompt is put together as text that remembers which parts are the format's own. */
#define _GNU_SOURCE /* memmem */
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_text.h"

static const char TEMPLATE[] = "tokenizer.chat_template";

static const char *const names[] = {[CHAT_NONE] = "none",     [CHAT_CHATML] = "chatml", [CHAT_LLAMA2] = "llama2",
                                    [CHAT_LLAMA3] = "llama3", [CHAT_ZEPHYR] = "zephyr", [CHAT_MISTRAL] = "mistral"};
#define NAMES "chatml, llama2, llama3, zephyr or mistral"

const char *chat_name(chat_format format) { return names[format]; }

cl_status chat_by_name(const char *name, chat_format *format, cl_error *error) {
    for (int i = CHAT_CHATML; i <= CHAT_MISTRAL; i++)
        if (strcmp(name, names[i]) == 0) {
            *format = (chat_format)i;
            return CL_OK;
        }
    return cl_fail(error, CL_ERR_ARG, "chat format '%.40s' is not known; use " NAMES, name);
}

/* The file's template; empty where it has none. */
static str template_of(const model_file *file) {
    str text = {"", 0};
    model_file_get_string(file, TEMPLATE, &text);
    return text;
}

static bool contains(str text, const char *part) { return memmem(text.data, text.size, part, strlen(part)) != NULL; }

cl_status chat_detect(const model_file *file, chat_format *format, cl_error *error) {
    const str text = template_of(file);
    *format = CHAT_NONE;
    if (text.size == 0) return CL_OK;
    if (contains(text, "<|im_start|>") && contains(text, "<|im_end|>"))
        *format = CHAT_CHATML;
    else if (contains(text, "<|start_header_id|>") && contains(text, "<|eot_id|>"))
        *format = CHAT_LLAMA3;
    else if (contains(text, "[INST]") && contains(text, "<<SYS>>"))
        *format = CHAT_LLAMA2;
    else if (contains(text, "[INST]") && !contains(text, "[SYSTEM_PROMPT]"))
        *format = CHAT_MISTRAL;
    else if (contains(text, "<|user|>") && contains(text, "<|assistant|>") && contains(text, "eos_token"))
        *format = CHAT_ZEPHYR;
    if (*format != CHAT_NONE) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED,
                   "%s: the file's chat format is none of the known ones; choose one with --chat-format: " NAMES, TEMPLATE);
}

typedef struct prompt {
    char *text;
    size_t size, capacity;
    text_span *own; /* what is the format's */
    size_t n_own, own_capacity;
    bool no_memory;
} prompt;

static void add(prompt *p, const char *text, size_t size) {
    if (p->capacity - p->size < size) {
        const size_t capacity = 2 * p->capacity + size;
        char *grown = realloc(p->text, capacity);
        p->no_memory |= !grown;
        if (!grown) return;
        p->text = grown;
        p->capacity = capacity;
    }
    if (size > 0) memcpy(p->text + p->size, text, size);
    p->size += size;
}

/* Text of the format's own; pieces that follow each other are one, so that they can make up a special token's name. */
static void add_own(prompt *p, const char *text, size_t size) {
    const size_t start = p->size;
    add(p, text, size);
    if (p->n_own > 0 && p->own[p->n_own - 1].end == start) {
        p->own[p->n_own - 1].end = p->size;
        return;
    }
    if (p->n_own == p->own_capacity) {
        const size_t capacity = 2 * p->own_capacity + 16;
        text_span *grown = realloc(p->own, capacity * sizeof *grown);
        p->no_memory |= !grown;
        if (!grown) return;
        p->own = grown;
        p->own_capacity = capacity;
    }
    p->own[p->n_own++] = (text_span){start, p->size};
}

static void add_format(prompt *p, const char *text) { add_own(p, text, strlen(text)); }
static void add_content(prompt *p, const chat_message *m) { add(p, m->content, m->content_size); }

/* A token's name; nothing for -1. */
static void add_token(prompt *p, const tokenizer *tok, int32_t id) {
    char name[256];
    const size_t size = tokenizer_piece(tok, id, true, name, sizeof name);
    add_own(p, name, size < sizeof name ? size : sizeof name);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static str trimmed(const char *text, size_t size) {
    while (size > 0 && is_space(text[size - 1])) size--;
    while (size > 0 && is_space(*text)) text++, size--;
    return (str){text, size};
}

static bool is_role(const chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }

/* Whether a literal of the template goes on up to its end mark, and how long it is: not where it is cut by an expression. */
static bool literal_size(str rest, const char *end, size_t *size) {
    const char *found = memmem(rest.data, rest.size, end, strlen(end));
    if (!found) return false;
    *size = (size_t)(found - rest.data);
    for (size_t i = 0; i < *size; i++) {
        const char c = rest.data[i];
        if (c == '\\')
            i++; /* escaped */
        else if (c == '\'' || c == '"' || c == '{' || c == '}')
            return false;
    }
    return true;
}

/* Add a literal of the template, with its escapes resolved. */
static void add_literal(prompt *p, str literal) {
    for (size_t i = 0; i < literal.size; i++) {
        char c = literal.data[i];
        if (c == '\\' && i + 1 < literal.size) {
            c = literal.data[++i];
            if (c == 'n') c = '\n';
            if (c == 't') c = '\t';
        }
        add(p, &c, 1);
    }
}

/* The system message that the file's template inserts before others: '<|im_start|>system\nTEXT<|im_end|>\n'. */
static void add_default_system(prompt *p, str text) {
    static const char begin[] = "<|im_start|>system";
    const char *at;
    while ((at = memmem(text.data, text.size, begin, sizeof begin - 1)) != NULL) {
        text.size -= (size_t)(at - text.data) + sizeof begin - 1;
        text.data = at + sizeof begin - 1;
        size_t size;
        if (!literal_size(text, "<|im_end|>", &size)) continue;
        add_format(p, begin);
        add_literal(p, (str){text.data, size});
        add_format(p, "<|im_end|>\n");
        return;
    }
}

static void render_chatml(prompt *p, str template, const chat_message *messages, size_t n) {
    if (!is_role(&messages[0], "system")) add_default_system(p, template);
    for (size_t i = 0; i < n; i++) {
        add_format(p, "<|im_start|>");
        add_format(p, messages[i].role);
        add_format(p, "\n");
        add_content(p, &messages[i]);
        add_format(p, "<|im_end|>\n");
    }
    add_format(p, "<|im_start|>assistant\n");
}

static void render_llama3(prompt *p, const chat_message *messages, size_t n) {
    for (size_t i = 0; i < n; i++) {
        add_format(p, "<|start_header_id|>");
        add_format(p, messages[i].role);
        add_format(p, "<|end_header_id|>\n\n");
        const str content = trimmed(messages[i].content, messages[i].content_size);
        add(p, content.data, content.size);
        add_format(p, "<|eot_id|>");
    }
    add_format(p, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void render_zephyr(prompt *p, const tokenizer *tok, const chat_message *messages, size_t n) {
    for (size_t i = 0; i < n; i++) {
        add_format(p, "<|");
        add_format(p, messages[i].role);
        add_format(p, "|>\n");
        add_content(p, &messages[i]);
        add_token(p, tok, tokenizer_eos(tok));
        add_format(p, "\n");
    }
    add_format(p, "<|assistant|>\n");
}

/* messages begin with the user's; system: NULL if there is none. */
static void render_llama2(prompt *p, const tokenizer *tok, const chat_message *system, const chat_message *messages, size_t n) {
    for (size_t i = 0; i < n; i++) {
        str content = trimmed(messages[i].content, messages[i].content_size);
        if (i % 2 == 1) {
            add_format(p, " ");
            add(p, content.data, content.size);
            add_format(p, " ");
            add_token(p, tok, tokenizer_eos(tok));
            continue;
        }
        if (i > 0) add_token(p, tok, tokenizer_bos(tok));
        add_format(p, "[INST] ");
        if (i == 0 && system) {
            add_format(p, "<<SYS>>\n");
            add_content(p, system);
            add_format(p, "\n<</SYS>>\n\n");
            /* The template strips both together: what the message starts with is inside. */
            content.size += (size_t)(content.data - messages[i].content);
            content.data = messages[i].content;
        }
        add(p, content.data, content.size);
        add_format(p, " [/INST]");
    }
}

/* Its versions differ in spaces and in where the system message goes; without a template it is version 0.2. */
static void render_mistral(prompt *p, const tokenizer *tok, str template, const chat_message *system,
                           const chat_message *messages, size_t n) {
    const bool any = template.size > 0;
    const char *open = !any || contains(template, "[INST] ") ? "[INST] " : "[INST]";
    const char *close = !any || contains(template, " [/INST]") ? " [/INST]" : "[/INST]";
    const bool spaced = contains(template, "' ' + message") || contains(template, "\" \" + message");
    const size_t system_at = contains(template, "loop.last") ? n - 1 : 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 1) {
            if (spaced) add_format(p, " ");
            add_content(p, &messages[i]);
            add_token(p, tok, tokenizer_eos(tok));
            continue;
        }
        add_format(p, open);
        if (system && i == system_at) {
            add_content(p, system);
            add_format(p, "\n\n");
        }
        add_content(p, &messages[i]);
        add_format(p, close);
    }
}

static cl_status check_roles(const chat_message *messages, size_t n, bool in_turn, cl_error *error) {
    if (n == 0) return cl_fail(error, CL_ERR_ARG, "messages: at least one is needed");
    const bool system = is_role(&messages[0], "system");
    for (size_t i = 0; i < n; i++) {
        const chat_message *m = &messages[i];
        if (!is_role(m, "system") && !is_role(m, "user") && !is_role(m, "assistant"))
            return cl_fail(error, CL_ERR_ARG, "messages[%zu].role: '%.40s' is not known; use system, user or assistant", i,
                           m->role);
        if (!in_turn || (i == 0 && system)) continue;
        const char *turn = (i - system) % 2 == 0 ? "user" : "assistant";
        if (!is_role(m, turn))
            return cl_fail(error, CL_ERR_ARG,
                           "messages[%zu].role: '%s' is out of turn, '%s' is next; in this model's chat format user and "
                           "assistant alternate after at most one system message",
                           i, m->role, turn);
    }
    if (in_turn && !is_role(&messages[n - 1], "user"))
        return cl_fail(error, CL_ERR_ARG, "messages[%zu].role: in this model's chat format the last message is the user's",
                       n - 1);
    return CL_OK;
}

cl_status chat_render(chat_format format, const tokenizer *tok, const model_file *file, const chat_message *messages, size_t n,
                      token_list *out, cl_error *error) {
    const bool in_turn = format == CHAT_LLAMA2 || format == CHAT_MISTRAL;
    if (format == CHAT_NONE)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "the model file has no chat format; choose one with --chat-format: " NAMES);
    cl_status status = check_roles(messages, n, in_turn, error);
    if (status != CL_OK) return status;

    const chat_message *system = in_turn && is_role(&messages[0], "system") ? &messages[0] : NULL;
    if (system) messages++, n--;
    const str template = template_of(file);
    prompt p = {0};
    if (in_turn || format == CHAT_LLAMA3 || tokenizer_adds_bos(tok)) add_token(&p, tok, tokenizer_bos(tok));
    switch (format) {
    case CHAT_NONE: break;
    case CHAT_CHATML: render_chatml(&p, template, messages, n); break;
    case CHAT_LLAMA2: render_llama2(&p, tok, system, messages, n); break;
    case CHAT_LLAMA3: render_llama3(&p, messages, n); break;
    case CHAT_ZEPHYR: render_zephyr(&p, tok, messages, n); break;
    case CHAT_MISTRAL: render_mistral(&p, tok, template, system, messages, n); break;
    }
    if (p.no_memory)
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for a prompt of %zu messages", n);
    else
        status = tokenizer_encode_spans(tok, p.text, p.size, true, p.own, p.n_own, out, error);
    free(p.text);
    free(p.own);
    return status;
}

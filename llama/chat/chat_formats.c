/* The known chat formats, as the models' published templates write them. */
#define _GNU_SOURCE /* memmem */
#include "chat_formats.h"

static cl_str content_of(const cl_chat_message *m) { return (cl_str){m->content, m->content_size}; }

/* The bytes of the white space character that a text begins with, or 0. It is what Python's str.strip and Jinja's trim remove.
 */
static size_t space_size(const char *text, size_t size) {
    static const char *const spaces[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
                                         "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    const unsigned char *s = (const unsigned char *)text;
    if (size > 0 && ((s[0] >= '\t' && s[0] <= '\r') || (s[0] >= 0x1c && s[0] <= ' '))) return 1;
    if (size >= 3 && memcmp(s, "\xe2\x80", 2) == 0 && s[2] >= 0x80 && s[2] <= 0x8a) return 3; /* U+2000 to U+200A */
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        const size_t n = strlen(spaces[i]);
        if (size >= n && memcmp(s, spaces[i], n) == 0) return n;
    }
    return 0;
}

/* The same of the character that a text ends with. */
static size_t last_space_size(cl_str text) {
    for (size_t n = 1; n <= 3 && n <= text.size; n++)
        if (space_size(text.data + text.size - n, n) == n) return n;
    return 0;
}

static cl_str trimmed(cl_str text) {
    for (size_t n; (n = last_space_size(text)) > 0;) text.size -= n;
    for (size_t n; (n = space_size(text.data, text.size)) > 0; text.size -= n) text.data += n;
    return text;
}

/* Whether a literal of the template reaches its end mark, rather than being cut by an expression. *size: its bytes. */
static bool literal_size(cl_str rest, const char *end, size_t *size) {
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
static void add_literal(cl_prompt *p, cl_str literal) {
    for (size_t i = 0; i < literal.size; i++) {
        char c = literal.data[i];
        if (c == '\\' && i + 1 < literal.size) {
            c = literal.data[++i];
            if (c == 'n') c = '\n';
            if (c == 't') c = '\t';
        }
        cl_prompt_add(p, (cl_str){&c, 1});
    }
}

/* The system message that the file's template inserts before others: '<|im_start|>system\nTEXT<|im_end|>\n'. */
static void add_default_system(cl_prompt *p, cl_str text) {
    static const char begin[] = "<|im_start|>system";
    const char *at;
    while ((at = memmem(text.data, text.size, begin, sizeof begin - 1)) != NULL) {
        text.size -= (size_t)(at - text.data) + sizeof begin - 1;
        text.data = at + sizeof begin - 1;
        size_t size;
        if (!literal_size(text, "<|im_end|>", &size)) continue;
        cl_prompt_add_format(p, begin);
        add_literal(p, (cl_str){text.data, size});
        cl_prompt_add_format(p, "<|im_end|>\n");
        return;
    }
}

/* The part of an answer after its thoughts. */
static cl_str without_thought(cl_str text) {
    static const char end[] = "</think>";
    const char *at;
    while ((at = memmem(text.data, text.size, end, sizeof end - 1)) != NULL) {
        text.size -= (size_t)(at - text.data) + sizeof end - 1;
        text.data = at + sizeof end - 1;
        while (text.size > 0 && *text.data == '\n') text.data++, text.size--;
    }
    return text;
}

void cl_chat_write_chatml(cl_prompt *p, const cl_chat_input *in) {
    const bool drops_thoughts = cl_str_contains(in->template, "split('</think>')"); /* Qwen 3 */
    if (!cl_chat_is_role(&in->messages[0], "system")) add_default_system(p, in->template);
    for (size_t i = 0; i < in->n; i++) {
        cl_prompt_add_format(p, "<|im_start|>");
        cl_prompt_add_format(p, in->messages[i].role);
        cl_prompt_add_format(p, "\n");
        const cl_str content = content_of(&in->messages[i]);
        const bool dropped = drops_thoughts && cl_chat_is_role(&in->messages[i], "assistant");
        cl_prompt_add(p, dropped ? without_thought(content) : content);
        cl_prompt_add_format(p, "<|im_end|>\n");
    }
    cl_prompt_add_format(p, "<|im_start|>assistant\n");
    /* Models that always think; in the template of models that can do without, the literal continues. */
    if (cl_str_contains(in->template, "<|im_start|>assistant\\n<think>\\n'") ||
        cl_str_contains(in->template, "<|im_start|>assistant\\n<think>\\n\""))
        cl_prompt_add_format(p, "<think>\n");
}

/*
 * From Llama 3.1 on, a prompt always begins with a system message, which has two dates. The second is the one that the template
 * uses if there is no clock; with the current date, the same prompt would have other tokens on the next day.
 */
static size_t add_dates(cl_prompt *p, const cl_chat_input *in) {
    if (!cl_str_contains(in->template, "Cutting Knowledge Date: December 2023")) return 0;
    const bool has_system = cl_chat_is_role(&in->messages[0], "system");
    cl_prompt_add_format(p, "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                            "Today Date: 26 Jul 2024\n\n");
    if (has_system) cl_prompt_add(p, trimmed(content_of(&in->messages[0])));
    cl_prompt_add_format(p, "<|eot_id|>");
    return has_system;
}

void cl_chat_write_llama3(cl_prompt *p, const cl_chat_input *in) {
    for (size_t i = add_dates(p, in); i < in->n; i++) {
        cl_prompt_add_format(p, "<|start_header_id|>");
        cl_prompt_add_format(p, in->messages[i].role);
        cl_prompt_add_format(p, "<|end_header_id|>\n\n");
        cl_prompt_add(p, trimmed(content_of(&in->messages[i])));
        cl_prompt_add_format(p, "<|eot_id|>");
    }
    cl_prompt_add_format(p, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

void cl_chat_write_zephyr(cl_prompt *p, const cl_chat_input *in) {
    for (size_t i = 0; i < in->n; i++) {
        cl_prompt_add_format(p, "<|");
        cl_prompt_add_format(p, in->messages[i].role);
        cl_prompt_add_format(p, "|>\n");
        cl_prompt_add(p, content_of(&in->messages[i]));
        cl_prompt_add_token(p, in->tok, cl_tokenizer_eos(in->tok));
        cl_prompt_add_format(p, "\n");
    }
    cl_prompt_add_format(p, "<|assistant|>\n");
}

void cl_chat_write_llama2(cl_prompt *p, const cl_chat_input *in) {
    for (size_t i = 0; i < in->n; i++) {
        cl_str content = trimmed(content_of(&in->messages[i]));
        if (i % 2 == 1) {
            cl_prompt_add_format(p, " ");
            cl_prompt_add(p, content);
            cl_prompt_add_format(p, " ");
            cl_prompt_add_token(p, in->tok, cl_tokenizer_eos(in->tok));
            continue;
        }
        if (i > 0) cl_prompt_add_token(p, in->tok, cl_tokenizer_bos(in->tok));
        cl_prompt_add_format(p, "[INST] ");
        if (i == 0 && in->system) {
            cl_prompt_add_format(p, "<<SYS>>\n");
            cl_prompt_add(p, content_of(in->system));
            cl_prompt_add_format(p, "\n<</SYS>>\n\n");
            /* The template trims both as one text: white space at the start of the message is inside it and stays. */
            content.size += (size_t)(content.data - in->messages[i].content);
            content.data = in->messages[i].content;
        }
        cl_prompt_add(p, content);
        cl_prompt_add_format(p, " [/INST]");
    }
}

/* Versions differ in their spaces and in the place of the system message. Without a template this is version 0.2. */
void cl_chat_write_mistral(cl_prompt *p, const cl_chat_input *in) {
    const cl_str template = in->template;
    const bool any = template.size > 0;
    const char *open = !any || cl_str_contains(template, "[INST] ") ? "[INST] " : "[INST]";
    const char *close = !any || cl_str_contains(template, " [/INST]") ? " [/INST]" : "[/INST]";
    const bool spaced = cl_str_contains(template, "' ' + message") || cl_str_contains(template, "\" \" + message");
    const bool trims =
        cl_str_contains(template, "message['content']|trim") || cl_str_contains(template, "message[\"content\"]|trim");
    const size_t system_at = cl_str_contains(template, "loop.last") ? in->n - 1 : 0;
    for (size_t i = 0; i < in->n; i++) {
        if (i % 2 == 1) {
            if (spaced) cl_prompt_add_format(p, " ");
            const cl_str content = content_of(&in->messages[i]);
            cl_prompt_add(p, trims ? trimmed(content) : content);
            cl_prompt_add_token(p, in->tok, cl_tokenizer_eos(in->tok));
            continue;
        }
        cl_prompt_add_format(p, open);
        if (in->system && i == system_at) {
            cl_prompt_add(p, content_of(in->system));
            cl_prompt_add_format(p, "\n\n");
        }
        cl_prompt_add(p, content_of(&in->messages[i]));
        cl_prompt_add_format(p, close);
    }
}

/* The system message comes before the first user message; the assistant is called model. */
void cl_chat_write_gemma(cl_prompt *p, const cl_chat_input *in) {
    for (size_t i = 0; i < in->n; i++) {
        cl_prompt_add_format(p, i % 2 ? "<start_of_turn>model\n" : "<start_of_turn>user\n");
        if (i == 0 && in->system) {
            cl_prompt_add(p, content_of(in->system));
            cl_prompt_add_format(p, "\n\n");
        }
        cl_prompt_add(p, trimmed(content_of(&in->messages[i])));
        cl_prompt_add_format(p, "<end_of_turn>\n");
    }
    cl_prompt_add_format(p, "<start_of_turn>model\n");
}

/* Which chat format a file has, and the way from messages through a prompt's text to tokens. */
#include "chat.h"

#include "chat_prompt.h"

static const char TEMPLATE[] = "tokenizer.chat_template";

typedef struct chat_kind {
    const char *name;
    void (*write)(prompt *p, const chat_input *in);
    bool in_turn; /* one system message at most, then user and assistant in turn */
    bool bos;     /* whatever the file says */
} chat_kind;

static const chat_kind kinds[] = {
    [CHAT_NONE] = {"none", NULL, false, false},
    [CHAT_CHATML] = {"chatml", chat_write_chatml, false, false},
    [CHAT_LLAMA2] = {"llama2", chat_write_llama2, true, true},
    [CHAT_LLAMA3] = {"llama3", chat_write_llama3, false, true},
    [CHAT_ZEPHYR] = {"zephyr", chat_write_zephyr, false, false},
    [CHAT_MISTRAL] = {"mistral", chat_write_mistral, true, true},
    [CHAT_GEMMA] = {"gemma", chat_write_gemma, true, true},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
#define NAMES "chatml, llama2, llama3, zephyr, mistral or gemma"

const char *chat_name(chat_format format) { return kinds[format].name; }

cl_status chat_by_name(const char *name, chat_format *format, cl_error *error) {
    for (int i = CHAT_NONE + 1; i < N_KINDS; i++)
        if (strcmp(name, kinds[i].name) == 0) {
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

cl_status chat_detect(const model_file *file, chat_format *format, cl_error *error) {
    const str text = template_of(file);
    *format = CHAT_NONE;
    if (text.size == 0) return CL_OK;
    if (str_contains(text, "<|im_start|>") && str_contains(text, "<|im_end|>"))
        *format = CHAT_CHATML;
    else if (str_contains(text, "<|start_header_id|>") && str_contains(text, "<|eot_id|>"))
        *format = CHAT_LLAMA3;
    else if (str_contains(text, "<start_of_turn>") && str_contains(text, "<end_of_turn>"))
        *format = CHAT_GEMMA;
    else if (str_contains(text, "[INST]") && str_contains(text, "<<SYS>>"))
        *format = CHAT_LLAMA2;
    else if (str_contains(text, "[INST]") && !str_contains(text, "[SYSTEM_PROMPT]"))
        *format = CHAT_MISTRAL;
    else if (str_contains(text, "<|user|>") && str_contains(text, "<|assistant|>") && str_contains(text, "eos_token"))
        *format = CHAT_ZEPHYR;
    if (*format != CHAT_NONE) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED,
                   "%s: the file's chat format is none of the known ones; choose one with --chat-format: " NAMES, TEMPLATE);
}

static cl_status check_roles(const chat_message *messages, size_t n, bool in_turn, cl_error *error) {
    if (n == 0) return cl_fail(error, CL_ERR_ARG, "messages: at least one is needed");
    const bool system = chat_is_role(&messages[0], "system");
    for (size_t i = 0; i < n; i++) {
        const chat_message *m = &messages[i];
        if (!chat_is_role(m, "system") && !chat_is_role(m, "user") && !chat_is_role(m, "assistant"))
            return cl_fail(error, CL_ERR_ARG, "messages[%zu].role: '%.40s' is not known; use system, user or assistant", i,
                           m->role);
        if (!in_turn || (i == 0 && system)) continue;
        const char *turn = (i - system) % 2 == 0 ? "user" : "assistant";
        if (!chat_is_role(m, turn))
            return cl_fail(error, CL_ERR_ARG,
                           "messages[%zu].role: '%s' is out of turn, '%s' is next; in this model's chat format user and "
                           "assistant alternate after at most one system message",
                           i, m->role, turn);
    }
    if (in_turn && !chat_is_role(&messages[n - 1], "user"))
        return cl_fail(error, CL_ERR_ARG, "messages[%zu].role: in this model's chat format the last message is the user's",
                       n - 1);
    return CL_OK;
}

cl_status chat_render(chat_format format, const tokenizer *tok, const model_file *file, const chat_message *messages, size_t n,
                      token_list *out, cl_error *error) {
    if (format == CHAT_NONE)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "the model file has no chat format; choose one with --chat-format: " NAMES);
    const chat_kind *kind = &kinds[format];
    cl_status status = check_roles(messages, n, kind->in_turn, error);
    if (status != CL_OK) return status;

    const bool apart = kind->in_turn && chat_is_role(&messages[0], "system");
    const chat_input in = {tok, template_of(file), apart ? messages : NULL, messages + apart, n - apart};
    prompt p = {0};
    if (kind->bos || tokenizer_adds_bos(tok)) prompt_add_token(&p, tok, tokenizer_bos(tok));
    kind->write(&p, &in);
    if (p.no_memory)
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for a prompt of %zu messages", n);
    else
        status = tokenizer_encode_spans(tok, p.text, p.size, true, p.own, p.n_own, out, error);
    prompt_free(&p);
    return status;
}

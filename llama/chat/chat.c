/* Recognises a file's chat format, checks messages, and turns them into the tokens of a prompt. */
#include "chat.h"

#include "chat_formats.h"

/* ---- Formats ---- */

static const char TEMPLATE[] = "tokenizer.chat_template";

typedef struct chat_kind {
    const char *name;
    void (*write)(cl_prompt *p, const cl_chat_input *in);
    bool in_turn; /* at most one system message, then user and assistant alternately */
    bool bos;     /* BOS comes first, whatever the file says */
} chat_kind;

static const chat_kind kinds[] = {
    [CL_CHAT_NONE] = {"none", NULL, false, false},
    [CL_CHAT_CHATML] = {"chatml", cl_chat_write_chatml, false, false},
    [CL_CHAT_LLAMA2] = {"llama2", cl_chat_write_llama2, true, true},
    [CL_CHAT_LLAMA3] = {"llama3", cl_chat_write_llama3, false, true},
    [CL_CHAT_ZEPHYR] = {"zephyr", cl_chat_write_zephyr, false, false},
    [CL_CHAT_MISTRAL] = {"mistral", cl_chat_write_mistral, true, true},
    [CL_CHAT_GEMMA] = {"gemma", cl_chat_write_gemma, true, true},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
#define NAMES "chatml, llama2, llama3, zephyr, mistral or gemma"

const char *cl_chat_name(cl_chat_format format) { return kinds[format].name; }

cl_status cl_chat_by_name(const char *name, cl_chat_format *format, cl_error *error) {
    for (int i = CL_CHAT_NONE + 1; i < N_KINDS; i++)
        if (strcmp(name, kinds[i].name) == 0) {
            *format = (cl_chat_format)i;
            return CL_OK;
        }
    return cl_fail(error, CL_ERR_ARG, "chat format '%.40s' is not known; use " NAMES, name);
}

/* The file's template; empty if it has none. */
static cl_str template_of(const cl_model_file *file) {
    cl_str text = {"", 0};
    cl_model_file_get_string(file, TEMPLATE, &text);
    return text;
}

cl_status cl_chat_detect(const cl_model_file *file, cl_chat_format *format, cl_error *error) {
    const cl_str text = template_of(file);
    *format = CL_CHAT_NONE;
    if (text.size == 0) return CL_OK;
    if (cl_str_contains(text, "<|im_start|>") && cl_str_contains(text, "<|im_end|>"))
        *format = CL_CHAT_CHATML;
    else if (cl_str_contains(text, "<|start_header_id|>") && cl_str_contains(text, "<|eot_id|>"))
        *format = CL_CHAT_LLAMA3;
    else if (cl_str_contains(text, "<start_of_turn>") && cl_str_contains(text, "<end_of_turn>"))
        *format = CL_CHAT_GEMMA;
    else if (cl_str_contains(text, "[INST]") && cl_str_contains(text, "<<SYS>>"))
        *format = CL_CHAT_LLAMA2;
    else if (cl_str_contains(text, "[INST]") && !cl_str_contains(text, "[SYSTEM_PROMPT]"))
        *format = CL_CHAT_MISTRAL;
    else if (cl_str_contains(text, "<|user|>") && cl_str_contains(text, "<|assistant|>") && cl_str_contains(text, "eos_token"))
        *format = CL_CHAT_ZEPHYR;
    if (*format != CL_CHAT_NONE) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED,
                   "%s: the file's chat format is none of the known ones; name one (option --chat-format): " NAMES, TEMPLATE);
}

static cl_status check_roles(const cl_chat_message *messages, size_t n, bool in_turn, cl_error *error) {
    if (n == 0) return cl_fail(error, CL_ERR_ARG, "messages: at least one is needed");
    const bool system = cl_chat_is_role(&messages[0], "system");
    for (size_t i = 0; i < n; i++) {
        const cl_chat_message *m = &messages[i];
        if (!cl_chat_is_role(m, "system") && !cl_chat_is_role(m, "user") && !cl_chat_is_role(m, "assistant"))
            return cl_fail(error, CL_ERR_ARG, "messages[%zu].role: '%.40s' is not known; use system, user or assistant", i,
                           m->role);
        if (!in_turn || (i == 0 && system)) continue;
        const char *turn = (i - system) % 2 == 0 ? "user" : "assistant";
        if (!cl_chat_is_role(m, turn))
            return cl_fail(error, CL_ERR_ARG,
                           "messages[%zu].role: '%s' is out of turn, '%s' is next; in this model's chat format user and "
                           "assistant alternate after at most one system message",
                           i, m->role, turn);
    }
    if (in_turn && !cl_chat_is_role(&messages[n - 1], "user"))
        return cl_fail(error, CL_ERR_ARG, "messages[%zu].role: in this model's chat format the last message is the user's",
                       n - 1);
    return CL_OK;
}

cl_status cl_chat_render(cl_chat_format format, const cl_tokenizer *tok, const cl_model_file *file,
                         const cl_chat_message *messages, size_t n, cl_token_list *out, cl_error *error) {
    if (format == CL_CHAT_NONE)
        return cl_fail(error, CL_ERR_UNSUPPORTED, "the model file has no chat format; name one (option --chat-format): " NAMES);
    const chat_kind *kind = &kinds[format];
    cl_status status = check_roles(messages, n, kind->in_turn, error);
    if (status != CL_OK) return status;

    const bool apart = kind->in_turn && cl_chat_is_role(&messages[0], "system");
    const cl_chat_input in = {tok, template_of(file), apart ? messages : NULL, messages + apart, n - apart};
    cl_prompt p = {0};
    if (kind->bos || cl_tokenizer_adds_bos(tok)) cl_prompt_add_token(&p, tok, cl_tokenizer_bos(tok));
    kind->write(&p, &in);
    if (p.no_memory)
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for a prompt of %zu messages", n);
    else
        status = cl_tokenizer_encode_spans(tok, p.text, p.size, true, p.own, p.n_own, out, error);
    cl_prompt_free(&p);
    return status;
}

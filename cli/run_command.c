/* `run`: answers one prompt on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "stream.h"
#include "text_buffer.h"

/* The prompt: the argument, --prompt, --file or standard input. */
static cl_status read_prompt(const cli_options *opt, cli_text *prompt, cl_error *error) {
    const char *given = opt->n_args ? opt->args[0] : opt->prompt;
    if (given) return text_buffer_append(prompt, given, strlen(given), error);
    const cl_status status = text_buffer_read(prompt, opt->file ? opt->file : "-", error);
    while (status == CL_OK && !opt->raw && prompt->size && prompt->data[prompt->size - 1] == '\n')
        prompt->data[--prompt->size] = 0; /* the last line's end is no part of a chat message */
    return status;
}

/* The prompt's tokens, as a chat unless --raw is set. */
static cl_status tokenize_prompt(const cli_session *s, const cli_options *opt, const cli_text *prompt, cl_token_list *tokens,
                                 cl_error *error) {
    const cl_tokenizer *tok = s->model->tok;
    if (opt->raw) {
        const cl_status status = cl_tokenizer_add_leading(tok, tokens, error);
        return status == CL_OK ? cl_tokenizer_encode(tok, prompt->data, prompt->size, true, tokens, error) : status;
    }
    const cl_chat *chat;
    const cl_status status = session_require_chat(s, &chat, error);
    if (status != CL_OK) return status;
    cl_chat_message messages[2];
    size_t n = 0;
    if (opt->system) messages[n++] = (cl_chat_message){"system", opt->system, strlen(opt->system)};
    messages[n++] = (cl_chat_message){"user", prompt->data, prompt->size};
    return cl_chat_tokenize_messages(chat, messages, n, s->chat_kwargs, tokens, error);
}

int cmd_run(const cli_options *opt) {
    cli_session s = {0};
    cli_text prompt = {0};
    cl_token_list tokens = {0};
    cli_answer a = {0};
    cl_error error;
    cl_status status = read_prompt(opt, &prompt, &error);
    if (status == CL_OK) status = session_load(&s, opt, &error);
    if (status == CL_OK) status = tokenize_prompt(&s, opt, &prompt, &tokens, &error);
    if (status == CL_OK) status = session_start(&s, opt, 1, &error);
    if (status == CL_OK) status = stream_answer(&s, opt, &tokens, NULL, stdout, &a, &error);
    if (status == CL_OK && (!a.text.size || a.text.data[a.text.size - 1] != '\n')) printf("\n");
    answer_free(&a);
    cl_token_list_free(&tokens);
    text_buffer_free(&prompt);
    session_close(&s);
    return status == CL_OK ? 0 : session_fail(CMD_RUN, &error);
}

/*
 * Chat messages to a prompt's tokens, in the format found from the model file's template: ChatML, Llama 2, Llama 3, Zephyr,
 * Mistral, Gemma. Special tokens come from the format only, never from the messages' text.
 */
#ifndef LLAMA_CHAT_CHAT_H
#define LLAMA_CHAT_CHAT_H

#include "llama/text/tokenizer.h"

typedef enum cl_chat_format {
    CL_CHAT_NONE,
    CL_CHAT_CHATML,
    CL_CHAT_LLAMA2,
    CL_CHAT_LLAMA3,
    CL_CHAT_ZEPHYR,
    CL_CHAT_MISTRAL,
    CL_CHAT_GEMMA
} cl_chat_format;

/* CL_ERR_UNSUPPORTED, saying what to do, where the file's template is none of the known ones; CL_CHAT_NONE where it has none.
 */
cl_status cl_chat_detect(const cl_model_file *file, cl_chat_format *format, cl_error *error);
/* By name, for `--chat-format`: "chatml", "llama2", "llama3", "zephyr", "mistral", "gemma". */
cl_status cl_chat_by_name(const char *name, cl_chat_format *format, cl_error *error);
const char *cl_chat_name(cl_chat_format format);

/*
 * Append the tokens of the whole prompt, up to where the assistant's answer begins, with one BOS in front where the format or
 * the file asks for it. Whether the file's own template starts with a default system message when none is given, and its text,
 * is part of the format, and so is the spacing of Mistral's versions, and whether what an assistant thought stays (Qwen 3).
 *
 * CL_ERR_ARG names the message whose role is unknown or out of turn: Llama 2, Mistral and Gemma take one system message, at the
 * start, and then user and assistant in turn; the others take any order.
 */
cl_status cl_chat_render(cl_chat_format format, const cl_tokenizer *tok, const cl_model_file *file,
                         const cl_chat_message *messages, size_t n, cl_token_list *out, cl_error *error);

#endif

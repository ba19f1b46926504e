/*
 * Turns chat messages into the tokens of a prompt, in the format that the template of the model's file is recognised as:
 * ChatML, Llama 2, Llama 3, Zephyr, Mistral, Gemma. Special tokens come from the format only, never from the text of a message.
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

/* The format of a file's template; CL_CHAT_NONE if it has none. CL_ERR_UNSUPPORTED: the template is none of the known ones. */
cl_status cl_chat_detect(const cl_model_file *file, cl_chat_format *format, cl_error *error);

/* The format called "chatml", "llama2", "llama3", "zephyr", "mistral" or "gemma". CL_ERR_ARG: the name is unknown. */
cl_status cl_chat_by_name(const char *name, cl_chat_format *format, cl_error *error);

/* The name of a format, static; "none" for CL_CHAT_NONE. */
const char *cl_chat_name(cl_chat_format format);

/*
 * Append the tokens of the whole prompt, up to where the assistant's answer begins, to *out, with one BOS first if the format
 * or the file requires it. These details follow the template in the file: the default system message, the spaces of Mistral's
 * versions, and whether the thoughts in earlier answers stay (Qwen 3). messages: [n]. After an error *out may hold some tokens.
 *
 * CL_ERR_ARG names the message whose role is unknown or out of turn: Llama 2, Mistral and Gemma accept at most one system
 * message, first, and then user and assistant alternately; the others accept any order. CL_ERR_UNSUPPORTED: format is
 * CL_CHAT_NONE.
 */
cl_status cl_chat_render(cl_chat_format format, const cl_tokenizer *tok, const cl_model_file *file,
                         const cl_chat_message *messages, size_t n, cl_token_list *out, cl_error *error);

#endif

/* Finds the abilities of a template, by rendering sample chats and looking for their texts. */
#ifndef CHUNKLLAMA_CHAT_CHAT_PROBE_H
#define CHUNKLLAMA_CHAT_CHAT_PROBE_H

#include "chat_messages.h"
#include "chunkllama/common/str.h"
#include "chunkllama/jinja/jinja.h"

/*
 * The abilities of the template with this text. own: as in cl_jinja_render. A template that does not even write a user's
 * message counts as one that writes everything, so its messages stay as they are.
 *
 * CL_ERR_NOMEM; *can is undefined then.
 */
cl_status cl_chat_probe(const cl_jinja *template, cl_str text, const json_t *own, cl_chat_abilities *can, cl_error *error);

/*
 * The text that the template writes before the first message of a chat that has no system message, if `plain`, which writes
 * nothing there, writes the rest of the chat alike. Appended to *out, which stays empty if there is nothing or they differ.
 */
cl_status cl_chat_probe_start(const cl_jinja *template, const cl_jinja *plain, const json_t *own, cl_prompt *out,
                              cl_error *error);

#endif

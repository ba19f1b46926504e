/* The messages of a conversation, and their file. */
#ifndef CLI_CHAT_CONVERSATION_H
#define CLI_CHAT_CONVERSATION_H

#include <stdbool.h>

#include "chunkllama/chat/chat.h"

/* Zero-initialise; free with conversation_free. */
typedef struct chat_conversation {
    cl_chat_message *messages; /* [n]; their contents are owned, and their roles are static strings */
    size_t n, capacity;
} chat_conversation;

void conversation_free(chat_conversation *c);

/* Append a message with a copy of its content [size]. `role` is a static string. CL_ERR_NOMEM: *c is unchanged. */
cl_status conversation_add(chat_conversation *c, const char *role, const char *content, size_t size, cl_error *error);

/* Drop all messages but the first n. */
void conversation_shorten(chat_conversation *c, size_t n);

/* Whether the first message is a system message; whether the last one has this role. */
bool conversation_has_system(const chat_conversation *c);
bool conversation_ends_with(const chat_conversation *c, const char *role);

/* Set the text of the system message, a string; "" removes it. CL_ERR_NOMEM: *c is unchanged. */
cl_status conversation_set_system(chat_conversation *c, const char *text, cl_error *error);

/*
 * Write the messages to a file, as a JSON array of objects with role and content, whose bytes that are not UTF-8 are replaced.
 * The file gets mode 0600 if it is new. Errors: CL_ERR_FILE, CL_ERR_NOMEM.
 */
cl_status conversation_save(const chat_conversation *c, const char *path, cl_error *error);

/*
 * Replace the messages by those of a file that conversation_save wrote, or of a request's field `messages`. Errors:
 * CL_ERR_FILE, CL_ERR_FORMAT, CL_ERR_NOMEM; *c is then unchanged.
 */
cl_status conversation_load(chat_conversation *c, const char *path, cl_error *error);

#endif

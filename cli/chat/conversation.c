/* Keeps the messages of a conversation, and writes and reads them as JSON. */
#include "conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkllama/common/str.h"

static const char *const roles[] = {"system", "user", "assistant"};
enum { N_ROLES = sizeof roles / sizeof *roles };

void conversation_free(chat_conversation *c) {
    conversation_shorten(c, 0);
    free(c->messages);
    *c = (chat_conversation){0};
}

static cl_status no_memory(cl_error *error) { return cl_fail(error, CL_ERR_NOMEM, "no memory for the conversation"); }

cl_status conversation_add(chat_conversation *c, const char *role, const char *content, size_t size, cl_error *error) {
    if (c->n == c->capacity) {
        const size_t capacity = 2 * c->capacity + 8;
        cl_chat_message *grown = realloc(c->messages, capacity * sizeof *grown);
        if (!grown) return no_memory(error);
        c->messages = grown;
        c->capacity = capacity;
    }
    char *copy = malloc(size + 1);
    if (!copy) return no_memory(error);
    if (size) memcpy(copy, content, size);
    copy[size] = 0;
    c->messages[c->n++] = (cl_chat_message){role, copy, size};
    return CL_OK;
}

void conversation_shorten(chat_conversation *c, size_t n) {
    while (c->n > n) free((char *)c->messages[--c->n].content);
}

bool conversation_has_system(const chat_conversation *c) { return c->n && strcmp(c->messages[0].role, "system") == 0; }

bool conversation_ends_with(const chat_conversation *c, const char *role) {
    return c->n && strcmp(c->messages[c->n - 1].role, role) == 0;
}

cl_status conversation_set_system(chat_conversation *c, const char *text, cl_error *error) {
    const cl_status status = conversation_add(c, "system", text, strlen(text), error);
    if (status != CL_OK) return status;
    const cl_chat_message added = c->messages[--c->n];
    const size_t n_old = conversation_has_system(c) ? 1 : 0, n_new = *text ? 1 : 0;
    if (n_old) free((char *)c->messages[0].content);
    memmove(c->messages + n_new, c->messages + n_old, (c->n - n_old) * sizeof *c->messages);
    c->n = c->n - n_old + n_new;
    if (n_new)
        c->messages[0] = added;
    else
        free((char *)added.content);
    return CL_OK;
}

/* ---- The file ---- */

static json_t *message_json(const cl_chat_message *m) {
    size_t size;
    char *content = cl_utf8_mended(m->content, m->content_size, &size);
    json_t *o = content ? json_pack("{s:s, s:s%}", "role", m->role, "content", content, size) : NULL;
    free(content);
    return o;
}

cl_status conversation_save(const chat_conversation *c, const char *path, cl_error *error) {
    json_t *messages = json_array();
    bool ok = messages != NULL;
    for (size_t i = 0; ok && i < c->n; i++) ok = json_array_append_new(messages, message_json(&c->messages[i])) == 0;
    if (!ok) {
        json_decref(messages);
        return no_memory(error);
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ok = fd >= 0 && json_dumpfd(messages, fd, JSON_INDENT(2)) == 0 && write(fd, "\n", 1) == 1;
    int cause = errno;
    if (fd >= 0 && close(fd) && ok) {
        ok = false;
        cause = errno;
    }
    json_decref(messages);
    return ok ? CL_OK : cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", path, strerror(cause));
}

/* Append the message that a JSON value describes. */
static cl_status add_json(chat_conversation *c, const char *path, const json_t *value, cl_error *error) {
    const char *role = json_string_value(json_object_get(value, "role"));
    const json_t *content = json_object_get(value, "content");
    int k = 0;
    while (role && k < N_ROLES && strcmp(role, roles[k]) != 0) k++;
    if (!role || k == N_ROLES)
        return cl_fail(error, CL_ERR_FORMAT, "%s: message %zu has no role system, user or assistant", path, c->n);
    if (!json_is_string(content))
        return cl_fail(error, CL_ERR_FORMAT, "%s: the content of message %zu is not a string", path, c->n);
    return conversation_add(c, roles[k], json_string_value(content), json_string_length(content), error);
}

cl_status conversation_load(chat_conversation *c, const char *path, cl_error *error) {
    json_error_t problem;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    json_t *file = json_loadfd(fd, JSON_ALLOW_NUL, &problem);
    close(fd);
    if (!file) return cl_fail(error, CL_ERR_FORMAT, "%s: line %d: %s", path, problem.line, problem.text);
    const json_t *messages = json_is_object(file) ? json_object_get(file, "messages") : file;
    chat_conversation loaded = {0};
    cl_status status = json_is_array(messages)
                           ? CL_OK
                           : cl_fail(error, CL_ERR_FORMAT, "%s must hold a JSON array of messages with role and content", path);
    for (size_t i = 0; status == CL_OK && i < json_array_size(messages); i++)
        status = add_json(&loaded, path, json_array_get(messages, i), error);
    json_decref(file);
    if (status == CL_OK) {
        const chat_conversation old = *c;
        *c = loaded;
        loaded = old;
    }
    conversation_free(&loaded);
    return status;
}

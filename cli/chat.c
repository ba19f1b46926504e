/*
 * `chat`: a conversation on the terminal. Each turn submits the whole conversation, most of which is in the prefix tree
 * already.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"
#include "stream.h"
#include "text_buffer.h"

typedef struct conversation {
    cl_chat_message *messages; /* [n]; their contents are owned */
    size_t n, capacity;
} conversation;

/* Append a message with a copy of its content. `role` is borrowed. */
static cl_status add(conversation *c, const char *role, const char *content, size_t size, cl_error *error) {
    if (c->n == c->capacity) {
        const size_t capacity = 2 * c->capacity + 8;
        cl_chat_message *grown = realloc(c->messages, capacity * sizeof *grown);
        if (!grown) return cl_fail(error, CL_ERR_NOMEM, "no memory for the conversation");
        c->messages = grown;
        c->capacity = capacity;
    }
    char *copy = malloc(size + 1);
    if (!copy) return cl_fail(error, CL_ERR_NOMEM, "no memory for the conversation");
    memcpy(copy, content ? content : "", size);
    copy[size] = 0;
    c->messages[c->n++] = (cl_chat_message){role, copy, size};
    return CL_OK;
}

/* Drop all messages but the first n. */
static void shorten(conversation *c, size_t n) {
    while (c->n > n) free((char *)c->messages[--c->n].content);
}

static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

/*
 * Print the answer to the conversation and append it. After an error the user's last message is dropped, so that the user can
 * go on.
 */
static cl_status answer_turn(const session *s, const options *opt, const cl_chat *chat, conversation *c, cl_error *error) {
    cl_token_list tokens = {0};
    answer a = {0};
    cl_status status = cl_chat_tokenize_messages(chat, c->messages, c->n, s->chat_kwargs, &tokens, error);
    if (status == CL_OK) {
        /* During an answer an interrupt cancels the answer; at other times it ends the program. SA_RESTART: writes go on. */
        struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
        interrupted = 0;
        sigaction(SIGINT, &action, &before);
        status = stream_answer(s->engine, opt, &tokens, &interrupted, stdout, &a, error);
        sigaction(SIGINT, &before, NULL);
    }
    printf("\n");
    if (status == CL_OK) status = add(c, "assistant", a.text.data, a.text.size, error);
    if (status == CL_OK && isatty(STDERR_FILENO))
        fprintf(stderr, "[%lld prompt tokens, %lld of them cached; first token after %.2f s; %.1f tokens/s]\n",
                (long long)a.n_prompt, (long long)a.n_cached, a.first_s,
                a.n_completion > 1 ? (double)(a.n_completion - 1) / (a.total_s - a.first_s) : 0.0);
    if (status != CL_OK) shorten(c, c->n - 1);
    answer_free(&a);
    cl_token_list_free(&tokens);
    return status;
}

/* Answer the user's lines until the input ends. */
static cl_status converse(const session *s, const options *opt, const cl_chat *chat, cl_error *error) {
    const bool terminal = isatty(STDIN_FILENO);
    conversation c = {0};
    char *line = NULL;
    size_t capacity = 0;
    cl_status status = opt->system ? add(&c, "system", opt->system, strlen(opt->system), error) : CL_OK;
    const size_t n_head = c.n;
    while (status == CL_OK) {
        if (terminal) printf("> ");
        fflush(stdout);
        ssize_t size = getline(&line, &capacity, stdin);
        if (size < 0) {
            if (terminal) printf("\n"); /* so that the shell's prompt begins a line */
            break;
        }
        while (size && (line[size - 1] == '\n' || line[size - 1] == '\r')) line[--size] = 0;
        if (strcmp(line, "/quit") == 0) break;
        if (strcmp(line, "/clear") == 0) shorten(&c, n_head);
        if (!size || strcmp(line, "/clear") == 0) continue;
        status = add(&c, "user", line, (size_t)size, error);
        if (status != CL_OK) break;
        const cl_status answered = answer_turn(s, opt, chat, &c, error);
        if (answered == CL_ERR_LIMIT)
            fprintf(stderr, "chunkllama chat: %s; /clear begins a new conversation\n", error->message);
        else
            status = answered;
    }
    shorten(&c, 0);
    free(c.messages);
    free(line);
    return status;
}

int cmd_chat(const options *opt) {
    session s = {0};
    const cl_chat *chat;
    cl_error error;
    cl_status status = session_load(&s, opt, &error);
    if (status == CL_OK) status = session_require_chat(&s, &chat, &error);
    if (status == CL_OK) status = session_start(&s, opt, 1, &error);
    if (status == CL_OK) status = converse(&s, opt, chat, &error);
    session_close(&s);
    return status == CL_OK ? 0 : session_fail(CMD_CHAT, &error);
}

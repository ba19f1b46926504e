/*
 * `chat`: a conversation on the terminal, or over lines of standard input. Each turn submits the whole conversation, most of
 * which is in the prefix tree already.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkllama/file/model_file.h"
#include "cli/session.h"
#include "cli/visible.h"
#include "commands.h"
#include "line_editor.h"
#include "terminal.h"

/* A conversation with the user. */
typedef struct talk {
    const cli_session *s;
    const cl_chat *format;
    chat_state state;
    line_editor *editor; /* owned; NULL: messages are lines of standard input */
    bool shows_prompt;   /* standard input is a terminal without an editor */
} talk;

/* ---- Answers ---- */

static void count(chat_stats *s, const cli_answer *a) {
    s->n_answers++;
    s->n_prompt += a->n_prompt;
    s->n_cached += a->n_cached;
    s->n_completion += a->n_completion;
    s->first_s += a->first_s;
    s->total_s += a->total_s;
    s->last = *a;
    s->last.text = (cli_text){0};
}

/* Without an editor an interrupt cancels an answer, too; at other times it ends the program. SA_RESTART: writes go on. */
static void on_interrupt(int signal) {
    (void)signal;
    terminal_interrupted = 1;
}

static cl_status stream_turn(const talk *t, const cl_token_list *tokens, cli_answer *a, cl_error *error) {
    cli_options opt = *t->state.opt;
    if (opt.seed >= 0) opt.seed += t->state.n_again; /* another answer than the one that /regen replaces */
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    if (!t->editor) sigaction(SIGINT, &action, &before);
    const cl_status status = stream_answer(t->s, &opt, tokens, &terminal_interrupted, stdout, a, error);
    terminal_interrupted = 0;
    if (!t->editor) sigaction(SIGINT, &before, NULL);
    return status;
}

/*
 * Print the answer to the conversation and append it. After an error the user's last message is dropped, so that the user can
 * go on.
 */
static cl_status answer_turn(talk *t, cl_error *error) {
    chat_conversation *m = &t->state.messages;
    cl_token_list tokens = {0};
    cli_answer a = {0};
    cl_status status = cl_chat_tokenize_messages(t->format, m->messages, m->n, t->s->chat_kwargs, &tokens, error);
    if (status == CL_OK) status = stream_turn(t, &tokens, &a, error);
    printf("\n");
    fflush(stdout);
    if (status == CL_OK) status = conversation_add(m, "assistant", a.text.data, a.text.size, error);
    if (status == CL_OK) count(&t->state.stats, &a);
    if (status == CL_OK && isatty(STDERR_FILENO)) {
        fprintf(stderr, "[%s", a.finish == CL_ENGINE_CANCELLED ? "stopped; " : "");
        print_answer_stats(&a);
        fprintf(stderr, "]\n");
    }
    if (status != CL_OK) conversation_shorten(m, m->n - 1);
    answer_free(&a);
    cl_token_list_free(&tokens);
    return status;
}

/* ---- Messages ---- */

/* Read a line of standard input, without its end. */
static line_result read_plain_line(const talk *t, cli_text *message) {
    char *line = NULL;
    size_t capacity = 0;
    cl_error error;
    if (t->shows_prompt) printf("> ");
    fflush(stdout);
    ssize_t size = getline(&line, &capacity, stdin);
    const bool ended = size < 0;
    while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r')) size--;
    const cl_status status = ended ? CL_OK : text_buffer_append(message, line, (size_t)size, &error);
    free(line);
    return ended || status != CL_OK ? LINE_END : LINE_MESSAGE;
}

/* Read the next message that is not empty. False: there is none. */
static bool read_message(talk *t, cli_text *message) {
    cl_error error;
    for (;;) {
        message->size = 0;
        if (text_buffer_append(message, "", 0, &error) != CL_OK) return false;
        switch (t->editor ? line_editor_read(t->editor, message) : read_plain_line(t, message)) {
        case LINE_MESSAGE:
            if (message->size) return true;
            break;
        case LINE_INTERRUPTED: fprintf(stderr, "(Ctrl-D or /exit ends the program)\n"); break;
        case LINE_END:
            if (t->editor || t->shows_prompt) printf("\n"); /* so that the shell's prompt begins a line */
            return false;
        }
    }
}

/* Answer the user's messages until the input ends. */
static cl_status converse(talk *t, cl_error *error) {
    cli_text message = {0};
    cl_status status = CL_OK;
    while (status == CL_OK && read_message(t, &message)) {
        const char *text = message.data;
        const chat_effect effect = command_obey(&t->state, &text);
        if (effect == COMMAND_EXIT) break;
        if (effect == COMMAND_DONE) continue;
        if (effect == NO_COMMAND) {
            t->state.n_again = 0;
            status = conversation_add(&t->state.messages, "user", text, message.size - (size_t)(text - message.data), error);
        }
        if (status != CL_OK) break;
        const cl_status answered = answer_turn(t, error);
        if (answered == CL_ERR_LIMIT)
            fprintf(stderr, "chunkllama chat: %s; /clear begins a new conversation\n", error->message);
        else
            status = answered;
    }
    text_buffer_free(&message);
    return status;
}

/* ---- The command ---- */

/* Say who answers and how to leave. */
static void greet(const talk *t) {
    char *name = cl_model_file_name(t->state.opt->model);
    if (name) visible_write(name, strlen(name), true, stderr);
    fprintf(stderr, ", a context of %lld tokens. /help lists the commands; Ctrl-D or /exit ends the program.\n",
            (long long)cl_engine_n_ctx(t->s->engine));
    free(name);
}

/* Lines can be edited if input and output are a terminal that can move its cursor. */
static bool can_edit(void) {
    const char *kind = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

static cl_status talk_to_user(talk *t, cl_error *error) {
    const cli_options *opt = t->state.opt;
    chat_conversation *m = &t->state.messages;
    const bool taken = can_edit() && terminal_open();
    cl_status status = taken ? line_editor_open(&t->editor, !opt->no_history, error) : CL_OK;
    t->shows_prompt = isatty(STDIN_FILENO) && !t->editor;
    if (status == CL_OK && opt->system) status = conversation_add(m, "system", opt->system, strlen(opt->system), error);
    if (status == CL_OK && isatty(STDIN_FILENO)) greet(t);
    if (status == CL_OK) status = converse(t, error);
    line_editor_close(&t->editor);
    if (taken) terminal_close();
    conversation_free(m);
    return status;
}

int cmd_chat(const cli_options *opt) {
    cli_session s = {0};
    talk t = {.s = &s, .state.opt = opt};
    cl_error error;
    cl_status status = session_load(&s, opt, &error);
    if (status == CL_OK) status = session_require_chat(&s, &t.format, &error);
    if (status == CL_OK) status = session_start(&s, opt, 1, &error);
    if (status == CL_OK) status = talk_to_user(&t, &error);
    session_close(&s);
    return status == CL_OK ? 0 : session_fail(CMD_CHAT, &error);
}

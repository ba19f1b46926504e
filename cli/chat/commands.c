/* Finds and obeys the commands of a conversation. */
#include "commands.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/visible.h"

/* Print an error of a command, which may name what the user has typed, or what is in a file. */
static void print_error(const char *text) {
    fprintf(stderr, "chunkllama chat: ");
    visible_write(text, strlen(text), true, stderr);
    fprintf(stderr, "\n");
}

/* ---- /stats ---- */

static void print_times(double first_s, double total_s, int64_t n_answers, int64_t n_completion) {
    fprintf(stderr, "TTFT %.2f s", first_s);
    if (n_completion <= n_answers || total_s <= 0) return;
    const double per_token = total_s / (double)(n_completion - n_answers);
    fprintf(stderr, "; TPOT %.1f ms (%.1f tokens/s)", 1e3 * per_token, 1 / per_token);
}

void print_answer_stats(const cli_answer *a) {
    fprintf(stderr, "%lld prompt tokens, %lld of them cached; %lld generated; ", (long long)a->n_prompt, (long long)a->n_cached,
            (long long)a->n_completion);
    print_times(a->first_s, a->total_s - a->first_s, 1, a->n_completion);
}

static chat_effect print_stats(chat_state *c, const char *argument) {
    const chat_stats *s = &c->stats;
    (void)argument;
    fprintf(stderr, "messages     %zu\n", c->messages.n);
    if (!s->n_answers) return COMMAND_DONE;
    fprintf(stderr, "last answer  ");
    print_answer_stats(&s->last);
    fprintf(stderr, "\nall %-8lld %lld prompt tokens, %lld of them cached; %lld generated; mean ", (long long)s->n_answers,
            (long long)s->n_prompt, (long long)s->n_cached, (long long)s->n_completion);
    print_times(s->first_s / (double)s->n_answers, s->total_s - s->first_s, s->n_answers, s->n_completion);
    fprintf(stderr, "\n");
    return COMMAND_DONE;
}

/* ---- The other commands ---- */

static chat_effect leave(chat_state *c, const char *argument) {
    (void)c;
    (void)argument;
    return COMMAND_EXIT;
}

static chat_effect clear(chat_state *c, const char *argument) {
    (void)argument;
    conversation_shorten(&c->messages, conversation_has_system(&c->messages) ? 1 : 0);
    return COMMAND_DONE;
}

static chat_effect set_system(chat_state *c, const char *argument) {
    cl_error error;
    if (conversation_set_system(&c->messages, argument, &error) != CL_OK) print_error(error.message);
    return COMMAND_DONE;
}

static chat_effect regenerate(chat_state *c, const char *argument) {
    chat_conversation *m = &c->messages;
    (void)argument;
    if (conversation_ends_with(m, "assistant")) conversation_shorten(m, m->n - 1);
    if (conversation_ends_with(m, "user")) {
        c->n_again++;
        return COMMAND_ANSWER;
    }
    print_error("there is no message to answer yet");
    return COMMAND_DONE;
}

/* The path that an argument names, where ~/ is the home; to be freed. NULL: none is given, or memory is lacking. */
static char *path_of(const char *command, const char *argument) {
    const char *home = strncmp(argument, "~/", 2) == 0 ? getenv("HOME") : NULL;
    char *path = NULL;
    if (!*argument)
        fprintf(stderr, "chunkllama chat: %s needs the name of a file\n", command);
    else if (asprintf(&path, "%s%s", home ? home : "", argument + (home ? 1 : 0)) < 0)
        path = NULL;
    return path;
}

static chat_effect save(chat_state *c, const char *argument) {
    cl_error error;
    char *path = path_of("/save", argument);
    if (path && conversation_save(&c->messages, path, &error) != CL_OK)
        print_error(error.message);
    else if (path)
        fprintf(stderr, "%zu messages saved\n", c->messages.n);
    free(path);
    return COMMAND_DONE;
}

static chat_effect load(chat_state *c, const char *argument) {
    cl_error error;
    char *path = path_of("/load", argument);
    if (path && conversation_load(&c->messages, path, &error) != CL_OK) {
        print_error(error.message);
    } else if (path) {
        const bool open = conversation_ends_with(&c->messages, "user");
        fprintf(stderr, "%zu messages loaded%s\n", c->messages.n, open ? "; /regen answers the last one" : "");
    }
    free(path);
    return COMMAND_DONE;
}

/* ---- The table ---- */

static chat_effect help(chat_state *c, const char *argument);

static const struct {
    const char *name, *argument, *help;
    chat_effect (*run)(chat_state *c, const char *argument);
} commands_of_chat[] = {
    {"/help", "", "print this", help},
    {"/system", " TEXT", "set the system message, which stands before all others; without TEXT there is none", set_system},
    {"/save", " FILE", "write the messages to a file, as JSON", save},
    {"/load", " FILE", "continue with the messages of a file", load},
    {"/regen", "", "answer the last message again", regenerate},
    {"/stats", "", "print tokens, cached tokens, the time to the first token (TTFT) and per token after it (TPOT)",
     print_stats},
    {"/clear", "", "begin a new conversation, with the same system message", clear},
    {"/exit", "", "end the program, as /quit and Ctrl-D do", leave},
    {"/quit", "", NULL, leave},
};
enum { N_CHAT_COMMANDS = sizeof commands_of_chat / sizeof *commands_of_chat };

static chat_effect help(chat_state *c, const char *argument) {
    (void)c;
    (void)argument;
    for (int i = 0; i < N_CHAT_COMMANDS; i++) {
        char left[32];
        if (!commands_of_chat[i].help) continue;
        snprintf(left, sizeof left, "%s%s", commands_of_chat[i].name, commands_of_chat[i].argument);
        fprintf(stderr, "%-14s%s\n", left, commands_of_chat[i].help);
    }
    fprintf(stderr,
            "A line that ends with a backslash continues in the next one; Alt-Enter begins a line within the message, and a\n"
            "pasted text is one message. A message that begins with / is written with //. Ctrl-C stops an answer.\n");
    return COMMAND_DONE;
}

static void print_unknown(const char *name) {
    const char *names[N_CHAT_COMMANDS + 1] = {NULL};
    for (int i = 0; i < N_CHAT_COMMANDS; i++) names[i] = commands_of_chat[i].name;
    const char *close = closest_name(name, names);
    if (close)
        fprintf(stderr, "chunkllama chat: unknown command %s; did you mean %s? A message that begins with / is written //\n",
                name, close);
    else
        fprintf(stderr, "chunkllama chat: unknown command %s; /help lists all. A message that begins with / is written //\n",
                name);
}

chat_effect command_obey(chat_state *c, const char **text) {
    const char *t = *text;
    size_t n = 1;
    if (t[0] != '/') return NO_COMMAND;
    if (t[1] == '/') {
        ++*text;
        return NO_COMMAND;
    }
    while (isalpha((unsigned char)t[n])) n++;
    /* A path, a comment or a text of several lines is a message. */
    if (n == 1 || n > 31 || (t[n] && t[n] != ' ' && t[n] != '\t')) return NO_COMMAND;
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)n, t);
    const char *argument = t + n + strspn(t + n, " \t");
    for (int i = 0; i < N_CHAT_COMMANDS; i++)
        if (strcmp(name, commands_of_chat[i].name) == 0) return commands_of_chat[i].run(c, argument);
    print_unknown(name);
    return COMMAND_DONE;
}

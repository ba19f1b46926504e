/* The commands of a conversation, such as /help. */
#ifndef CLI_CHAT_COMMANDS_H
#define CLI_CHAT_COMMANDS_H

#include "cli/options.h"
#include "cli/stream.h"
#include "conversation.h"

/* What /stats reports: the last answer, and sums over all. */
typedef struct chat_stats {
    int64_t n_answers;
    int64_t n_prompt, n_cached, n_completion; /* tokens */
    double first_s, total_s;                  /* sums of the answers' */
    cli_answer last;                          /* without its text */
} chat_stats;

/* The conversation that commands act on. */
typedef struct chat_state {
    const cli_options *opt;
    chat_conversation messages;
    chat_stats stats;
    int64_t n_again; /* how often /regen has replaced the last answer */
} chat_state;

typedef enum chat_effect {
    NO_COMMAND,     /* the text is a message */
    COMMAND_DONE,   /* it was a command, or a mistyped one, and is done with */
    COMMAND_ANSWER, /* the conversation now ends with a message to answer */
    COMMAND_EXIT,   /* the conversation ends */
} chat_effect;

/*
 * Obey a text if it is a command: / and a word of letters, perhaps with an argument, in one line. What commands say goes to
 * stderr. *text is moved past the first / of a message that begins with two.
 */
chat_effect command_obey(chat_state *c, const char **text);

/* "12 prompt tokens, 3 of them cached; TTFT 0.10 s; TPOT 20.1 ms (49.8 tokens/s)", of one answer, on stderr. */
void print_answer_stats(const cli_answer *a);

#endif

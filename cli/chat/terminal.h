/* The terminal of a conversation, and the signals that come from it. Only one conversation runs in a process. */
#ifndef CLI_CHAT_TERMINAL_H
#define CLI_CHAT_TERMINAL_H

#include <signal.h>
#include <stdbool.h>

/* Set by Ctrl-C (SIGINT); whoever reacts to it clears it. */
extern volatile sig_atomic_t terminal_interrupted;

/*
 * Take over the terminal of standard input, whose modes are libedit's from now on (line_editor.c): signals become events, and
 * those that end or stop the program give the terminal back first. Pasted text comes between ESC [200~ and ESC [201~. False: it
 * is no terminal that can be taken over, and nothing was changed.
 */
bool terminal_open(void);

/* Give the terminal back as it was. */
void terminal_close(void);

/* What wakes terminal_wait. */
typedef enum terminal_event {
    TERMINAL_INPUT,       /* bytes, or the end, can be read from standard input */
    TERMINAL_INTERRUPTED, /* terminal_interrupted is set */
    TERMINAL_CHANGED,     /* the terminal has another size, or the program was stopped and continues */
} terminal_event;

/* Wait for the next event. A signal that comes just before the call counts, too. */
terminal_event terminal_wait(void);

#endif

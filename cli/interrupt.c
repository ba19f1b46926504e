/* Catches the first Ctrl-C. */
#include "interrupt.h"

#include <stdarg.h>
#include <stdio.h>

volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) { interrupted = signal; }

void interrupt_watch(void) {
    struct sigaction inherited, ours = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    if (sigaction(SIGINT, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN) sigaction(SIGINT, &ours, NULL);
}

int interrupt_report(command_id cmd, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "chunkllama %s: interrupted %s\n", commands[cmd].name, text);
    return EXIT_INTERRUPTED;
}

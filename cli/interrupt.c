/* Catches the first signal that ends a command. */
#include "interrupt.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

volatile sig_atomic_t interrupted;

static void on_signal(int signal) {
    if (interrupted) _exit(128 + signal);
    interrupted = signal;
}

void interrupt_watch(void) {
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction inherited, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&ours.sa_mask);
        if (sigaction(signals[i], NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN) sigaction(signals[i], &ours, NULL);
    }
}

int interrupt_report(cli_command_id cmd, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "chunkllama %s: interrupted %s\n", commands[cmd].name, text);
    return 128 + interrupted;
}

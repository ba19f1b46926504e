/* Notes signals, and prints the command that goes on. */
#include "stop.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t received; /* signals belong to the process */

static void on_signal(int signal) {
    if (received) _exit(128 + signal);
    received = signal;
}

void stop_watch(void) {
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&ours.sa_mask);
        /* A shell lets jobs in the background ignore SIGINT. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(signals[i], &ours, NULL);
    }
}

int stop_signal(void) { return received; }

/* Print an argument; one that the shell would change is put in quotes. */
static void print_argument(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*text && strspn(text, plain) == strlen(text)) {
        fputs(text, stderr);
        return;
    }
    fputc('\'', stderr);
    for (; *text; text++) *text == '\'' ? fputs("'\\''", stderr) : fputc(*text, stderr);
    fputc('\'', stderr);
}

void stop_print_command(void) {
    /* The arguments as they were given, each with a zero behind it; options_parse has reordered argv. */
    FILE *f = fopen("/proc/self/cmdline", "rb");
    char *text = NULL;
    size_t capacity = 0;
    bool resumes = false;
    fputs("  ", stderr);
    for (const char *gap = ""; f && getdelim(&text, &capacity, '\0', f) > 0; gap = " ") {
        resumes |= strcmp(text, "--resume") == 0;
        fputs(gap, stderr);
        print_argument(text);
    }
    fprintf(stderr, "%s%s\n", f ? "" : "chunkllama batch ...", resumes ? "" : " --resume");
    free(text);
    if (f) fclose(f);
}

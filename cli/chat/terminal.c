/* Turns the terminal's signals into events that can be waited for, and gives the terminal back before the program ends or
 * stops. */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

volatile sig_atomic_t terminal_interrupted;

/* The terminal as it was, and the pipe into which the handlers write, so that no signal is missed between a test and a wait. */
static struct termios before;
static int wake[2] = {-1, -1};
static volatile sig_atomic_t changed;

static const char brackets_on[] = "\033[?2004h", brackets_off[] = "\033[?2004l";

static void show(const char *text) {
    const ssize_t n = write(STDOUT_FILENO, text, strlen(text));
    (void)n; /* A terminal that is gone needs no modes. */
}

static void wake_up(void) {
    const ssize_t n = write(wake[1], "", 1);
    (void)n; /* A full pipe wakes as well. */
}

static void on_interrupt(int signal) {
    (void)signal;
    terminal_interrupted = 1;
    wake_up();
}

static void on_resize(int signal) {
    (void)signal;
    changed = 1;
    wake_up();
}

/*
 * Take the signal's default action; the signal's handler calls this. The kernel ignores the signal in an orphaned process
 * group, which nobody could continue.
 */
static void stop_by_default(int signal) {
    struct sigaction ours, standard = {.sa_handler = SIG_DFL};
    sigset_t just_this, masked;
    sigemptyset(&just_this);
    sigaddset(&just_this, signal);
    sigaction(signal, &standard, &ours);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &just_this, &masked); /* here it stops */
    pthread_sigmask(SIG_SETMASK, &masked, NULL);
    sigaction(signal, &ours, NULL);
}

/* Ctrl-Z: the shell gets the terminal as it was, and the conversation its modes when it continues. */
static void on_stop(int signal) {
    const int cause = errno;
    struct termios now;
    tcgetattr(STDIN_FILENO, &now);
    show(brackets_off);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    stop_by_default(signal);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
    show(brackets_on);
    on_resize(signal);
    errno = cause;
}

/* A signal that ends the program. The handler is reset, so the signal takes effect when it is raised again. */
static void on_end(int signal) {
    show(brackets_off);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    raise(signal);
}

/* The signals that are handled, and what happened to them before. */
static const struct {
    int signal;
    void (*handler)(int);
    int flags;
} handled[] = {
    {SIGINT, on_interrupt, 0},
    {SIGWINCH, on_resize, 0},
    {SIGTSTP, on_stop, 0},
    {SIGTERM, on_end, (int)SA_RESETHAND},
    {SIGHUP, on_end, (int)SA_RESETHAND},
    {SIGQUIT, on_end, (int)SA_RESETHAND},
};
enum { N_HANDLED = sizeof handled / sizeof *handled };
static struct sigaction inherited[N_HANDLED];

/* A signal that the caller of the program ignores stays ignored, as nohup ignores SIGHUP. */
static void handle_signals(void) {
    for (size_t i = 0; i < N_HANDLED; i++) {
        const struct sigaction ours = {.sa_handler = handled[i].handler, .sa_flags = SA_RESTART | handled[i].flags};
        sigaction(handled[i].signal, NULL, &inherited[i]);
        if (inherited[i].sa_handler != SIG_IGN) sigaction(handled[i].signal, &ours, NULL);
    }
}

bool terminal_open(void) {
    if (tcgetattr(STDIN_FILENO, &before) || pipe2(wake, O_CLOEXEC | O_NONBLOCK)) return false;
    handle_signals();
    show(brackets_on);
    return true;
}

void terminal_close(void) {
    show(brackets_off);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    for (size_t i = 0; i < N_HANDLED; i++) sigaction(handled[i].signal, &inherited[i], NULL);
    close(wake[0]);
    close(wake[1]);
}

terminal_event terminal_wait(void) {
    for (;;) {
        struct pollfd files[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
        char bytes[64];
        poll(files, 2, -1);
        if (files[1].revents)
            while (read(wake[0], bytes, sizeof bytes) > 0) {
            }
        if (terminal_interrupted) return TERMINAL_INTERRUPTED;
        if (changed) {
            changed = 0;
            return TERMINAL_CHANGED;
        }
        if (files[0].revents) return TERMINAL_INPUT;
    }
}

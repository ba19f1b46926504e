/* Turns the terminal's signals into events that can be waited for, and gives the terminal back before the program ends or
 * stops. */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

/* Ctrl-Z: the shell gets the terminal as it was, and the conversation its modes when it continues. */
static void on_stop(int signal) {
    const int cause = errno;
    struct termios now;
    tcgetattr(STDIN_FILENO, &now);
    show(brackets_off);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    kill(getpid(), SIGSTOP);
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

static void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | flags};
    sigaction(signal, &action, NULL);
}

/* Handle a signal, unless the caller of the program ignores it, as nohup ignores SIGHUP. */
static void handle_end(int signal) {
    struct sigaction inherited;
    if (sigaction(signal, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN) handle(signal, on_end, (int)SA_RESETHAND);
}

bool terminal_open(void) {
    if (tcgetattr(STDIN_FILENO, &before) || pipe2(wake, O_CLOEXEC | O_NONBLOCK)) return false;
    handle(SIGINT, on_interrupt, 0);
    handle(SIGWINCH, on_resize, 0);
    handle(SIGTSTP, on_stop, 0);
    handle_end(SIGTERM);
    handle_end(SIGHUP);
    handle_end(SIGQUIT);
    show(brackets_on);
    return true;
}

void terminal_close(void) {
    show(brackets_off);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    static const int handled[] = {SIGINT, SIGWINCH, SIGTSTP, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) signal(handled[i], SIG_DFL);
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

/* Ctrl-C or SIGTERM during a long command: it ends at the next step, reports what is done, and says how to go on. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>

#include "command.h"

/* The signal that has come since interrupt_watch, SIGINT or SIGTERM; 0: none. */
extern volatile sig_atomic_t interrupted;

/*
 * From now on SIGINT and SIGTERM set `interrupted`, and the next one ends the program at once. A signal that is ignored, as
 * SIGINT is by a shell's job in the background, stays so.
 */
void interrupt_watch(void);

/*
 * Print "chunkllama COMMAND: interrupted ..." with the rest of the sentence on stderr. Returns 128 and the signal's number, as
 * a shell reports a command that the signal has ended.
 */
__attribute__((format(printf, 2, 3))) int interrupt_report(cli_command_id cmd, const char *format, ...);

#endif

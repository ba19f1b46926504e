/* Ctrl-C during a long command: the command ends at the next step, reports what is done, and says how to go on. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>

#include "command.h"

enum { EXIT_INTERRUPTED = 130 }; /* as a shell reports a command that SIGINT has ended */

/* Not zero once Ctrl-C (SIGINT) has come after interrupt_watch. */
extern volatile sig_atomic_t interrupted;

/* From now on Ctrl-C sets `interrupted`, and a second one ends the program at once. A shell's job in the background ignores
 * both. */
void interrupt_watch(void);

/* Print "chunkllama COMMAND: interrupted ..." with the rest of the sentence on stderr, and return EXIT_INTERRUPTED. */
__attribute__((format(printf, 2, 3))) int interrupt_report(command_id cmd, const char *format, ...);

#endif

/* The signals that stop a job, and what is said then. */
#ifndef CLI_BATCH_STOP_H
#define CLI_BATCH_STOP_H

/* From now on the first SIGINT or SIGTERM is noted, and the next one ends the program at once. */
void stop_watch(void);

/* The signal that came; 0: none. */
int stop_signal(void);

/* Print the command of this process on stderr, as a shell reads it, with --resume. */
void stop_print_command(void);

#endif

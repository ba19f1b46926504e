/* The lines that can be recalled, kept in a file from one conversation to the next. */
#ifndef CLI_CHAT_LINE_HISTORY_H
#define CLI_CHAT_LINE_HISTORY_H

#include <histedit.h>
#include <stdbool.h>

#include "chunkllama/common/error.h"

/* Zero-initialise; free with line_history_close. */
typedef struct line_history {
    History *lines; /* of libedit, owned */
    char *path;     /* owned; NULL: the lines are not kept */
} line_history;

/*
 * Begin with the lines of chunkllama/chat_history in $XDG_STATE_HOME, or in ~/.local/state, if keep is set; otherwise with
 * none. A file that cannot be read counts as empty. Errors: CL_ERR_NOMEM.
 */
cl_status line_history_open(line_history *h, bool keep, cl_error *error);

/*
 * Add a line, a string, unless it equals the last one. It is appended to the file at once, which is created with mode 0600, in
 * folders of mode 0700. A file that cannot be written is named on stderr, and later lines are not kept.
 */
void line_history_add(line_history *h, const char *line);

void line_history_close(line_history *h);

#endif

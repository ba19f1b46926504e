/* Reads messages from the terminal: line editing and history by libedit, pasted text, and messages of several lines. */
#ifndef CLI_CHAT_LINE_EDITOR_H
#define CLI_CHAT_LINE_EDITOR_H

#include <stdbool.h>

#include "cli/text_buffer.h"

typedef struct line_editor line_editor;

/*
 * Begin to edit lines on standard input and output, of which terminal_open has taken over the terminal. keep_history: recall
 * the lines of earlier conversations, and keep those of this one (line_history.h). Errors: CL_ERR_NOMEM.
 */
cl_status line_editor_open(line_editor **e, bool keep_history, cl_error *error);
void line_editor_close(line_editor **e);

typedef enum line_result { LINE_MESSAGE, LINE_INTERRUPTED, LINE_END } line_result;

/*
 * Read a message and append it to *message, UTF-8 without the last line's end. A line that ends with a backslash goes on in the
 * next one, which a line feed separates; Alt-Enter and pasted text give line feeds, too. The message is added to the history.
 *
 * LINE_INTERRUPTED: Ctrl-C came, and the text so far is dropped. LINE_END: the input has ended. In both cases *message may have
 * a part of a message. Lack of memory ends the input.
 */
line_result line_editor_read(line_editor *e, cli_text *message);

#endif

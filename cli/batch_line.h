/* One line of a batch file: its request, what became of it, the record it gives. */
#ifndef CLI_BATCH_LINE_H
#define CLI_BATCH_LINE_H

#include <jansson.h>

#include "openai/openai.h"

typedef struct batch_line {
    size_t number;    /* in the input, from 1 */
    bool openai_form; /* {"custom_id", "url", "body"}; else the short form {"id", "messages" or "prompt", ...} */
    json_t *id;       /* custom_id or id; the number where it is absent */
    bool failed;
    openai_error error; /* where failed */
    openai_request request;
    openai_result result; /* events are added here */
    bool has_result;
} batch_line;

/*
 * Read a line of `size` bytes. *line is zero and stays where it is until batch_line_free; context is borrowed until then.
 * What is wrong with the line is told in it; false is returned then.
 */
bool batch_line_parse(batch_line *line, size_t number, const char *text, size_t size, const openai_context *context);

/* The record of a line that is done: answer or error. A new reference; NULL without memory. */
json_t *batch_line_json(const batch_line *line);

void batch_line_free(batch_line *line);

#endif

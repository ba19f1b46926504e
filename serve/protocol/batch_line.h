/*
 * One line of a batch file: its request, its result, and its output line. The `batch` command and the
 * server's batches use it.
 */
#ifndef SERVE_PROTOCOL_BATCH_LINE_H
#define SERVE_PROTOCOL_BATCH_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "dialect.h"

typedef struct batch_line {
    size_t number;    /* in the input, from 1 */
    bool openai_form; /* {"custom_id", "url", "body"}; otherwise the short form {"id", "messages" or "prompt", ...} */
    json_t *id;       /* custom_id or id; the line's number if the line has none; owned; NULL: it is not an object */
    char *id_text;    /* as JSON, owned; NULL: there is no id, or memory was lacking */
    const openai_dialect *dialect; /* of the request; openai_chat as long as it is not known */
    bool failed;                   /* the line is invalid, or a prompt was refused: `error` says why */
    openai_error error;
    openai_request request;
    openai_result result; /* valid if has_result; the caller adds the events */
    bool has_result;
} batch_line;

/*
 * Parse a line of `size` bytes. Beside the fields of both forms it may name a "tenant"; *tenants has the names of all lines.
 * With NULL that field is ignored, as it must be where the line's author may not choose the tenant.
 *
 * *line must be zeroed and stay where it is until batch_line_free, which is also due after a failure. context is borrowed until
 * then, text and tenants for the call only. Returns false if the line is invalid or memory is lacking; line->error says why.
 */
bool batch_line_parse(batch_line *line, size_t number, const char *text, size_t size, const openai_context *context,
                      openai_tenants *tenants);

/* Whether the output line reports an error. */
bool batch_line_has_error(const batch_line *line);

/* The output line of a request that is done: [*size] bytes and a zero, for the caller to free; NULL if memory is lacking. */
char *batch_line_output(const batch_line *line, size_t *size);

/*
 * Print the output line of a request that is done, and flush the output. If memory is lacking for an answer, it is an error.
 * *is_error: it reports an error. Returns false if the output cannot be written; errno says why.
 */
bool batch_line_print(const batch_line *line, FILE *out, bool *is_error);

void batch_line_free(batch_line *line);

#endif

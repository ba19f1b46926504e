/* Writes the events of Responses' streams. */
#include "responses.h"

/* Begin an event, whose fields follow. */
static void begin(openai_writer *w, openai_result *result, const char *type) {
    writer_begin_typed_event(w, type);
    writer_integer(w, "sequence_number", result->n_events++);
}

/* ---- Items ---- */

/* The events of an item's kind. They name the item and, except those of a call, its part 0. */
typedef struct kind_events {
    const char *part_added, *delta, *text_done, *part_done; /* NULL: there is none */
    const char *index;                                      /* the name of the part's index; NULL: it has none */
    const char *text;                                       /* the name of the whole text */
    bool is_message;
} kind_events;

static const kind_events *events_of(const openai_result *result, size_t i) {
    static const kind_events message = {"response.content_part.added",
                                        "response.output_text.delta",
                                        "response.output_text.done",
                                        "response.content_part.done",
                                        "content_index",
                                        "text",
                                        true};
    static const kind_events reasoning = {"response.content_part.added",
                                          "response.reasoning_text.delta",
                                          "response.reasoning_text.done",
                                          "response.content_part.done",
                                          "content_index",
                                          "text",
                                          false};
    static const kind_events summary = {"response.reasoning_summary_part.added",
                                        "response.reasoning_summary_text.delta",
                                        "response.reasoning_summary_text.done",
                                        "response.reasoning_summary_part.done",
                                        "summary_index",
                                        "text",
                                        false};
    static const kind_events call = {.delta = "response.function_call_arguments.delta",
                                     .text_done = "response.function_call_arguments.done",
                                     .text = "arguments"};
    switch (result->choices[0].items[i].kind) {
    case CL_REPLY_CONTENT: return &message;
    case CL_REPLY_REASONING: return responses_summarizes(result) ? &summary : &reasoning;
    default: return &call;
    }
}

/* Begin an event about item i. */
static void begin_of(openai_writer *w, openai_result *result, size_t i, const char *type, const char *index) {
    begin(w, result, type);
    responses_write_id(w, "item_id", result, i);
    writer_integer(w, "output_index", (int64_t)i);
    if (index) writer_integer(w, index, 0);
}

static void put_item(openai_writer *w, openai_result *result, size_t i, const char *type, responses_status status) {
    begin(w, result, type);
    writer_integer(w, "output_index", (int64_t)i);
    responses_write_item(w, "item", result, i, status);
    writer_end_typed_event(w);
}

static void put_part(openai_writer *w, openai_result *result, size_t i, const char *type, bool is_empty) {
    if (!type) return;
    begin_of(w, result, i, type, events_of(result, i)->index);
    responses_write_part(w, "part", result, i, is_empty);
    writer_end_typed_event(w);
}

/* Write text of item i, a part of it or all. */
static void put_text(openai_writer *w, openai_result *result, size_t i, const char *type, const char *name, cl_str text) {
    const kind_events *k = events_of(result, i);
    begin_of(w, result, i, type, k->index);
    writer_bytes(w, name, text.data, text.size);
    if (!k->index && type == k->text_done)
        responses_write_name(w, result, &result->choices[0].calls[result->choices[0].items[i].call]);
    if (k->is_message) writer_value(w, "logprobs", json_array());
    writer_end_typed_event(w);
}

static void put_change(openai_writer *w, openai_result *result, const openai_change *change) {
    const size_t i = change->item;
    const kind_events *k = events_of(result, i);
    switch (change->kind) {
    case OPENAI_ITEM_BEGINS:
        put_item(w, result, i, "response.output_item.added", RESPONSES_IN_PROGRESS);
        put_part(w, result, i, k->part_added, true);
        break;
    case OPENAI_ITEM_GROWS: put_text(w, result, i, k->delta, "delta", change->text); break;
    case OPENAI_ITEM_ENDS:
        put_text(w, result, i, k->text_done, k->text, openai_item_text(&result->choices[0], i));
        put_part(w, result, i, k->part_done, false);
        put_item(w, result, i, "response.output_item.done", responses_item_status(result, i, responses_status_of(result)));
        break;
    }
}

/* ---- Streams ---- */

static void put_response(openai_writer *w, openai_result *result, const char *type, responses_status status,
                         const openai_error *error) {
    begin(w, result, type);
    responses_write(w, "response", result, status, error);
    writer_end_typed_event(w);
}

void responses_stream_begin(openai_writer *w, openai_result *result) {
    put_response(w, result, "response.created", RESPONSES_IN_PROGRESS, NULL);
    put_response(w, result, "response.in_progress", RESPONSES_IN_PROGRESS, NULL);
}

void responses_stream_event(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event) {
    (void)i; /* there is one prompt, and one choice */
    (void)event;
    openai_change change;
    while (openai_next_change(result, &change)) put_change(w, result, &change);
}

void responses_stream_end(openai_writer *w, openai_result *result, const openai_error *error) {
    if (error) {
        put_response(w, result, "response.failed", RESPONSES_FAILED, error);
        return;
    }
    const responses_status status = responses_status_of(result);
    put_response(w, result, status == RESPONSES_COMPLETED ? "response.completed" : "response.incomplete", status, NULL);
}

/* Keeps the order in which a model writes reasoning, text and calls, and which of them a stream has not sent. */
#include <stdlib.h>

#include "openai.h"

bool openai_items_add(openai_choice *c, cl_reply_kind kind, size_t call, size_t size) {
    openai_item *last = c->n_items > 0 ? &c->items[c->n_items - 1] : NULL;
    if (kind == CL_REPLY_ARGUMENTS) return true; /* the call's item has begun, and has the arguments by its index */
    if (last && last->kind == kind && kind != CL_REPLY_CALL) {
        last->end += size;
        return true;
    }
    if (size == 0 && kind != CL_REPLY_CALL) return true;
    if (!c->items || c->n_items == c->items_capacity) {
        const size_t capacity = 2 * c->items_capacity + 4;
        openai_item *larger = realloc(c->items, capacity * sizeof *larger);
        if (!larger) return false;
        c->items = larger;
        c->items_capacity = capacity;
    }
    const size_t end = kind == CL_REPLY_CONTENT ? c->text.size : kind == CL_REPLY_REASONING ? c->reasoning.size : size;
    c->items[c->n_items++] = (openai_item){.kind = kind, .call = call, .begin = end - size, .end = end};
    return true;
}

cl_str openai_item_text(const openai_choice *c, size_t i) {
    const openai_item *item = &c->items[i];
    if (item->kind == CL_REPLY_CALL) return (cl_str){c->calls[item->call].arguments.data, c->calls[item->call].arguments.size};
    const char *text = item->kind == CL_REPLY_CONTENT ? c->text.data : c->reasoning.data;
    return (cl_str){text + item->begin, item->end - item->begin};
}

bool openai_next_change(openai_result *result, openai_change *change) {
    const openai_choice *c = &result->choices[0];
    openai_position *at = &result->position;
    if (at->item == c->n_items) return false;
    const cl_str text = openai_item_text(c, at->item);
    *change = (openai_change){.kind = OPENAI_ITEM_BEGINS, .item = at->item};
    if (!at->begun) {
        at->begun = true;
        return true;
    }
    if (at->n_sent < text.size) {
        change->kind = OPENAI_ITEM_GROWS;
        change->text = (cl_str){text.data + at->n_sent, text.size - at->n_sent};
        at->n_sent = text.size;
        return true;
    }
    if (at->item + 1 == c->n_items && c->finish == CL_ENGINE_RUNNING) return false;
    change->kind = OPENAI_ITEM_ENDS;
    *at = (openai_position){.item = at->item + 1};
    return true;
}

/* What routes ask for that serve/protocol/ reads and writes: what the engine computes, and tokens without it. */
#include "generation_state.h"

/* ---- With the engine ---- */

static bool prepare_dialect(generation *g, const json_t *body) {
    const bool ok = g->dialect->parse(&g->srv->context, body, &g->request, &g->error);
    g->request.params.domain = g->task.domain;
    if (ok) generation_mark_prepare(g);
    return ok;
}

static bool write_dialect(generation *g, openai_writer *w) {
    g->dialect->write_answer(w, NULL, &g->result);
    return true;
}

const generation_kind generation_computed = {.prepare = prepare_dialect, .write = write_dialect};

/* ---- Without the engine ---- */

static bool answer_tokenize(generation *g, const json_t *body) {
    return openai_tokenize(&g->srv->context, body, &g->answer, &g->error);
}

static bool answer_detokenize(generation *g, const json_t *body) {
    return openai_detokenize(&g->srv->context, body, &g->answer, &g->error);
}

static bool answer_render_chat(generation *g, const json_t *body) {
    return openai_render(&g->srv->context, OPENAI_CHAT, body, &g->answer, &g->error);
}

static bool answer_render_completion(generation *g, const json_t *body) {
    return openai_render(&g->srv->context, OPENAI_COMPLETION, body, &g->answer, &g->error);
}

static bool answer_count_tokens(generation *g, const json_t *body) {
    return anthropic_count_tokens(&g->srv->context, body, &g->answer, &g->error);
}

const generation_kind generation_tokenize = {.prepare = answer_tokenize};
const generation_kind generation_detokenize = {.prepare = answer_detokenize};
const generation_kind generation_render_chat = {.prepare = answer_render_chat};
const generation_kind generation_render_completion = {.prepare = answer_render_completion};
const generation_kind generation_count_tokens = {.prepare = answer_count_tokens};

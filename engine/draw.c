/* Drawing the tokens of a step: see draw.h. */
#include "draw.h"

#include <stdlib.h>
#include <string.h>

bool draw_list_init(draw_list *list, ca_pool *pool, int32_t n_vocab, int32_t max_draws) {
    const int n_threads = ca_pool_size(pool);
    *list = (draw_list){
        .pool = pool,
        .samplers = calloc((size_t)n_threads, sizeof *list->samplers),
        .draws = calloc((size_t)max_draws, sizeof *list->draws),
    };
    bool ok = list->samplers && list->draws;
    for (int i = 0; ok && i < n_threads; i++) {
        list->samplers[i] = sampler_create(n_vocab);
        ok = list->samplers[i] != NULL;
    }
    return ok;
}

void draw_list_free(draw_list *list) {
    for (int i = 0; list->samplers && i < ca_pool_size(list->pool); i++) sampler_free(&list->samplers[i]);
    free(list->samplers);
    free(list->draws);
    memset(list, 0, sizeof *list);
}

static draw *add(draw_list *list, choice *c, int64_t position, const float *logits) {
    draw *d = &list->draws[list->n++];
    d->choice = c;
    d->logits = logits;
    d->position = position;
    d->chosen = (sampler_logprob){.id = -1};
    d->n_top = 0;
    return d;
}

void draw_list_add(draw_list *list, choice *c, const float *logits) { add(list, c, c->n_tokens, logits)->prompt = false; }

void draw_list_add_prompt(draw_list *list, choice *c, int64_t position, const float *logits) {
    draw *d = add(list, c, position, logits);
    d->prompt = true;
    d->token = c->tokens[position];
}

static void work_off(void *arg, int32_t task, int32_t worker) {
    draw_list *list = arg;
    draw *d = &list->draws[task];
    const choice *c = d->choice;
    const engine_request *asked = &c->owner->asked;
    sampler *s = list->samplers[worker];
    if (!d->prompt)
        d->token = sampler_draw(s, &asked->sampling, d->logits, c->tokens, asked->n_prompt, c->n_tokens, c->index, d->position);
    if (!d->logits || !(d->prompt || asked->logprobs)) return;
    d->n_top = asked->n_top;
    sampler_logprobs(s, d->logits, d->token, &d->chosen, d->n_top, d->top);
}

void draw_list_run(draw_list *list) {
    if (list->n == 1)
        work_off(list, 0, 0);
    else if (list->n > 1)
        ca_pool_run(list->pool, list->n, work_off, list);
}

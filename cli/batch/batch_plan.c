/* Reads the lines of a job for its plan. */
#include "batch_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "serve/batches/lines.h"

/* What is needed only while the lines are read. */
typedef struct reader {
    batch_plan *plan;
    const openai_context *context;
    openai_tenants *tenants;
    FILE *scratch; /* the tokens of all prompts */
    int64_t n_tokens;
} reader;

uint64_t plan_hash_id(const char *id_text) {
    if (!id_text) id_text = "null";
    return XXH3_64bits(id_text, strlen(id_text));
}

static bool grow(void **array, size_t n, size_t *capacity, size_t size) {
    if (n < *capacity) return true;
    void *larger = realloc(*array, (2 * n + 256) * size);
    if (!larger) return false;
    *array = larger;
    *capacity = 2 * n + 256;
    return true;
}

/* Add prompt i of the line that was added last. False: memory or room in the scratch file is lacking. */
static bool add_prompt(reader *r, const openai_request *request, size_t i) {
    batch_plan *plan = r->plan;
    const cl_token_list *tokens = &request->prompts[i].tokens;
    plan_line *line = &plan->lines[plan->n_lines - 1];
    const cl_engine_request *p = &request->params;
    if (!grow((void **)&plan->prompts, plan->n_prompts, &plan->prompts_capacity, sizeof *plan->prompts)) return false;
    plan->prompts[plan->n_prompts++] = (plan_prompt){
        .first = r->n_tokens,
        .domain = XXH3_64bits_withSeed(p->salt_size ? p->salt : "", p->salt_size, p->domain),
        .n_tokens = (int32_t)tokens->n,
        .shares = !(p->prompt_logprobs && p->prompt_logprobs_from < 2) && p->pooling != CL_ENGINE_POOL_MEAN,
    };
    const int64_t most = openai_max_tokens(request, i), room = r->context->n_ctx - (int64_t)tokens->n;
    line->n_prompts++;
    line->n_tokens += (int64_t)tokens->n;
    line->cost += (int64_t)tokens->n + p->n * (most >= 0 && most < room ? most : room > 0 ? room : 0);
    r->n_tokens += (int64_t)tokens->n;
    return fwrite(tokens->ids, sizeof *tokens->ids, tokens->n, r->scratch) == tokens->n;
}

static cl_status add_line(reader *r, const batch_lines *l, cl_error *error) {
    batch_plan *plan = r->plan;
    const size_t number = (size_t)l->number;
    batch_line line = {0};
    bool ok = grow((void **)&plan->lines, plan->n_lines, &plan->lines_capacity, sizeof *plan->lines);
    if (!ok) return cl_fail(error, CL_ERR_NOMEM, "no memory for line %zu", number);
    const bool valid = batch_line_parse(&line, number, l->text, l->size, r->context, r->tenants);
    plan->lines[plan->n_lines++] = (plan_line){
        .place = l->place,
        .size = l->size,
        .number = number,
        .first_prompt = plan->n_prompts,
        .priority = valid ? line.request.params.priority : 0,
        .id_hash = plan_hash_id(line.id_text),
    };
    for (size_t i = 0; ok && valid && i < line.request.n_prompts; i++) ok = add_prompt(r, &line.request, i);
    batch_line_free(&line);
    return ok ? CL_OK : cl_fail(error, CL_ERR_FILE, "no memory or no scratch file for line %zu: %s", number, strerror(errno));
}

static cl_status read_lines(reader *r, const batch_input *in, cl_error *error) {
    batch_lines l;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    lines_begin(&l, in->fd, in->start, SIZE_MAX);
    lines_status status;
    cl_status added = CL_OK;
    while (added == CL_OK && (status = lines_next(&l)) == LINES_OK) {
        const int64_t head[] = {l.number, (int64_t)l.size};
        XXH3_64bits_update(&hash, head, sizeof head);
        XXH3_64bits_update(&hash, l.text, l.size);
        added = add_line(r, &l, error);
    }
    if (added == CL_OK && status == LINES_FAILED)
        added = cl_fail(error, CL_ERR_FILE, "cannot read the input: %s", strerror(errno));
    if (added == CL_OK && status == LINES_NO_MEMORY) added = cl_fail(error, CL_ERR_NOMEM, "no memory for a line of the input");
    lines_free(&l);
    r->plan->input_hash = XXH3_64bits_digest(&hash);
    return added;
}

/* Order what was read, with the scratch file mapped. */
static cl_status order_lines(reader *r, bool sharing, plan_shard shard, cl_error *error) {
    const size_t size = (size_t)r->n_tokens * sizeof(int32_t);
    void *tokens = NULL;
    if (fflush(r->scratch) != 0) return cl_fail(error, CL_ERR_FILE, "cannot write the scratch file: %s", strerror(errno));
    if (size > 0) tokens = mmap(NULL, size, PROT_READ, MAP_SHARED, fileno(r->scratch), 0);
    if (tokens == MAP_FAILED) return cl_fail(error, CL_ERR_NOMEM, "cannot map the scratch file: %s", strerror(errno));
    const cl_status status = plan_order(r->plan, tokens, sharing, shard, error);
    if (size > 0) munmap(tokens, size);
    return status;
}

cl_status batch_plan_make(batch_plan *plan, const batch_input *in, const openai_context *context, openai_tenants *tenants,
                          bool sharing, plan_shard shard, cl_error *error) {
    reader r = {.plan = plan, .context = context, .tenants = tenants};
    const int fd = batch_scratch_open(error);
    if (fd < 0) return CL_ERR_FILE;
    r.scratch = fdopen(fd, "w+b");
    if (!r.scratch) {
        close(fd);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the scratch file");
    }
    cl_status status = read_lines(&r, in, error);
    if (status == CL_OK) status = order_lines(&r, sharing, shard, error);
    fclose(r.scratch);
    return status;
}

void batch_plan_free(batch_plan *plan) {
    free(plan->lines);
    free(plan->prompts);
    free(plan->order);
    *plan = (batch_plan){0};
}

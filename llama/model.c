/* Loads a model. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which of the two that name a level is at fault, and what it may be. */
static cl_status level_unknown(const char *level, cl_error *error) {
    char list[128] = "";
    size_t used = 0;
    bool has = !level;
    for (int i = 0; linear_level_name(i); i++) {
        has = has || strcmp(linear_level_name(i), level) == 0;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", linear_level_name(i));
    }
    if (!has) return cl_fail(error, CL_ERR_ARG, "kernel level '%s' is unknown or not this CPU's, which has %s", level, list);
    return cl_fail(error, CL_ERR_ARG, "the environment variable CATTN_LEVEL is '%s', which is no kernel level; this CPU has %s",
                   getenv("CATTN_LEVEL"), list);
}

cl_status model_load(const char *path, const model_options *options, model **out, cl_error *error) {
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return cl_fail(error, CL_ERR_NOMEM, "no memory to load %s", path);
    }
    cl_status status = CL_OK;
    m->kernel = linear_kernel_find(options->level);
    if (!m->kernel) status = level_unknown(options->level, error);
    if (status == CL_OK) status = model_file_open(path, &m->file, error);
    if (status == CL_OK) status = params_read(m->file, &m->params, error);
    if (status == CL_OK) status = tokenizer_create(m->file, &m->tok, error);
    if (status == CL_OK) {
        m->params.n_vocab = tokenizer_n_vocab(m->tok);
        status = weights_load(m->file, &m->params, options->pool, &m->weights, error);
    }
    if (status != CL_OK) {
        model_free(&m);
        return status;
    }
    if (chat_detect(m->file, &m->chat, &m->chat_error) != CL_OK) m->chat = CHAT_NONE; /* completions work without */
    *out = m;
    return CL_OK;
}

void model_free(model **model_) {
    model *m = *model_;
    if (!m) return;
    weights_free(&m->weights);
    params_free(&m->params);
    tokenizer_free(&m->tok);
    model_file_close(&m->file);
    free(m->path);
    free(m);
    *model_ = NULL;
}

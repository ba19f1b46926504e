/* Loads a model. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

cl_status model_load(const char *path, const model_options *options, model **out, cl_error *error) {
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return cl_fail(error, CL_ERR_NOMEM, "no memory to load %s", path);
    }
    cl_status status = CL_OK;
    m->kernel = linear_kernel_find(options->level);
    if (!m->kernel)
        status = cl_fail(error, CL_ERR_ARG, "kernel level %s or CATTN_LEVEL is unknown, or this CPU lacks it",
                         options->level ? options->level : "(none)");
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

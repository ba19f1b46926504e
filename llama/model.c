/* Loads a model: file, parameters, tokenizer, weights and chat format, and chooses the kernel level. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which of the two that name a level is at fault, and what it may be. */
static cl_status level_unknown(const char *level, cl_error *error) {
    char list[128] = "";
    size_t used = 0;
    bool has = !level;
    for (int i = 0; cl_kernels_level_name(i); i++) {
        has = has || strcmp(cl_kernels_level_name(i), level) == 0;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", cl_kernels_level_name(i));
    }
    if (!has) return cl_fail(error, CL_ERR_ARG, "kernel level '%s' is unknown or not this CPU's, which has %s", level, list);
    return cl_fail(error, CL_ERR_ARG, "the environment variable CATTN_LEVEL is '%s', which is no kernel level; this CPU has %s",
                   getenv("CATTN_LEVEL"), list);
}

cl_status cl_model_load(const char *path, const cl_model_options *options, cl_model **out, cl_error *error) {
    *out = NULL;
    cl_model *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return cl_fail(error, CL_ERR_NOMEM, "no memory to load %s", path);
    }
    cl_status status = CL_OK;
    m->kernels = cl_kernels_find(options->level);
    if (!m->kernels) status = level_unknown(options->level, error);
    if (status == CL_OK) status = cl_model_file_open(path, &m->file, error);
    if (status == CL_OK) status = cl_params_read(m->file, &m->params, error);
    if (status == CL_OK) status = cl_tokenizer_create(m->file, &m->tok, error);
    if (status == CL_OK) {
        m->params.n_vocab = cl_tokenizer_n_vocab(m->tok);
        status = cl_weights_load(m->file, &m->params, options->pool, &m->weights, error);
    }
    if (status != CL_OK) {
        cl_model_free(&m);
        return status;
    }
    if (cl_chat_detect(m->file, &m->chat, &m->chat_error) != CL_OK) m->chat = CL_CHAT_NONE; /* completions work without */
    *out = m;
    return CL_OK;
}

void cl_model_free(cl_model **model_) {
    cl_model *m = *model_;
    if (!m) return;
    cl_weights_free(&m->weights);
    cl_params_free(&m->params);
    cl_tokenizer_free(&m->tok);
    cl_model_file_close(&m->file);
    free(m->path);
    free(m);
    *model_ = NULL;
}

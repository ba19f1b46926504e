/* cl_engine_explain. */
#include "engine.h"
#include "question.h"

typedef struct explaining {
    const cl_engine *engine;
    cl_engine_request request;
    cattn_explanation *explanation;
    cattn_status status;
    cattn_error cause;
} explaining;

static void explain(void *ctx, cattn_cache *cache) {
    explaining *x = ctx;
    const cattn_join_options options = cl_engine_join_options(x->engine, &x->request);
    x->status = cattn_cache_explain(cache, x->request.prompt, x->request.n_prompt, &options, x->explanation, &x->cause);
}

cl_status cl_engine_explain(cl_engine *e, const cl_engine_request *request, cattn_explanation *explanation, cl_error *error) {
    if (!request || !explanation) return cl_fail(error, CL_ERR_ARG, "%s is NULL", request ? "explanation" : "request");
    explaining x = {.engine = e, .explanation = explanation};
    cl_status status = cl_read_prompt(request, &x.request, error);
    if (status == CL_OK) status = cl_engine_ask(e, explain, &x, error);
    if (status == CL_OK && x.status != CATTN_OK) status = cl_fail(error, CL_ERR_ARG, "%s", x.cause.message);
    return status;
}

/* cl_engine_explain: an inspection for which the caller waits. */
#include <pthread.h>
#include <stdbool.h>

#include "check.h"

typedef struct question {
    const cl_engine *engine;
    cl_engine_request request;
    cattn_explanation *explanation;
    cattn_status status;
    cattn_error cause;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool answered; /* guarded by the mutex */
} question;

/* On the engine's thread. */
static void answer(void *ctx, const cattn_cache *cache) {
    question *q = ctx;
    const cattn_join_options options = cl_engine_join_options(q->engine, &q->request);
    q->status = cattn_cache_explain(cache, q->request.prompt, q->request.n_prompt, &options, q->explanation, &q->cause);
    pthread_mutex_lock(&q->mutex);
    q->answered = true;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

cl_status cl_engine_explain(cl_engine *e, const cl_engine_request *request, cattn_explanation *explanation, cl_error *error) {
    if (!request || !explanation) return cl_fail(error, CL_ERR_ARG, "%s is NULL", request ? "explanation" : "request");
    question q = {.engine = e, .explanation = explanation};
    cl_engine_request_init(&q.request);
    cl_status status = CL_STRUCT_READ(cl_engine_request, ctx, &q.request, request, error);
    if (status != CL_OK) return status;
    if (!q.request.prompt) return cl_refuse(error, "prompt", "is NULL");
    if (q.request.n_prompt < 1)
        return cl_refuse(error, "n_prompt", "is %lld; it must be at least 1", (long long)q.request.n_prompt);
    status = cl_check_domain(&q.request, error);
    if (status != CL_OK) return status;
    pthread_mutex_init(&q.mutex, NULL);
    pthread_cond_init(&q.changed, NULL);
    status = cl_engine_inspect(e, answer, &q, error);
    pthread_mutex_lock(&q.mutex);
    while (status == CL_OK && !q.answered) pthread_cond_wait(&q.changed, &q.mutex);
    pthread_mutex_unlock(&q.mutex);
    pthread_cond_destroy(&q.changed);
    pthread_mutex_destroy(&q.mutex);
    if (status == CL_OK && q.status != CATTN_OK) status = cl_fail(error, CL_ERR_ARG, "%s", q.cause.message);
    return status;
}

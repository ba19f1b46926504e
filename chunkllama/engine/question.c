/* Asking the engine's thread: see question.h. */
#include "question.h"

#include <pthread.h>
#include <stdbool.h>

#include "check.h"

typedef struct question {
    void (*fn)(void *ctx, cattn_cache *cache);
    void *ctx;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool answered; /* guarded by the mutex */
} question;

/* On the engine's thread. */
static void answer(void *ctx, const cattn_cache *cache) {
    question *q = ctx;
    q->fn(q->ctx, (cattn_cache *)cache);
    pthread_mutex_lock(&q->mutex);
    q->answered = true;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

cl_status cl_engine_ask(cl_engine *e, void (*fn)(void *ctx, cattn_cache *cache), void *ctx, cl_error *error) {
    question q = {.fn = fn, .ctx = ctx};
    pthread_mutex_init(&q.mutex, NULL);
    pthread_cond_init(&q.changed, NULL);
    const cl_status status = cl_engine_inspect(e, answer, &q, error);
    pthread_mutex_lock(&q.mutex);
    while (status == CL_OK && !q.answered) pthread_cond_wait(&q.changed, &q.mutex);
    pthread_mutex_unlock(&q.mutex);
    pthread_cond_destroy(&q.changed);
    pthread_mutex_destroy(&q.mutex);
    return status;
}

cl_status cl_read_prompt(const cl_engine_request *from, cl_engine_request *request, cl_error *error) {
    cl_engine_request_init(request);
    const cl_status status = CL_STRUCT_READ(cl_engine_request, ctx, request, from, error);
    if (status != CL_OK) return status;
    if (!request->prompt) return cl_refuse(error, "prompt", "is NULL");
    if (request->n_prompt < 1)
        return cl_refuse(error, "n_prompt", "is %lld; it must be at least 1", (long long)request->n_prompt);
    return cl_check_domain(request, error);
}

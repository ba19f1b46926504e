/*
 * Streams an answer: the engine's thread appends to its text, and the calling thread writes that out, so that a slow terminal
 * does not hold up the engine.
 */
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "session.h"
#include "visible.h"

typedef struct stream {
    double start;  /* clock_seconds() */
    bool terminal; /* the text is written to one */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    cli_answer *result; /* borrowed */
    bool done;          /* the last event has come */
    cl_error error;     /* if its code is not CL_OK, the answer failed */
} stream;

/* On the engine's thread. */
static void on_event(void *ctx, const cl_engine_event *event) {
    stream *s = ctx;
    cli_answer *a = s->result;
    pthread_mutex_lock(&s->lock);
    if (event->kind == CL_EVENT_TOKEN && !a->n_completion) a->first_s = clock_seconds() - s->start;
    a->n_prompt = event->n_prompt;
    a->n_cached = event->n_cached;
    a->n_completion = event->n_completion;
    if (event->text_size) text_buffer_append(&a->text, event->text, event->text_size, &s->error);
    if (event->kind == CL_EVENT_END) a->finish = event->end.finish;
    if (event->kind == CL_EVENT_END && event->end.error) s->error = *event->end.error;
    s->done = event->last;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Wait for more than `written` bytes of text or for the end, for at most 200 ms. With s->lock held. */
static void wait_for_text(stream *s, size_t written) {
    const struct timespec until = clock_deadline(0.2);
    if (!s->done && s->result->text.size == written) pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

/*
 * Write a piece of the text behind its first `written` bytes, visibly if `out` is a terminal; returns the number of bytes
 * written by now. With s->lock held, which is released while the file is written: the text may move meanwhile, so the piece is
 * copied.
 */
static size_t write_text(stream *s, size_t written, FILE *out) {
    char piece[4096];
    size_t n = s->result->text.size - written;
    if (!n) return written;
    const bool last = s->done && n <= sizeof piece;
    if (n > sizeof piece) n = sizeof piece;
    memcpy(piece, s->result->text.data + written, n);
    pthread_mutex_unlock(&s->lock);
    n = s->terminal ? visible_write(piece, n, last, out) : fwrite(piece, 1, n, out);
    fflush(out);
    pthread_mutex_lock(&s->lock);
    return written + n;
}

cl_status stream_answer(const cli_session *session, const cli_options *opt, const cl_token_list *prompt,
                        const volatile sig_atomic_t *stop, FILE *out, cli_answer *a, cl_error *error) {
    *a = (cli_answer){0};
    stream s = {.terminal = isatty(fileno(out)), .lock = PTHREAD_MUTEX_INITIALIZER, .result = a};
    const cli_sampling sampling = session_sampling(session, opt, true);
    cl_engine *e = session->engine;
    cl_engine_request request;
    cl_engine_request_init(&request);
    request.prompt = prompt->ids;
    request.n_prompt = (int64_t)prompt->n;
    request.max_tokens = opt->max_tokens;
    request.sampling = sampling.params;
    request.penalty_window = sampling.penalty_window;
    request.stop = &opt->stop;
    request.n_stop = opt->stop && *opt->stop ? 1 : 0;
    request.ignore_eos = opt->ignore_eos;
    request.on_event = on_event;
    request.ctx = &s;
    clock_cond_init(&s.changed);
    uint64_t id;
    s.start = clock_seconds();
    const cl_status status = cl_engine_submit(e, &request, &id, error);
    if (status != CL_OK) {
        pthread_cond_destroy(&s.changed);
        return status;
    }
    bool cancelled = false;
    size_t written = 0;
    pthread_mutex_lock(&s.lock);
    while (!s.done || written < a->text.size) {
        wait_for_text(&s, written);
        written = write_text(&s, written, out);
        if (stop && *stop && !cancelled) {
            cancelled = true;
            pthread_mutex_unlock(&s.lock);
            cl_engine_cancel(e, id);
            pthread_mutex_lock(&s.lock);
        }
    }
    pthread_mutex_unlock(&s.lock);
    pthread_cond_destroy(&s.changed);
    a->total_s = clock_seconds() - s.start;
    if (s.error.code != CL_OK) *error = s.error;
    return s.error.code;
}

void answer_free(cli_answer *a) { text_buffer_free(&a->text); }

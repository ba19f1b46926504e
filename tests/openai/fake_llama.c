/* A tokenizer whose tokens are bytes, and a chat format that joins the messages. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool held;
static bool may_shorten;
static int n_waiting;

void fake_shorten(bool shortens) { may_shorten = shortens; }

void fake_hold_text(bool hold) {
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void fake_wait_for_text(void) {
    pthread_mutex_lock(&lock);
    while (n_waiting == 0) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void wait_while_held(void) {
    pthread_mutex_lock(&lock);
    n_waiting++;
    pthread_cond_broadcast(&changed);
    while (held) pthread_cond_wait(&changed, &lock);
    n_waiting--;
    pthread_mutex_unlock(&lock);
}

const cl_model *fake_model(void) {
    static const cl_model m = {.chat = CL_CHAT_CHATML};
    return &m;
}

void cl_sampler_params_init(cl_sampler_params *params) {
    *params = (cl_sampler_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

cl_status cl_token_list_add(cl_token_list *list, int32_t id, cl_error *error) {
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 16;
        int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
        if (!ids) return cl_fail(error, CL_ERR_NOMEM, "out of memory");
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return CL_OK;
}

void cl_token_list_free(cl_token_list *list) {
    free(list->ids);
    *list = (cl_token_list){0};
}

int32_t cl_tokenizer_n_vocab(const cl_tokenizer *tok) {
    (void)tok;
    return FAKE_VOCAB;
}

int32_t cl_tokenizer_bos(const cl_tokenizer *tok) {
    (void)tok;
    return FAKE_BOS;
}

size_t cl_tokenizer_longest(const cl_tokenizer *tok) {
    (void)tok;
    return strlen("</s>");
}

bool cl_tokenizer_shortens(const cl_tokenizer *tok) {
    (void)tok;
    return may_shorten;
}

bool cl_tokenizer_adds_bos(const cl_tokenizer *tok) {
    (void)tok;
    return false;
}

cl_status cl_tokenizer_encode(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error) {
    (void)tok;
    (void)first;
    cl_status status = CL_OK;
    wait_while_held();
    for (size_t i = 0; i < size && status == CL_OK; i++) status = cl_token_list_add(out, (unsigned char)text[i], error);
    return status;
}

size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size) {
    (void)tok;
    const char byte = (char)id, *piece = id == FAKE_BOS ? "<s>" : id == FAKE_END ? "</s>" : &byte;
    const size_t length = piece == &byte ? 1 : special ? strlen(piece) : 0;
    memcpy(buf, piece, length < size ? length : size);
    return length;
}

cl_status cl_chat_render(cl_chat_format format, const cl_tokenizer *tok, const cl_model_file *file,
                         const cl_chat_message *messages, size_t n, cl_token_list *out, cl_error *error) {
    (void)format;
    (void)file;
    for (size_t i = 0; i < n; i++) {
        const cl_status status = cl_tokenizer_encode(tok, messages[i].content, messages[i].content_size, i == 0, out, error);
        if (status != CL_OK) return status;
    }
    return cl_token_list_add(out, FAKE_END, error);
}

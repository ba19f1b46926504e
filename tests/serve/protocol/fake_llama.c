/* A tokenizer whose tokens are bytes, and a chat that joins the messages. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/deadline.h"
#include "chunkllama/file/model_file_data.h"
#include "fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool held;
static bool may_shorten, adds_bos, adds_eos, fills_gaps, knows_words;
static int n_waiting;

void fake_shorten(bool shortens) { may_shorten = shortens; }

void fake_add_bos(bool adds) { adds_bos = adds; }

void fake_add_eos(bool adds) { adds_eos = adds; }

void fake_fill_gaps(bool fills) { fills_gaps = fills; }

static const char *bos_text = "<s>";

void fake_name_bos(const char *text) { bos_text = text ? text : "<s>"; }

void fake_know_words(bool knows) { knows_words = knows; }

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

/* As the tokenizer, it goes on until the deadline. */
static cl_status wait_while_held(cl_error *error) {
    pthread_mutex_lock(&lock);
    n_waiting++;
    pthread_cond_broadcast(&changed);
    while (held && !cl_deadline_passed()) {
        pthread_mutex_unlock(&lock);
        fake_pause();
        pthread_mutex_lock(&lock);
    }
    n_waiting--;
    pthread_mutex_unlock(&lock);
    return cl_deadline_check(error);
}

struct cl_chat {
    bool argument_text;
};
static cl_chat the_chat;
static json_t *recorded;

cl_chat *fake_chat(void) { return &the_chat; }

static const cl_reply_format *the_reply;

void fake_set_reply(const cl_reply_format *format) { the_reply = format; }

const cl_reply_format *cl_chat_reply(const cl_chat *chat) {
    static cl_reply_format hermes;
    (void)chat;
    if (!the_reply) cl_reply_format_find(cl_str_of(""), false, &hermes);
    return the_reply ? the_reply : &hermes;
}

void fake_record_chats(json_t *chats, bool argument_text) {
    recorded = chats;
    the_chat.argument_text = argument_text;
}

const cl_model *fake_model(void) {
    static cl_tensor tensors[] = {{.type = CL_TENSOR_F32, .ne = {1000, 1, 1, 1}, .bytes = 4000},
                                  {.type = CL_TENSOR_Q8_0, .ne = {1024, 1024, 1, 1}, .bytes = 1114112}};
    static cl_model_file file = {.format = "GGUF version 3", .tensors = tensors, .n_tensors = 2};
    static const cl_arch arch = {.name = "fake"};
    static const cl_model m = {
        .file = &file, .chat = &the_chat, .params = {.arch = &arch, .n_embd = FAKE_EMBD, .n_layers = 2}, .sample = 0xfa4e};
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
    return adds_bos;
}

cl_status cl_tokenizer_add_leading(const cl_tokenizer *tok, cl_token_list *list, cl_error *error) {
    (void)tok;
    return adds_bos ? cl_token_list_add(list, FAKE_BOS, error) : CL_OK;
}

cl_status cl_tokenizer_add_trailing(const cl_tokenizer *tok, cl_token_list *list, cl_error *error) {
    (void)tok;
    return adds_eos ? cl_token_list_add(list, FAKE_END, error) : CL_OK;
}

bool cl_tokenizer_names_special(const cl_tokenizer *tok, const char *text, size_t size, cl_str *name) {
    (void)tok;
    *name = cl_str_of("</s>");
    return cl_str_contains((cl_str){text, size}, "</s>");
}

bool cl_tokenizer_adds_eos(const cl_tokenizer *tok) {
    (void)tok;
    return adds_eos;
}

int32_t cl_tokenizer_eos(const cl_tokenizer *tok) {
    (void)tok;
    return FAKE_END;
}

bool cl_tokenizer_fim(const cl_tokenizer *tok, cl_fim_tokens *fim) {
    (void)tok;
    *fim = (cl_fim_tokens){FAKE_FIM_PREFIX, FAKE_FIM_SUFFIX, FAKE_FIM_MIDDLE};
    return fills_gaps;
}

cl_status cl_tokenizer_encode(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error) {
    (void)tok;
    cl_status status = wait_while_held(error);
    if (knows_words && !first && ((size == 2 && memcmp(text, "no", 2) == 0) || (size == 3 && memcmp(text, "yes", 3) == 0)))
        size = 1;
    for (size_t i = 0; i < size && status == CL_OK; i++) status = cl_token_list_add(out, (unsigned char)text[i], error);
    return status;
}

/* "</s>" is the end token. */
cl_status cl_tokenizer_encode_template(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                                       cl_error *error) {
    (void)tok;
    (void)first;
    cl_status status = wait_while_held(error);
    for (size_t i = 0; i < size && status == CL_OK; i++) {
        const bool special = size - i >= 4 && memcmp(text + i, "</s>", 4) == 0;
        status = cl_token_list_add(out, special ? FAKE_END : (unsigned char)text[i], error);
        i += special ? 3 : 0;
    }
    return status;
}

size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size) {
    (void)tok;
    const char byte = (char)id, *piece = id == FAKE_BOS ? bos_text : id == FAKE_END ? "</s>" : &byte;
    const size_t length = piece == &byte ? 1 : special ? strlen(piece) : 0;
    memcpy(buf, piece, length < size ? length : size);
    return length;
}

/* In a span "<s>" is FAKE_BOS, and "</s>" is FAKE_END. */
cl_status cl_tokenizer_encode_spans(const cl_tokenizer *tok, const char *text, size_t size, bool first,
                                    const cl_text_span *spans, size_t n_spans, cl_token_list *out, cl_error *error) {
    size_t at = 0;
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < n_spans; at = spans[i++].end) {
        status = cl_tokenizer_encode(tok, text + at, spans[i].start - at, first, out, error);
        const bool begins = memcmp(text + spans[i].start, "<s>", 3) == 0;
        if (status == CL_OK) status = cl_token_list_add(out, begins ? FAKE_BOS : FAKE_END, error);
    }
    return status == CL_OK ? cl_tokenizer_encode(tok, text + at, size - at, first, out, error) : status;
}

/* ---- Chats ---- */

void cl_chat_input_init(cl_chat_input *in) { *in = (cl_chat_input){.add_generation_prompt = true}; }

cl_str cl_chat_text(const cl_chat *chat, bool with_tools) {
    (void)chat;
    return cl_str_of(with_tools ? "tools" : "{{ messages }}");
}

bool cl_chat_takes_argument_text(const cl_chat *chat, bool with_tools) {
    (void)with_tools;
    return chat->argument_text;
}

static void add_content(cl_prompt *text, const json_t *content) {
    if (json_is_string(content)) cl_prompt_add(text, (cl_str){json_string_value(content), json_string_length(content)});
    for (size_t i = 0; i < json_array_size(content); i++)
        add_content(text, json_object_get(json_array_get(content, i), "text"));
}

static void record(const cl_chat_input *in) {
    json_t *chat = json_pack("{s:O, s:O*, s:O*, s:O*, s:b, s:b}", "messages", in->messages, "tools", in->tools, "documents",
                             in->documents, "kwargs", in->kwargs, "add_generation_prompt", in->add_generation_prompt,
                             "continue_final_message", in->continue_final_message);
    json_array_append_new(recorded, chat);
}

/* BOS if it is added, the contents, and FAKE_END. A message of the role "refused" is refused. */
cl_status cl_chat_render(const cl_chat *chat, const cl_chat_input *in, cl_prompt *text, cl_error *error) {
    (void)chat;
    if (recorded) record(in);
    if (adds_bos) cl_prompt_add_own(text, cl_str_of("<s>"));
    for (size_t i = 0; i < json_array_size(in->messages); i++) {
        const json_t *message = json_array_get(in->messages, i);
        if (strcmp(json_string_value(json_object_get(message, "role")), "refused") == 0)
            return cl_fail(error, CL_ERR_ARG, "the chat template refuses this chat: line 1: no such role");
        add_content(text, json_object_get(message, "content"));
    }
    cl_prompt_add_own(text, cl_str_of("</s>"));
    return text->no_memory ? cl_fail(error, CL_ERR_NOMEM, "out of memory") : CL_OK;
}

/* `info`: prints what is in a model file or folder, whether it loads, and what is missing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "chunkllama/chat/chat.h"
#include "chunkllama/file/model_file.h"
#include "chunkllama/model/arch.h"
#include "chunkllama/model/params.h"
#include "chunkllama/model/weights.h"
#include "session.h"

/* A string of the file as printable text: control characters in it must not reach the terminal. */
enum { MAX_SHOWN = 256 }; /* bytes */
#define SHOW(s) cl_str_show(s, (char[MAX_SHOWN]){0}, MAX_SHOWN)

static const char *value_type_name(cl_meta_type type) {
    static const char *const names[] = {
        [CL_META_U8] = "u8",         [CL_META_I8] = "i8",       [CL_META_U16] = "u16",     [CL_META_I16] = "i16",
        [CL_META_U32] = "u32",       [CL_META_I32] = "i32",     [CL_META_FLOAT32] = "f32", [CL_META_BOOL] = "bool",
        [CL_META_STRING] = "string", [CL_META_ARRAY] = "array", [CL_META_U64] = "u64",     [CL_META_I64] = "i64",
        [CL_META_FLOAT64] = "f64",
    };
    return names[type];
}

static void print_metadata(const cl_model_file *file) {
    printf("\nmetadata (%zu keys):\n", cl_model_file_n_keys(file));
    for (size_t i = 0; i < cl_model_file_n_keys(file); i++) {
        cl_meta_type type;
        char value[256];
        const cl_str key = cl_model_file_key_at(file, i, &type);
        cl_model_file_print_value(file, i, value, sizeof value);
        printf("  %-44s %-7s %s\n", SHOW(key), value_type_name(type), value);
    }
}

/* The product does not overflow: a file with a larger tensor is not opened. */
static int64_t n_elements(const cl_tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

/* Add n to *sum, up to INT64_MAX: tensors of unknown types may claim any size, and several tensors may claim the same bytes. */
static void add(int64_t *sum, int64_t n) {
    if (__builtin_add_overflow(*sum, n, sum)) *sum = INT64_MAX;
}

/* Print a line for each tensor type: the number of its tensors, their elements and bytes. */
static void print_types(const cl_model_file *file) {
    printf("\ntensors (%zu):\n  %-8s %8s %14s %14s\n", cl_model_file_n_tensors(file), "type", "tensors", "elements", "bytes");
    for (size_t i = 0; i < cl_model_file_n_tensors(file); i++) {
        const uint32_t type = cl_model_file_tensor_at(file, i)->type;
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = cl_model_file_tensor_at(file, j)->type == type;
        if (seen) continue;
        int64_t count = 0, elements = 0, bytes = 0;
        for (size_t j = i; j < cl_model_file_n_tensors(file); j++) {
            const cl_tensor *t = cl_model_file_tensor_at(file, j);
            if (t->type != type) continue;
            count++;
            add(&elements, n_elements(t));
            add(&bytes, (int64_t)t->bytes);
        }
        printf("  %-8s %8" PRId64 " %14" PRId64 " %14" PRId64 "%s\n", cl_tensor_type_name(type), count, elements, bytes,
               cl_tensor_is_readable(cl_model_file_tensor_at(file, i)) ? "" : "  (cannot be read)");
    }
}

static void print_tensors(const cl_model_file *file) {
    printf("\n  %-32s %-8s %-24s %12s\n", "tensor", "type", "shape, fastest first", "bytes");
    for (size_t i = 0; i < cl_model_file_n_tensors(file); i++) {
        const cl_tensor *t = cl_model_file_tensor_at(file, i);
        char shape[96];
        size_t used = 0;
        for (int32_t k = 0; k < t->n_dims; k++)
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64, k ? " x " : "", t->ne[k]);
        printf("  %-32s %-8s %-24s %12zu\n", SHOW(t->name), cl_tensor_type_name(t->type), shape, t->bytes);
    }
}

/* Print how text is cut into pieces, and what may be wrong with that. */
static void print_tokenizer(const cl_model_file *file, const cl_tokenizer *tok) {
    const cl_str pre = cl_tokenizer_pre(tok);
    const char *warning = cl_tokenizer_warning(tok);
    const bool said = cl_model_file_has(file, "tokenizer.ggml.pre") || cl_model_file_has(file, "tokenizer.pre_steps");
    if (pre.size > 0) printf("pre-tokenizer   %s%s\n", SHOW(pre), said || warning ? "" : ", recognised by the vocabulary");
    if (warning) printf("warning         %s\n", warning);
}

/* Print how chats are written, and by which key of the file, or why its template cannot be used. */
static void print_chat(const cl_model_file *file, const cl_tokenizer *tok) {
    cl_chat *chat = NULL;
    cl_error error;
    if (cl_chat_of_file(file, tok, &chat, &error) != CL_OK)
        printf("chat template   %s\n", error.message);
    else if (!chat)
        printf("chat template   none; use --chat-template or --chat-format\n");
    else
        printf("chat template   tokenizer.chat_template%s\n",
               cl_chat_has_tools(chat) ? ", which writes tools" : "; tools are described in the system message");
    cl_chat_free(&chat);
}

/* Print how text becomes tokens and chats become text. */
static void print_text(const cl_model_file *file, const cl_tokenizer *tok) {
    print_tokenizer(file, tok);
    print_chat(file, tok);
}

/* ---- Whether it loads ---- */

/* Print the types of weights that cannot be read, each with the number of its tensors that are not left out. */
static bool print_unreadable(const cl_model_file *file, const cl_arch *arch) {
    enum { N_TYPES = 64 };
    int64_t count[N_TYPES + 1] = {0}; /* all others at the end */
    bool any = false;
    for (size_t i = 0; i < cl_model_file_n_tensors(file); i++) {
        const cl_tensor *t = cl_model_file_tensor_at(file, i);
        if (!cl_tensor_is_readable(t) && !(arch && cl_arch_left_out(arch, t->name)))
            count[t->type < N_TYPES ? t->type : N_TYPES]++;
    }
    for (uint32_t type = 0; type <= N_TYPES; type++) {
        if (count[type] == 0) continue;
        any = true;
        printf("missing         weights of %s%s, which %" PRId64 " tensor%s\n", type < N_TYPES ? "type " : "another type",
               type < N_TYPES ? cl_tensor_type_name(type) : "", count[type], count[type] == 1 ? " has" : "s have");
    }
    return any;
}

/* What a model needs and whether it loads; *p has been read if `status` says so. tok: NULL: text cannot be tokenized. */
static void print_loads(const cl_model_file *file, cl_status status, const cl_error *wrong, cl_model_params *p,
                        const cl_tokenizer *tok) {
    cl_error error = *wrong;
    if (tok) p->n_vocab = cl_tokenizer_n_vocab(tok);
    if (status == CL_OK && tok) status = cl_weights_check(file, p, &error);
    printf("loads           %s\n", status == CL_OK && tok ? "yes" : "no");
    const bool unreadable = print_unreadable(file, p->arch);
    /* The error about a tensor of such a type says no more. */
    if (status != CL_OK && !(unreadable && status == CL_ERR_UNSUPPORTED && wrong->code == CL_OK))
        printf("missing         %s\n", error.message);
    printf("memory          %.1f MB of weights%s", (double)cl_model_file_memory(file) / 1e6,
           unreadable ? " that can be read" : "");
    if (wrong->code == CL_OK)
        printf(", %.1f KiB of K/V for each token with --kv-type f16", (double)cl_params_kv_bytes(p, 2, 0) / 1024);
    printf("\n");
}

/* Print the parts of the file that are left out, each with the number of its tensors and their bytes. */
static void print_left_out(const cl_model_file *file, const cl_arch *arch) {
    for (int i = 0; i < CL_MAX_LEFT_OUT && arch->left_out[i].what; i++) {
        int64_t count = 0, bytes = 0;
        for (size_t j = 0; j < cl_model_file_n_tensors(file); j++) {
            const cl_tensor *t = cl_model_file_tensor_at(file, j);
            if (cl_arch_left_out(arch, t->name) != arch->left_out[i].what) continue;
            count++;
            add(&bytes, (int64_t)t->bytes);
        }
        if (count)
            printf("left out        %s: %" PRId64 " tensor%s, %.1f MB\n", arch->left_out[i].what, count, count > 1 ? "s" : "",
                   (double)bytes / 1e6);
    }
}

static void print_head(const cl_model_file *file, const char *path) {
    cl_str name, arch;
    printf("file            %s (%s)\n", path, cl_model_file_format(file));
    if (cl_model_file_get_string(file, "general.name", &name)) printf("name            %s\n", SHOW(name));
    if (cl_model_file_get_string(file, "general.architecture", &arch)) printf("architecture    %s\n", SHOW(arch));
    const int64_t elements = cl_model_file_n_elements(file);
    int64_t bytes = 0;
    for (size_t i = 0; i < cl_model_file_n_tensors(file); i++) add(&bytes, (int64_t)cl_model_file_tensor_at(file, i)->bytes);
    printf("parameters      %" PRId64 ", %.1f MB, %.2f bits each\n", elements, (double)bytes / 1e6,
           elements ? 8.0 * (double)bytes / (double)elements : 0.0);
}

/* Print what is in a model that can be opened, whether it loads and what is missing. */
static void print_model(const cl_model_file *file, const char *path) {
    cl_model_params p;
    cl_tokenizer *tok = NULL;
    cl_error wrong = {.code = CL_OK}, no_text;
    print_head(file, path);
    const cl_status status = cl_params_read(file, &p, &wrong);
    const cl_status text = cl_tokenizer_create(file, &tok, &no_text);
    if (p.arch) print_left_out(file, p.arch);
    if (text == CL_OK)
        print_text(file, tok);
    else
        printf("tokenizer       %s\n", no_text.message);
    print_loads(file, status, &wrong, &p, tok);
    cl_tokenizer_free(&tok);
    cl_params_free(&p);
}

/* Print what is in a folder that cannot be opened as a model; why: the error. */
static void print_folder(const cl_model_file *file, const char *path, const cl_error *why) {
    print_head(file, path);
    printf("loads           no\nmissing         %s\nmemory          %.1f MB of weights in F32, F16 and BF16\n", why->message,
           (double)cl_model_file_memory(file) / 1e6);
}

int cmd_info(const cli_options *opt) {
    const char *path = opt->model;
    cl_model_file *file = NULL;
    cl_error error;
    const cl_status status = path ? cl_model_file_open(path, &file, &error) : session_no_model(&error);
    if (status == CL_OK)
        print_model(file, path);
    else if (path && cl_hf_look(path, &file, NULL) == CL_OK)
        print_folder(file, path, &error);
    else
        return session_fail(CMD_INFO, &error);
    print_metadata(file);
    print_types(file);
    if (opt->tensors) print_tensors(file);
    cl_model_file_close(&file);
    return 0;
}

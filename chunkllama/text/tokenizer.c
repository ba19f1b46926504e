/* Loads a file's tokenizer and has the parts that both kinds of BPE share: added tokens, special tokens, token bytes. */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "added_tokens.h"
#include "bpe.h"
#include "chunkllama/common/deadline.h"
#include "spm.h"
#include "vocab.h"

struct cl_tokenizer {
    cl_vocab vocab;
    cl_bpe *bpe; /* one of bpe and spm is NULL */
    cl_spm *spm;
    cl_added_tokens normalized; /* added tokens that normalised text is searched for; their texts are normalised too */
    char **normalized_bufs;     /* [normalized.n] memory of their texts; entries may be NULL */
    int32_t bos, eos;
    bool adds_bos, adds_eos;
    cl_token_list leading, trailing;
    bool space_is_written; /* has_written_space */
    cl_fim_tokens fim;     /* -1: none */
    bool *ends;            /* [n_vocab] whether generation stops at a token */
};

cl_status cl_token_list_add(cl_token_list *list, int32_t id, cl_error *error) {
    const cl_status status = cl_deadline_look(list->n, error);
    if (status != CL_OK) return status;
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
        if (!ids) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu tokens", capacity);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return CL_OK;
}

void cl_token_list_free(cl_token_list *list) {
    if (!list) return;
    free(list->ids);
    *list = (cl_token_list){0};
}

/* Read a token id; -1 if the file has none. */
static cl_status load_id(const cl_tokenizer *t, const cl_model_file *file, const char *key, int32_t *id, cl_error *error) {
    uint64_t value;
    *id = -1;
    /* Some files write -1 for none. */
    if (!cl_model_file_get_u64(file, key, &value) || value == UINT32_MAX) return CL_OK;
    if (value >= (uint64_t)t->vocab.n)
        return cl_fail(error, CL_ERR_FORMAT, "%s: %llu, but the vocabulary has %d tokens", key, (unsigned long long)value,
                       t->vocab.n);
    *id = (int32_t)value;
    return CL_OK;
}

/*
 * Names of tokens that end a turn whether or not the file says so. "</s>" does only if it is a special token, since Gemma also
 * has it as an HTML tag.
 */
static const char *const end_names[] = {"<|im_end|>", "<|eot_id|>",    "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>",
                                        "<|end|>",    "<end_of_turn>", "<turn|>",    "<|return|>",      "</s>"};
static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};

/* The names of a token in files that do not say which one it is, and the key in those that do. */
typedef struct known_token {
    const char *keys[2];
    const char *names[5];
} known_token;

static const known_token fim_prefix = {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
                                       {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "\u2581<PRE>"}};
static const known_token fim_suffix = {{"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
                                       {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "\u2581<SUF>"}};
static const known_token fim_middle = {{"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
                                       {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "\u2581<MID>"}};

static cl_status load_known(const cl_tokenizer *t, const cl_model_file *file, const known_token *known, int32_t *id,
                            cl_error *error) {
    cl_status status = CL_OK;
    *id = -1;
    for (size_t i = 0; status == CL_OK && *id < 0 && i < sizeof known->keys / sizeof *known->keys; i++)
        status = load_id(t, file, known->keys[i], id, error);
    for (size_t i = 0; status == CL_OK && *id < 0 && i < sizeof known->names / sizeof *known->names; i++)
        *id = cl_str_map_get(&t->vocab.by_name, known->names[i], strlen(known->names[i]));
    return status;
}

/* Read the tokens around a plain text: those of the key, or the one token. */
static cl_status load_around(const cl_tokenizer *t, const cl_model_file *file, const char *key, bool adds, int32_t id,
                             cl_token_list *list, cl_error *error) {
    cl_meta_type type;
    size_t n;
    const void *data;
    if (!cl_model_file_get_array(file, key, &type, &n, &data)) return adds ? cl_token_list_add(list, id, error) : CL_OK;
    for (size_t i = 0; i < n; i++) {
        if (type == CL_META_I32) memcpy(&id, (const char *)data + i * sizeof id, sizeof id);
        if (type != CL_META_I32 || id < 0 || id >= t->vocab.n)
            return cl_fail(error, CL_ERR_FORMAT, "%s: an array of token ids below %d is needed", key, t->vocab.n);
        const cl_status status = cl_token_list_add(list, id, error);
        if (status != CL_OK) return status;
    }
    return CL_OK;
}

static int32_t find_name(const cl_tokenizer *t, const char *name) {
    return cl_str_map_get(&t->vocab.by_name, name, strlen(name));
}

/* A turn of gpt-oss has several messages, and its <|end|> ends one of them, whatever the file says. */
static void end_messages(cl_tokenizer *t) {
    const int32_t end = find_name(t, "<|end|>");
    if (end >= 0 && find_name(t, "<|return|>") >= 0 && find_name(t, "<|channel|>") >= 0) t->ends[end] = false;
}

static cl_status load_special(cl_tokenizer *t, const cl_model_file *file, cl_error *error) {
    cl_status status = load_id(t, file, "tokenizer.ggml.bos_token_id", &t->bos, error);
    for (size_t i = 0; status == CL_OK && i < sizeof end_keys / sizeof *end_keys; i++) {
        int32_t id;
        status = load_id(t, file, end_keys[i], &id, error);
        if (i == 0) t->eos = id;
        if (id >= 0) t->ends[id] = true;
    }
    for (size_t i = 0; i < sizeof end_names / sizeof *end_names; i++) {
        const int32_t id = cl_str_map_get(&t->vocab.by_name, end_names[i], strlen(end_names[i]));
        const bool is_tag = strcmp(end_names[i], "</s>") == 0;
        if (id >= 0 && (!is_tag || cl_vocab_is_special(&t->vocab, id))) t->ends[id] = true;
    }
    end_messages(t);
    t->adds_bos = t->spm ? cl_spm_adds_bos(t->spm) : cl_bpe_adds_bos(t->bpe);
    cl_model_file_get_bool(file, "tokenizer.ggml.add_bos_token", &t->adds_bos);
    t->adds_bos = t->adds_bos && t->bos >= 0;
    cl_model_file_get_bool(file, "tokenizer.ggml.add_eos_token", &t->adds_eos);
    t->adds_eos = t->adds_eos && t->eos >= 0;
    if (status == CL_OK) status = load_around(t, file, "tokenizer.leading_tokens", t->adds_bos, t->bos, &t->leading, error);
    if (status == CL_OK) status = load_around(t, file, "tokenizer.trailing_tokens", t->adds_eos, t->eos, &t->trailing, error);
    if (status == CL_OK) status = load_known(t, file, &fim_prefix, &t->fim.prefix, error);
    if (status == CL_OK) status = load_known(t, file, &fim_suffix, &t->fim.suffix, error);
    if (status == CL_OK) status = load_known(t, file, &fim_middle, &t->fim.middle, error);
    return status;
}

static cl_status normalize(const cl_tokenizer *tok, cl_str text, bool first, char **buf, cl_str *out, cl_error *error) {
    if (tok->spm) return cl_spm_normalize(tok->spm, text.data, text.size, first, buf, out, error);
    return cl_bpe_normalize(tok->bpe, text, buf, out, error);
}

/* The text of such a token is normalised like a whole text, with the space that may be put before one. */
static cl_status load_normalized(cl_tokenizer *t, cl_error *error) {
    size_t n = 0, n_loaded = 0;
    for (int32_t id = 0; id < t->vocab.n; id++) n += cl_vocab_is_normalized(&t->vocab, id);
    if (n == 0) return CL_OK;
    cl_added_token *all = malloc(n * sizeof *all);
    t->normalized_bufs = calloc(n, sizeof *t->normalized_bufs);
    cl_status status = all && t->normalized_bufs ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for %zu added tokens", n);
    for (int32_t id = 0; status == CL_OK && id < t->vocab.n; id++) {
        if (!cl_vocab_is_normalized(&t->vocab, id) || t->vocab.pieces[id].size == 0) continue;
        all[n_loaded].id = id;
        status = normalize(t, t->vocab.pieces[id], true, &t->normalized_bufs[n_loaded], &all[n_loaded].text, error);
        if (status == CL_OK) n_loaded++;
    }
    cl_added_tokens_init(&t->normalized, all, n_loaded);
    return status;
}

/*
 * Whether templates write the space that SentencePiece puts before a text behind a special token, so that no second one comes
 * there. Those of Mistral do, whose [INST] is a special token from version 3 on. GGUF files do not say it; folders do (spm.h).
 */
static bool has_written_space(const cl_vocab *v) {
    const int32_t id = cl_str_map_get(&v->by_name, "[INST]", strlen("[INST]"));
    return id >= 0 && cl_vocab_is_special(v, id);
}

/* How a file's texts become tokens. */
typedef enum tokenizer_kind { BYTE_LEVEL, SENTENCE_PIECES, MERGED_SENTENCE_PIECES } tokenizer_kind;

/*
 * Whether merges of characters are listed as for byte-level BPE, but spaces and bytes are written as by SentencePiece: in files
 * of Gemma 4, and in others with these pre-tokenizers.
 */
static bool is_merged_pieces(const cl_model_file *file, cl_str model) {
    static const char *const names[] = {"gemma4", "granite-embed-multi-311m", "mmbert", "sarvam-moe"};
    cl_str pre = {"", 0};
    (void)cl_model_file_get_string(file, "tokenizer.ggml.pre", &pre);
    for (size_t i = 0; cl_str_is(model, "gpt2") && i < sizeof names / sizeof *names; i++)
        if (cl_str_is(pre, names[i])) return true;
    return cl_str_is(model, "gemma4");
}

static cl_status find_kind(const cl_model_file *file, tokenizer_kind *kind, cl_error *error) {
    cl_str model;
    if (!cl_model_file_get_string(file, "tokenizer.ggml.model", &model))
        return cl_fail(error, CL_ERR_FORMAT, "tokenizer.ggml.model: the file has no tokenizer");
    *kind = is_merged_pieces(file, model) ? MERGED_SENTENCE_PIECES : cl_str_is(model, "gpt2") ? BYTE_LEVEL : SENTENCE_PIECES;
    if (*kind != SENTENCE_PIECES || cl_str_is(model, "llama")) return CL_OK;
    return cl_fail(error, CL_ERR_UNSUPPORTED, "tokenizer.ggml.model: '%.*s' is not supported; known are gpt2, llama and gemma4",
                   (int)(model.size < 40 ? model.size : 40), model.data);
}

cl_status cl_tokenizer_create(const cl_model_file *file, cl_tokenizer **tok, cl_error *error) {
    *tok = NULL;
    tokenizer_kind kind;
    cl_status status = find_kind(file, &kind, error);
    if (status != CL_OK) return status;
    cl_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return cl_fail(error, CL_ERR_NOMEM, "no memory for a tokenizer");
    status = cl_vocab_load(&t->vocab, file, kind == BYTE_LEVEL, error);
    if (status == CL_OK && !(t->ends = calloc((size_t)t->vocab.n, sizeof *t->ends)))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for a tokenizer");
    if (status == CL_OK)
        status = kind == BYTE_LEVEL ? cl_bpe_create(file, &t->vocab, &t->bpe, error)
                                    : cl_spm_create(file, &t->vocab, kind == MERGED_SENTENCE_PIECES, &t->spm, error);
    if (status == CL_OK) status = load_normalized(t, error);
    if (status == CL_OK) status = load_special(t, file, error);
    if (status == CL_OK)
        t->space_is_written = has_written_space(&t->vocab);
    else
        cl_tokenizer_free(&t);
    *tok = t;
    return status;
}

void cl_tokenizer_free(cl_tokenizer **tok) {
    cl_tokenizer *t = *tok;
    if (!t) return;
    cl_bpe_free(&t->bpe);
    cl_spm_free(&t->spm);
    for (size_t i = 0; i < t->normalized.n; i++) free(t->normalized_bufs[i]);
    free(t->normalized_bufs);
    cl_added_tokens_free(&t->normalized);
    cl_vocab_free(&t->vocab);
    cl_token_list_free(&t->leading);
    cl_token_list_free(&t->trailing);
    free(t->ends);
    free(t);
    *tok = NULL;
}

int32_t cl_tokenizer_n_vocab(const cl_tokenizer *tok) { return tok->vocab.n; }
int32_t cl_tokenizer_bos(const cl_tokenizer *tok) { return tok->bos; }
int32_t cl_tokenizer_eos(const cl_tokenizer *tok) { return tok->eos; }
size_t cl_tokenizer_longest(const cl_tokenizer *tok) { return tok->vocab.longest; }
bool cl_tokenizer_shortens(const cl_tokenizer *tok) { return tok->spm || cl_bpe_normalizes(tok->bpe); }
bool cl_tokenizer_adds_bos(const cl_tokenizer *tok) { return tok->adds_bos; }
bool cl_tokenizer_adds_eos(const cl_tokenizer *tok) { return tok->adds_eos; }

static cl_status add_all(cl_token_list *list, const cl_token_list *more, cl_error *error) {
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < more->n; i++) status = cl_token_list_add(list, more->ids[i], error);
    return status;
}

cl_status cl_tokenizer_add_leading(const cl_tokenizer *tok, cl_token_list *list, cl_error *error) {
    return add_all(list, &tok->leading, error);
}

cl_status cl_tokenizer_add_trailing(const cl_tokenizer *tok, cl_token_list *list, cl_error *error) {
    return add_all(list, &tok->trailing, error);
}

cl_str cl_tokenizer_pre(const cl_tokenizer *tok) { return tok->bpe ? cl_bpe_pre(tok->bpe) : (cl_str){"", 0}; }

const char *cl_tokenizer_warning(const cl_tokenizer *tok) {
    if (!tok->bpe || !cl_bpe_guesses(tok->bpe)) return NULL;
    return "the file has no tokenizer.ggml.pre, and its vocabulary is not recognised, so text is cut as for GPT-2, and tokens "
           "may be wrong";
}

bool cl_tokenizer_names_special(const cl_tokenizer *tok, const char *text, size_t size, cl_str *name) {
    size_t matched;
    for (size_t i = 0; i < size && cl_deadline_look(i, NULL) == CL_OK; i++) {
        const int32_t id = cl_vocab_find_added(&tok->vocab, text + i, size - i, size - i, &matched);
        if (id < 0 || !cl_vocab_is_special(&tok->vocab, id)) continue;
        *name = tok->vocab.pieces[id];
        return true;
    }
    return false;
}

bool cl_tokenizer_fim(const cl_tokenizer *tok, cl_fim_tokens *fim) {
    *fim = tok->fim;
    return fim->prefix >= 0 && fim->suffix >= 0 && fim->middle >= 0;
}

static bool known(const cl_tokenizer *tok, int32_t id) { return id >= 0 && id < tok->vocab.n; }
bool cl_tokenizer_is_end(const cl_tokenizer *tok, int32_t id) { return known(tok, id) && tok->ends[id]; }

/* Text without added tokens. */
static cl_status encode_plain(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error) {
    if (tok->spm) return cl_spm_encode(tok->spm, text, size, first, out, error);
    return cl_bpe_encode(tok->bpe, text, size, out, error);
}

/* Encode text that holds no added tokens but normalised ones. No space is put before the text after such a token. */
static cl_status encode_words(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error) {
    if (tok->normalized.n == 0) return encode_plain(tok, text, size, first, out, error);
    char *buf;
    cl_str normal;
    cl_status status = normalize(tok, (cl_str){text, size}, first, &buf, &normal, error);
    if (status != CL_OK) return status;
    size_t start = 0;
    for (size_t i = 0, turn = 0; status == CL_OK && i < normal.size; turn++) {
        size_t matched;
        status = cl_deadline_look(turn, error);
        const cl_added_token *token = cl_added_tokens_find(&tok->normalized, false, normal.data + i, normal.size - i, &matched);
        if (!token) {
            i++;
            continue;
        }
        if (status == CL_OK && i > start) status = encode_plain(tok, normal.data + start, i - start, false, out, error);
        if (status == CL_OK) status = cl_token_list_add(out, token->id, error);
        start = i += matched;
    }
    if (status == CL_OK && normal.size > start)
        status = encode_plain(tok, normal.data + start, normal.size - start, false, out, error);
    free(buf);
    return status;
}

/*
 * Whether a token was added to SentencePiece's model, which ends a text there: special tokens, and others that Hugging Face's
 * tokenizers add behind the trained vocabulary. User-defined symbols that were trained are a part of the text around them.
 */
static bool ends_text(const cl_tokenizer *tok, int32_t id) {
    return cl_vocab_is_special(&tok->vocab, id) || id >= tok->vocab.n_trained;
}

/* Whether a space is put before the text behind a token, which begins with `next`. */
static bool begins_anew(const cl_tokenizer *tok, cl_spm_prefix rule, int32_t id, char next) {
    if (rule != CL_SPM_PREFIX_PROMPT) return rule != CL_SPM_PREFIX_FIRST;
    return ends_text(tok, id) && !(tok->space_is_written && next == ' ');
}

cl_status cl_tokenizer_encode_spans(const cl_tokenizer *tok, const char *text, size_t size, bool first,
                                    const cl_text_span *spans, size_t n_spans, cl_token_list *out, cl_error *error) {
    cl_status status = cl_deadline_check(error); /* which many short texts would not reach otherwise */
    size_t start = 0, span = 0;
    const cl_spm_prefix rule = tok->spm ? cl_spm_prefix_rule(tok->spm) : CL_SPM_PREFIX_PROMPT;
    for (size_t i = 0, turn = 0; status == CL_OK && i < size; turn++) {
        status = cl_deadline_look(turn, error);
        while (span < n_spans && spans[span].end <= i) span++;
        const bool inside = span < n_spans && spans[span].start <= i;
        size_t matched;
        const int32_t id = cl_vocab_find_added(&tok->vocab, text + i, size - i, inside ? spans[span].end - i : 0, &matched);
        if (id < 0) {
            i++;
            continue;
        }
        /* The space before a prompt comes also before a trained symbol that it starts with. */
        if (status == CL_OK && (i > start || (first && !ends_text(tok, id) && rule == CL_SPM_PREFIX_PROMPT)))
            status = encode_words(tok, text + start, i - start, first, out, error);
        if (status == CL_OK) status = cl_token_list_add(out, id, error);
        start = i += matched;
        first = i < size && begins_anew(tok, rule, id, text[i]);
    }
    if (status == CL_OK && size > start) status = encode_words(tok, text + start, size - start, first, out, error);
    return status;
}

cl_status cl_tokenizer_encode(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error) {
    return cl_tokenizer_encode_spans(tok, text, size, first, NULL, 0, out, error);
}

cl_status cl_tokenizer_encode_template(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                                       cl_error *error) {
    const cl_text_span all = {0, size};
    return cl_tokenizer_encode_spans(tok, text, size, first, &all, 1, out, error);
}

size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size) {
    if (!known(tok, id) || (!special && cl_vocab_is_special(&tok->vocab, id))) return 0;
    const cl_str piece = tok->vocab.pieces[id];
    if (size > 0) memcpy(buf, piece.data, piece.size < size ? piece.size : size);
    return piece.size;
}

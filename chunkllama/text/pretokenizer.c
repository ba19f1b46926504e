/* The patterns of the known pre-tokenizers, and how PCRE2 runs them. */
#include "pretokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "chunkllama/common/str.h"
#include "nfc.h"

enum { MAX_PATTERNS = 2 };

/*
 * Spaces are Unicode's White_Space, as in the tokenizers' own definitions: PCRE2's \s would add U+180E, which is none since
 * Unicode 6.3.
 */
#define SPACE     "\\p{White_Space}"
#define NOT_SPACE "\\P{White_Space}"
#define SPACES    "|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define LINES     "|" SPACE "*[\\r\\n]+" SPACES
#define UPPER     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD      "[^\\r\\n\\p{L}\\p{N}]?"

#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+" SPACES
#define GPT4(digits) "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" LEAD "\\p{L}+|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*" LINES
#define TEKKEN       LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*" LINES

/* Each pattern cuts every piece from the pattern before into its matches and the text between them. */
typedef struct definition {
    const char *names; /* separated by spaces */
    const char *patterns[MAX_PATTERNS];
    bool whole_words, adds_bos, nfc;
} definition;

static const definition definitions[] = {
    {"default gpt-2 phi-2 mpt olmo jais gigachat roberta-bpe trillion", {GPT2}, false, false, false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b", {"\\p{N}", GPT2}, false, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {GPT4("\\p{N}{1,3}")}, true, true, false},
    {"smaug-bpe dbrx", {GPT4("\\p{N}{1,3}")}, false, false, false},
    {"qwen2", {GPT4("\\p{N}")}, false, false, true},
    {"deepseek-r1-qwen stablelm2 megrez hunyuan", {GPT4("\\p{N}")}, false, false, false},
    {"tekken", {TEKKEN}, true, true, false},
};
enum { N_DEFINITIONS = sizeof definitions / sizeof *definitions };

struct cl_pretokenizer {
    const definition *definition;
    pcre2_code *patterns[MAX_PATTERNS];
    int n_patterns;
};

static bool has_name(const char *names, cl_str name) {
    while (*names) {
        const size_t n = strcspn(names, " ");
        if (n == name.size && memcmp(names, name.data, n) == 0) return true;
        names += n + (names[n] == ' ');
    }
    return false;
}

static cl_status unknown_name(cl_str name, cl_error *error) {
    char names[400];
    size_t used = 0;
    for (int i = 0; i < N_DEFINITIONS && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? " " : "", definitions[i].names);
    return cl_fail(error, CL_ERR_UNSUPPORTED, "tokenizer.ggml.pre: pre-tokenizer '%.*s' is not supported; known are: %s",
                   (int)(name.size < 40 ? name.size : 40), name.data, names);
}

static cl_status compile(const char *pattern, pcre2_code **code, cl_error *error) {
    int number;
    PCRE2_SIZE at;
    *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &at, NULL);
    if (!*code) {
        char message[128];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)message, sizeof message);
        return cl_fail(error, CL_ERR_UNSUPPORTED, "PCRE2 %d.%d refuses a pre-tokenizer's pattern at %zu: %s", PCRE2_MAJOR,
                       PCRE2_MINOR, (size_t)at, message);
    }
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* where it is not available, matching is only slower */
    return CL_OK;
}

cl_status cl_pretokenizer_create(cl_str name, cl_pretokenizer **out, cl_error *error) {
    *out = NULL;
    const definition *def = definitions;
    while (def < definitions + N_DEFINITIONS && !has_name(def->names, name)) def++;
    if (def == definitions + N_DEFINITIONS) return unknown_name(name, error);
    cl_pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return cl_fail(error, CL_ERR_NOMEM, "no memory for a pre-tokenizer");
    p->definition = def;
    cl_status status = CL_OK;
    while (status == CL_OK && p->n_patterns < MAX_PATTERNS && def->patterns[p->n_patterns]) {
        status = compile(def->patterns[p->n_patterns], &p->patterns[p->n_patterns], error);
        p->n_patterns++;
    }
    if (status != CL_OK) cl_pretokenizer_free(&p);
    *out = p;
    return status;
}

void cl_pretokenizer_free(cl_pretokenizer **p) {
    if (!*p) return;
    for (int i = 0; i < (*p)->n_patterns; i++) pcre2_code_free((*p)->patterns[i]);
    free(*p);
    *p = NULL;
}

bool cl_pretokenizer_whole_words(const cl_pretokenizer *p) { return p->definition->whole_words; }
bool cl_pretokenizer_adds_bos(const cl_pretokenizer *p) { return p->definition->adds_bos; }
bool cl_pretokenizer_normalizes(const cl_pretokenizer *p) { return p->definition->nfc; }

typedef struct split {
    const cl_pretokenizer *p;
    pcre2_match_data *match[MAX_PATTERNS]; /* one for each level, since the outer one is in use while the inner one runs */
    cl_pretokenizer_fn fn;
    void *ctx;
    cl_error *error;
} split;

/* Cut valid text by the patterns from `level` on. */
static cl_status cut(const split *s, int level, const char *text, size_t size) {
    if (level == MAX_PATTERNS || !s->match[level]) return s->fn(s->ctx, text, size, s->error);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->match[level]);
    size_t done = 0;
    cl_status status = CL_OK;
    while (status == CL_OK && done < size) {
        const int n =
            pcre2_match(s->p->patterns[level], (PCRE2_SPTR)text, size, done, PCRE2_NO_UTF_CHECK, s->match[level], NULL);
        if (n < 0 && n != PCRE2_ERROR_NOMATCH)
            return cl_fail(s->error, CL_ERR_LIMIT, "byte %zu of a text: the pre-tokenizer's match failed with PCRE2 error %d",
                           done, n);
        const size_t start = n < 0 ? size : found[0], end = n < 0 ? size : found[1];
        if (start > done) status = cut(s, level + 1, text + done, start - done);
        if (status == CL_OK && end > start) status = cut(s, level + 1, text + start, end - start);
        done = end;
    }
    return status;
}

/* Cut text that is valid UTF-8. */
static cl_status cut_valid(const split *s, const char *text, size_t size) {
    cl_str valid = {text, size};
    char *buf = NULL;
    cl_status status = CL_OK;
    if (s->p->definition->nfc && cl_nfc_may_change(valid)) status = cl_nfc_normalize(valid, &buf, &valid, s->error);
    if (status == CL_OK) status = cut(s, 0, valid.data, valid.size);
    free(buf);
    return status;
}

cl_status cl_pretokenizer_normalize(const cl_pretokenizer *p, cl_str text, char **buf, cl_str *out, cl_error *error) {
    *buf = NULL;
    *out = text;
    if (!p->definition->nfc || !cl_nfc_may_change(text) || cl_utf8_valid(text.data, text.size) < text.size) return CL_OK;
    return cl_nfc_normalize(text, buf, out, error);
}

cl_status cl_pretokenizer_split(const cl_pretokenizer *p, const char *text, size_t size, cl_pretokenizer_fn fn, void *ctx,
                                cl_error *error) {
    split s = {.p = p, .fn = fn, .ctx = ctx, .error = error};
    cl_status status = CL_OK;
    for (int i = 0; i < p->n_patterns; i++) {
        s.match[i] = pcre2_match_data_create(1, NULL);
        if (!s.match[i]) status = cl_fail(error, CL_ERR_NOMEM, "no memory for the pre-tokenizer");
    }
    size_t start = 0;
    for (size_t i = 0; status == CL_OK && i <= size;) {
        const size_t n = i < size ? cl_utf8_char(text + i, size - i) : 0;
        if (n == 0) {
            if (i > start) status = cut_valid(&s, text + start, i - start);
            if (status == CL_OK && i < size) status = fn(ctx, text + i, 1, error);
            start = i + 1;
        }
        i += n ? n : 1;
    }
    for (int i = 0; i < p->n_patterns; i++) pcre2_match_data_free(s.match[i]);
    return status;
}

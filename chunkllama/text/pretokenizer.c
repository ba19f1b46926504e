/* The known pre-tokenizers, and how PCRE2 runs their rules. */
#include "pretokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "chunkllama/common/str.h"
#include "cuts.h"
#include "nfc.h"

enum { MAX_CUTS = 8 };

/* Each rule cuts every piece from the rule before. */
typedef struct definition {
    const char *names; /* separated by spaces */
    cl_cut cuts[MAX_CUTS];
    int n_cuts;
    bool whole_words, adds_bos, nfc;
} definition;

#define CUTS(...) .cuts = {__VA_ARGS__}, .n_cuts = sizeof((const cl_cut[]){__VA_ARGS__}) / sizeof(cl_cut)

static const definition definitions[] = {
    {"default gpt-2 phi-2 gigachat jina-es jina-de jina-v1-en jina-v2-code jina-v2-de jina-v2-es roberta-bpe a.x-4.0 mellum "
     "exaone4 jais trillion granite-docling",
     CUTS(CL_CUT_GPT2)},
    {"mpt olmo modern-bert", CUTS(CL_CUT_GPT2), .nfc = true},
    {"smollm starcoder refact codeshell exaone minerva-7b mellum2", CUTS(CL_CUT_DIGIT, CL_CUT_GPT2)},
    {"command-r", CUTS(CL_CUT_DIGIT, CL_CUT_GPT2), .nfc = true},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", CUTS(CL_CUT_WORDS_3),
     .whole_words = true, .adds_bos = true},
    {"smaug-bpe dbrx chatglm-bpe", CUTS(CL_CUT_WORDS_3)},
    {"glm4 glm5", CUTS(CL_CUT_WORDS_3), .whole_words = true},
    {"jais-2", CUTS(CL_CUT_WORDS_JAIS, CL_CUT_JAIS_SPACES)},
    {"minicpm5", CUTS(CL_CUT_DIGITS_3, CL_CUT_WORDS_MANY), .whole_words = true},
    {"qwen2 f2llmv2", CUTS(CL_CUT_WORDS_1), .nfc = true},
    {"deepseek-r1-qwen stablelm2 megrez hunyuan kormo solar-open grok-2", CUTS(CL_CUT_WORDS_1)},
    {"qwen35", CUTS(CL_CUT_WORDS_MARKS), .nfc = true},
    {"ufakzeka", CUTS(CL_CUT_WORDS_PLAIN)},
    {"seed-coder", CUTS(CL_CUT_WORDS_LINES)},
    {"bailingmoe bailingmoe2 llada-moe", CUTS(CL_CUT_WORDS_BAILING)},
    {"exaone-moe", CUTS(CL_CUT_WORDS_EXAONE)},
    {"laguna", CUTS(CL_CUT_LINES, CL_CUT_WORDS_1)},
    {"tekken", CUTS(CL_CUT_CASED), .whole_words = true, .adds_bos = true},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", CUTS(CL_CUT_CASED_3)},
    {"granite-embed-multi-97m", CUTS(CL_CUT_CASED_3), .whole_words = true},
    {"tiny_aya cohere2moe", CUTS(CL_CUT_THOUSANDS_AYA, CL_CUT_CASED_3), .nfc = true},
    {"kimi-k2", CUTS(CL_CUT_CASED_KIMI)},
    {"youtu", CUTS(CL_CUT_CJK_YOUTU, CL_CUT_CASED_1), .whole_words = true},
    {"deepseek-llm",
     CUTS(CL_CUT_LINE_ENDS, CL_CUT_DEEPSEEK_LETTERS, CL_CUT_DEEPSEEK_SIGNS, CL_CUT_LAST_SPACES, CL_CUT_CJK_WIDE, CL_CUT_DIGIT)},
    {"deepseek-coder", CUTS(CL_CUT_LINE_ENDS, CL_CUT_SPACED_LETTERS, CL_CUT_SPACED_PUNCTUATION, CL_CUT_CJK_WIDE, CL_CUT_DIGIT)},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", CUTS(CL_CUT_DIGITS_3, CL_CUT_CJK, CL_CUT_WORDS_DEEPSEEK)},
    {"spark2_5", CUTS(CL_CUT_DIGITS_3, CL_CUT_CJK, CL_CUT_WORDS_SPARK, CL_CUT_DIGIT)},
    {"afmoe", CUTS(CL_CUT_THOUSANDS, CL_CUT_CJK_AFMOE, CL_CUT_WORDS_DEEPSEEK)},
    {"falcon", CUTS(CL_CUT_PUNCTUATION_RUNS, CL_CUT_GPT2, CL_CUT_BYTE_NUMBERS, CL_CUT_BYTE_DIGITS_3)},
    {"bloom poro-chat gpt3-finnish", CUTS(CL_CUT_BLOOM)},
    {"viking", CUTS(CL_CUT_BLOOM, CL_CUT_DIGIT)},
    {"superbpe", CUTS(CL_CUT_NUMBERS, CL_CUT_THOUSANDS_WHOLE)},
    {"chameleon", CUTS(CL_CUT_SENTINELS, CL_CUT_IMAGES, CL_CUT_INDENTS, CL_CUT_DIGIT, CL_CUT_PUNCTUATION, CL_CUT_GPT2),
     .adds_bos = true},
};
enum { N_DEFINITIONS = sizeof definitions / sizeof *definitions };

struct cl_pretokenizer {
    cl_str name;
    cl_cut cuts[MAX_CUTS];
    pcre2_code *patterns[MAX_CUTS];
    int n_cuts;
    bool whole_words, adds_bos, nfc;
};

/* ---- Finding the rules ---- */

static cl_status compile(const cl_cut_rule *rule, pcre2_code **code, cl_error *error) {
    int number;
    PCRE2_SIZE at;
    char *pattern = cl_cut_pattern(rule);
    if (!pattern) return cl_fail(error, CL_ERR_NOMEM, "no memory for a pre-tokenizer");
    *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, rule->bytes ? 0 : PCRE2_UTF | PCRE2_UCP, &number, &at, NULL);
    free(pattern);
    if (!*code) {
        char message[128];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)message, sizeof message);
        return cl_fail(error, CL_ERR_UNSUPPORTED, "PCRE2 %d.%d refuses a pre-tokenizer's pattern at %zu: %s", PCRE2_MAJOR,
                       PCRE2_MINOR, (size_t)at, message);
    }
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* where it is not available, matching is only slower */
    return CL_OK;
}

/* Compile the rules of *p, whose other fields are set. */
static cl_status create(const cl_pretokenizer *from, cl_pretokenizer **out, cl_error *error) {
    cl_pretokenizer *p = malloc(sizeof *p);
    *out = NULL;
    if (!p) return cl_fail(error, CL_ERR_NOMEM, "no memory for a pre-tokenizer");
    *p = *from;
    cl_status status = CL_OK;
    for (int i = 0; status == CL_OK && i < p->n_cuts; i++) status = compile(&cl_cut_rules[p->cuts[i]], &p->patterns[i], error);
    if (status != CL_OK) cl_pretokenizer_free(&p);
    *out = p;
    return status;
}

cl_status cl_pretokenizer_create(cl_str name, cl_pretokenizer **out, cl_error *error) {
    *out = NULL;
    const definition *def = definitions;
    while (def < definitions + N_DEFINITIONS && !cl_str_is_one_of(name, def->names)) def++;
    if (def == definitions + N_DEFINITIONS)
        return cl_fail(
            error, CL_ERR_UNSUPPORTED,
            "tokenizer.ggml.pre: pre-tokenizer '%.*s' is not known (docs/models.md lists those that are); the model's "
            "folder in Hugging Face's format, whose tokenizer.json has the rules, may load instead",
            (int)(name.size < 40 ? name.size : 40), name.data);
    cl_pretokenizer p = {
        .name = name, .n_cuts = def->n_cuts, .whole_words = def->whole_words, .adds_bos = def->adds_bos, .nfc = def->nfc};
    memcpy(p.cuts, def->cuts, sizeof p.cuts);
    return create(&p, out, error);
}

/* The first name of a definition with the same rules. */
static cl_str name_of(const cl_pretokenizer *p) {
    for (int i = 0; i < N_DEFINITIONS; i++) {
        const definition *def = &definitions[i];
        if (def->n_cuts != p->n_cuts || memcmp(def->cuts, p->cuts, (size_t)p->n_cuts * sizeof *p->cuts) != 0) continue;
        if (def->nfc == p->nfc && def->whole_words == p->whole_words) return (cl_str){def->names, strcspn(def->names, " ")};
    }
    return cl_str_of("tokenizer.json");
}

cl_status cl_pretokenizer_create_of_steps(const cl_str *steps, size_t n, bool nfc, bool whole_words, cl_pretokenizer **out,
                                          cl_error *error) {
    cl_pretokenizer p = {.nfc = nfc, .whole_words = whole_words};
    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        const cl_cut found = cl_cut_find(steps[i]);
        if (found == CL_CUT_N)
            return cl_fail(error, CL_ERR_UNSUPPORTED,
                           "tokenizer.json: the step '%.*s' of pre_tokenizer is not known; convert the model to GGUF",
                           (int)(steps[i].size < 200 ? steps[i].size : 200), steps[i].data);
        if (p.n_cuts + 2 > MAX_CUTS)
            return cl_fail(error, CL_ERR_UNSUPPORTED, "tokenizer.json: pre_tokenizer has %zu steps; the limit is %d", n,
                           MAX_CUTS - 1);
        p.cuts[p.n_cuts++] = found;
        if (found == CL_CUT_WORDS_JAIS) p.cuts[p.n_cuts++] = CL_CUT_JAIS_SPACES;
    }
    p.name = name_of(&p);
    return create(&p, out, error);
}

void cl_pretokenizer_free(cl_pretokenizer **p) {
    if (!*p) return;
    for (int i = 0; i < (*p)->n_cuts; i++) pcre2_code_free((*p)->patterns[i]);
    free(*p);
    *p = NULL;
}

cl_str cl_pretokenizer_name(const cl_pretokenizer *p) { return p->name; }
bool cl_pretokenizer_whole_words(const cl_pretokenizer *p) { return p->whole_words; }
bool cl_pretokenizer_adds_bos(const cl_pretokenizer *p) { return p->adds_bos; }
bool cl_pretokenizer_normalizes(const cl_pretokenizer *p) { return p->nfc; }

/* ---- Cutting ---- */

typedef struct split {
    const cl_pretokenizer *p;
    pcre2_match_data *match[MAX_CUTS]; /* one for each rule, since the outer one is in use while the inner one runs */
    cl_pretokenizer_fn fn;
    void *ctx;
    cl_error *error;
} split;

static cl_status cut(const split *s, int level, const char *text, size_t size);

/* The size of the digit at the start of text [size >= 1], or 0. */
static size_t digit_size(const char *text, size_t size) {
    utf8proc_int32_t c;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &c);
    return n > 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_ND ? (size_t)n : 0;
}

/* The number of digits that text begins with. */
static size_t count_digits(const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0, digit; i < size && (digit = digit_size(text + i, size - i)) > 0; i += digit) n++;
    return n;
}

/* Cut before each digit behind which, with itself, the digits that follow each other are a multiple of three. */
static cl_status cut_thousands(const split *s, int level, const char *text, size_t size) {
    cl_status status = CL_OK;
    size_t start = 0, left = 0; /* digits from here on */
    for (size_t i = 0; status == CL_OK && i < size;) {
        const size_t digit = digit_size(text + i, size - i);
        if (digit > 0 && left == 0) left = count_digits(text + i, size - i);
        if (digit > 0 && left % 3 == 0 && i > start) {
            status = cut(s, level, text + start, i - start);
            start = i;
        }
        if (digit > 0) left--;
        i += digit > 0 ? digit : cl_utf8_char(text + i, size - i);
    }
    return status == CL_OK ? cut(s, level, text + start, size - start) : status;
}

/* Cut valid text by the rules from `level` on. */
static cl_status cut(const split *s, int level, const char *text, size_t size) {
    if (level == s->p->n_cuts) return s->fn(s->ctx, text, size, s->error);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->match[level]);
    const bool thousands = cl_cut_rules[s->p->cuts[level]].thousands;
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
        if (status == CL_OK && end > start) status = (thousands ? cut_thousands : cut)(s, level + 1, text + start, end - start);
        done = end;
    }
    return status;
}

/* Cut text that is valid UTF-8. */
static cl_status cut_valid(const split *s, const char *text, size_t size) {
    cl_str valid = {text, size};
    char *buf = NULL;
    cl_status status = CL_OK;
    if (s->p->nfc && cl_nfc_may_change(valid)) status = cl_nfc_normalize(valid, &buf, &valid, s->error);
    if (status == CL_OK) status = cut(s, 0, valid.data, valid.size);
    free(buf);
    return status;
}

cl_status cl_pretokenizer_normalize(const cl_pretokenizer *p, cl_str text, char **buf, cl_str *out, cl_error *error) {
    *buf = NULL;
    *out = text;
    if (!p->nfc || !cl_nfc_may_change(text) || cl_utf8_valid(text.data, text.size) < text.size) return CL_OK;
    return cl_nfc_normalize(text, buf, out, error);
}

cl_status cl_pretokenizer_split(const cl_pretokenizer *p, const char *text, size_t size, cl_pretokenizer_fn fn, void *ctx,
                                cl_error *error) {
    split s = {.p = p, .fn = fn, .ctx = ctx, .error = error};
    cl_status status = CL_OK;
    for (int i = 0; i < p->n_cuts; i++) {
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
    for (int i = 0; i < p->n_cuts; i++) pcre2_match_data_free(s.match[i]);
    return status;
}

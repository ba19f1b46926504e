/* Recognises normalizer and pre_tokenizer by comparing them with the known ones. */
#include "hf.h"

#include <stdlib.h>
#include <string.h>

/* The steps of a Sequence, or a single step; none for null. */
typedef struct steps {
    const json_t *all, *one;
    size_t n;
} steps;

static steps steps_of(const json_t *value, const char *list) {
    if (!value || json_is_null(value)) return (steps){0};
    const json_t *all = json_object_get(value, list);
    return json_is_array(all) ? (steps){all, NULL, json_array_size(all)} : (steps){NULL, value, 1};
}

static const json_t *step(const steps *s, size_t i) { return i >= s->n ? NULL : s->one ? s->one : json_array_get(s->all, i); }

/* Whether a step has these members, given as a JSON object; it may have others. */
static bool has(const json_t *value, const char *members) {
    json_t *wanted = json_loads(members, 0, NULL);
    const char *key;
    json_t *member;
    bool same = json_is_object(value) && wanted;
    json_object_foreach(wanted, key, member) same = same && json_equal(json_object_get(value, key), member);
    json_decref(wanted);
    return same;
}

static bool is_type(const json_t *value, const char *type) {
    const char *name = json_string_value(json_object_get(value, "type"));
    return name && strcmp(name, type) == 0;
}

#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define CASED                                                                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"                               \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"

/* The expressions in tokenizer.json files, and pretokenizer.c's name for each together with its two flags. */
static const struct {
    const char *pattern;
    bool nfc, ignore_merges;
    const char *name;
} patterns[] = {
    {HEAD "\\p{N}{1,3}" TAIL, false, true, "llama-bpe"},
    {HEAD "\\p{N}{1,3}" TAIL, false, false, "smaug-bpe"},
    {HEAD "\\p{N}" TAIL, true, false, "qwen2"},
    {HEAD "\\p{N}" TAIL, false, false, "deepseek-r1-qwen"},
    {CASED "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", false, true, "tekken"},
};

static const char WITH_REGEX[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}";
static const char WITHOUT_REGEX[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";

static bool byte_level_with_regex(const json_t *value) {
    return has(value, WITH_REGEX) && !json_is_false(json_object_get(value, "use_regex"));
}

/* The name of a pre-tokenizer that ends in a ByteLevel step; NULL: it is not known. */
static const char *byte_level_name(const steps *s, bool nfc, bool ignore_merges) {
    if (!nfc && !ignore_merges) {
        if (s->n == 1 && byte_level_with_regex(step(s, 0))) return "gpt-2";
        if (s->n == 2 && has(step(s, 0), "{\"type\": \"Digits\", \"individual_digits\": true}") &&
            byte_level_with_regex(step(s, 1)))
            return "smollm";
    }
    if (s->n != 2 || !has(step(s, 0), "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false}") ||
        !has(step(s, 1), WITHOUT_REGEX))
        return NULL;
    const char *pattern = json_string_value(json_object_get(json_object_get(step(s, 0), "pattern"), "Regex"));
    for (size_t i = 0; pattern && i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(pattern, patterns[i].pattern) == 0 && nfc == patterns[i].nfc && ignore_merges == patterns[i].ignore_merges)
            return patterns[i].name;
    return NULL;
}

#define REPLACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}"
#define PREPEND "{\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"}"

/* Recognise SentencePiece's spaces: they become U+2581, and *rule says before which texts one is put (spm.h). */
static bool metaspace_rule(const steps *normal, const steps *pre, const char **rule) {
    *rule = NULL;
    const bool prepends = normal->n == 2 && has(step(normal, 0), PREPEND) && has(step(normal, 1), REPLACE);
    const bool replaces = normal->n == 1 && has(step(normal, 0), REPLACE);
    /* Gemma's tokenizer splits at spaces after it has replaced all of them. */
    const bool nothing =
        pre->n == 0 || (pre->n == 1 && has(step(pre, 0), "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}}"));
    if ((prepends || replaces) && nothing) {
        if (prepends) *rule = "prepend";
        return true;
    }
    if (normal->n || pre->n != 1 ||
        !has(step(pre, 0), "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"split\": false}"))
        return false;
    const char *scheme = json_string_value(json_object_get(step(pre, 0), "prepend_scheme"));
    if (!scheme) return false;
    if (strcmp(scheme, "first") == 0) *rule = "first";
    if (strcmp(scheme, "always") == 0) *rule = "always";
    return *rule || strcmp(scheme, "never") == 0;
}

bool cl_hf_read_pipeline(cl_json_doc *doc, bool ignore_merges, cl_hf_pipeline *p) {
    if (doc->status != CL_OK) return false;
    const steps normal = steps_of(json_object_get(doc->root, "normalizer"), "normalizers");
    const steps pre = steps_of(json_object_get(doc->root, "pre_tokenizer"), "pretokenizers");
    const bool nfc = normal.n == 1 && is_type(step(&normal, 0), "NFC");
    *p = (cl_hf_pipeline){.byte_level = pre.n > 0 && is_type(step(&pre, pre.n - 1), "ByteLevel")};
    p->metaspace = !p->byte_level && normal.n == 0;
    if (p->byte_level) {
        if (nfc || normal.n == 0) p->name = byte_level_name(&pre, nfc, ignore_merges);
        if (p->name) return true;
    } else if (!ignore_merges && metaspace_rule(&normal, &pre, &p->name)) {
        return true;
    }
    cl_json_doc_fail(
        doc, CL_ERR_UNSUPPORTED, "%s",
        "normalizer, pre_tokenizer and model.ignore_merges are together none of the known ones (GPT-2, SmolLM, Llama 2, "
        "Llama 3, Qwen 2, Tekken, Gemma); convert the model to GGUF");
    return false;
}

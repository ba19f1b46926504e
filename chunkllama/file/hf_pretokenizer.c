/* Reads normalizer and pre_tokenizer: the steps that cut text, or SentencePiece's spaces. */
#include "hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_file_data.h"

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

/* ---- Byte-level ---- */

enum { MAX_STEP = 2047 };

static const char *text_of(const json_t *value, const char *member) {
    const char *text = json_string_value(json_object_get(value, member));
    return text ? text : "?";
}

/* Write a Split: of those that invert, the one is known that removes what is between matches. */
static int write_split(const json_t *step, char *buf) {
    const char *behavior = text_of(step, "behavior");
    const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
    const bool removes = strcmp(behavior, "Removed") == 0, inverts = json_is_true(json_object_get(step, "invert"));
    if (removes != inverts) return snprintf(buf, MAX_STEP + 1, "Split %s%s", inverts ? "inverted " : "", behavior);
    return snprintf(buf, MAX_STEP + 1, "Split %s %s", behavior, regex ? json_string_value(regex) : "of a string");
}

/* Write a step that cuts to buf, as chunkllama/text/cuts.h has it; one that is too long for that is none of the known ones. */
static void write_step(const json_t *step, char *buf) {
    const char *type = text_of(step, "type");
    int n;
    if (strcmp(type, "Split") == 0)
        n = write_split(step, buf);
    else if (strcmp(type, "Digits") == 0)
        n = snprintf(buf, MAX_STEP + 1, "Digits%s",
                     json_is_true(json_object_get(step, "individual_digits")) ? " individual" : "");
    else if (strcmp(type, "Punctuation") == 0)
        n = snprintf(buf, MAX_STEP + 1, "Punctuation %s", text_of(step, "behavior"));
    else if (strcmp(type, "ByteLevel") == 0 && !json_is_false(json_object_get(step, "add_prefix_space")))
        n = snprintf(buf, MAX_STEP + 1, "ByteLevel with add_prefix_space");
    else
        n = snprintf(buf, MAX_STEP + 1, "%s", type);
    if (n > MAX_STEP) (void)snprintf(buf, MAX_STEP + 1, "a %s of %d bytes", type, n);
}

/* Whether a step cuts: ByteLevel may also only write bytes as characters. */
static bool cuts(const json_t *step) {
    return !has(step, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}");
}

/* Put the steps that cut text. Behind ByteLevel they cut the characters that bytes are written as. */
static void put_steps(cl_model_file *file, const steps *s) {
    static const char BYTES[] = "bytes ";
    char text[sizeof BYTES + MAX_STEP] = "bytes ", *const step_text = text + strlen(BYTES);
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += cuts(step(s, i));
    cl_str *out = cl_meta_put_strings(file, "tokenizer.pre_steps", n);
    bool bytes = false;
    for (size_t i = 0; out && i < s->n; i++) {
        if (cuts(step(s, i))) {
            write_step(step(s, i), step_text);
            *out++ = cl_meta_copy(file, cl_str_of(bytes ? text : step_text));
        }
        bytes = bytes || is_type(step(s, i), "ByteLevel");
    }
}

static bool is_byte_level(const steps *s) {
    for (size_t i = 0; i < s->n; i++)
        if (is_type(step(s, i), "ByteLevel")) return true;
    return false;
}

/* ---- SentencePiece ---- */

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

bool cl_hf_read_pipeline(cl_json_doc *doc, cl_model_file *file, cl_hf_pipeline *p) {
    if (doc->status != CL_OK) return false;
    const steps normal = steps_of(json_object_get(doc->root, "normalizer"), "normalizers");
    const steps pre = steps_of(json_object_get(doc->root, "pre_tokenizer"), "pretokenizers");
    const bool nfc = normal.n == 1 && is_type(step(&normal, 0), "NFC");
    *p = (cl_hf_pipeline){.byte_level = is_byte_level(&pre)};
    p->metaspace = !p->byte_level && normal.n == 0;
    if (p->byte_level && (nfc || normal.n == 0)) {
        put_steps(file, &pre);
        cl_meta_put_bool(file, "tokenizer.nfc", nfc);
        return true;
    }
    if (!p->byte_level && metaspace_rule(&normal, &pre, &p->space_prefix)) return true;
    cl_json_doc_fail(doc, CL_ERR_UNSUPPORTED, "%s",
                     p->byte_level ? "normalizer is not known; NFC or none is. Convert the model to GGUF"
                                   : "normalizer and pre_tokenizer are together none of the known ones (with ByteLevel, or as "
                                     "Llama 2 and Gemma have them); convert the model to GGUF");
    return false;
}

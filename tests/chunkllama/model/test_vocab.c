/* Finding tokens in a text, against a look at each of them. */
#include "tests/support/testing.h"

#include <stdio.h>

#include "chunkllama/text/vocab.h"
#include "gguf_build.h"

enum { N_UNUSED = 6000, N_RANDOM = 500, N = N_UNUSED + N_RANDOM, MAX_UNITS = 5, MAX_TEXT = 48 };
#define SPACE "\xe2\x96\x81"

static uint64_t seed;
static uint32_t below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* A text of n units: few of them, so that it holds many names, and names begin with each other. */
static size_t random_text(uint32_t n, char *text) {
    static const char *const units[] = {"<", "<", "<", "<unused", "1", "2", ">", "a", " ", SPACE, "\xe2", "\xff"};
    size_t size = 0;
    for (uint32_t i = 0; i < n; i++) {
        const cl_str unit = cl_str_of(units[below(sizeof units / sizeof *units)]);
        memcpy(text + size, unit.data, unit.size);
        size += unit.size;
    }
    return size;
}

/* Added tokens like Gemma's, thousands with the same first byte, and random ones, which begin with each other or occur twice.
 */
static cl_model_file *open_names(gguf_bytes *b) {
    put_header(b, 3, 0, 2);
    put_array(b, "tokenizer.ggml.tokens", CL_META_STRING, N);
    for (int i = 0; i < N; i++) {
        char text[64];
        size_t size = (size_t)snprintf(text, sizeof text, "<unused%d>", i);
        if (i >= N_UNUSED) size = random_text(1 + below(MAX_UNITS), text);
        put_bytes(b, text, size);
    }
    put_array(b, "tokenizer.ggml.token_type", CL_META_I32, N);
    for (int i = 0; i < N; i++) put_u32(b, below(2) ? CL_VOCAB_USER : CL_VOCAB_CONTROL);
    cl_model_file *file;
    if (cl_gguf_open_memory(b->data, b->size, &file, NULL) != CL_OK) abort();
    return file;
}

/* Bytes of text that the token stands for at its start, or 0. */
static size_t stands_for(const cl_vocab *v, int32_t id, const char *text, size_t size) {
    const cl_str piece = v->pieces[id];
    const bool metaspace = v->metaspace && !cl_vocab_is_special(v, id);
    size_t end = 0;
    for (size_t i = 0; i < piece.size; i++) {
        const bool space = metaspace && size - end >= strlen(SPACE) && memcmp(text + end, SPACE, strlen(SPACE)) == 0;
        if (end == size || piece.data[i] != (space ? ' ' : text[end])) return 0;
        end += space ? strlen(SPACE) : 1;
    }
    return end;
}

static int32_t by_definition(const cl_vocab *v, const char *text, size_t size, size_t special_size, size_t *matched) {
    int32_t best = -1;
    for (int32_t id = 0; id < v->n; id++) {
        const size_t n = stands_for(v, id, text, cl_vocab_is_special(v, id) ? special_size : size);
        if (n == 0 || (best >= 0 && v->pieces[id].size <= v->pieces[best].size)) continue;
        best = id;
        *matched = n;
    }
    return best;
}

static void finds_the_longest_name(void **state) {
    (void)state;
    for (int byte_level = 0; byte_level < 2; byte_level++) {
        seed = 6242;
        gguf_bytes bytes = {0};
        cl_model_file *file = open_names(&bytes);
        cl_vocab v = {0};
        cl_error error = {0};
        if (cl_vocab_load(&v, file, byte_level, &error) != CL_OK) fail_msg("%s", error.message);
        int n_user = 0, n_special = 0;
        for (int i = 0; i < 3000; i++) {
            char text[8 * MAX_TEXT];
            const size_t size = random_text(1 + below(MAX_TEXT), text), special_size = below(2) ? below((uint32_t)size + 1) : 0;
            size_t matched = 0, expect_matched = 0;
            const int32_t id = cl_vocab_find_added(&v, text, size, special_size, &matched);
            const int32_t expect = by_definition(&v, text, size, special_size, &expect_matched);
            if (id != expect || (id >= 0 && matched != expect_matched))
                fail_msg("text %d: token %d of %zu bytes, %d of %zu expected", i, id, matched, expect, expect_matched);
            if (id >= 0) (cl_vocab_is_special(&v, id) ? n_special++ : n_user++);
        }
        assert_true(n_user > 300 && n_special > 300); /* and there was something to find */
        cl_vocab_free(&v);
        cl_model_file_close(&file);
        free(bytes.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_longest_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

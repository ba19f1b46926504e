/* Tokenizers on small vocabularies: what exactly comes out, on odd input too. The large comparisons are in
 * tests/chunkllama/model. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <time.h>

#include "chunkllama/common/deadline.h"
#include "chunkllama/common/str.h"
#include "small_vocab.h"

typedef struct fixture {
    gguf_bytes bytes;
    cl_model_file *file;
    cl_tokenizer *tok;
} fixture;

static fixture open_tokenizer(const small_vocab *v) {
    fixture f;
    cl_error error = {0};
    f.file = open_vocab(v, &f.bytes);
    if (cl_tokenizer_create(f.file, &f.tok, &error) != CL_OK) fail_msg("%s", error.message);
    return f;
}

static void close_tokenizer(fixture *f) {
    cl_tokenizer_free(&f->tok);
    assert_null(f->tok);
    cl_model_file_close(&f->file);
    free(f->bytes.data);
}

/* The ids of text must be the n in expect. */
static void expect_ids(const fixture *f, const char *text, size_t size, bool template, bool first, const int32_t *expect,
                       size_t n) {
    cl_token_list ids = {0};
    cl_error error = {0};
    const cl_status status = template ? cl_tokenizer_encode_template(f->tok, text, size, first, &ids, &error)
                                      : cl_tokenizer_encode(f->tok, text, size, first, &ids, &error);
    if (status != CL_OK) fail_msg("%s", error.message);
    if (ids.n != n) {
        for (size_t i = 0; i < ids.n; i++) print_error("%d ", ids.ids[i]);
        fail_msg("'%s': %zu ids, %zu expected", text, ids.n, n);
    }
    for (size_t i = 0; i < n; i++)
        if (ids.ids[i] != expect[i]) fail_msg("'%s': id %zu is %d, not %d", text, i, ids.ids[i], expect[i]);
    cl_token_list_free(&ids);
}
static void expect_refusal(const small_vocab *v, cl_status status, const char *part) {
    gguf_bytes bytes;
    cl_model_file *file = open_vocab(v, &bytes);
    cl_tokenizer *tok;
    cl_error error = {0};
    assert_int_equal(cl_tokenizer_create(file, &tok, &error), status);
    assert_null(tok);
    if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
    cl_model_file_close(&file);
    free(bytes.data);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

enum { HE = 256, LL, HELL, G_THE, TH, GTH, IM_END, TOOL, TOOL_X };

static small_vocab hello_vocab(void) {
    small_vocab v = byte_level_vocab("gpt-2");
    add_piece(&v, "he", 1, 0), add_piece(&v, "ll", 1, 0), add_piece(&v, "hell", 1, 0);
    add_piece(&v, "\xc4\xa0the", 1, 0), add_piece(&v, "th", 1, 0), add_piece(&v, "\xc4\xa0th", 1, 0);
    add_piece(&v, "<|im_end|>", 3, 0), add_piece(&v, "<tool>", 4, 0), add_piece(&v, "<tool>x", 4, 0);
    const char *merges[] = {"h e", "l l", "he ll", "t h", "\xc4\xa0 th", "\xc4\xa0th e"};
    v.n_merges = sizeof merges / sizeof *merges;
    memcpy(v.merges, merges, sizeof merges);
    v.eos = IM_END;
    return v;
}

/* <|end|> ends a turn, but in harmony it ends a message of one. */
static void messages_end_apart_from_turns(void **state) {
    (void)state;
    for (int harmony = 0; harmony < 2; harmony++) {
        small_vocab v = hello_vocab();
        add_piece(&v, "<|end|>", 3, 0), add_piece(&v, "<|channel|>", 3, 0);
        if (harmony) add_piece(&v, "<|return|>", 3, 0);
        fixture f = open_tokenizer(&v);
        assert_int_equal(cl_tokenizer_is_end(f.tok, TOOL_X + 1), !harmony);
        assert_false(cl_tokenizer_is_end(f.tok, TOOL_X + 2));
        if (harmony) assert_true(cl_tokenizer_is_end(f.tok, TOOL_X + 3));
        close_tokenizer(&f);
    }
}

static void byte_level_merges_by_rank(void **state) {
    (void)state;
    const small_vocab v = hello_vocab();
    fixture f = open_tokenizer(&v);
    expect_ids(&f, "hello", 5, false, true, IDS(HELL, 'o'));
    expect_ids(&f, "the", 3, false, true, IDS('t', HE)); /* h e comes before t h */
    expect_ids(&f, " th", 3, false, true, IDS(GTH));
    expect_ids(&f, "lllll", 5, false, true, IDS(LL, LL, 'l')); /* leftmost first */
    expect_ids(&f, "he ll", 5, false, true, IDS(HE, ' ', LL)); /* no merge across pieces */
    expect_ids(&f, "", 0, false, true, NULL, 0);
    expect_ids(&f, "h\0e", 3, false, true, IDS('h', 0, 'e'));
    expect_ids(&f, "he\xff\x80he", 6, false, true, IDS(HE, 0xff, 0x80, HE)); /* not UTF-8: bytes */
    expect_ids(&f, "\xe2\x82", 2, false, true, IDS(0xe2, 0x82));
    expect_ids(&f, "\xed\xa0\x80", 3, false, true, IDS(0xed, 0xa0, 0x80)); /* a surrogate */
    expect_ids(&f, "\xc0\xaf", 2, false, true, IDS(0xc0, 0xaf));           /* overlong */
    close_tokenizer(&f);
}

static void special_tokens_only_from_templates(void **state) {
    (void)state;
    const small_vocab v = hello_vocab();
    fixture f = open_tokenizer(&v);
    const char text[] = "he<|im_end|>he";
    expect_ids(&f, text, 14, true, true, IDS(HE, IM_END, HE));
    expect_ids(&f, text, 14, false, true, IDS(HE, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', HE));
    /* Added tokens that are text are found everywhere, the longest first. */
    expect_ids(&f, "<tool>he<tool>x<tool", 20, false, true, IDS(TOOL, HE, TOOL_X, '<', 't', 'o', 'o', 'l'));
    assert_true(cl_tokenizer_is_end(f.tok, IM_END) && !cl_tokenizer_is_end(f.tok, HE));
    assert_false(cl_tokenizer_is_end(f.tok, -1) || cl_tokenizer_is_end(f.tok, v.n));
    for (int special = 0; special < 2; special++) { /* elsewhere it is a tag of HTML */
        small_vocab with_tag = hello_vocab();
        add_piece(&with_tag, "</s>", special ? 3 : 4, 0);
        fixture g = open_tokenizer(&with_tag);
        assert_int_equal(cl_tokenizer_is_end(g.tok, with_tag.n - 1), special);
        close_tokenizer(&g);
    }
    assert_false(cl_tokenizer_adds_bos(f.tok));
    assert_int_equal(cl_tokenizer_bos(f.tok), -1);
    assert_int_equal(cl_tokenizer_eos(f.tok), IM_END);
    close_tokenizer(&f);
}

/* By the keys of the file, or by the names that models use. */
static void tokens_around_a_gap(void **state) {
    (void)state;
    static const char *const names[][3] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                           {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"}};
    for (int i = 0; i < 2; i++) {
        small_vocab v = i ? spm_vocab() : byte_level_vocab("gpt-2");
        cl_fim_tokens fim;
        fixture f = open_tokenizer(&v);
        assert_false(cl_tokenizer_fim(f.tok, &fim));
        assert_false(cl_tokenizer_adds_eos(f.tok));
        close_tokenizer(&f);
        int32_t ids[3];
        for (int k = 0; k < 3; k++) ids[k] = add_piece(&v, names[i][k], 3, 0);
        f = open_tokenizer(&v);
        assert_true(cl_tokenizer_fim(f.tok, &fim));
        assert_true(fim.prefix == ids[0] && fim.suffix == ids[1] && fim.middle == ids[2]);
        close_tokenizer(&f);
        v.fim_prefix = 7;
        v.add_eos = true;
        v.eos = 9;
        f = open_tokenizer(&v);
        assert_true(cl_tokenizer_fim(f.tok, &fim) && fim.prefix == 7 && fim.suffix == ids[1]);
        assert_true(cl_tokenizer_adds_eos(f.tok));
        close_tokenizer(&f);
    }
}

static void pieces_are_output_bytes(void **state) {
    (void)state;
    const small_vocab v = hello_vocab();
    fixture f = open_tokenizer(&v);
    char buf[16] = "################";
    assert_int_equal(cl_tokenizer_piece(f.tok, G_THE, false, buf, sizeof buf), 4);
    assert_memory_equal(buf, " the#", 5);
    /* In a buffer that is too small the bytes are cut, and the whole size is returned. */
    assert_int_equal(cl_tokenizer_piece(f.tok, G_THE, false, buf, 2), 4);
    assert_int_equal(cl_tokenizer_piece(f.tok, IM_END, false, buf, sizeof buf), 0);
    assert_int_equal(cl_tokenizer_piece(f.tok, IM_END, true, buf, sizeof buf), 10);
    assert_memory_equal(buf, "<|im_end|>", 10);
    assert_int_equal(cl_tokenizer_piece(f.tok, TOOL, false, buf, sizeof buf), 6);
    assert_int_equal(cl_tokenizer_longest(f.tok), 10);
    assert_int_equal(cl_tokenizer_piece(f.tok, -1, true, buf, sizeof buf), 0);
    assert_int_equal(cl_tokenizer_piece(f.tok, v.n, true, NULL, 0), 0);
    for (int byte = 0; byte < 256; byte++) {
        assert_int_equal(cl_tokenizer_piece(f.tok, byte, false, buf, sizeof buf), 1);
        assert_int_equal((unsigned char)buf[0], byte);
    }
    close_tokenizer(&f);
}

/* Where the pre-tokenizer says so, a piece that is a token stays whole against the merges. */
static void whole_words(void **state) {
    (void)state;
    small_vocab v = hello_vocab();
    add_piece(&v, "xyz", 1, 0);
    fixture f = open_tokenizer(&v);
    expect_ids(&f, "xyz", 3, false, true, IDS('x', 'y', 'z'));
    close_tokenizer(&f);
    v.pre = "llama-bpe";
    f = open_tokenizer(&v);
    expect_ids(&f, "xyz", 3, false, true, IDS(v.n - 1));
    close_tokenizer(&f);
}

enum { SPACE = 259, A, B, AB, SAB, BA, E_ACUTE, USER };

static small_vocab ab_vocab(void) {
    small_vocab v = spm_vocab();
    add_piece(&v, "\xe2\x96\x81", 1, -10), add_piece(&v, "a", 1, -11), add_piece(&v, "b", 1, -12);
    add_piece(&v, "ab", 1, -1),
        add_piece(&v,
                  "\xe2\x96\x81"
                  "ab",
                  1, -3),
        add_piece(&v, "ba", 1, -0.5f);
    add_piece(&v, "\xc3\xa9", 1, -13), add_piece(&v, "<user>", 4, 0);
    return v;
}

/* NFC and SentencePiece's spaces do. */
static void some_shorten_text(void **state) {
    (void)state;
    const struct {
        small_vocab v;
        bool shortens;
    } cases[] = {{byte_level_vocab("gpt-2"), false}, {byte_level_vocab("qwen2"), true}, {ab_vocab(), true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f = open_tokenizer(&cases[i].v);
        assert_int_equal(cl_tokenizer_shortens(f.tok), cases[i].shortens);
        close_tokenizer(&f);
    }
}

static void spm_merges_by_score(void **state) {
    (void)state;
    small_vocab v = ab_vocab();
    fixture f = open_tokenizer(&v);
    expect_ids(&f, "ab", 2, false, true, IDS(SAB)); /* the space before a prompt */
    expect_ids(&f, "ab", 2, false, false, IDS(AB));
    expect_ids(&f, " ab", 3, false, true, IDS(SPACE, SAB));
    expect_ids(&f, "aba", 3, false, false, IDS(A, BA)); /* -0.5 before -1 */
    expect_ids(&f, "abab", 4, false, false, IDS(A, BA, B));
    expect_ids(&f, "\xe2\x96\x81", 3, false, false, IDS(SPACE));
    expect_ids(&f, "", 0, false, true, NULL, 0);
    expect_ids(&f, "a\xc3\xa9z\xff", 5, false, false, IDS(A, E_ACUTE, 3 + 'z', 3 + 0xff));
    expect_ids(&f, "\xe2\x82\xac\n", 4, false, false, IDS(3 + 0xe2, 3 + 0x82, 3 + 0xac, 3 + '\n'));
    expect_ids(&f, "</s>", 4, false, false, IDS(3 + '<', 3 + '/', 3 + 's', 3 + '>'));
    /* After a special token a text starts anew, and gets a space, also if it has one already. */
    expect_ids(&f, "<s>ab</s>ab</s> ab", 18, true, true, IDS(1, SAB, 2, SAB, 2, SPACE, SAB));
    assert_true(cl_tokenizer_adds_bos(f.tok) && cl_tokenizer_bos(f.tok) == 1);
    assert_true(cl_tokenizer_is_end(f.tok, 2) && !cl_tokenizer_is_end(f.tok, 1));
    char buf[8];
    assert_int_equal(cl_tokenizer_piece(f.tok, SAB, false, buf, sizeof buf), 3);
    assert_memory_equal(buf, " ab", 3);
    assert_int_equal(cl_tokenizer_piece(f.tok, 3 + 0xe2, false, buf, sizeof buf), 1);
    assert_int_equal((unsigned char)buf[0], 0xe2);
    close_tokenizer(&f);

    v.add_bos = 0;
    for (int i = 3; i < 259; i++) v.types[i] = 5; /* without bytes, what is unknown is one <unk> a run */
    f = open_tokenizer(&v);
    expect_ids(&f, "azz\xffzb\n", 7, false, false, IDS(A, 0, B, 0));
    assert_false(cl_tokenizer_adds_bos(f.tok));
    close_tokenizer(&f);
}

/* SentencePiece's texts with the merges of byte-level BPE, as in Gemma 4: their order counts, not the scores. */
static void pieces_by_merges(void **state) {
    (void)state;
    static const char *const names[][2] = {{"gemma4", NULL}, {"gpt2", "gemma4"}, {"gpt2", "sarvam-moe"}};
    static const char *const merges[] = {"a b", "b a", "\xe2\x96\x81 ab", "<user> a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small_vocab v = ab_vocab();
        v.model = names[i][0];
        v.pre = names[i][1];
        const int32_t user_a = add_piece(&v, "<user>a", 4, 0);
        v.n_merges = sizeof merges / sizeof *merges;
        memcpy(v.merges, merges, sizeof merges);
        fixture f = open_tokenizer(&v);
        expect_ids(&f, "aba", 3, false, true, IDS(AB, A));
        expect_ids(&f,
                   "ab ab\xe2\x96\x81"
                   "ab\n",
                   11, false, true, IDS(AB, SAB, SAB, 3 + '\n'));
        expect_ids(&f, "<user> ab<user>a\xff", 17, false, true, IDS(USER, SAB, user_a, 3 + 0xff));
        assert_false(cl_tokenizer_adds_bos(f.tok));
        close_tokenizer(&f);
        v.merges[3] = "ab ab";
        expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.merges[3]: a part or the result of 'ab ab'");
    }
}

/* As Hugging Face splits them: tokens that were added behind the trained vocabulary end a text, trained symbols do not. */
static void spm_added_tokens(void **state) {
    (void)state;
    small_vocab v = ab_vocab();
    fixture f = open_tokenizer(&v);
    expect_ids(&f, "ab<user>ab", 10, false, true, IDS(SAB, USER, SAB));
    expect_ids(&f, "<user>ab", 8, false, true, IDS(USER, SAB));
    expect_ids(&f, "<user> ab<user>", 15, false, true, IDS(USER, SPACE, SAB, USER));
    expect_ids(&f, "<user>ab", 8, false, false, IDS(USER, SAB));
    expect_ids(&f, "  <user>", 8, false, true, IDS(SPACE, SPACE, SPACE, USER));
    expect_ids(&f, "</s><user>ab</s>", 16, true, true, IDS(2, USER, SAB, 2));
    close_tokenizer(&f);

    add_piece(&v, "a word of the trained vocabulary", 1, -9); /* so <user> is one of its symbols */
    f = open_tokenizer(&v);
    expect_ids(&f, "ab<user>ab", 10, false, true, IDS(SAB, USER, AB));
    expect_ids(&f, "<user>ab", 8, false, true, IDS(SPACE, USER, AB));
    expect_ids(&f, "</s><user>ab", 12, true, true, IDS(2, SPACE, USER, AB));
    close_tokenizer(&f);

    const int32_t inst = add_piece(&v, "[INST]", 3, 0); /* Mistral's templates write the space */
    f = open_tokenizer(&v);
    expect_ids(&f, "[INST] ab[INST]ab", 17, true, true, IDS(inst, SAB, inst, SAB));
    close_tokenizer(&f);
    v.types[inst] = 1; /* in Mistral's first vocabulary it is no token */
    f = open_tokenizer(&v);
    expect_ids(&f, "</s> ab", 7, true, true, IDS(2, SPACE, SAB));
    close_tokenizer(&f);
}

/* Of tokens with the same bytes, that one is found which merges of a text yield, whatever their ids are. */
static void tokens_of_the_same_bytes(void **state) {
    (void)state;
    static const char JOINER[] = "\xe2\x80\x8d", IN_ALPHABET[] = "\xc3\xa2\xc4\xa2\xc4\xaf"; /* U+200D, and its three bytes */
    for (int raw_type = 1; raw_type <= 5; raw_type += raw_type == 1 ? 3 : 1) {               /* normal, added, unused */
        small_vocab v = byte_level_vocab("llama-bpe"); /* which looks up whole words, too */
        const int32_t raw = add_piece(&v, JOINER, raw_type, 0);
        add_piece(&v, "\xc3\xa2\xc4\xa2", 1, 0);
        const int32_t joiner = add_piece(&v, IN_ALPHABET, 1, 0);
        v.merges[v.n_merges++] = "\xc3\xa2 \xc4\xa2";
        v.merges[v.n_merges++] = "\xc3\xa2\xc4\xa2 \xc4\xaf";
        fixture f = open_tokenizer(&v);
        if (raw_type == 4)
            expect_ids(&f, "a\xe2\x80\x8d", 4, false, true, IDS('a', raw)); /* added tokens are searched for before */
        else
            expect_ids(&f, "a\xe2\x80\x8d", 4, false, true, IDS('a', joiner));
        expect_ids(&f, "\xe2\x80", 2, false, true, IDS(0xe2, 0x80)); /* not UTF-8: bytes */
        close_tokenizer(&f);
    }
    small_vocab without = byte_level_vocab("llama-bpe"); /* no merge yields a token in other characters than the alphabet's */
    add_piece(&without, "\xe6\x97\xa5", 1, 0);           /* U+65E5 */
    without.merges[without.n_merges++] = "\xe6\x97\xa5 a";
    fixture g = open_tokenizer(&without);
    expect_ids(&g, "\xe6\x97\xa5", 3, false, true, IDS(0xe6, 0x97, 0xa5));
    close_tokenizer(&g);

    small_vocab v = spm_vocab();
    add_piece(&v, " a", 1, -1); /* no text has a space once it is normalised */
    const int32_t space = add_piece(&v, "\xe2\x96\x81", 1, -3), a = add_piece(&v, "a", 1, -4),
                  spaced = add_piece(&v,
                                     "\xe2\x96\x81"
                                     "a",
                                     1, -2);
    g = open_tokenizer(&v);
    expect_ids(&g, "a a", 3, false, true, IDS(spaced, spaced));
    close_tokenizer(&g);
    strcpy(v.texts[spaced], "other");
    g = open_tokenizer(&v);
    expect_ids(&g, "a", 1, false, true, IDS(space, a));
    close_tokenizer(&g);
}

/* A file without tokenizer.ggml.pre: its vocabulary is recognised, or there is a warning. */
static void pre_tokenizer_is_missing(void **state) {
    (void)state;
    static const struct {
        const char *pre, *token;
        int type;
        const char *expect;
        bool warns;
    } cases[] = {
        {"gpt-2", "<|begin_of_text|>", 3, "gpt-2", false},
        {NULL, "<|begin_of_text|>", 3, "llama-bpe", false},
        {NULL, "<|begin_of_text|>", 1, "llama-bpe", false}, /* in files without types of tokens */
        {NULL, "<|im_start|>", 3, "default", true},         /* Qwen's only in files of Qwen's architecture */
        {NULL, "<s>", 3, "default", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_vocab v = byte_level_vocab(cases[i].pre);
        add_piece(&v, cases[i].token, cases[i].type, 0);
        const int32_t two = add_piece(&v, "12", 1, 0), three = add_piece(&v, "123", 1, 0), four = add_piece(&v, "1234", 1, 0);
        v.merges[v.n_merges++] = "1 2", v.merges[v.n_merges++] = "12 3", v.merges[v.n_merges++] = "123 4";
        fixture f = open_tokenizer(&v);
        const bool llama3 = strcmp(cases[i].expect, "llama-bpe") == 0; /* three digits at most */
        assert_true(cl_str_is(cl_tokenizer_pre(f.tok), cases[i].expect));
        assert_int_equal(cl_tokenizer_warning(f.tok) != NULL, cases[i].warns);
        if (llama3)
            expect_ids(&f, "123412", 6, false, true, IDS(three, '4', two));
        else
            expect_ids(&f, "123412", 6, false, true, IDS(four, two));
        close_tokenizer(&f);
    }
    small_vocab v = ab_vocab();
    fixture f = open_tokenizer(&v);
    assert_true(cl_tokenizer_pre(f.tok).size == 0 && !cl_tokenizer_warning(f.tok));
    close_tokenizer(&f);
}

static void tokens_around_a_text(void **state) {
    (void)state;
    for (int adds = 0; adds < 2; adds++) {
        small_vocab v = ab_vocab();
        v.add_bos = v.add_eos = adds;
        fixture f = open_tokenizer(&v);
        cl_token_list list = {0};
        assert_int_equal(cl_tokenizer_add_leading(f.tok, &list, NULL), CL_OK);
        assert_int_equal(list.n, adds);
        assert_int_equal(cl_tokenizer_add_trailing(f.tok, &list, NULL), CL_OK);
        assert_int_equal(list.n, 2 * adds);
        if (adds) assert_true(list.ids[0] == 1 && list.ids[1] == 2);
        cl_token_list_free(&list);
        close_tokenizer(&f);
    }
}

static void names_of_special_tokens_are_found(void **state) {
    (void)state;
    const small_vocab v = hello_vocab();
    fixture f = open_tokenizer(&v);
    cl_str name;
    assert_false(cl_tokenizer_names_special(f.tok, "he<tool>x<|im_end|", 18, &name));
    assert_true(cl_tokenizer_names_special(f.tok, "he<tool>x<|im_end|>", 19, &name) && cl_str_is(name, "<|im_end|>"));
    /* It is for the log alone, so a search that takes too long finds nothing. */
    static char text[10000];
    const cl_deadline late = {.limit_s = 1, .at = 0};
    memset(text, 'x', 9000);
    strcpy(text + 9000, "<|im_end|>");
    const size_t size = strlen(text);
    assert_true(cl_tokenizer_names_special(f.tok, text, size, &name));
    cl_deadline_set(&late);
    assert_false(cl_tokenizer_names_special(f.tok, text, size, &name));
    cl_deadline_set(NULL);
    close_tokenizer(&f);
}

static void refuses_what_it_cannot_do(void **state) {
    (void)state;
    small_vocab v = hello_vocab();
    v.pre = "nonesuch";
    expect_refusal(&v, CL_ERR_UNSUPPORTED, "tokenizer.ggml.pre: pre-tokenizer 'nonesuch' is not known");
    v = hello_vocab();
    v.pre = "";
    expect_refusal(&v, CL_ERR_UNSUPPORTED, "''");
    v = hello_vocab();
    v.model = "bert";
    expect_refusal(&v, CL_ERR_UNSUPPORTED, "'bert' is not supported");
    v.model = NULL;
    expect_refusal(&v, CL_ERR_FORMAT, "no tokenizer");
    v = hello_vocab();
    v.merges[2] = "he";
    expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.merges[2]: 'he' is not two tokens");
    v.merges[2] = "he he";
    expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.merges[2]: a part or the result of 'he he'");
    v = hello_vocab();
    v.eos = v.n;
    expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.eos_token_id: ");
    v = hello_vocab();
    v.types[7] = 9;
    expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.token_type[7]: 9");
    v = hello_vocab();
    v.n = 0;
    expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.tokens");
    v = ab_vocab();
    strcpy(v.texts[5], "<0xZZ>");
    expect_refusal(&v, CL_ERR_FORMAT, "tokenizer.ggml.tokens[5]: a byte token");
}

/* A word of 400 kB takes well under a second: n log n, not n^2. Sanitizers slow it down some tens of times. */
static void long_words(void **state) {
    (void)state;
    enum { N = 400000 };
    char *text = malloc(N);
    const small_vocab vocabs[] = {hello_vocab(), ab_vocab()};
    for (int i = 0; i < 2; i++) {
        fixture f = open_tokenizer(&vocabs[i]);
        memset(text, i ? 'a' : 'l', N);
        cl_token_list ids = {0};
        const clock_t start = clock();
        assert_int_equal(cl_tokenizer_encode(f.tok, text, N, false, &ids, NULL), CL_OK);
        assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
        assert_int_equal(ids.n, i ? N : N / 2);
        cl_token_list_free(&ids);
        close_tokenizer(&f);
    }
    free(text);
}

/* PCRE2's compiler, which is not there for a hardened service. */
static bool jit = true;
int __real_pcre2_jit_compile_8(void *code, uint32_t options);
int __wrap_pcre2_jit_compile_8(void *code, uint32_t options);
int __wrap_pcre2_jit_compile_8(void *code, uint32_t options) { return jit ? __real_pcre2_jit_compile_8(code, options) : -1; }

/*
 * Long runs of each kind with each of the rules. Where one looked at the rest of a run from each of its characters, or took
 * memory for each, they would take minutes, or fail.
 */
static void long_runs(void **state) {
    (void)state;
    static const char *const names[] = {
        "gpt-2",          "smollm",      "llama-bpe", "jais-2", "minicpm5", "qwen2",    "qwen35",  "ufakzeka", "seed-coder",
        "bailingmoe",     "exaone-moe",  "laguna",    "tekken", "gpt-4o",   "tiny_aya", "kimi-k2", "youtu",    "deepseek-llm",
        "deepseek-coder", "deepseek-v3", "spark2_5",  "afmoe",  "falcon",   "bloom",    "viking",  "superbpe", "chameleon"};
    static const char *const units[] = {
        "\n", " \n", "\r",       "\t ",         "12a",  "a",    "A", "aA", "\xe6\xbc\xa2",    "\xcc\x81", "a ", "!", "! ",
        "'",  "'s",  "\xc2\xbd", "<sentinel:1", "\x01", "\xff", " ", "1",  "\xe3\x81\x82\x41"};
    enum {
        N_UNITS = sizeof units / sizeof *units,
        N_LONG = 3,
        SHORT = 5000,
        LONG = 150000,
        SIZE = N_UNITS * SHORT + N_LONG * LONG
    };
    char *text = malloc(SIZE);
    size_t size = 0;
    for (size_t u = 0; u < N_UNITS; u++) {
        const size_t unit = strlen(units[u]), n = u + N_LONG < N_UNITS ? SHORT : LONG;
        for (size_t i = 0; i + 1 < n; i++) text[size++] = units[u][i % unit];
        text[size++] = units[u][0] == ' ' ? '1' : 'x';
    }
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        const char *name = names[i / 2];
        const small_vocab v = byte_level_vocab(name);
        jit = i % 2;
        fixture f = open_tokenizer(&v);
        jit = true;
        const clock_t start = clock();
        cl_token_list ids = {0};
        cl_error error = {0};
        if (cl_tokenizer_encode(f.tok, text, size, false, &ids, &error) != CL_OK) fail_msg("%s: %s", name, error.message);
        assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
        assert_true(ids.n > size - 10); /* a token a byte, but for composed marks */
        cl_token_list_free(&ids);
        close_tokenizer(&f);
    }
    free(text);
}

/* Random bytes through both kinds: no crash, and decoding gives the bytes back. */
static void random_bytes_come_back(void **state) {
    (void)state;
    uint64_t x = 20240215;
    const small_vocab vocabs[] = {hello_vocab(), ab_vocab()};
    for (int i = 0; i < 2; i++) {
        fixture f = open_tokenizer(&vocabs[i]);
        for (int round = 0; round < 3000; round++) {
            char text[40], back[400];
            const size_t size = (x >> 20) % sizeof text;
            for (size_t j = 0; j < size; j++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                text[j] = x >> 62 ? (char)(x >> 40) : "helo tab<>|\xe2\x96\x81\xc3\xa9\n"[(x >> 33) % 18];
            }
            cl_token_list ids = {0};
            assert_int_equal(cl_tokenizer_encode(f.tok, text, size, false, &ids, NULL), CL_OK);
            size_t n = 0;
            for (size_t j = 0; j < ids.n; j++) n += cl_tokenizer_piece(f.tok, ids.ids[j], false, back + n, sizeof back - n);
            if (i == 0) { /* SentencePiece makes U+2581 a space */
                assert_int_equal(n, size);
                assert_memory_equal(back, text, size);
            }
            cl_token_list_free(&ids);
            x = x * 6364136223846793005u + 1442695040888963407u;
        }
        close_tokenizer(&f);
    }
}

/* The character that a text starts with, by its definition: the shortest form of a number that is no surrogate. */
static size_t char_by_definition(const unsigned char *s, size_t size) {
    for (size_t n = 1; n <= 4 && n <= size; n++) {
        static const uint32_t first[] = {0, 0, 0x80, 0x800, 0x10000}, past[] = {0, 0x80, 0x800, 0x10000, 0x110000};
        static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0}, mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
        if ((s[0] & ~mask[n] & 0xff) != mark[n]) continue;
        uint32_t c = s[0] & mask[n];
        bool tail = true;
        for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3f), tail = tail && (s[i] & 0xc0) == 0x80;
        if (tail && c >= first[n] && c < past[n] && (c < 0xd800 || c > 0xdfff)) return n;
    }
    return 0;
}

static void utf8_by_definition(void **state) {
    (void)state;
    static const unsigned char tails[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    enum { N = sizeof tails };
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++)
            for (unsigned i = 0; i < N * N; i++)
                for (size_t size = 1; size <= 4; size++) {
                    const unsigned char s[4] = {(unsigned char)a, (unsigned char)b, tails[i / N], tails[i % N]};
                    if (cl_utf8_char((const char *)s, size) != char_by_definition(s, size))
                        fail_msg("%02x %02x %02x %02x, %zu bytes", a, b, s[2], s[3], size);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_merges_by_rank),
        cmocka_unit_test(messages_end_apart_from_turns),
        cmocka_unit_test(special_tokens_only_from_templates),
        cmocka_unit_test(pieces_are_output_bytes),
        cmocka_unit_test(whole_words),
        cmocka_unit_test(some_shorten_text),
        cmocka_unit_test(spm_merges_by_score),
        cmocka_unit_test(refuses_what_it_cannot_do),
        cmocka_unit_test(long_words),
        cmocka_unit_test(utf8_by_definition),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(tokens_around_a_gap),
        cmocka_unit_test(spm_added_tokens),
        cmocka_unit_test(tokens_of_the_same_bytes),
        cmocka_unit_test(pre_tokenizer_is_missing),
        cmocka_unit_test(tokens_around_a_text),
        cmocka_unit_test(names_of_special_tokens_are_found),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(pieces_by_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

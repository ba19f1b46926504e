/* Text held back for UTF-8 and stop strings, against what the whole output says at once. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/engine/completion_text.h"

/* Feed pieces (NULL at the end); what came out so far, a bar after each call, is left in shown. */
static bool feed(cl_text *t, const char *const *pieces, char *shown) {
    bool stopped = false;
    *shown = '\0';
    for (; *pieces && !stopped; pieces++) {
        const size_t n = strlen(*pieces);
        char *scratch = cl_text_reserve(t, n);
        assert_non_null(scratch);
        memcpy(scratch, *pieces, n);
        stopped = cl_text_added(t, n, true);
        if (t->out.size > 0) strncat(shown, t->out.data, t->out.size);
        strcat(shown, "|");
    }
    cl_text_finish(t);
    if (t->out.size > 0) strncat(shown, t->out.data, t->out.size);
    return stopped;
}

/* found: 1 + the index of the stop string that the pieces contain; 0: none. */
static void check(const char *const *stop, const char *const *pieces, const char *expected, int found) {
    cl_text t = {.stop = stop};
    while (stop && stop[t.n_stop]) t.n_stop++;
    char shown[256];
    assert_int_equal(feed(&t, pieces, shown), found > 0);
    assert_int_equal(t.n_found, found);
    assert_string_equal(shown, expected);
    cl_text_free(&t);
}

#define LIST(...)                                                                                                              \
    (const char *const[]) { __VA_ARGS__, NULL }

static void utf8_across_tokens(void **state) {
    (void)state;
    check(NULL, LIST("a", "\xe2", "\x82", "\xac", "b"), "a|||€|b|", 0);
    check(NULL, LIST("\xf0\x9f\x98", "\x80!"), "|😀!|", 0);
    check(NULL, LIST("", "x"), "|x|", 0);
    check(NULL, LIST("x", "\xe2\x82"), "x||\uFFFD", 0);
    check(NULL, LIST("\xe2\x82", "a"),
          "|\uFFFD"
          "a|",
          0);
    check(NULL, LIST("\xff\x80"), "\uFFFD\uFFFD|", 0);
    check(NULL, LIST("\xe0\x80\xc0\xaf"), "\uFFFD\uFFFD\uFFFD\uFFFD|", 0); /* overlong: four broken parts */
    check(NULL, LIST("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD|", 0);           /* a surrogate */
    check(NULL, LIST("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD|", 0); /* past U+10FFFF */
    check(NULL, LIST("\xf0\x90\x80", "\xf4\x8f\xbf\xbf"), "|\uFFFD\U0010FFFF|", 0);
}

static void stop_across_tokens(void **state) {
    (void)state;
    check(LIST("END"), LIST("a E", "N", "D b"), "a |||", 1);
    check(LIST("END"), LIST("a E", "N", "d b"), "a ||ENd b|", 0);
    check(LIST("END"), LIST("EEN", "DE"), "E||", 1);
    check(LIST("END"), LIST("xEN"), "x|EN", 0); /* held back to the end */
    check(LIST("\n\n", "b"), LIST("a\n", "\nb"), "a||", 1);
    check(LIST("aab", "aaab"), LIST("a", "a", "a", "a", "b"), "|||a||", 2);
    check(LIST("abcd", "bc"), LIST("abcd"), "a|", 2);  /* the one that is complete first */
    check(LIST("x", "abx"), LIST("ab", "x"), "||", 2); /* the longest of those */
    check(LIST("€"), LIST("1\xe2", "\x82", "\xac"), "1|||", 1);
    check(LIST("é"), LIST("\xc3", "\xa8"), "|è|", 0);
    check(LIST("stop"), LIST("\xe2", "\x82stop"), "|\uFFFD|", 1);
}

/* What shows of pieces (NULL at the end) of which the first n_early are not stoppable; "!" at its end: it stopped. */
static void check_early(bool include_stop, const char *const *stop, int n_early, const char *const *pieces,
                        const char *expected) {
    cl_text t = {.stop = stop, .include_stop = include_stop};
    while (stop[t.n_stop]) t.n_stop++;
    char shown[256] = "";
    bool stopped = false;
    for (int i = 0; pieces[i] && !stopped; i++) {
        const size_t n = strlen(pieces[i]);
        memcpy(cl_text_reserve(&t, n), pieces[i], n);
        const bool completes = cl_text_completes(&t, n, i < n_early ? n : 0);
        stopped = cl_text_added(&t, n, i >= n_early);
        assert_int_equal(completes, stopped);
        strncat(shown, t.out.data, t.out.size);
    }
    cl_text_finish(&t);
    if (t.out.size > 0) strncat(shown, t.out.data, t.out.size);
    if (stopped) strcat(shown, "!");
    assert_string_equal(shown, expected);
    cl_text_free(&t);
}

static void the_stop_string_is_included(void **state) {
    (void)state;
    check_early(true, LIST("END"), 0, LIST("a E", "N", "D b"), "a END!");
    check_early(true, LIST("x", "abx"), 0, LIST("ab", "xy"), "abx!");
    check_early(true, LIST("abcd", "bc"), 0, LIST("abcd"), "abc!");
    check_early(true, LIST("END"), 0, LIST("a E", "N"), "a EN");
}

/* A stop string counts if its last byte is stoppable, wherever it begins. */
static void early_stop_strings_do_not_count(void **state) {
    (void)state;
    check_early(false, LIST("END"), 1, LIST("END", " a", "END"), "END a!");
    check_early(false, LIST("END"), 2, LIST("E", "ND", "D"), "ENDD");
    check_early(false, LIST("END"), 2, LIST("aE", "N", "D"), "a!");
    check_early(false, LIST("aa"), 2, LIST("a", "a", "a"), "a!"); /* the second and third */
    check_early(false, LIST("aa"), 3, LIST("a", "a", "a", "b", "a", "a"), "aaab!");
    check_early(true, LIST("ab", "babc"), 2, LIST("ba", "b", "c"), "babc!");
    check_early(false, LIST("ab"), 9, LIST("ab", "ab"), "abab");
}

/* A line with too few blanks ends the text; the first line, and blanks at the end, do not. "!" at the end: it stopped. */
static void lines_may_be_indented_too_little(void **state) {
    (void)state;
    static const struct {
        const char *pieces[6], *shown;
        int32_t min_indent;
    } cases[] = {
        {{"a\n  b", "\n c"}, "a\n  b\n !", 2},
        {{"a\n", " ", " ", "b", "\nc"}, "a\n  b\n!", 2},
        {{"a\n\tb\n", "c"}, "a\n\tb\n!", 1},
        {{"a\n  b\n  c"}, "a\n  b\n  c", 2},
        {{"a\n\n  b"}, "a\n!", 2}, /* an empty line has none */
        {{"a", "\n "}, "a\n ", 2},
        {{"a\n\xe2", "\x82\xac"}, "a\n!", 1},
        {{"a\n EN", "D"}, "a\n !", 1}, /* a stop string */
        {{"a\nEN", "D"}, "a\n!", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_text t = {.stop = LIST("END"), .n_stop = 1, .min_indent = cases[i].min_indent, .indent = -1};
        char shown[64] = "";
        bool stopped = false;
        for (int k = 0; cases[i].pieces[k] && !stopped; k++) {
            const size_t n = strlen(cases[i].pieces[k]);
            memcpy(cl_text_reserve(&t, n), cases[i].pieces[k], n);
            const bool completes = cl_text_completes(&t, n, 0);
            stopped = cl_text_added(&t, n, true);
            assert_int_equal(completes, stopped);
            strncat(shown, t.out.data, t.out.size);
        }
        cl_text_finish(&t);
        if (t.out.size > 0) strncat(shown, t.out.data, t.out.size);
        if (stopped) strcat(shown, "!");
        assert_string_equal(shown, cases[i].shown);
        cl_text_free(&t);
    }
}

/* A draft's tokens may begin before the first stoppable one. */
static void drafts_pass_early_tokens(void **state) {
    (void)state;
    cl_text t = {.stop = LIST("END"), .n_stop = 1};
    memcpy(cl_text_reserve(&t, 6), "ENDEND", 6);
    assert_true(cl_text_completes(&t, 6, 0));
    assert_true(cl_text_completes(&t, 6, 5));
    assert_true(cl_text_completes(&t, 5, 2));
    assert_false(cl_text_completes(&t, 5, 3));
    assert_false(cl_text_completes(&t, 6, 6));
    cl_text_free(&t);
}

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Any cut of the same bytes shows the same text, and never part of a stop string that is then completed. */
static void any_cut_gives_the_same(void **state) {
    (void)state;
    static const char *const stop[] = {"abab", "ba\xc3\xa9", "aaa", "aab\xff"};
    static const char *const parts[] = {"a", "b", "\xc3\xa9", "\xc3", "\xe2\x82\xac", "\xff"};
    uint64_t seed = 7;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        char whole[128] = "";
        for (int i = 0; i < 12; i++) strcat(whole, parts[next_random(&seed) % 6]);
        char shown[2][512];
        bool stopped[2];
        for (int cut = 0; cut < 2; cut++) {
            cl_text t = {.stop = stop, .n_stop = 4};
            shown[cut][0] = '\0';
            stopped[cut] = false;
            for (size_t at = 0, n; at < strlen(whole) && !stopped[cut]; at += n) {
                n = cut ? 1 + next_random(&seed) % 4 : 1;
                if (n > strlen(whole) - at) n = strlen(whole) - at;
                char *scratch = cl_text_reserve(&t, n);
                assert_non_null(scratch);
                memcpy(scratch, whole + at, n);
                stopped[cut] = cl_text_added(&t, n, true);
                if (t.out.size > 0) strncat(shown[cut], t.out.data, t.out.size);
            }
            cl_text_finish(&t);
            if (t.out.size > 0) strncat(shown[cut], t.out.data, t.out.size);
            cl_text_free(&t);
            for (int i = 0; i < 4; i++) assert_null(strstr(shown[cut], stop[i]));
        }
        assert_int_equal(stopped[0], stopped[1]);
        assert_string_equal(shown[0], shown[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_across_tokens),
        cmocka_unit_test(stop_across_tokens),
        cmocka_unit_test(the_stop_string_is_included),
        cmocka_unit_test(early_stop_strings_do_not_count),
        cmocka_unit_test(lines_may_be_indented_too_little),
        cmocka_unit_test(drafts_pass_early_tokens),
        cmocka_unit_test(any_cut_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

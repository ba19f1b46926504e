/*
 * GBNF becomes Lark: its meaning, the ends of its lexemes, and its errors, by line. Lark is read by llguidance alone,
 * so texts are compared; docs/experiments.md has the comparison of random grammars with llguidance's answers.
 */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/protocol/gbnf.h"
#include "tests/support/texts.h"

static char *convert(const char *text) {
    size_t size;
    cl_error error;
    char *lark = gbnf_to_lark(text, strlen(text), &size, &error);
    if (!lark) {
        fail_msg("%s: %s", text, error.message);
        return NULL;
    }
    assert_int_equal(strlen(lark), size);
    return lark;
}

static void assert_lark(const char *text, const char *expected) {
    char *lark = convert(text);
    assert_string_equal(lark, expected);
    free(lark);
}

static void assert_contains(const char *lark, const char *part) {
    if (!strstr(lark, part)) fail_msg("no '%s' in\n%s", part, lark);
}

/* Without recursion a grammar is one lexeme, in which nothing can be read in two ways. */
static void symbols_become_larks(void **state) {
    (void)state;
    assert_lark("root ::= \"yes\"", "start: T3\nT3: (/yes/)\n");
    assert_lark("root ::= [a-cx]", "start: /[a-cx]/\n");
    assert_lark("root ::= \"a\" | \"b\" | [0-9]+\n", "start: T4\nT4: (/a/ | /b/ | (/[0-9]/)+)\n");
    assert_lark("root ::= \"a\"*", "start: (T1)?\nT1: (/a/)+\n");
    assert_lark("root ::= (\"a\" \"b\"){2,5} \"c\"{3} \"d\"{4,} \"e\"? \"f\"{0,2} \"g\"{1} \"h\"{0}",
                "start: T16\nT16: (((/ab/)){2,5} (/c/){3,3} (/d/){4,} (/e/)? ((/f/){1,2})? /g/ (\"\"))\n");
    assert_lark("root ::= | \"a\"", "start: (/a/)?\n");
    assert_lark("root ::= \"\"", "start: (\"\")\n");
    assert_lark("root ::= .", "start: /[\\x{0}-\\x{D7FF}\\x{E000}-\\x{10FFFF}]/\n");
    assert_lark("root ::= [^\\n\\x41-\\u0043\\U0001F600é]",
                "start: /[\\x{0}-\\x{9}\\x{B}-\\x{40}D-\\x{E8}\\x{EA}-\\x{D7FF}\\x{E000}-\\x{1F5FF}\\x{1F601}-\\x{10FFFF}]/\n");
    assert_lark("root ::= [\\]\\[\\\\^-]", "start: /[\\x{2D}\\x{5B}-\\x{5E}]/\n");
    assert_lark("root ::= \"/\\\"\\t.*\"", "start: T5\nT5: (/\\x{2F}\\x{22}\\x{9}\\x{2E}\\x{2A}/)\n");
    assert_lark("root ::= <think> [a-z] <[7]> !<[7]>", "start: (<think> /[a-z]/ <[7]> <[^7]>)\n");
}

static void rules_get_names(void **state) {
    (void)state;
    char *lark =
        convert("# a comment\r\nroot ::= item-A (\",\" # another\n  item-A)*\nitem-A ::= [0-9] | Start\nStart\n::= \"x\"");
    assert_contains(lark, "start: T");
    assert_contains(lark, "_ITEM_A: (/[0-9]/ | T");
    assert_contains(lark, "_START: /x/\n");
    free(lark);
    lark = convert("root ::= \"(\" root \")\" | Leaf-1\nLeaf-1 ::= \"x\" | \"\"");
    assert_contains(lark, "start: ((/\\x{28}/ start /\\x{29}/) | r");
    assert_contains(lark, "_leaf_1: (/x/)?\n");
    free(lark);
}

/* ---- llama.cpp's examples ---- */

static const char arithmetic[] = "root  ::= (expr \"=\" ws term \"\\n\")+\n"
                                 "expr  ::= term ([-+*/] term)*\n"
                                 "term  ::= ident | num | \"(\" ws expr \")\" ws\n"
                                 "ident ::= [a-z] [a-z0-9_]* ws\n"
                                 "num   ::= [0-9]+ ws\n"
                                 "ws    ::= [ \\t\\n]*\n";

static const char chess[] = "# Specifies chess moves as a list in algebraic notation, using PGN conventions\n\n"
                            "root    ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
                            "move    ::= (pawn | nonpawn | castle) [+#]?\n\n"
                            "nonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
                            "pawn    ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\n"
                            "castle  ::= \"O-O\" \"-O\"?\n";

static const char english[] = "root        ::= en-char+ ([ \\t\\n] en-char+)*\n"
                              "en-char     ::= letter | digit | punctuation\n"
                              "letter      ::= [a-zA-Z]\n"
                              "digit       ::= [0-9]\n"
                              "punctuation ::= [!\"#$%&'()*+,-./:;<=>?@[\\\\\\]^_`{|}~]\n";

static const char japanese[] = "root        ::= jp-char+ ([ \\t\\n] jp-char+)*\n"
                               "jp-char     ::= hiragana | katakana | punctuation | cjk\n"
                               "hiragana    ::= [ぁ-ゟ]\n"
                               "katakana    ::= [ァ-ヿ]\n"
                               "punctuation ::= [、-〾]\n"
                               "cjk         ::= [一-鿿]\n";

static const char list[] = "root ::= item+\n\n"
                           "# Excludes various line break characters\n"
                           "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n";

#define JSON_VALUES                                                                                                            \
    "object ::=\n  \"{\" ws (\n            string \":\" ws value\n    (\",\" ws string \":\" ws value)*\n  )? \"}\" ws\n\n"    \
    "array  ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n\n"                                    \
    "string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) "          \
    "# escapes\n  )* \"\\\"\" ws\n\n"                                                                                          \
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n\n"                   \
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"

static const char json[] = "root   ::= object\n"
                           "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\n" JSON_VALUES;

static const char json_arr[] =
    "root   ::= arr\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\n"
    "arr  ::=\n  \"[\\n\" ws (\n            value\n    (\",\\n\" ws value)*\n  )? \"]\"\n\n" JSON_VALUES;

static const char c_like[] =
    "root ::= (declaration)*\n"
    "declaration ::= dataType identifier \"(\" parameter? \")\" \"{\" statement* \"}\"\n"
    "dataType  ::= \"int\" ws | \"float\" ws | \"char\" ws\n"
    "identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*\n"
    "parameter ::= dataType identifier\n"
    "statement ::=\n    ( dataType identifier ws \"=\" ws expression \";\" ) |\n    ( identifier ws \"=\" ws expression \";\" "
    ") |\n"
    "    ( \"while\" \"(\" condition \")\" \"{\" statement* \"}\" ) |\n    ( singleLineComment ) |\n    ( multiLineComment )\n"
    "condition ::= expression relationOperator expression\n"
    "relationOperator ::= (\"<=\" | \"<\" | \"==\" | \"!=\" | \">=\" | \">\")\n"
    "expression ::= term ((\"+\" | \"-\") term)*\n"
    "term ::= factor((\"*\" | \"/\") factor)*\n"
    "factor ::= identifier | number | \"-\" factor | \"(\" ws expression ws \")\"\n"
    "number ::= [0-9]+\n"
    "singleLineComment ::= \"//\" [^\\n]* \"\\n\"\n"
    "multiLineComment ::= \"/*\" ( [^*] | (\"*\" [^/]) )* \"*/\"\n"
    "ws ::= ([ \\t\\n]+)\n";

static void regular_examples_are_one_lexeme(void **state) {
    (void)state;
    const char *const examples[] = {chess, english, japanese, list};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        char *lark = convert(examples[i]);
        assert_memory_equal(lark, "start: T", strlen("start: T"));
        assert_null(strstr(lark, "\nr"));
        free(lark);
    }
    char *lark = convert(japanese);
    assert_contains(lark, "_HIRAGANA: /[\\x{3041}-\\x{309F}]/\n");
    free(lark);
    lark = convert(english);
    assert_contains(lark, "_PUNCTUATION: /[\\x{21}-\\x{2F}\\x{3A}-\\x{40}\\x{5B}-\\x{60}\\x{7B}-\\x{7E}]/\n");
    free(lark);
}

/* Strings, numbers and keywords are lexemes with the blanks behind them. */
static void json_has_long_lexemes(void **state) {
    (void)state;
    const char *const examples[] = {json, json_arr};
    for (size_t i = 0; i < 2; i++) {
        char *lark = convert(examples[i]);
        assert_contains(lark, "_STRING: (/\\x{22}/ (((/[ \\x{21}\\x{23}-\\x{5B}\\x{5D}-\\x{7E}\\x{80}-\\x{D7FF}");
        assert_contains(lark, "_NUMBER: (((/\\x{2D}/)?");
        assert_contains(lark, "(/u/ (/[0-9A-Fa-f]/){4,4})");
        assert_contains(lark, ": (((/true/) | (/false/) | (/null/)) T");
        free(lark);
    }
}

/* A blank may follow text that may end with blanks, so these are characters; in C only blanks follow words that begin alike. */
static void lexemes_end_where_they_may(void **state) {
    (void)state;
    char *lark = convert(arithmetic);
    assert_contains(lark, "_ws: ((/[\\x{9}\\x{A} ]/)+)?\n");
    assert_contains(lark, "_num: ((/[0-9]/)+ r");
    assert_contains(lark, " /\\x{A}/))+\n");
    free(lark);
    lark = convert(c_like);
    assert_contains(lark, "_IDENTIFIER: (/[A-Z_a-z]/ ((/[0-9A-Z_a-z]/)+)?)\n");
    assert_contains(lark, ": (/while/)\n");
    assert_contains(lark, "_MULTILINECOMMENT: ((/\\x{2F}\\x{2A}/)");
    free(lark);
    /* "ab" would take the a and b of "a" "bc", after which c cannot come. */
    lark = convert("root ::= \"a\" x root? | \"ab\" root\nx ::= \"bc\"");
    assert_contains(lark, "(/a/ /b/) start");
    free(lark);
    lark = convert("root ::= \"a\" x root? | \"ab\" root\nx ::= \"cb\"");
    assert_contains(lark, ": (/ab/)\n");
    free(lark);
}

/* ---- What is wrong ---- */

static void what_is_wrong_is_named_by_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *in_message;
    } cases[] = {
        {"", "no rule 'root'"},
        {"main ::= \"a\"", "no rule 'root'"},
        {"root ::= a\na ::= b", "line 2: the rule 'b' is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: a rule has a second definition"},
        {"root = \"a\"", "line 1: '::=' is missing"},
        {"\n::= \"a\"", "line 2: a rule is missing"},
        {"root ::= \"a", "line 1: a literal or a class is not closed"},
        {"root ::= \"a\nb\"", "line 1: a literal or a class is not closed"},
        {"root ::= [a", "not closed"},
        {"root ::= []", "no characters"},
        {"root ::= [z-a]", "ends before it begins"},
        {"root ::= (\"a\"", "')' is missing"},
        {"root ::= \"a\")", "')' has no '('"},
        {"root ::= (= \"a\")", "lookahead"},
        {"root ::= \"a\"{}", "braces need a number"},
        {"root ::= \"a\"{3,2}", "ascending numbers"},
        {"root ::= \"a\"{99999}", "at most 65536"},
        {"root ::= \"a\"{2", "'}' is missing"},
        {"root ::= * \"a\"", "a symbol is not known"},
        {"root ::= \"\\q\"", "an escape is not known"},
        {"root ::= \"\\x4\"", "hexadecimal digits"},
        {"root ::= \"\\uD800\"", "no character"},
        {"root ::= \"\\U00110000\"", "no character"},
        {"root ::= \"\\", "after '\\'"},
        {"root ::= \"\xff\"", "not UTF-8"},
        {"root ::= <a", "a token is not closed"},
        {"root ::= !<a>", "needs a token's id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size;
        cl_error error = {.message = ""};
        if (gbnf_to_lark(cases[i].text, strlen(cases[i].text), &size, &error)) fail_msg("%s was accepted", cases[i].text);
        if (!strstr(error.message, cases[i].in_message)) fail_msg("%s: '%s'", cases[i].text, error.message);
        assert_true(error.code == CL_ERR_ARG || error.code == CL_ERR_LIMIT);
    }
}

static void hostile_grammars_end_soon(void **state) {
    (void)state;
    static const struct {
        const char *before, *text;
        size_t n;
        const char *after;
    } cases[] = {
        {"root ::= ", "(", 100000, ""},                                                 /* depth */
        {"root ::= \"", "a", 100000, "\""},                                             /* parts */
        {"root ::= r0\nr4000 ::= \"a\"\n", "r~ ::= r@\n", 4000, ""},                    /* rules within rules */
        {"root ::= root r0 | \"x\"\nr1000 ::= \"a\"\n", "r~ ::= r@\n", 1000, ""},       /* the same in a lexeme */
        {"root ::= \"a\"\n", "q~ ::= \"a\"\n", 5000, ""},                               /* rules */
        {"root ::= root r0 | \"x\"\nr40 ::= \"ab\"\n", "r~ ::= r@ \"c\" r@\n", 40, ""}, /* copies of rules */
        {"root ::= root \"x\" | ", "[ab]? ", 3000, "\"y\" ws\nws ::= [ab]*"},           /* sets of states */
        {"root ::= root \"x\" | ([ab]* \"a\" ", "[ab] ", 30, ")"},                      /* a set for each text */
        {"root ::= root root | ", "\"~\" | ", 6000, "\"y\""},                           /* lexemes */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = numbered(cases[i].before, cases[i].text, cases[i].n, cases[i].after);
        size_t size;
        cl_error error = {.message = ""};
        const clock_t start = clock();
        char *lark = gbnf_to_lark(text, strlen(text), &size, &error);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (!lark) assert_true(error.code == CL_ERR_LIMIT || error.code == CL_ERR_ARG);
        if (seconds > 20) fail_msg("case %zu took %.1f s", i, seconds); /* well below a second without a sanitizer */
        free(lark);
        free(text);
    }
}

static void notations_are_told_apart(void **state) {
    (void)state;
    static const char *const gbnf[] = {"root ::= \"a\"", "# x\n\n  root\n::= y", "a: b\nroot ::= a"};
    static const char *const lark[] = {"start: \"a\"", "start: \"a ::= b\"", "// root ::= x\nstart: /x/", ""};
    for (size_t i = 0; i < sizeof gbnf / sizeof *gbnf; i++) assert_true(gbnf_is_likely(gbnf[i], strlen(gbnf[i])));
    for (size_t i = 0; i < sizeof lark / sizeof *lark; i++) assert_false(gbnf_is_likely(lark[i], strlen(lark[i])));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols_become_larks),
        cmocka_unit_test(rules_get_names),
        cmocka_unit_test(regular_examples_are_one_lexeme),
        cmocka_unit_test(json_has_long_lexemes),
        cmocka_unit_test(lexemes_end_where_they_may),
        cmocka_unit_test(what_is_wrong_is_named_by_line),
        cmocka_unit_test(hostile_grammars_end_soon),
        cmocka_unit_test(notations_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Numbers that multiply each other in a grammar are found wherever they stand, and what is within the limits is accepted. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/engine/grammar_limits.h"

static const cl_grammar_kind json = CL_GRAMMAR_JSON_SCHEMA, regex = CL_GRAMMAR_REGEX, lark = CL_GRAMMAR_LARK;

static void expect(cl_grammar_kind kind, const char *text, const char *says) {
    cl_error error = {.message = ""};
    const cl_status status = cl_grammar_check(kind, text, strlen(text), &error);
    if (status != (says ? CL_ERR_LIMIT : CL_OK) ||
        (says && (!strstr(error.message, says) || strcmp(error.field, "grammar") != 0)))
        fail_msg("%s: status %d, \"%s\" should say \"%s\"", text, status, error.message, says ? says : "nothing");
}

/* Each unit of the common multiple of one value's is a state of the automaton; those of different values add up. */
static void multiples_have_a_limit(void **state) {
    (void)state;
    static const char says[] = "multipleOf with a common multiple above 10000";
    static const char *const refused[] = {
        "{\"multipleOf\":10007}",
        "{\"multipleOf\":-10007}",
        "{\"multipleOf\":1e300}",
        "{\"multipleOf\":0.123457}",
        "{\"multipleOf\":3333.333333333}",
        "{\"allOf\":[{\"multipleOf\":101},{\"multipleOf\":103}]}",
        "{\"properties\":{\"a\":{\"items\":{\"anyOf\":[{\"multipleOf\":99991}]}}}}",
        "{\"$ref\":\"#/$defs/a\",\"multipleOf\":128,\"$defs\":{\"a\":{\"multipleOf\":81}}}",
        "{\"allOf\":[{\"$ref\":\"#/a\"},{\"$ref\":\"#/b/c\"}],\"a\":{\"multipleOf\":128},\"b\":{\"c\":{\"multipleOf\":81}}}",
        "{\"multipleOf\":128,\"anyOf\":[{\"multipleOf\":2},{\"multipleOf\":81}]}",
        "{\"multipleOf\":128,\"oneOf\":[{\"multipleOf\":81},{\"type\":\"string\"}]}",
        "{\"items\":{\"allOf\":[{\"multipleOf\":128},{\"allOf\":[{},{\"multipleOf\":81}]}]}}",
        "{\"multipleOf\":100000000000000000000000}",
    };
    expect(json,
           "{\"prefixItems\":[{\"multipleOf\":9001},{\"multipleOf\":9002},{\"multipleOf\":9003},{\"multipleOf\":9004},"
           "{\"multipleOf\":9005},{\"multipleOf\":9006}]}",
           "multipleOf with a sum above 50000");
    static const char *const accepted[] = {
        "{\"multipleOf\":10000}",
        "{\"multipleOf\":0.01}",
        "{\"multipleOf\":0}",
        "{\"multipleOf\":\"99991\"}",
        "{\"multipleOf\":1e-9}",
        "{\"allOf\":[{\"multipleOf\":0.01},{\"multipleOf\":0.5},{\"multipleOf\":0.25},{\"multipleOf\":1000}]}",
        "{\"properties\":{\"a\":{\"multipleOf\":9973},\"b\":{\"multipleOf\":9973}}}",
        "{\"properties\":{\"multipleOf\":{\"type\":\"integer\"}}}",
        "{\"properties\":{\"a\":{\"multipleOf\":7},\"b\":{\"multipleOf\":365},\"c\":{\"multipleOf\":24}}}",
        "{\"prefixItems\":[{\"multipleOf\":9973},{\"multipleOf\":9967}],\"items\":{\"multipleOf\":9949}}",
        "{\"anyOf\":[{\"multipleOf\":9973},{\"multipleOf\":9967}]}",
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/a\"},\"b\":{\"multipleOf\":9967}},\"$defs\":{\"a\":{\"multipleOf\":9973}}}",
        "{\"multipleOf\":9973,\"properties\":{\"a\":{\"multipleOf\":9967}}}",
        "{\"$ref\":\"#\",\"allOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}],\"multipleOf\":9973}",
        "{\"$ref\":\"#/nowhere/else\",\"multipleOf\":9973}",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[256], after[256];
        expect(json, refused[i], says);
        strcat(strcpy(text, "start: \"a\" item // %json\nitem: %json "), refused[i]);
        expect(lark, text, says);
        strcat(strcat(strcpy(after, "start: %json {\"enum\":[\"}\"]} | %json\n "), refused[i]), " \"b\"");
        expect(lark, after, says);
    }
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) expect(json, accepted[i], NULL);
    expect(lark, "start: \"%json {\\\"multipleOf\\\":99991}\" /%json {\"multipleOf\":99991}/", NULL);
}

static void nested_counts_have_a_limit(void **state) {
    (void)state;
    static const struct {
        cl_grammar_kind kind;
        const char *text;
        const char *product; /* NULL: it is within the limit */
    } cases[] = {
        {regex, "(((a?){1,500}){1,500}){1,500}", "1.25e+08"},
        {regex, "((a{1,\n400}){ 1\t,\v\f\r300 })", "120000"},
        {regex,
         "((a{1,\xe2\x80\x83"
         "400}){1,\xc2\x85"
         "300})",
         "120000"},
        {regex, "(?x)((a {1,400}) # (\n {300 # }\n})", "120000"},
        {regex, "(?i-x:[[:alpha:](]{400}){300}", "120000"},
        {regex, "(x{400}[](]){300}", "120000"},
        {regex, "(x{400}[^](]){300}", "120000"},
        {regex, "(x{400}[[a](]){300}", "120000"},
        {regex, "(?x)(x{400}[ ](]){300}", "120000"},
        {regex, "[\\]a]{400}(b{300})", NULL},
        {regex, "(\\x{2028}\\p{Greek}){1,500}", NULL},
        {regex, "[a-z]{400} {300}", NULL},
        {regex, "((a{400}b|c){,300})", "120000"},
        {regex, "(x(?:y[)(]{10,1000}z)*?){101,}", "101000"},
        {regex, "a{400}{300}", "120000"},
        {regex, "((a{400})+){300}", "120000"},
        {regex, "((a{100}){100}|(b{100}){100}){10}", NULL},
        {regex, "a{400}(b{300})", NULL},
        {regex, "a{1000000000}", NULL},
        {regex, "\\(a{400}\\){300}", NULL},
        {regex, "(a{400}[(]){3}", NULL},
        {regex, ")))a{400}", NULL},
        {json, "{\"pattern\":\"^((a?){400}){300}$\"}", "120000"},
        {json, "{\"items\":{\"patternProperties\":{\"((a?){400}){300}\":{}}}}", "120000"},
        {json, "{\"x-guidance\":{\"whitespace_pattern\":\"(( ?){400}){300}\"}}", "120000"},
        {json, "{\"pattern\":\"(a{100}){1000}\"}", NULL},
        {lark, "start: ((\"a\"?){1,500}){1,500}", "250000"},
        {lark, "start: (\"a\"? ~ 1..400) ~ 300", "120000"},
        {lark, "start: [\"a\" ~ 400] ~ 2..300", "120000"},
        {lark, "start: /((a?){400}){300}/", "120000"},
        {lark, "start: /(a {400}) {300}/x", "120000"},
        {lark, "start: /[a-z]{400} {300}/i", NULL},
        {lark, "start: \"a\" ~ 2 /((a?){400}){300}/", "120000"},
        {lark, "start: x{300}\nx: y{1, // most\n400}\ny: \"a\"", "120000"},
        {lark, "start: x{300}\nx: \"b\" | T{400} \nT: \"a\"?", "120000"},
        {lark, "T: /a{400}/i\nstart: x{2}\n  | y{150}\n?x: y{150}\ny.2: T{1,\n 2}", "240000"},
        {lark, "start: x{300}\nx[capture]: y{400}\ny: \"a\"", "120000"},
        {lark, "start: T{300}\nT: /(ab){400}/", "120000"},
        {lark, "start: %json {\"properties\":{\"a\":{\"pattern\":\"((a?){400}){300}\"}}}", "120000"},
        {lark, "start: \"{\" item{1,400} \"}\" item{1,300}\nitem: \"((a?){400}){300}\" // (x{400}){300}", NULL},
        {lark, "start: x{400}\nx: \"a\" x{300} | \"b\"", "120000"},
        {lark, "start: (\"a\"{100}){1000}", NULL},
        {lark, "start: x{300}\nx: %lark { start: \"a\"{400} }", "120000"},
        {lark, "start: x{300}\nx: %lark {\nstart: \"a\"{400}\n}", "120000"},
        {lark, "start: x\nT: \"b\"\nx: %lark {\nstart: T{300}\nT: \"a\"{400}\n}", "120000"},
        {lark, "start: x\nT: \"a\"{400}\nx: %lark {\nstart: T{300}\nT: \"b\"\n}", "120000"},
        {lark, "start: x\nx: %lark {\nstart: \"a\" | \"b\" start{400}\n}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char says[64] = "counts multiply to ";
        expect(cases[i].kind, cases[i].text, cases[i].product ? strcat(says, cases[i].product) : NULL);
    }
}

/* A terminal is a regular expression with those of the terminals in it. */
static void long_patterns_have_a_limit(void **state) {
    (void)state;
    static char text[10000];
    static const char *const names[] = {"T", "_T"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) { /* each has the next one twice */
        char *at = text + sprintf(text, "start: %s0\n", names[i]);
        for (int k = 0; k < 30; k++) at += sprintf(at, "%s%d: %s%d %s%d\n", names[i], k, names[i], k + 1, names[i], k + 1);
        sprintf(at, "%s30: \"a\"\n", names[i]);
        expect(lark, text, "has a regular expression of ");
        expect(lark, text, "e+");
    }
    memset(strcpy(text, "start: /") + 8, 'a', 5000);
    strcpy(text + 5008, "/");
    expect(lark, text, "has a regular expression of 5002 bytes; it may have 4096");
    memset(strcpy(text, "start: \"a\" // ") + 14, 'a', 5000);
    text[5014] = '\0';
    expect(lark, text, NULL);
    expect(lark, "start: r r\nr: s s\ns: T T\nT: \"a\" T | U\nU: T", NULL); /* rules do not count, nor recursion */
}

/* Texts that are deep, cut or circular are read to their end. */
static void odd_texts_end(void **state) {
    (void)state;
    static char deep[60000], chain[60000];
    char *at = stpcpy(deep, "start: ");
    for (int i = 0; i < 20000; i++) at = stpcpy(at, "(");
    stpcpy(stpcpy(at, "(\"a\"{400}){300}"), ")");
    expect(lark, deep, "120000");
    at = chain;
    for (int i = 0; i < 299; i++) at += sprintf(at, "r%d: r%d\n", i, i + 1);
    sprintf(at, "r299: (\"a\"{400}){300} | r0");
    expect(lark, chain, "120000");
    sprintf(at, "r299: r300\nr300: \"a\"");
    expect(lark, chain, "has definitions that are in each other more than 300 times: simplify it");
    static const char *const cut[] = {"start: \"a",    "start: /a",     "start: %json {", "start: %",
                                      "start: \"a\"{", "start: \"a\"~", "a: b\nb: a",     "start: %json {\"a\":\"",
                                      "start",         "{1,2}",         "x: x{3}{4}"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) expect(lark, cut[i], NULL);
}

/* A name that many definitions have would be looked up in all of them each time. */
static void one_name_has_few_definitions(void **state) {
    (void)state;
    static char text[60000];
    char *at = stpcpy(text, "start: a{300}\n");
    for (int i = 0; i < 64; i++) at = stpcpy(at, i == 40 ? "a: \"b\"{400}\n" : "a: a\n");
    expect(lark, text, "120000");
    stpcpy(at, "a: a\n");
    expect(lark, text, "has 65 definitions of one name; it may have 64: use other names");
    while (at + 8 < text + sizeof text) at = stpcpy(at, "a:a\n");
    expect(lark, text, "definitions of one name");
}

/* The bytes of references count: one of a megabyte that is reached from everywhere would take hours. */
static void long_references_end(void **state) {
    (void)state;
    enum { SIZE = 1 << 20, N = 50000 };
    static const char part[] = "{\"$ref\":\"#/x\"},";
    char *text = malloc(2 * SIZE + N * sizeof part), *at = stpcpy(text, "{\"x\":{\"$ref\":\"#/");
    memset(at, 'x', SIZE);
    at = stpcpy(at + SIZE, "\"},\"allOf\":[");
    for (int i = 0; i < N; i++) at = stpcpy(at, part);
    stpcpy(at, "{}]}");
    expect(json, text, NULL);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multiples_have_a_limit),       cmocka_unit_test(nested_counts_have_a_limit),
        cmocka_unit_test(long_patterns_have_a_limit),   cmocka_unit_test(odd_texts_end),
        cmocka_unit_test(one_name_has_few_definitions), cmocka_unit_test(long_references_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The fields by which OpenAI's, vLLM's and llama-server's clients constrain a text become one grammar of the engine.
 */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai_fixture.h"

/* How JSON is written, unless the request says so. */
#define SPACE "\"x-guidance\":{\"whitespace_pattern\":\" |\\\\n{1,2}[ \\\\t]{0,18}\"}"

static void every_form_is_read(void **state) {
    (void)state;
    static const char object[] = "{\"type\":\"object\"," SPACE "}",
                      choices[] = "start: \"yes\"\n  | \"n.o|(\"\n  | \"\\n\xc3\xa9\"\n  | \"\"";
    static const char lark[] = "start: T3\nT3: (/yes/)\n";
    static const struct {
        const char *body;
        cl_grammar_kind kind;
        const char *grammar;
    } cases[] = {
        {CHAT("\"response_format\":null"), CL_GRAMMAR_NONE, ""},
        {CHAT("\"response_format\":{\"type\":\"text\"}"), CL_GRAMMAR_NONE, ""},
        {CHAT("\"response_format\":{\"type\":\"json_object\"}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"response_format\":{\"type\":\"json_object\",\"schema\":{}}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"array\"}}"), CL_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\"," SPACE "}"},
        /* The order of properties is that in which they are written. */
        {CHAT("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":"
              "{\"properties\":{\"b\":{},\"a\":{}}}}}"),
         CL_GRAMMAR_JSON_SCHEMA,
         "{\"properties\":{\"b\":{},\"a\":{}},\"additionalProperties\":false,\"type\":\"object\"," SPACE "}"},
        {CHAT("\"json_schema\":{\"properties\":{\"b\":{\"format\":\"x\"}}},\"disable_additional_properties\":false"),
         CL_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"b\":{}}," SPACE "}"},
        {CHAT("\"structured_outputs\":{\"json\":{\"properties\":{}},\"disable_additional_properties\":false}"),
         CL_GRAMMAR_JSON_SCHEMA, "{\"properties\":{}," SPACE "}"},
        {CHAT("\"structured_outputs\":{\"json\":{\"properties\":{}},\"disable_additional_properties\":true}"),
         CL_GRAMMAR_JSON_SCHEMA, "{\"properties\":{},\"additionalProperties\":false,\"type\":\"object\"," SPACE "}"},
        {CHAT("\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"array\"}}"), CL_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\"," SPACE "}"},
        {CHAT("\"structured_outputs\":{\"json\":{\"type\":\"object\"}}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"structured_outputs\":{\"json\":{}}"), CL_GRAMMAR_JSON_SCHEMA, "{" SPACE "}"},
        {CHAT("\"structured_outputs\":{\"json\":\"{\\\"type\\\": \\\"object\\\"}\"}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"structured_outputs\":{\"json_object\":true}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"structured_outputs\":{\"json_object\":true,\"disable_any_whitespace\":true}"), CL_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"x-guidance\":{\"whitespace_flexible\":false}}"},
        {CHAT("\"structured_outputs\":{\"json_object\":true,\"whitespace_pattern\":\" ?\"}"), CL_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"x-guidance\":{\"whitespace_pattern\":\" ?\"}}"},
        {CHAT("\"structured_outputs\":{\"regex\":\"a+\",\"json_object\":false,\"structural_tag\":null}"), CL_GRAMMAR_REGEX,
         "a+"},
        {CHAT("\"structured_outputs\":{\"choice\":[\"yes\",\"n.o|(\",\"\\n\xc3\xa9\",\"\"]}"), CL_GRAMMAR_LARK, choices},
        {CHAT("\"structured_outputs\":{\"grammar\":\"start: /a/\"}"), CL_GRAMMAR_LARK, "start: /a/"},
        {CHAT("\"structured_outputs\":{\"grammar\":\"root ::= \\\"yes\\\"\"}"), CL_GRAMMAR_LARK, lark},
        {CHAT("\"guided_grammar\":\"start: x | \\\"y\\\"\\nx: %json {\\\"properties\\\":{}} /z/\""), CL_GRAMMAR_LARK,
         "start: x | \"y\"\nx: %json {\"properties\":{},\"additionalProperties\":false,\"type\":\"object\"," SPACE "} /z/"},
        {CHAT("\"guided_json\":{\"type\":\"object\"}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"guided_json\":{\"type\":\"object\"},\"guided_whitespace_pattern\":\" \""), CL_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\",\"x-guidance\":{\"whitespace_pattern\":\" \"}}"},
        {CHAT("\"guided_regex\":\"a|b\""), CL_GRAMMAR_REGEX, "a|b"},
        {CHAT("\"guided_regex\":\"\\\\d[\\\\W-]\""), CL_GRAMMAR_REGEX, "[0-9][[^0-9A-Za-z_]\\-]"},
        {CHAT("\"guided_choice\":[\"a\\u0000\x7f\"]"), CL_GRAMMAR_LARK, "start: \"a\\u0000\\u007f\""},
        {CHAT("\"guided_grammar\":\"root ::= \\\"yes\\\"\""), CL_GRAMMAR_LARK, lark},
        {CHAT("\"grammar\":\"root ::= \\\"yes\\\"\""), CL_GRAMMAR_LARK, lark},
        {CHAT("\"json_schema\":{\"type\":\"object\"}"), CL_GRAMMAR_JSON_SCHEMA, object},
        {CHAT("\"json_schema\":{}"), CL_GRAMMAR_JSON_SCHEMA, "{" SPACE "}"},
        {CHAT("\"grammar\":\"\",\"json_schema\":null,\"guided_choice\":[],\"structured_outputs\":{}"), CL_GRAMMAR_NONE, ""},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        parse_ok(&c, OPENAI_CHAT, cases[i].body, &r);
        const size_t size = strlen(cases[i].grammar);
        if (r.params.grammar_kind != cases[i].kind || r.params.grammar_size != size ||
            (size > 0 && memcmp(r.params.grammar, cases[i].grammar, size) != 0))
            fail_msg("%s: kind %d, '%.*s'", cases[i].body, (int)r.params.grammar_kind, (int)r.params.grammar_size,
                     r.params.grammar ? r.params.grammar : "");
        assert_true((r.grammar_field != NULL) == (size > 0));
        openai_request_free(&r);
    }
}

/* The server's option decides where a request does not say whether objects are closed, also for the arguments of tools. */
static void the_default_may_be_open_objects(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool closed;
    } cases[] = {
        {CHAT("\"json_schema\":{\"properties\":{}}"), false},
        {CHAT("\"json_schema\":{\"properties\":{}},\"disable_additional_properties\":true"), true},
        {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{}}}}],"
              "\"tool_choice\":\"required\""),
         false},
    };
    for (int open = 0; open < 2; open++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            openai_context c = fake_context();
            openai_request r;
            c.defaults.open_objects = open;
            parse_ok(&c, OPENAI_CHAT, cases[i].body, &r);
            assert_true(strstr(r.params.grammar, "\"properties\"") != NULL);
            assert_int_equal(strstr(r.params.grammar, "\"additionalProperties\":false") != NULL, !open || cases[i].closed);
            openai_request_free(&r);
        }
}

static void what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *in_message;
    } cases[] = {
        {CHAT("\"response_format\":\"json\""), "response_format", "not a string"},
        {CHAT("\"response_format\":{\"type\":\"xml\"}"), "response_format.type", "\"json_schema\""},
        {CHAT("\"response_format\":{\"type\":3}"), "response_format.type", "not an integer"},
        {CHAT("\"response_format\":{\"a\":3}"), "response_format.type", "it must be"},
        {CHAT("\"response_format\":{\"type\":\"json_schema\"}"), "response_format.json_schema.schema", "missing"},
        {CHAT("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}"),
         "response_format.json_schema.schema", "missing"},
        {CHAT("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":3}}"),
         "response_format.json_schema.schema", "not an integer"},
        {CHAT("\"structured_outputs\":[1]"), "structured_outputs", "not an array"},
        {CHAT("\"structured_outputs\":{\"regex\":3}"), "structured_outputs.regex", "must be a string"},
        {CHAT("\"structured_outputs\":{\"regex\":\"a\\u0000\"}"), "structured_outputs.regex", "zero character"},
        {CHAT("\"structured_outputs\":{\"choice\":\"a\"}"), "structured_outputs.choice", "1 to 4096 strings"},
        {CHAT("\"structured_outputs\":{\"choice\":[\"a\",3]}"), "structured_outputs.choice[1]", "not an integer"},
        {CHAT("\"structured_outputs\":{\"structural_tag\":\"x\"}"), "structured_outputs.structural_tag", "not supported"},
        {CHAT("\"structured_outputs\":{\"disable_additional_properties\":3}"), "disable_additional_properties",
         "true or false"},
        {CHAT("\"guided_json\":{\"items\":{\"not\":{\"pattern\":\"a\"}}}"), "guided_json", "'not' at #/items cannot"},
        {CHAT("\"guided_json\":{\"$ref\":\"#/$defs/a\"}"), "guided_json", "'#/$defs/a' at # is a reference to no schema"},
        {CHAT("\"structured_outputs\":{\"json_object\":3}"), "structured_outputs.json_object", "true or false"},
        {CHAT("\"structured_outputs\":{\"json\":\"{\"}"), "structured_outputs.json", "not valid JSON"},
        {CHAT("\"structured_outputs\":{\"json\":\"[1]\"}"), "structured_outputs.json", "not an array"},
        {CHAT("\"structured_outputs\":{\"regex\":\"a\",\"disable_any_whitespace\":true}"),
         "structured_outputs.disable_any_whitespace", "needs a JSON schema"},
        {CHAT("\"guided_whitespace_pattern\":\" \""), "guided_whitespace_pattern", "needs a JSON schema"},
        {CHAT("\"grammar\":\"root ::= x\""), "grammar", "line 1: the rule 'x' is not defined"},
        {CHAT("\"guided_grammar\":\"root ::= [\""), "guided_grammar", "line 1"},
        {CHAT("\"guided_json\":{\"type\":\"object\"},\"guided_regex\":\"a\""), "guided_regex",
         "'guided_regex' and 'guided_json' both"},
        {CHAT("\"response_format\":{\"type\":\"json_object\"},\"structured_outputs\":{\"regex\":\"a\"}"),
         "structured_outputs.regex", "'structured_outputs.regex' and 'response_format' both"},
        {CHAT("\"structural_tag\":\"x\""), "structural_tag", "not supported"},
        {CHAT("\"structured_outputs\":{\"choice\":[]}"), "structured_outputs.choice", "an array of 1 to 4096 strings"},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(&c, OPENAI_CHAT, cases[i].body, cases[i].param, cases[i].in_message);
}

/* A grammar may have 256 KiB, and so may its translation. */
static void grammars_have_a_limit(void **state) {
    (void)state;
    const openai_context c = fake_context();
    for (int over = 0; over < 2; over++) {
        const size_t size = CL_ENGINE_MAX_GRAMMAR + (size_t)over;
        char *body = malloc(size + 200), *end = body + sprintf(body, "{\"prompt\":\"x\",\"guided_regex\":\"");
        memset(end, 'a', size);
        strcpy(end + size, "\"}");
        openai_request r;
        openai_error error;
        if (over) {
            assert_false(parse(&c, OPENAI_COMPLETION, body, &r, &error));
            assert_string_equal(error.param, "guided_regex");
            assert_null(error.code); /* not context_length_exceeded */
            assert_non_null(strstr(error.message, "262145 bytes; it must have at most 262144"));
        } else {
            parse_ok(&c, OPENAI_COMPLETION, body, &r);
            openai_request_free(&r);
        }
        free(body);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(the_default_may_be_open_objects),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(grammars_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

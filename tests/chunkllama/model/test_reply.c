/* Replies are split into reasoning, content and calls, however their text is cut, and nothing of it is lost. */
#include "tests/support/testing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/chat/reply.h"
#include "tests/support/rng.h"

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"a\":{\"type\":\"number\"},\"b\":{\"type\":\"string\"},\"c\":{\"type\":[\"string\",\"null\"]},"
    "\"d\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\"}]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"set\",\"parameters\":{\"$defs\":{\"Color\":{\"enum\":[\"1\",\"red\"]},"
    "\"Loop\":{\"anyOf\":[{\"$ref\":\"#/$defs/Loop\"},{\"$ref\":\"#/$defs/Loop\"}]}},\"properties\":{"
    "\"enum\":{\"enum\":[\"on\",\"5\",1,null]},\"const\":{\"const\":5},\"text\":{\"const\":\"5\"},\"object\":{\"properties\":{}"
    "},"
    "\"array\":{\"items\":{}},\"ref\":{\"$ref\":\"#/$defs/Color\"},\"all\":{\"allOf\":[{\"$ref\":\"#/$defs/Color\"}]},"
    "\"lost\":{\"$ref\":\"#/$defs/Lost\"},\"loop\":{\"$ref\":\"#/$defs/"
    "Loop\"},\"any\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"
    "\"null\"}]},\"nullable\":{\"type\":\"string\",\"nullable\":true},\"string\":{\"type\":\"string\"},\"integer\":{\"type\":"
    "\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

/* What is found in a text, as text: {reasoning} content <name arguments>. */
typedef struct shown {
    char *text;
    size_t size;
    cl_reply_kind kind; /* of the last part */
    int32_t call;
    bool open; /* the last part is not content */
} shown;

static void show(shown *s, const char *text, size_t size) {
    s->text = realloc(s->text, s->size + size + 1);
    assert_non_null(s->text);
    memcpy(s->text + s->size, text, size);
    s->size += size;
    s->text[s->size] = '\0';
}

static void end_part(shown *s) {
    if (s->open) show(s, s->kind == CL_REPLY_REASONING ? "}" : ">", 1);
    s->open = false;
}

static void show_parts(shown *s, const cl_reply_part *parts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const cl_reply_part *p = &parts[i];
        const bool arguments = p->kind == CL_REPLY_ARGUMENTS;
        assert_true(p->size > 0);
        if (arguments) assert_true(s->open && s->call == p->call);
        if (arguments && s->kind == CL_REPLY_CALL) show(s, " ", 1);
        if (!arguments && (p->kind != s->kind || p->kind == CL_REPLY_CALL)) end_part(s);
        if (p->kind == CL_REPLY_CALL) assert_int_equal(p->call, ++s->call);
        if (!s->open && p->kind == CL_REPLY_REASONING) show(s, "{", 1);
        if (p->kind == CL_REPLY_CALL) show(s, "<", 1);
        show(s, p->text, p->size);
        s->open = p->kind != CL_REPLY_CONTENT;
        s->kind = p->kind;
    }
}

/* Split a text, cut after every `step` bytes; 0: at random, by `random`. */
static char *split(const cl_reply_options *options, const char *text, size_t size, size_t step, rng *random) {
    shown s = {.call = -1, .text = calloc(1, 1)};
    const cl_reply_part *parts;
    size_t n;
    cl_reply *r = cl_reply_create(options);
    assert_non_null(r);
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = step ? step : (size_t)rng_range(random, 1, 9);
        if (piece > size - at) piece = size - at;
        assert_true(cl_reply_add(r, text + at, piece, false, &parts, &n));
        show_parts(&s, parts, n);
    }
    assert_true(cl_reply_add(r, "", 0, true, &parts, &n));
    show_parts(&s, parts, n);
    end_part(&s);
    cl_reply_free(&r);
    return s.text;
}

/* The same parts however the text is cut. */
static void assert_split(const cl_reply_options *options, const char *text, size_t size, const char *wanted) {
    rng random = {size};
    char *whole = split(options, text, size, size ? size : 1, NULL);
    for (size_t step = 0; step <= 3; step++) {
        char *cut = split(options, text, size, step, &random);
        assert_string_equal(cut, whole);
        free(cut);
    }
    if (wanted) assert_string_equal(whole, wanted);
    free(whole);
}

static const char *const templates[] = {
    "<think> </think> <tool_call>",          /* Qwen 3 */
    "<|start_header_id|> \"parameters\"",    /* Llama 3 */
    "[TOOL_CALLS] [THINK] [/THINK]",         /* Mistral */
    "<start_of_turn> <start_function_call>", /* FunctionGemma */
    "[func_name1(params_name1=",             /* as published for Gemma 3 */
    "<function=x>{}</function>",             /* Functionary 3.1 */
    ">>>all",                                /* Functionary 3.2 */
    "<tool_calls>[",                         /* Apriel */
    "<|channel|>analysis <|channel|>commentary",
    "</think> <|im_middle|>",          /* Kimi */
    "<｜tool▁calls▁begin｜> ```json",  /* DeepSeek V3 */
    "</think> <｜tool▁calls▁begin｜>", /* DeepSeek V3.1 */
    "</think> <tool_call> <arg_key>",
    "</think> <minimax:tool_call>",
    "<|tool_call> <channel|>", /* Gemma 4 */
    "<|tool_call_start|>",
    "<|START_ACTION|> <|END_RESPONSE|>",
    "<seed:tool_call> </seed:think>",
};
enum {
    QWEN,
    LLAMA,
    MISTRAL,
    GEMMA,
    PYTHON,
    FUNCTION,
    RECIPIENT,
    APRIEL,
    HARMONY,
    KIMI,
    DEEPSEEK,
    DEEPSEEK_31,
    GLM,
    MINIMAX,
    GEMMA_4,
    LFM2,
    COMMAND,
    SEED,
    N_TEMPLATES
};

static cl_reply_format format_of(int family) {
    cl_reply_format format;
    cl_reply_format_find(cl_str_of(templates[family]), true, &format);
    return format;
}

typedef struct example {
    const char *text, *wanted;
} example;

static void check(int family, const example *examples, size_t n) {
    const cl_reply_format format = format_of(family);
    json_t *tools = json_loads(TOOLS, 0, NULL);
    const cl_reply_options options = {.format = &format, .tools = tools, .reasoning = true};
    for (size_t i = 0; i < n; i++) assert_split(&options, examples[i].text, strlen(examples[i].text), examples[i].wanted);
    json_decref(tools);
}
#define CHECK(family, examples) check(family, examples, sizeof(examples) / sizeof *(examples))

static void qwen_writes_json_between_tags(void **state) {
    (void)state;
    static const example examples[] = {
        {"", ""},
        {" \n", " \n"},
        {"Hi <there>\n", "Hi <there>\n"},
        {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>", "<add {\"a\": 1}>"},
        {"I add.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>\n",
         "I add.<add {}><now {}>"},
        {"a <tool_call>{\"name\":\"now\"}</tool_call> b\n", "a<now {}>  b"},
        /* names that no tool has, other keys, another order, arrays, two calls between the markers */
        {"<tool_call>{\"name\":\"x.y\",\"arguments\":{}}</tool_call>", "<x.y {}>"},
        {"<tool_call>{\"id\":\"1\",\"type\":\"function\",\"arguments\":{\"a\":[{}]},\"name\":\"add\"}</tool_call>",
         "<add {\"a\":[{}]}>"},
        {"<tool_call>[{\"name\":\"now\"}, {\"name\":\"add\",\"parameters\":{}}]</tool_call>!", "<now {}><add {}>!"},
        {"<tool_call>{\"name\":\"now\"}\n{\"name\":\"now\"}</tool_call>", "<now {}><now {}>"},
        /* values of all kinds; line ends in strings are escaped */
        {"<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":[-0.5e+3,0,true,false,null,\"\\u00e9\\\"}\"],\"b\":\"x\ny\"}}",
         "<add {\"a\":[-0.5e+3,0,true,false,null,\"\\u00e9\\\"}\"],\"b\":\"x\\ny\"}>"},
        /* without the end marker, or without an end at all */
        {"<tool_call>{\"name\":\"now\"} x", "<now {}>x"},
        {"<tool_call>{\"name\":\"add\",\"arguments\":{\"a\": 1", "<add {\"a\": 1>"},
        /* the reply was cut behind a call */
        {"<tool_call>{\"name\":\"now\"}\n</tool", "<now {}>"},
        {"<tool_call>{\"name\":\"now\"}<", "<now {}>"},
        {"<tool_call>[{\"name\":\"now\"}, ", "<now {}>"},
        {"<tool_call>{\"name\":\"now\"}\n</too late", "<now {}></too late"},
        {"<tool_call>{\"name\":\"now\"}</tool_call></tool", "<now {}></tool"},
        /* no calls */
        {"<tool_call", "<tool_call"},
        {"<tool_<tool_call>{\"name\":\"now\"}", "<tool_<now {}>"},
        {"x <tool_call> y", "x <tool_call> y"},
        {"<tool_call>{\"name\":\"add\"", "<tool_call>{\"name\":\"add\""},
        {"<tool_call>{\"name\":3}</tool_call>", "<tool_call>{\"name\":3}</tool_call>"},
        {"<tool_call>{\"name\":\"\"}</tool_call>", "<tool_call>{\"name\":\"\"}</tool_call>"},
        {"<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>"},
        {"<tool_call>{\"name\":\"now\",\"name\":\"now\"}", "<tool_call>{\"name\":\"now\",\"name\":\"now\"}"},
        {"<tool_call>{\"name\":\"a\",\"arguments\":\"{}\"}", "<tool_call>{\"name\":\"a\",\"arguments\":\"{}\"}"},
        /* malformed once the call has begun: the rest is content */
        {"<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":01}}</tool_call>", "<add {\"a\":0>1}}</tool_call>"},
        {"<tool_call>{\"name\":\"add\",\"arguments\":{\"a\" 1}}", "<add {\"a\" >1}}"},
        {"<tool_call>{\"name\":\"add\",\"arguments\":{,}}", "<add {>,}}"},
        /* a bare object is content */
        {"{\"name\":\"now\"}", "{\"name\":\"now\"}"},
    };
    CHECK(QWEN, examples);
}

static void qwen_coder_writes_tags(void **state) {
    (void)state;
    static const example examples[] = {
        {"<tool_call>\n<function=add>\n<parameter=a>\n3\n</parameter>\n<parameter=b>\nx "
         "\"y\"\n\nz\n\n</parameter>\n</function>\n"
         "</tool_call>",
         "<add {\"a\": 3, \"b\": \"x \\\"y\\\"\\n\\nz\\n\"}>"},
        {"<tool_call><function=now>\n</function></tool_call><tool_call><function=now></function></tool_call>",
         "<now {}><now {}>"},
        /* by the schema: what may be a string is one; what is not JSON is one as well */
        {"<tool_call><function=add><parameter=a>True</parameter><parameter=b>3</parameter><parameter=c>null</parameter>"
         "<parameter=d>[1, {\"x\": 2}]</parameter><parameter=e>4</parameter></function>",
         "<add {\"a\": true, \"b\": \"3\", \"c\": null, \"d\": [1, {\"x\": 2}], \"e\": \"4\"}>"},
        {"<tool_call><function=add><parameter=a>3 </x></parameter></function>", "<add {\"a\": \"3 </x>\"}>"},
        {"<function=set><parameter=enum>\non\n</parameter><parameter=const>5</parameter><parameter=text>5</"
         "parameter><parameter=object>"
         "{\"x\": "
         "[1]}</parameter><parameter=array>[1]</parameter><parameter=ref>1</parameter><parameter=all>1</parameter></function>",
         "<set {\"enum\": \"on\", \"const\": 5, \"text\": \"5\", \"object\": {\"x\": [1]}, \"array\": [1], \"ref\": \"1\", "
         "\"all\": "
         "\"1\"}>"},
        {"<function=set><parameter=any>null</parameter><parameter=nullable>\nnull\n</parameter><parameter=string>null</"
         "parameter>"
         "<parameter=enum>null</parameter></function>",
         "<set {\"any\": null, \"nullable\": null, \"string\": \"null\", \"enum\": null}>"},
        {"<function=set><parameter=enum>1</parameter><parameter=any>\n\n\"x\"\n\n</parameter><parameter=nullable>1</"
         "parameter></function>",
         "<set {\"enum\": 1, \"any\": \"\\n\\\"x\\\"\\n\", \"nullable\": \"1\"}>"},
        {"<function=set><parameter=enum>5</parameter><parameter=enum>2</parameter><parameter=lost>[1]</"
         "parameter><parameter=loop>1"
         "</parameter></function>",
         "<set {\"enum\": \"5\", \"enum\": \"2\", \"lost\": [1], \"loop\": 1}>"},
        {"<function=set><parameter=integer>18446744073709551615</parameter><parameter=integer>1, "
         "2</parameter><parameter=object>{\"s\": "
         "\"\\ud83d\"}</parameter></function>",
         "<set {\"integer\": 18446744073709551615, \"integer\": \"1, 2\", \"object\": {\"s\": \"\\ud83d\"}}>"},
        /* without the outer markers, or with one of them, or with another one */
        {"I add.\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call> Done",
         "I add.<add {\"a\": 1}>\n Done"},
        {"<function=now></function>\n<function=now></function>", "<now {}><now {}>"},
        {"<tool_call><function=now></function><function=now></function></tool_call>", "<now {}><now {}>"},
        {"<function=other></function> <function", "<function=other></function> <function"},
        {"<tool_calls>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, "
         "{\"name\":\"now\",\"arguments\":{},\"id\":\"x\"}]</tool_calls> so",
         "<add {\"a\": 1}><now {}>so"},
        {"<tool_calls>{\"name\": \"now\"}</tool_call", "<now {}>"},
        {"<tool_calls>x</tool_calls>", "<tool_calls>x</tool_calls>"},
        /* JSON in place of parameters */
        {"<tool_call><function=add>\n{\"a\": 1}\n</function></tool_call>", "<add {\"a\": 1}>"},
        {"<tool_call><function=add>{\"a\": 1} x", "<add {\"a\": 1}>x"},
        {"<tool_call><function=add>{\"a\"", "<add {\"a\">"},
        {"<tool_call><function=f><parameter=k></para</parameter></function>", "<f {\"k\": \"</para\"}>"},
        {"<tool_call><function=f> x", "<f {>x"},
        {"<tool_call><fun", "<tool_call><fun"},
    };
    CHECK(QWEN, examples);
}

/* A value is a number if its schema's enum lists that number; of a long enum only the first values are looked at. */
static void long_enums_are_looked_at_in_part(void **state) {
    (void)state;
    const cl_reply_format format = format_of(QWEN);
    json_t *values = json_pack("[s]", "x"), *loops = json_pack("[{ss}{ss}]", "$ref", "#/$defs/E", "$ref", "#/$defs/E");
    for (int i = 0; i < 70000; i++) json_array_append_new(values, json_integer(i));
    json_t *tools = json_pack("[{s{sss{s{s{soso}}s{s{ss}}}}}]", "function", "name", "f", "parameters", "$defs", "E", "enum",
                              values, "anyOf", loops, "properties", "e", "$ref", "#/$defs/E");
    const cl_reply_options options = {.format = &format, .tools = tools};
    static const char text[] = "<function=f><parameter=e>5</parameter><parameter=e>69999</parameter></function>";
    assert_split(&options, text, sizeof text - 1, "<f {\"e\": 5, \"e\": \"69999\"}>");
    json_decref(tools);
}

static void llama_writes_bare_json(void **state) {
    (void)state;
    static const example examples[] = {
        {"{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "<add {\"a\": 1}>"},
        {"\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", "<now {}>"},
        {"{\"type\":\"function\",\"function\":\"now\"}; {\"name\":\"add\",\"parameters\":{}}", "<now {}><add {}>"},
        {"<|python_tag|>{\"name\": \"other\", \"parameters\": {}}", "<other {}>"},
        {"Well: <|python_tag|>{\"name\":\"now\"}", "Well:<now {}>"},
        /* JSON that is no call of a tool */
        {"{\"name\": \"other\", \"parameters\": {}}", "{\"name\": \"other\", \"parameters\": {}}"},
        {"{\"name\": \"add\", \"age\": 3}", "{\"name\": \"add\", \"age\": 3}"},
        {"x {\"name\": \"now\"}", "x {\"name\": \"now\"}"},
        {"{\"name\":\"now\"}; and", "<now {}>; and"},
    };
    CHECK(LLAMA, examples);
}

static void mistral_writes_names_or_an_array(void **state) {
    (void)state;
    static const example examples[] = {
        {"[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]now[ARGS]{}", "<add {\"a\": 1}><now {}>"},
        {"[TOOL_CALLS]add[CALL_ID]abc12345[ARGS]{\"a\": 1}", "<add {\"a\": 1}>"},
        {"[TOOL_CALLS]add{\"a\": 1}", "<add {\"a\": 1}>"},
        {"[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": [1]}}, {\"name\": \"now\", \"arguments\": {}, \"id\": "
         "\"x\"}]",
         "<add {\"a\": [1]}><now {}>"},
        {"[THINK]hm[/THINK]yes", "{hm}yes"},
        {"[TOOL_CALLS]add[X]{}", "[TOOL_CALLS]add[X]{}"},
        {"[TOOL_CALLS]add", "[TOOL_CALLS]add"},
    };
    CHECK(MISTRAL, examples);
}

static void gemma_writes_unquoted_keys(void **state) {
    (void)state;
    static const example examples[] = {
        {"<start_function_call>call:add{a:1,b:<escape>x \"y\"\n<z><escape>,c:{k:[true,<escape><escape>]}}<end_function_call>",
         "<add {\"a\":1,\"b\":\"x \\\"y\\\"\\n<z>\",\"c\":{\"k\":[true,\"\"]}}>"},
        {"<start_function_call>call:now{}<end_function_call><start_function_call>call:now{}<end_function_call>",
         "<now {}><now {}>"},
        {"<start_function_call>call:add{b:<escape>x<esc<escape>}", "<add {\"b\":\"x<esc\"}>"},
        {"<start_function_call>call:add{b:x}", "<add {\"b\":>x}"},
        {"<start_function_call>now", "<start_function_call>now"},
    };
    CHECK(GEMMA, examples);
}

static void python_is_read(void **state) {
    (void)state;
    static const example examples[] = {
        {"[add(a=1, b='x \"y\" \\'z\\' \\n \\d')]", "<add {\"a\":1,\"b\":\"x \\\"y\\\" 'z' \\n \\\\d\"}>"},
        {"[now(), add(b=\"it's\", c={'k': [True, None, False]})]\n",
         "<now {}><add {\"b\":\"it's\",\"c\":{\"k\": [true, null, false]}}>"},
        {"[now()] so", "<now {}>so"},
        {"[sub(a=1)]", "[sub(a=1)]"},
        {"[1, 2]", "[1, 2]"},
        {"x [now()]", "x [now()]"},
        {"[add(a=b)]", "<add {\"a\":>b)]"},
        {"[add(a=1,)]", "<add {\"a\":1,>)]"},
    };
    CHECK(PYTHON, examples);
}

static void functionary_names_functions_or_recipients(void **state) {
    (void)state;
    static const example functions[] = {
        {"<function=add>{\"a\": 1}</function>", "<add {\"a\": 1}>"},
        {"Well: <function=now>{}</function><function=x.y>{}</function>", "Well:<now {}><x.y {}>"},
        {"<function=add>{\"a\": ", "<add {\"a\": >"},
        {"<function=>{}</function>", "<function=>{}</function>"},
        {"<functional", "<functional"},
    };
    CHECK(FUNCTION, functions);
    static const example recipients[] = {
        {"all\nHello, world", "Hello, world"},
        {">>>all\nHello", "Hello"},
        {"all\nnow\n{}", "now\n{}"},
        {"add\n{\"a\": 1}>>>now\n{}", "<add {\"a\": 1}><now {}>"},
        {"all\nI add.\n>>>add\n{\"a\": 1}", "I add.<add {\"a\": 1}>"},
        {">>>other\n{}", "<other {}>"},
        {"all\n>>> add\n{}", ">>> add\n{}"},
        {">>>\nadd\n{}", ">>>\nadd\n{}"},
        {"other\n{}", "other\n{}"},
        {"add 1", "add 1"},
        {"all\n1 >> 2 >>> 3", "1 >> 2 >>> 3"},
        {"al", "al"},
        {"add\n{\"a\"", "<add {\"a\">"},
    };
    CHECK(RECIPIENT, recipients);
    const cl_reply_format format = format_of(RECIPIENT);
    const cl_reply_options without_tools = {.format = &format};
    assert_split(&without_tools, "all\nHello", 9, "Hello");
    assert_split(&without_tools, "add\n{}>>>add\n{}", 15, "add\n{}>>>add\n{}");
}

#define ANALYSIS   "<|channel|>analysis<|message|>"
#define COMMENTARY "<|channel|>commentary"
#define FINAL      "<|channel|>final<|message|>"
#define AGAIN      "<|end|><|start|>assistant"

static void harmony_writes_channels(void **state) {
    (void)state;
    static const example examples[] = {
        {FINAL "Hello\n", "Hello\n"},
        {ANALYSIS "hm" AGAIN FINAL "yes<|return|>", "{hm}yes"},
        {ANALYSIS "hm" AGAIN COMMENTARY " to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
         "{hm}<add {\"a\": 1}>"},
        {ANALYSIS "hm" AGAIN " to=functions.add" COMMENTARY " json<|message|>{\"a\": 1}", "{hm}<add {\"a\": 1}>"},
        {" to=functions.now" COMMENTARY "<|message|>{}", "<now {}>"},
        {"<|channel|>analysis to=functions.now <|message|>{}<|call|>", "<now {}>"},
        {COMMENTARY " to=now<|message|>{}", "<now {}>"},
        {COMMENTARY "<|message|>I add." AGAIN COMMENTARY " to=functions.now <|constrain|>json<|message|>{}", "I add.<now {}>"},
        /* reasoning goes on behind content */
        {ANALYSIS "a" AGAIN COMMENTARY "<|message|>b" AGAIN ANALYSIS "c" AGAIN FINAL "d", "{a}b{c}d"},
        {ANALYSIS "a" AGAIN COMMENTARY " to=functions.now <|constrain|>json<|message|>{}<|call|><|start|>assistant" ANALYSIS
                  "b<|end|>",
         "{a}<now {}>{b}"},
        /* text that is no JSON, a header without an end, other text with such words */
        {COMMENTARY " to=python <|message|>1 + 2", COMMENTARY " to=python <|message|>1 + 2"},
        {COMMENTARY " to=functions.add {\"a\": 1}", COMMENTARY " to=functions.add {\"a\": 1}"},
        {COMMENTARY " to=functions.add <|constrain|>json", COMMENTARY " to=functions.add <|constrain|>json"},
        {FINAL "a to=functions.b", "a to=functions.b"},
        {COMMENTARY " to=functions.add <|constrain|>json<|message|>{\"a\": x}<|call|>", "<add {\"a\": >x}<|call|>"},
        {"<|channel|>fin", "<|channel|>fin"},
        {"plain", "plain"},
    };
    CHECK(HARMONY, examples);
    const cl_reply_format format = format_of(HARMONY);
    const cl_reply_options without_tools = {.format = &format}, reasons = {.format = &format, .reasoning = true};
    static const char text[] = ANALYSIS "hm" AGAIN FINAL "yes";
    assert_split(&without_tools, text, sizeof text - 1, ANALYSIS "hmyes");
    assert_split(&reasons, text, sizeof text - 1, "{hm}yes");
}

static void calls_have_names_before_a_marker(void **state) {
    (void)state;
    static const example kimi[] = {
        {"I add.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{\"a\": 1}"
         "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
         "<|tool_calls_section_end|>",
         "I add.<add {\"a\": 1}><now {}>"},
        {"<think>hm</think><|tool_call_begin|>now<|tool_call_argument_begin|> {}<|tool_call_end|>\nso", "{hm}<now {}>so"},
        {"<|tool_calls_section_begin|> <|tool_call_begin|>functions.x:y:12\n<|tool_call_argument_begin|>{}", "<x:y {}>"},
        {"<|tool_calls_section_begin|> x", "<|tool_calls_section_begin|> x"},
        {"<|tool_calls_section_begin|><|tool_call_begin|>now{}", "<|tool_calls_section_begin|><|tool_call_begin|>now{}"},
        {"<|tool_call_begin|>now<|tool_call_end|>", "<|tool_call_begin|>now<|tool_call_end|>"},
        {"<|tool_call_begin|>now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>x",
         "<now {}><|tool_call_begin|>x"},
        {"<|tool_call_begin|>now:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_c", "<now {}>"},
    };
    CHECK(KIMI, kimi);
    static const example deepseek[] = {
        {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": "
         "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
         "<｜tool▁calls▁end｜>",
         "<add {\"a\": 1}><now {}>"},
        {"<｜tool▁calls▁begin｜>function", "<｜tool▁calls▁begin｜>function"},
        {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```python\n",
         "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```python\n"},
        {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n", "<now {}>"},
    };
    CHECK(DEEPSEEK, deepseek);
    static const example deepseek_31[] = {
        {"hm</think>I add.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
         "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "hm</think>I add.<add {\"a\": 1}><now {}>"},
        {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add{}", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add{}"},
    };
    CHECK(DEEPSEEK_31, deepseek_31);
}

static void arguments_have_tags(void **state) {
    (void)state;
    static const example glm[] = {
        {"<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>3</arg_value>\n<arg_key>b</arg_key>\n<arg_value>\nx\n</arg_value>\n"
         "</tool_call>",
         "<add {\"a\": 3, \"b\": \"\\nx\\n\"}>"},
        {"\n<think>hm</think>\nI add.\n<tool_call>add<arg_key>b</arg_key><arg_value>3</arg_value></tool_call>\n<tool_call>now\n"
         "</tool_call><tool_call>now</tool_call>",
         "{hm}I add.<add {\"b\": \"3\"}><now {}><now {}>"},
        {"<tool_call>{\"name\": \"now\"}</tool_call>", "<now {}>"},
        {"<tool_call>now x", "<tool_call>now x"},
        {"<tool_call>now\n", "<tool_call>now\n"},
        {"<tool_call>now\n<arg_value>", "<tool_call>now\n<arg_value>"},
        {"<tool_call>add\n<arg_key>b</arg_key>x<arg_value>", "<add {>x<arg_value>"},
        {"<tool_call>add\n<arg_key>b</arg_key>\n<arg_value>x</arg", "<add {\"b\": \"x>"},
    };
    CHECK(GLM, glm);
    static const example minimax[] = {
        {"hm\n<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">3</parameter>\n<parameter "
         "name=\"b\">\nx</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
         "hm<add {\"a\": 3, \"b\": \"x\"}><now {}>"},
        {"<minimax:tool_call><invoke name=\"add\" x>", "<minimax:tool_call><invoke name=\"add\" x>"},
        {"<minimax:tool_call><invoke name=\"now\"></invoke><invoke x", "<now {}><invoke x"},
        {"<minimax:tool_call>\nx", "<minimax:tool_call>\nx"},
    };
    CHECK(MINIMAX, minimax);
    static const example seed[] = {
        {"<seed:think>hm</seed:think>\n<seed:tool_call>\n<function=add>\n<parameter=a>3</parameter>\n</function>\n"
         "</seed:tool_call>",
         "{hm}<add {\"a\": 3}>"},
    };
    CHECK(SEED, seed);
}

static void special_tokens_are_markers(void **state) {
    (void)state;
    static const example gemma[] = {
        {"<|channel>thought\nhm\n<channel|><|tool_call>call:add{a:1,b:<|\"|>x \"y\"<|\"|>}<tool_call|><|tool_call>call:now{}"
         "<tool_call|>",
         "{hm}<add {\"a\":1,\"b\":\"x \\\"y\\\"\"}><now {}>"},
        {"<|tool_call>now{}<tool_call|>", "<|tool_call>now{}<tool_call|>"},
        {"<|channel>thought\n<channel|>yes", "yes"},
    };
    CHECK(GEMMA_4, gemma);
    static const example lfm2[] = {
        {"<|tool_call_start|>[add(a=1, b='x'), now()]<|tool_call_end|>so", "<add {\"a\":1,\"b\":\"x\"}><now {}>so"},
        {"I add. <|tool_call_start|>[other()]<|tool_call_end|>", "I add.<other {}>"},
        {"[now()]", "[now()]"},
        {"<|tool_call_start|>now", "<|tool_call_start|>now"},
    };
    CHECK(LFM2, lfm2);
    static const example command[] = {
        {"<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"add\", "
         "\"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": "
         "{}}\n]<|END_ACTION|>",
         "{hm}<add {\"a\": 1}><now {}>"},
        {"<|START_RESPONSE|>yes<|END_RESPONSE|>", "yes"},
        {"<|START_ACTION|>[{\"tool\": \"add\"}]", "<|START_ACTION|>[{\"tool\": \"add\"}]"},
    };
    CHECK(COMMAND, command);
    cl_reply_format format;
    cl_reply_format_find(cl_str_of("<tool_calls>[ [BEGIN FINAL RESPONSE]"), true, &format); /* Apriel 1.6 */
    json_t *tools = json_loads(TOOLS, 0, NULL);
    const cl_reply_options options = {.format = &format, .tools = tools, .reasoning = true, .in_reasoning = true};
    static const char text[] = "hm\n[BEGIN FINAL RESPONSE]\nI add.\n<tool_calls>[{\"name\": \"now\"}]</tool_calls>\n"
                               "[END FINAL RESPONSE]";
    assert_split(&options, text, sizeof text - 1, "{hm}I add.<now {}>");
    json_decref(tools);
}

/* Where a grammar constrains calls, only what it constrains begins one. */
static void constrained_calls_have_one_form(void **state) {
    (void)state;
    static const struct {
        int family;
        example example;
    } cases[] = {
        {QWEN, {"<tool_call>{\"name\":\"now\"}</tool_call>", "<now {}>"}},
        {QWEN,
         {"<think>\n<tool_call>{\"name\":\"now\"}</think>\n<tool_call>{\"name\":\"now\"}",
          "<think>\n<tool_call>{\"name\":\"now\"}</think><now {}>"}},
        {QWEN, {"<think>a ", "<think>a "}},
        {QWEN, {"<tool_calls>[{\"name\":\"now\"}]</tool_calls>", "<tool_calls>[{\"name\":\"now\"}]</tool_calls>"}},
        {QWEN, {"<function=now></function>", "<function=now></function>"}},
        {QWEN, {"<tool_call><function=now></function>", "<tool_call><function=now></function>"}},
        {QWEN, {"<tool_call>{\"name\":\"x\"}", "<tool_call>{\"name\":\"x\"}"}},
        {QWEN, {"<tool_call>{\"name\":\"now\"} {\"name\":\"now\"}", "<now {}>{\"name\":\"now\"}"}},
        {LLAMA, {"{\"name\":\"now\"}; {\"name\":\"now\"}", "<now {}><now {}>"}},
        {LLAMA, {"<|python_tag|>{\"name\":\"now\"}", "<|python_tag|>{\"name\":\"now\"}"}},
        {RECIPIENT, {"all\nx>>>now\n{}>>>other\n{}", "x<now {}>>>>other\n{}"}},
        {RECIPIENT, {"all\n>>>[now\n{}", ">>>[now\n{}"}},
        {APRIEL, {"<tool_calls>[{\"name\":\"now\"}, {\"name\":\"now\"}]</tool_calls>", "<now {}><now {}>"}},
        {MISTRAL, {"[TOOL_CALLS]now[ARGS]{}", "<now {}>"}},
        {HARMONY, {"<|channel|>analysis to=functions.now<|message|>{}", "<|channel|>analysis to=functions.now<|message|>{}"}},
        {HARMONY, {COMMENTARY " to=functions.x<|message|>{}", COMMENTARY " to=functions.x<|message|>{}"}},
        {KIMI,
         {"<|tool_call_begin|>now<|tool_call_argument_begin|>{}", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}"}},
        {GLM, {"<tool_call>{\"name\": \"now\"}", "<tool_call>{\"name\": \"now\"}"}},
        {GLM, {"<tool_call>other</tool_call>", "<tool_call>other</tool_call>"}},
        {SEED, {"<seed:tool_call>{\"name\": \"now\"}", "<seed:tool_call>{\"name\": \"now\"}"}},
        {SEED, {"<seed:tool_call><function=now></function></seed:tool_call>", "<now {}>"}},
        {COMMAND, {"<tool_calls>[{\"name\":\"now\"}]</tool_calls>", "<tool_calls>[{\"name\":\"now\"}]</tool_calls>"}},
    };
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cl_reply_format format = format_of(cases[i].family);
        const cl_reply_options options = {.format = &format, .tools = tools, .constrained = true};
        assert_split(&options, cases[i].example.text, strlen(cases[i].example.text), cases[i].example.wanted);
    }
    json_decref(tools);
}

/* Text is held back only where it may begin a call in the format. */
static void other_forms_are_not_held_back(void **state) {
    (void)state;
    static const char text[] = "1<function=now";
    static const struct {
        int family;
        bool has_tools, constrained;
        size_t n_shown;
    } cases[] = {
        {QWEN, true, false, 1},    {APRIEL, true, false, 1},    {FUNCTION, true, false, 1}, {QWEN, false, false, 14},
        {QWEN, true, true, 14},    {LLAMA, true, false, 14},    {MISTRAL, true, false, 14}, {GEMMA, true, false, 14},
        {PYTHON, true, false, 14}, {RECIPIENT, true, true, 14},
    };
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cl_reply_format format = format_of(cases[i].family);
        const cl_reply_options options = {
            .format = &format, .tools = cases[i].has_tools ? tools : NULL, .constrained = cases[i].constrained};
        const cl_reply_part *parts;
        size_t n, n_shown = 0;
        cl_reply *r = cl_reply_create(&options);
        assert_true(cl_reply_add(r, text, sizeof text - 1, false, &parts, &n));
        for (size_t k = 0; k < n; k++) n_shown += parts[k].size;
        if (n_shown != cases[i].n_shown) fail_msg("case %zu: %zu bytes", i, n_shown);
        cl_reply_free(&r);
    }
    json_decref(tools);
}

static void reasoning_is_apart(void **state) {
    (void)state;
    static const example examples[] = {
        {"<think>\nhm <tool_call>\n</think>\n\nyes\n", "{hm <tool_call>}yes\n"},
        {"\n<think>\n\n</think>\n\nyes", "yes"},
        {"<think>a </th", "{a </th}"},
        {"<think>a", "{a}"},
        {"<think>a</think>\n<tool_call>{\"name\":\"now\"}</tool_call>", "{a}<now {}>"},
        {"use <think>", "use <think>"}, /* only the beginning of a reply is reasoning */
        {"<think>\n<think>\nhm\n</think>\nyes", "{hm}yes"},
        {"<think>a <think> b</think>yes", "{a <think> b}yes"},
        {"<think>\n<thi", "{<thi}"},
        {"a</think>b", "a</think>b"},
    };
    CHECK(QWEN, examples);
    const cl_reply_format format = format_of(QWEN);
    cl_reply_options options = {.format = &format, .reasoning = true, .in_reasoning = true};
    assert_split(&options, "hm</think> yes", 14, "{hm}yes");
    assert_split(&options, "hm ", 3, "{hm}");
    assert_split(&options, "<think>\nhm</think> yes", 22, "{hm}yes"); /* the prompt has begun it already */
    options.reasoning = false;
    assert_split(&options, "hm</think> yes", 14, "hm</think> yes");
    options.in_reasoning = false;
    assert_split(&options, "<think>a</think><tool_call>{\"name\":\"now\"}", 42,
                 "<think>a</think><tool_call>{\"name\":\"now\"}");
}

/* Texts of pieces that mean something: the parts do not depend on how they are cut, and plain text is whole. */
static void random_text_is_split_alike(void **state) {
    (void)state;
    static const char *const pieces[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<think>",
                                         "</think>",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         ";",
                                         " ",
                                         "\n",
                                         "\"name\"",
                                         "\"add\"",
                                         "\"now\"",
                                         "\"arguments\"",
                                         "\"parameters\"",
                                         "{\"a\": 1}",
                                         "<function=add>",
                                         "<parameter=b>",
                                         "</parameter>",
                                         "</function>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "add",
                                         "<start_function_call>",
                                         "call:",
                                         "<escape>",
                                         "<end_function_call>",
                                         "{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
                                         "[now(",
                                         "[add(b='",
                                         "(",
                                         ")",
                                         "'",
                                         "a=",
                                         "True",
                                         "<|python_tag|>",
                                         ">>>",
                                         "all\n",
                                         "now\n",
                                         "<tool_calls>",
                                         "</tool_calls>",
                                         "<parameter=c>",
                                         "\\",
                                         "\"",
                                         "1",
                                         "true",
                                         ANALYSIS,
                                         COMMENTARY,
                                         FINAL,
                                         "<|message|>",
                                         "<|end|>",
                                         "<|start|>assistant",
                                         " to=functions.now",
                                         "<|call|>",
                                         "<|tool_calls_section_begin|>",
                                         "<|tool_call_begin|>",
                                         "functions.now:0",
                                         "<|tool_call_argument_begin|>",
                                         "<|tool_call_end|>",
                                         "<|tool_calls_section_end|>",
                                         "<｜tool▁calls▁begin｜>",
                                         "<｜tool▁call▁begin｜>",
                                         "function<｜tool▁sep｜>",
                                         "\n```json\n",
                                         "\n```<｜tool▁call▁end｜>",
                                         "<arg_key>",
                                         "b</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "<minimax:tool_call>",
                                         "<invoke name=\"now\">",
                                         "<parameter name=\"b\">",
                                         "</invoke>",
                                         "<|tool_call>",
                                         "<|\"|>",
                                         "<tool_call|>",
                                         "<|channel>thought",
                                         "<channel|>",
                                         "<|tool_call_start|>",
                                         "<|START_ACTION|>",
                                         "<|END_ACTION|>",
                                         "<|START_RESPONSE|>",
                                         "\"tool_name\"",
                                         "<seed:tool_call>",
                                         "\xc3\xa9",
                                         "x",
                                         "<",
                                         "</"};
    json_t *tools = json_loads(TOOLS, 0, NULL);
    rng random = {7};
    for (int i = 0; i < 20000; i++) {
        const int family = (int)rng_below(&random, N_TEMPLATES);
        const cl_reply_format format = format_of(family);
        const bool plain = rng_chance(&random, 4);
        const cl_reply_options options = {.format = &format, .tools = plain ? NULL : tools, .reasoning = !plain};
        char text[1024] = "";
        for (int k = rng_below(&random, 16); k >= 0; k--)
            strcat(text, pieces[rng_below(&random, sizeof pieces / sizeof *pieces)]);
        assert_split(&options, text, strlen(text), plain && family != RECIPIENT && !format.around ? text : NULL);
    }
    json_decref(tools);
}

/* Long text is read in linear time, and its calls are limited. */
static void limits_hold(void **state) {
    (void)state;
    static const char call[] = "<tool_call>{\"name\":\"now\"}</tool_call>";
    const size_t n = 1 << 20;
    const cl_reply_format format = format_of(QWEN);
    json_t *tools = json_loads(TOOLS, 0, NULL);
    const cl_reply_options options = {.format = &format, .tools = tools, .reasoning = true};
    char *text = malloc(n + 1);
    assert_non_null(text);
    /* spaces where a call may begin, and arguments that come before the name, longer than what is held back */
    static const char *const heads[] = {"<tool_call>", "<tool_call>{\"arguments\":{\"a\":\""};
    for (size_t i = 0; i < 2; i++) {
        memset(text, i ? 'x' : ' ', n);
        memcpy(text, heads[i], strlen(heads[i]));
        text[n] = '\0';
        char *found = split(&options, text, n, n, NULL);
        assert_string_equal(found, text);
        free(found);
    }
    for (size_t i = 0; i <= CL_REPLY_MAX_CALLS; i++) memcpy(text + i * strlen(call), call, sizeof call);
    char *found = split(&options, text, strlen(text), 100, NULL);
    assert_string_equal(strstr(found, "<tool_call>"), call); /* the last one is content */
    free(found);
    /* deep nesting ends a call's arguments */
    const size_t head = (size_t)sprintf(text, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":");
    memset(text + head, '[', 200);
    text[head + 200] = '\0';
    found = split(&options, text, head + 200, 7, NULL);
    assert_int_equal(strchr(found, '>') - strchr(found, '['), CL_REPLY_MAX_DEPTH - 1);
    free(found);
    free(text);
    json_decref(tools);
}

static void templates_name_their_format(void **state) {
    (void)state;
    static const char *const names[] = {"hermes",      "llama3",  "mistral", "gemma", "pythonic", "functionary",
                                        "functionary", "apriel",  "harmony", "kimi",  "deepseek", "deepseek",
                                        "glm",         "minimax", "gemma",   "lfm2",  "command",  "seed"};
    for (int i = 0; i < N_TEMPLATES; i++) assert_string_equal(format_of(i).name, names[i]);
    cl_reply_format format;
    cl_reply_format_find(cl_str_of(templates[MISTRAL]), false, &format); /* the tools are described as for Hermes */
    assert_string_equal(format.begin, "<tool_call>");
    assert_string_equal(format.think, "[THINK]");
    assert_string_equal(format_of(LLAMA).think, "");
    assert_string_equal(format_of(MISTRAL).answer, "[/THINK]");

    cl_reply_format_probe(cl_str_of("<|assistant|>\n[CALL]\n{\"name\": \"probe_name\", \"parameters\": {\"probe_key\": "
                                    "\"probe_value\"}}\n[/CALL]<|end|>"),
                          &format);
    assert_string_equal(format.name, "generic");
    assert_string_equal(format.begin, "[CALL]");
    assert_string_equal(format.end, "[/CALL]");
    assert_string_equal(format.arguments, "parameters");
    assert_int_equal(format.syntax, CL_REPLY_JSON);

    cl_reply_format_probe((cl_str){0}, &format); /* a template that writes nothing changes nothing */
    assert_string_equal(format.begin, "[CALL]");

    size_t n = 0;
    format = format_of(MISTRAL);
    while (cl_reply_format_marker(&format, n)) n++;
    assert_int_equal(n, 10);
}

/* A reply that must consist of calls has no content, wherever it is cut. */
static void required_calls_are_no_content(void **state) {
    (void)state;
    static const char qwen[] = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
                               "<tool_call>\n{\"name\": \"now\"}\n</tool_call>";
    static const char kimi[] = "<|tool_calls_section_begin|>"
                               "<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>"
                               "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
                               "<|tool_calls_section_end|>";
    static const char deepseek[] = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
                                   "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    static const char *const replies[N_TEMPLATES] = {
        [QWEN] = qwen,
        [LLAMA] = "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"now\", \"parameters\": {}}",
        [MISTRAL] = "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]now[ARGS]{}",
        [GEMMA] = "<start_function_call>call:add{a:1}<end_function_call><start_function_call>call:now{}<end_function_call>",
        [PYTHON] = "[add(a=1), now()]",
        [FUNCTION] = "<function=add>{\"a\": 1}</function><function=now>{}</function>",
        [RECIPIENT] = "add\n{\"a\": 1}>>>now\n{}",
        [APRIEL] =
            "<tool_calls>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"now\", \"arguments\": {}}]</tool_calls>",
        [HARMONY] = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
        [KIMI] = kimi,
        [DEEPSEEK] = deepseek,
        [DEEPSEEK_31] = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [GLM] = "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        [MINIMAX] = "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
        [GEMMA_4] = "<|tool_call>call:add{a:1}<tool_call|><|tool_call>call:now{}<tool_call|>",
        [LFM2] = "<|tool_call_start|>[add(a=1), now()]<|tool_call_end|>",
        [COMMAND] = "<|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
        [SEED] = "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
    };
    json_t *tools = json_loads(TOOLS, 0, NULL);
    rng random = {7};
    for (int family = 0; family < N_TEMPLATES; family++) {
        const cl_reply_format format = format_of(family);
        const cl_reply_options options = {
            .format = &format, .tools = tools, .required = true, .constrained = true, .reasoning = true};
        for (size_t size = 0; size <= strlen(replies[family]); size++) {
            char *shown = split(&options, replies[family], size, 0, &random);
            for (const char *at = shown; *at; at = strchr(at, '>') + 1)
                if (*at != '<' || !strchr(at, '>')) fail_msg("the first %zu bytes of %s: %s", size, replies[family], shown);
            if (size == strlen(replies[family])) assert_non_null(strstr(shown, "<now "));
            free(shown);
        }
    }
    json_decref(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen_writes_json_between_tags),
        cmocka_unit_test(qwen_coder_writes_tags),
        cmocka_unit_test(long_enums_are_looked_at_in_part),
        cmocka_unit_test(llama_writes_bare_json),
        cmocka_unit_test(mistral_writes_names_or_an_array),
        cmocka_unit_test(gemma_writes_unquoted_keys),
        cmocka_unit_test(python_is_read),
        cmocka_unit_test(functionary_names_functions_or_recipients),
        cmocka_unit_test(harmony_writes_channels),
        cmocka_unit_test(calls_have_names_before_a_marker),
        cmocka_unit_test(arguments_have_tags),
        cmocka_unit_test(special_tokens_are_markers),
        cmocka_unit_test(constrained_calls_have_one_form),
        cmocka_unit_test(other_forms_are_not_held_back),
        cmocka_unit_test(reasoning_is_apart),
        cmocka_unit_test(required_calls_are_no_content),
        cmocka_unit_test(random_text_is_split_alike),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(templates_name_their_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The table of rules, as data: expressions of the models' own tokenizer.json files. */
#include "cuts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Parts of the published expressions ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LEAD         "[^\\r\\n\\p{L}\\p{N}]?"
#define SIGNS        " ?[^\\s\\p{L}\\p{N}]+"
#define SPACES       "|\\s+(?!\\S)|\\s+"
#define LINES        "|\\s*[\\r\\n]+" SPACES

#define GPT2          "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SIGNS SPACES
#define PLAIN(digits) LEAD "\\p{L}+|" digits "|" SIGNS "[\\r\\n]*"
#define WORDS(digits) CONTRACTIONS "|" PLAIN(digits)
#define ONE           "\\p{N}"
#define THREE         "\\p{N}{1,3}"

#define UPPER              "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER              "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CAPITAL(but)       LEAD "[" UPPER but "]*[" LOWER but "]+"
#define CAPITALS(but)      LEAD "[" UPPER but "]+[" LOWER but "]*"
#define CASED(end, digits) CAPITAL("") end "|" CAPITALS("") end "|" digits "|" SIGNS "[\\r\\n/]*" LINES

#define EXAONE(letters) CONTRACTIONS "|" LEAD letters "|\\p{N}|" SIGNS "[\\r\\n/]?|\\s*[\\r\\n]" SPACES
#define JAIS_SPACES(end)                                                                                                       \
    "\\s{512}" end "|\\s{256}" end "|\\s{128}" end "|\\s{64}" end "|\\s{32}" end "|\\s{16}" end "|\\s{8}" end "|\\s{4}" end    \
    "|\\s{1,2}" end

#define DEEPSEEK(lines)                                                                                                        \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+" lines SPACES

/*
 * Kimi's classes lack Han, which PCRE2 before 10.45 cannot write as they do. They are written by what they lack, since a test
 * before each character would take memory for each.
 */
#define KIMI(han, capital, capitals)                                                                                           \
    "[" han "]+|" capital CONTRACTIONS "?|" capitals CONTRACTIONS "?|" THREE "|" SIGNS "[\\r\\n]*" LINES
#define NO_HAN "&&[^\\p{Han}]"
#define LACKS  "\\p{sc:Han}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"

#define DEEPSEEK_LETTERS                                                                                                       \
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377" \
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-"     \
    "\u10c5"                                                                                                                   \
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"    \
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-"            \
    "\u1fc4\u1fc6-"                                                                                                            \
    "\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-"            \
    "\u211d\u2124"                                                                                                             \
    "\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-"             \
    "\u2ce4\u2ceb-"                                                                                                            \
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-"     \
    "\ufb17"                                                                                                                   \
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"                     \
    "\U00010cb2\U00010cc0-"                                                                                                    \
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
#define DEEPSEEK_SIGNS "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
#define CJK_WIDE       "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define CJK            "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define CJK_AFMOE                                                                                                              \
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"   \
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
#define CJK_YOUTU                                                                                                              \
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|" \
    "["                                                                                                                        \
    "\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define BLOOM " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

/* ---- The table ---- */

#define SPLIT(expression) .step = "Split Isolated " expression

/*
 * No letter follows, by Oniguruma's \b, for which six numbers of Latin-1 are letters. Digits before a letter are passed over at
 * once: to look for one from each of them would take quadratic time.
 */
#define NO_WORD "(*SKIP)(?![\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}])"

const cl_cut_rule cl_cut_rules[CL_CUT_N] = {
    [CL_CUT_GPT2] = {"ByteLevel", GPT2, .covers = true},
    [CL_CUT_GPT2_SPLIT] = {SPLIT(GPT2), .covers = true},
    [CL_CUT_WORDS_1] = {SPLIT(WORDS(ONE) LINES), .covers = true},
    [CL_CUT_WORDS_3] = {SPLIT(WORDS(THREE) LINES), .covers = true},
    [CL_CUT_WORDS_MANY] = {SPLIT(WORDS("\\p{N}+") LINES), .covers = true},
    [CL_CUT_WORDS_MARKS] = {SPLIT(CONTRACTIONS "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES),
                            .covers = true},
    [CL_CUT_WORDS_PLAIN] = {SPLIT(PLAIN(ONE) LINES), .covers = true},
    [CL_CUT_WORDS_LINES] = {SPLIT(CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES), .covers = true},
    [CL_CUT_WORDS_BAILING] = {SPLIT("'(?i:[sdmt]|ll|ve|re)|" LEAD "+\\p{L}+|\\p{N}|" SIGNS "+[\\r\\n]*|\\s*[\\r\\n]" SPACES),
                              .covers = true},
    [CL_CUT_WORDS_EXAONE] = {SPLIT(EXAONE("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+")),
                             EXAONE("\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+"), .covers = true},
    [CL_CUT_WORDS_JAIS] = {SPLIT(WORDS(THREE) "|\\s*[\\r\\n]+|" JAIS_SPACES("(?!\\S)") "|\\s{1}"), WORDS(THREE) LINES,
                           .covers = true},
    [CL_CUT_JAIS_SPACES] = {.pattern = "(?s)\\A(?:\\s*+(?<=[\\r\\n])|\\s*+\\S.*+)|" JAIS_SPACES("")},
    [CL_CUT_CASED] = {SPLIT(CASED("", ONE)), .covers = true},
    [CL_CUT_CASED_1] = {SPLIT(CASED(CONTRACTIONS "?", ONE)), .covers = true},
    [CL_CUT_CASED_3] = {SPLIT(CASED(CONTRACTIONS "?", THREE)), .covers = true},
    [CL_CUT_CASED_KIMI] = {SPLIT(KIMI("\\p{Han}", CAPITAL(NO_HAN), CAPITALS(NO_HAN))),
                           KIMI("\\p{sc:Han}", LEAD "[^\\p{Ll}" LACKS "]*[^\\p{Lu}\\p{Lt}" LACKS "]+",
                                LEAD "[^\\p{Ll}" LACKS "]+[^\\p{Lu}\\p{Lt}" LACKS "]*"),
                           .covers = true},
    [CL_CUT_WORDS_DEEPSEEK] = {SPLIT(DEEPSEEK("[\\r\\n]*|\\s*[\\r\\n]+"))},
    [CL_CUT_WORDS_SPARK] = {SPLIT(DEEPSEEK("|[\\r\\n]"))},
    [CL_CUT_BLOOM] = {SPLIT(BLOOM)},
    [CL_CUT_LINE_ENDS] = {SPLIT("[\\r\\n]")},
    [CL_CUT_LINES] = {SPLIT("[^\\n]+|[\\n]+"), .covers = true},
    [CL_CUT_DEEPSEEK_LETTERS] = {SPLIT(DEEPSEEK_LETTERS)},
    [CL_CUT_DEEPSEEK_SIGNS] = {SPLIT(DEEPSEEK_SIGNS)},
    [CL_CUT_LAST_SPACES] = {SPLIT("\\s+$"), "\\s++(*SKIP)\\z"},
    [CL_CUT_SPACED_LETTERS] = {SPLIT("\\s?\\p{L}+")},
    [CL_CUT_SPACED_PUNCTUATION] = {SPLIT("\\s?\\p{P}+")},
    [CL_CUT_CJK] = {SPLIT(CJK)},
    [CL_CUT_CJK_WIDE] = {SPLIT(CJK_WIDE)},
    [CL_CUT_CJK_AFMOE] = {SPLIT(CJK_AFMOE)},
    [CL_CUT_CJK_YOUTU] = {SPLIT(CJK_YOUTU)},
    [CL_CUT_DIGIT] = {.step = "Digits individual", .pattern = ONE},
    [CL_CUT_DIGIT_SPLIT] = {SPLIT(ONE)},
    [CL_CUT_DIGIT_ONCE] = {SPLIT("\\p{N}{1}")},
    [CL_CUT_DIGITS_3] = {SPLIT(THREE)},
    [CL_CUT_NUMBERS] = {.step = "Digits", .pattern = "\\p{N}+"},
    [CL_CUT_NUMBERS_SPLIT] = {SPLIT("\\p{N}+")},
    [CL_CUT_THOUSANDS] = {NULL, "\\p{Nd}++", .thousands = true},
    [CL_CUT_THOUSANDS_WHOLE] = {"Split MergedWithNext (?=(\\d{3})+(?!\\d))", "(?s).+", .thousands = true},
    [CL_CUT_THOUSANDS_AYA] = {SPLIT("\\d{1,3}(?=(?:\\d{3})*\\b)"), "\\d++" NO_WORD, .thousands = true},
    [CL_CUT_PUNCTUATION] = {.step = "Punctuation Isolated", .pattern = "[\\p{P}$+<=>^`|~]"},
    [CL_CUT_PUNCTUATION_RUNS] = {.step = "Punctuation Contiguous", .pattern = "[\\p{P}$+<=>^`|~]+"},
    [CL_CUT_BYTE_NUMBERS] = {"bytes Digits", "[0-9\\xb2\\xb3\\xb9\\xbc-\\xbe]+", .bytes = true},
    [CL_CUT_BYTE_DIGITS_3] = {"bytes Split Isolated [0-9][0-9][0-9]", "[0-9][0-9][0-9]", .bytes = true},
    [CL_CUT_SENTINELS] = {SPLIT("<sentinel:[0-9]+>")},
    [CL_CUT_IMAGES] = {SPLIT("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z")},
    [CL_CUT_INDENTS] = {SPLIT("([\\t\\n]|    |  )")},
};

/* ---- Looking them up ---- */

static const char ISOLATED[] = "Split Isolated ", REMOVED[] = "Split Removed ";

static bool begins(cl_str s, const char *with) { return s.size >= strlen(with) && memcmp(s.data, with, strlen(with)) == 0; }

/* How an expression may write the character; 0: as itself. */
static char escape_of(char c) { return c == '\r' ? 'r' : c == '\n' ? 'n' : c == '\t' ? 't' : 0; }

/* Whether the end of a text, from `from` on, is the other text, in which line ends and tabs are escapes. */
static bool same(cl_str text, size_t from, const char *escaped) {
    for (size_t i = from; i < text.size; i++) {
        const char escape = escape_of(text.data[i]);
        if (escape && *escaped++ != '\\') return false;
        if (*escaped++ != (escape ? escape : text.data[i])) return false;
    }
    return *escaped == 0;
}

cl_cut cl_cut_find(cl_str step) {
    /* The text between matches is removed: there is none where matches cover all. */
    const bool removed = begins(step, REMOVED);
    for (int i = 0; i < CL_CUT_N; i++) {
        const cl_cut_rule *rule = &cl_cut_rules[i];
        if (!rule->step || (removed && (!rule->covers || !begins(cl_str_of(rule->step), ISOLATED)))) continue;
        if (removed ? same(step, strlen(REMOVED), rule->step + strlen(ISOLATED)) : same(step, 0, rule->step)) return (cl_cut)i;
    }
    return CL_CUT_N;
}

/* What PCRE2 calls otherwise than the published expressions; its own \s would add U+180E, which is no space since Unicode 6.3.
 */
static const char *const classes[][2] = {{"\\s", "\\p{White_Space}"}, {"\\S", "\\P{White_Space}"}, {"\\d", "\\p{Nd}"}};
enum { LONGEST_CLASS = 15 };

static const char *class_of(const char *at) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strncmp(at, classes[i][0], 2) == 0) return classes[i][1];
    return NULL;
}

char *cl_cut_pattern(const cl_cut_rule *rule) {
    const char *from = rule->pattern ? rule->pattern : rule->step + strlen(ISOLATED);
    char *pattern = malloc(LONGEST_CLASS * strlen(from) + 1), *to = pattern;
    if (!pattern) return NULL;
    while (*from) {
        const char *class = class_of(from);
        const size_t size = class ? strlen(class) : *from == '\\' ? 2 : 1;
        memcpy(to, class ? class : from, size);
        to += size;
        from += class || *from == '\\' ? 2 : 1;
    }
    *to = 0;
    return pattern;
}

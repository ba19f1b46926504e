/* The rules by which byte-level tokenizers cut text: the steps of a published pre_tokenizer, and expressions that do the same.
 */
#ifndef CHUNKLLAMA_TEXT_CUTS_H
#define CHUNKLLAMA_TEXT_CUTS_H

#include <stdbool.h>

#include "chunkllama/common/str.h"

/* Each cuts text into its matches and what is between them. */
typedef enum cl_cut {
    CL_CUT_GPT2,
    CL_CUT_GPT2_SPLIT, /* the same, written as an expression */
    CL_CUT_WORDS_1,    /* Qwen 2: one digit a piece */
    CL_CUT_WORDS_3,    /* Llama 3: at most three digits */
    CL_CUT_WORDS_MANY, /* MiniCPM 5 */
    CL_CUT_WORDS_MARKS,
    CL_CUT_WORDS_PLAIN, /* without English contractions */
    CL_CUT_WORDS_LINES, /* Seed: signs and line ends apart */
    CL_CUT_WORDS_BAILING,
    CL_CUT_WORDS_EXAONE,
    CL_CUT_WORDS_JAIS,
    CL_CUT_JAIS_SPACES, /* what CL_CUT_WORDS_JAIS does with long runs of spaces; only behind it */
    CL_CUT_CASED,       /* Tekken */
    CL_CUT_CASED_1,
    CL_CUT_CASED_3, /* GPT-4o */
    CL_CUT_CASED_KIMI,
    CL_CUT_WORDS_DEEPSEEK,
    CL_CUT_WORDS_SPARK,
    CL_CUT_BLOOM,
    CL_CUT_LINE_ENDS,
    CL_CUT_LINES,
    CL_CUT_DEEPSEEK_LETTERS,
    CL_CUT_DEEPSEEK_SIGNS,
    CL_CUT_LAST_SPACES,
    CL_CUT_SPACED_LETTERS,
    CL_CUT_SPACED_PUNCTUATION,
    CL_CUT_CJK,
    CL_CUT_CJK_WIDE,
    CL_CUT_CJK_AFMOE,
    CL_CUT_CJK_YOUTU,
    CL_CUT_DIGIT, /* any number that is one character */
    CL_CUT_DIGIT_SPLIT,
    CL_CUT_DIGIT_ONCE,
    CL_CUT_DIGITS_3,
    CL_CUT_NUMBERS,
    CL_CUT_NUMBERS_SPLIT,
    CL_CUT_THOUSANDS, /* before the last three digits of a number, before the three before these, and so on */
    CL_CUT_THOUSANDS_WHOLE,
    CL_CUT_THOUSANDS_AYA,
    CL_CUT_PUNCTUATION,
    CL_CUT_PUNCTUATION_RUNS,
    CL_CUT_BYTE_NUMBERS, /* Falcon looks for numbers when bytes are characters already */
    CL_CUT_BYTE_DIGITS_3,
    CL_CUT_SENTINELS,
    CL_CUT_IMAGES,
    CL_CUT_INDENTS,
    CL_CUT_N
} cl_cut;

typedef struct cl_cut_rule {
    /*
     * The step as tokenizer.pre_steps of a folder names it: its type, for a Split with behaviour and expression; its line ends
     * are escapes. NULL: no published step is known.
     */
    const char *step;
    /* PCRE2's expression, in which \s, \S and \d mean what they mean in a step; NULL: that of the step. Takes linear time. */
    const char *pattern;
    bool covers;    /* no text is between matches */
    bool thousands; /* a match is cut further: before each digit behind which the digits left are a multiple of three */
    bool bytes;     /* the expression looks at bytes */
} cl_cut_rule;

extern const cl_cut_rule cl_cut_rules[CL_CUT_N];

/* The rule of a step; CL_CUT_N: it is not known. */
cl_cut cl_cut_find(cl_str step);

/* The expression of a rule, as PCRE2 reads it; the caller frees it. NULL: no memory. */
char *cl_cut_pattern(const cl_cut_rule *rule);

#endif

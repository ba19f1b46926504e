/* Writes regular expressions as llguidance reads them: see regex.h. */
#include "regex.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MAX_GROUPS = 256 }; /* nested; llguidance reads fewer */

/* The flags that change how the text is read. */
typedef struct flags {
    bool unicode, verbose; /* u and x */
} flags;

typedef struct writer {
    const char *at, *end;
    char *out; /* the end of what is written */
    flags now, outside[MAX_GROUPS];
    size_t n_groups;     /* that are open */
    bool in_class;       /* within brackets, */
    bool is_first_bound; /* behind a character with which a range may begin, */
    bool in_range;       /* behind the hyphen of a range */
} writer;

/* A class as ASCII, which may stand in another class and behind the flag x, and for the flag u, by its letter. */
static const struct {
    char letter;
    const char *ascii, *unicode;
} classes[] = {
    {'d', "[0-9]", "\\p{Nd}"},
    {'D', "[^0-9]", "\\P{Nd}"},
    {'w', "[0-9A-Za-z_]", "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]"},
    {'W', "[^0-9A-Za-z_]", "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]"},
    {'s', "[\\x20\\t\\n\\r\\f\\v]", "\\p{White_Space}"},
    {'S', "[^\\x20\\t\\n\\r\\f\\v]", "\\P{White_Space}"},
};
enum { N_CLASSES = sizeof classes / sizeof *classes, MAX_GROWTH = 64 }; /* bytes for an escape */

static void put(writer *w, const char *text, size_t size) {
    memcpy(w->out, text, size);
    w->out += size;
}

/* The class whose escape is at `at`; N_CLASSES: there is none. */
static size_t class_at(const writer *w, const char *at) {
    size_t i = 0;
    if (w->end - at < 2 || *at != '\\') return N_CLASSES;
    while (i < N_CLASSES && classes[i].letter != at[1]) i++;
    return i;
}

/* Note that a member of a class has been written: a character or, if not, a class. */
static void end_member(writer *w, bool is_character) {
    w->is_first_bound = is_character && !w->in_range;
    w->in_range = false;
}

/* The escape of a control character, such as \cA, or of the end; false: it is another one. */
static bool write_foreign_escape(writer *w) {
    char code[8];
    if (w->end - w->at > 2 && w->at[1] == 'c' && isalpha((unsigned char)w->at[2])) {
        put(w, code, (size_t)snprintf(code, sizeof code, "\\x%02x", w->at[2] & 31));
        w->at += 3;
    } else if (w->end - w->at > 1 && w->at[1] == 'Z' && !w->in_class) {
        put(w, "\\z", 2);
        w->at += 2;
    } else {
        return false;
    }
    return true;
}

/* The size of the escape at the beginning, with what stands in braces: \p{L}, \x{41}. */
static size_t escape_size(const writer *w) {
    const char *behind = w->at + 2;
    if (w->end - w->at < 2) return 1;
    if (behind == w->end || *behind != '{' || !strchr("pPxuU", w->at[1])) return 2;
    const char *close = memchr(behind, '}', (size_t)(w->end - behind));
    return close ? (size_t)(close + 1 - w->at) : 2;
}

/* The escape of a character that begins with a backslash. */
static void write_escape(writer *w) {
    const size_t i = class_at(w, w->at), size = escape_size(w);
    const char *text = i == N_CLASSES ? NULL : w->now.unicode ? classes[i].unicode : classes[i].ascii;
    if (!write_foreign_escape(w)) {
        text ? put(w, text, strlen(text)) : put(w, w->at, size);
        w->at += size;
    }
    end_member(w, !text);
}

/* Whether a count such as {2} or {2,3} is at the beginning. */
static bool is_count(const writer *w) {
    const char *at = w->at + 1;
    while (at < w->end && isdigit((unsigned char)*at)) at++;
    if (at == w->at + 1) return at < w->end && *at == ','; /* {,3} means different things, and is refused */
    if (at < w->end && *at == ',') at++;
    while (at < w->end && isdigit((unsigned char)*at)) at++;
    return at < w->end && *at == '}';
}

/* A brace that begins no count stands for itself. */
static void write_brace(writer *w) {
    if (!w->now.verbose && !is_count(w)) put(w, "\\", 1);
    put(w, w->at++, 1);
}

/* The beginning of a class. A bracket that follows at once stands for itself. */
static void open_class(writer *w) {
    const char *begin = w->at++;
    w->in_class = true;
    w->is_first_bound = w->in_range = false;
    if (w->at < w->end && *w->at == '^') w->at++;
    if (w->at < w->end && *w->at == ']') {
        w->at++;
        end_member(w, true);
    }
    put(w, begin, (size_t)(w->at - begin));
}

/* The flags of (?ux-i) or (?ux-i:...), whose letters begin at `at`; false: this is another kind of group. */
static bool read_flags(writer *w, const char *at, flags *f, const char **after) {
    bool value = true;
    for (; at < w->end && (strchr("imsURux", *at) || *at == '-'); at++) {
        if (*at == '-') value = false;
        if (*at == 'u') f->unicode = value;
        if (*at == 'x') f->verbose = value;
    }
    *after = at;
    return at < w->end && (*at == ')' || *at == ':');
}

static void open_group(writer *w) {
    const char *begin = w->at++, *after = w->at;
    flags inner = w->now;
    const bool has_flags = w->at < w->end && *w->at == '?' && read_flags(w, w->at + 1, &inner, &after);
    if (has_flags && *after == ')') {
        w->now = inner;
        w->at = after + 1;
    } else {
        if (w->n_groups < MAX_GROUPS) w->outside[w->n_groups] = w->now;
        w->n_groups++;
        w->now = inner;
        w->at = has_flags ? after + 1 : w->at;
    }
    put(w, begin, (size_t)(w->at - begin));
}

static void close_group(writer *w) {
    if (w->n_groups > 0 && --w->n_groups < MAX_GROUPS) w->now = w->outside[w->n_groups];
    put(w, w->at++, 1);
}

/* The size of a class such as [:alpha:] or [:^alpha:] at `at`; 0: there is none. */
static size_t posix_class_at(const writer *w, const char *at) {
    static const char *const names[] = {"alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph",
                                        "lower", "print", "punct", "space", "upper", "word",  "xdigit"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        char text[16];
        const int size = snprintf(text, sizeof text, i % 2 ? "[:^%s:]" : "[:%s:]", names[i / 2]);
        if (w->end - at >= size && memcmp(at, text, (size_t)size) == 0) return (size_t)size;
    }
    return 0;
}

/* Whether the hyphen that comes next makes a range of the characters before and behind it. */
static bool is_range(const writer *w) {
    const char *behind = w->at + 1;
    return w->is_first_bound && behind < w->end && *behind != ']' && class_at(w, behind) == N_CLASSES &&
           posix_class_at(w, behind) == 0;
}

/*
 * A member of a class. Brackets, ampersands, tildes and hyphens stand for themselves, unless they are of a range or of a class
 * such as [:alpha:]; Rust would read classes in each other, and operators between them.
 */
static void write_member(writer *w) {
    const size_t size = *w->at == '[' ? posix_class_at(w, w->at) : 0;
    if (*w->at == ']') {
        w->in_class = false;
    } else if (*w->at == '-' && is_range(w)) {
        w->in_range = true;
        w->is_first_bound = false;
    } else {
        if (size == 0 && *w->at && strchr("[&~-", *w->at)) put(w, "\\", 1);
        end_member(w, size == 0);
    }
    put(w, w->at, size > 0 ? size : 1);
    w->at += size > 0 ? size : 1;
}

static void skip_comment(writer *w) {
    while (w->at < w->end && *w->at != '\n') put(w, w->at++, 1);
}

static void write_one(writer *w) {
    const char c = *w->at;
    if (c == '\\') {
        write_escape(w);
    } else if (w->in_class) {
        write_member(w);
    } else if (c == '[') {
        open_class(w);
    } else if (c == '(') {
        open_group(w);
    } else if (c == ')') {
        close_group(w);
    } else if (c == '{') {
        write_brace(w);
    } else if (c == '#' && w->now.verbose) {
        skip_comment(w);
    } else {
        put(w, w->at++, 1);
    }
}

static void put_rest(writer *w) {
    put(w, w->at, (size_t)(w->end - w->at));
    w->at = w->end;
}

char *cl_regex_ascii(const char *text, size_t size, size_t *n) {
    size_t n_escapes = 0;
    for (size_t i = 0; i < size && size <= CL_REGEX_MAX_BYTES; i++) n_escapes += text[i] == '\\';
    char *out = malloc(2 * size + n_escapes * MAX_GROWTH + 1);
    if (!out) return NULL;
    writer w = {.at = text, .end = text + size, .out = out};
    if (size > CL_REGEX_MAX_BYTES) put_rest(&w);
    while (w.at < w.end) write_one(&w);
    *w.out = 0;
    *n = (size_t)(w.out - out);
    return out;
}

/* Whether all escapes of letters are those of Rust but anchors. */
static bool has_known_escapes(const char *text) {
    for (; *text; text++)
        if (*text == '\\' && text[1] && isalpha((unsigned char)*++text) && !strchr("acfnrtvxuUdDsSwWpPbBAzZ", *text))
            return false;
    return true;
}

bool cl_regex_is_valid(const char *text) {
    int number;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ALT_BSUX, &number, &at, NULL);
    pcre2_code_free(code);
    return (code || strstr(text, "(?u")) && has_known_escapes(text); /* PCRE2 lacks the flag u */
}

bool cl_regex_looks_around(const char *text) {
    static const char *const groups[] = {"?=", "?!", "?<=", "?<!"};
    for (; *text; text++) {
        if (*text == '\\' && text[1]) {
            if (strchr("bB123456789k", *++text)) return true;
        } else if (*text == '(') {
            for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
                if (strncmp(text + 1, groups[i], strlen(groups[i])) == 0) return true;
        }
    }
    return false;
}

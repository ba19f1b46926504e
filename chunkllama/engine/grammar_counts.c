/* Multiplies what grammars count: see grammar_counts.h. */
#include "grammar_counts.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"

/* ---- Products ---- */

/*
 * The largest products of counts in a text that is read from its beginning to its end: in each group that is open, and in the
 * item before the place, which a count would multiply. Groups beyond MAX_OPEN are read as a part of the last one.
 */
enum { MAX_OPEN = 256 };
typedef struct products {
    double open[MAX_OPEN]; /* [1 + n_open] of the text, and of the groups in it */
    size_t n_open;
    double item;
    double nested; /* the largest of two or more counts */
    bool verbose;  /* blanks and comments are left out, as the flag x says */
} products;

static const products nothing = {.open = {1}, .item = 1, .nested = 1};

static double *group(products *p) { return &p->open[p->n_open < MAX_OPEN ? p->n_open : MAX_OPEN - 1]; }

static void add_item(products *p, double product) {
    p->item = product;
    *group(p) = fmax(*group(p), product);
}

static void open_group(products *p) {
    p->n_open++;
    if (p->n_open < MAX_OPEN) *group(p) = 1;
}

static void close_group(products *p) {
    if (p->n_open == 0) return;
    const double inside = *group(p);
    p->n_open--;
    add_item(p, inside);
}

static void multiply(products *p, double count) {
    if (p->item > 1 && count > 1) p->nested = fmax(p->nested, p->item * count);
    add_item(p, p->item * fmax(count, 1));
}

/* ---- Counts ---- */

static const char *skip_line(const char *at, const char *end) {
    while (at < end && *at != '\n') at++;
    return at;
}

/*
 * Skip blanks, and comments as regular expressions have them. Characters that are not ASCII are taken for blanks, since some
 * are: what precedes them is multiplied by what follows them then, perhaps for nothing.
 */
static const char *skip_space(const char *at, const char *end) {
    while (at < end && (isspace((unsigned char)*at) || (unsigned char)*at >= 0x80 || *at == '#'))
        at = *at == '#' ? skip_line(at, end) : at + 1;
    return at;
}

/* The same with Lark's comments. */
static const char *skip_lark_space(const char *at, const char *end) {
    for (at = skip_space(at, end); end - at > 1 && at[0] == '/' && at[1] == '/';) at = skip_space(skip_line(at, end), end);
    return at;
}

static const char *read_number(const char *at, const char *end, double *number) {
    at = skip_lark_space(at, end);
    for (*number = 0; at < end && isdigit((unsigned char)*at); at++) *number = 10 * *number + (*at - '0');
    return skip_lark_space(at, end);
}

/* A count between brackets, {m,n}, {m} or {m,}, whose larger number multiplies. Returns its end. */
static const char *read_count(products *p, const char *at, const char *end) {
    double least, most = 0;
    at = read_number(at + 1, end, &least);
    if (at < end && *at == ',') at = read_number(at + 1, end, &most);
    if (at < end && *at == '}') multiply(p, fmax(least, most));
    return at;
}

/* Lark's other notation: ~ m, or ~ m..n */
static const char *read_tilde(products *p, const char *at, const char *end) {
    double least, most = 0;
    at = read_number(at + 1, end, &least);
    if (end - at > 2 && at[0] == '.' && at[1] == '.') at = read_number(at + 2, end, &most);
    multiply(p, fmax(least, most));
    return at;
}

/* ---- Regular expressions ---- */

/* The place behind a character, and behind the blanks and comments that follow it if the flag x is set. */
static const char *next(const products *p, const char *at, const char *end) {
    return p->verbose && at < end ? skip_space(at + 1, end) : at + 1;
}

/* The next place if it has a character, otherwise the same place. */
static const char *skip_first(const products *p, const char *at, const char *end, char c) {
    const char *first = next(p, at, end);
    return first < end && *first == c ? first : at;
}

/* The last byte of a class, in which others may stand. A bracket that would close an empty one is a character of it. */
static const char *skip_class(const products *p, const char *at, const char *end) {
    for (int depth = 0; at < end; at = next(p, at, end)) {
        if (*at == '[') {
            depth++;
            at = skip_first(p, at, end, '^');
            at = skip_first(p, at, end, ']');
        } else if (*at == ']' && --depth == 0) {
            return at;
        } else if (*at == '\\') {
            at++;
        }
    }
    return end;
}

/* The last byte of an escape, such as \. or \x{2028}. */
static const char *skip_escape(const char *at, const char *end) {
    at++;
    if (end - at < 2 || !*at || !strchr("pPuUx", *at) || at[1] != '{') return at;
    while (at < end && *at != '}') at++;
    return at;
}

static void read_regex(products *p, const char *at, const char *end) {
    for (at = p->verbose ? skip_space(at, end) : at; at < end; at = next(p, at, end)) switch (*at) {
        case '(': open_group(p); break;
        case ')': close_group(p); break;
        case '{': at = read_count(p, at, end); break;
        case '*':
        case '+':
        case '?': break; /* what follows multiplies the same item */
        case '\\':
            at = skip_escape(at, end);
            add_item(p, 1);
            break;
        case '[':
            at = skip_class(p, at, end);
            add_item(p, 1);
            break;
        default: add_item(p, 1); break;
        }
}

/* Whether a part of a regular expression may set the flag x, as (?x) and (?ix:...) do. */
static bool may_be_verbose(const char *at, const char *end) {
    for (; end - at > 2; at++)
        if (at[0] == '(' && at[1] == '?')
            for (const char *flag = at + 2; flag < end && (isalpha((unsigned char)*flag) || *flag == '-'); flag++)
                if (*flag == 'x') return true;
    return false;
}

/* Read a regular expression, also as one with the flag x if it may be that. Returns what of it a count behind it multiplies. */
static double read_regex_twice(const char *at, const char *end, bool verbose, double *nested) {
    double product = 1;
    for (int reading = 0; reading < 1 + (verbose || may_be_verbose(at, end)); reading++) {
        products p = nothing;
        p.verbose = reading;
        read_regex(&p, at, end);
        *nested = fmax(*nested, p.nested);
        product = fmax(product, p.open[0]);
    }
    return product;
}

double cl_nested_counts_of_regex(const char *text, size_t size) {
    double nested = 1;
    read_regex_twice(text, text + size, false, &nested);
    return nested;
}

/* ---- Lark ---- */

typedef struct definition {
    cl_str name;
    const char *end;
    double product; /* of its body, once it is `known`; 1 before */
    double size;    /* bytes of its body so far, with the terminals in it */
    bool known, open;
} definition;

typedef struct lark {
    definition *definitions; /* [n] owned; by name */
    size_t n;
    const char *end;
    int depth; /* definitions that are being read, each in the one before */
    cl_lark_counts counts;
    void (*on_json)(void *ctx, const char *json, size_t size);
    void *ctx;
} lark;

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *skip_name(const char *at, const char *end) {
    while (at < end && is_name(*at)) at++;
    return at;
}

/* The end of a literal, within its line. */
static const char *skip_literal(const char *at, const char *end) {
    const char mark = *at;
    for (at++; at < end && *at != mark && *at != '\n'; at++)
        if (*at == '\\') at++;
    return at < end ? at + 1 : end;
}

/* The end of the brackets that begin at *at, with the strings in them. */
static const char *skip_json(const char *at, const char *end) {
    size_t depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = skip_literal(at, end);
            continue;
        }
        if (*at == '{' || *at == '[') depth++;
        if ((*at == '}' || *at == ']') && --depth == 0) return at + 1;
        at++;
    }
    return end;
}

static int compare_names(const void *left, const void *right) {
    const cl_str *a = &((const definition *)left)->name, *b = &((const definition *)right)->name;
    const int order = memcmp(a->data, b->data, a->size < b->size ? a->size : b->size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static void read_definition(lark *l, definition *own);

static bool is_terminal(const definition *d) {
    return d->name.size > 0 && isupper((unsigned char)d->name.data[d->name.size > 1 && d->name.data[0] == '_']);
}

/* A name in the body of a definition. Grammars that stand in each other may define it several times; all of them count. */
static void read_name(lark *l, definition *own, products *p, const char *name, size_t size) {
    const definition wanted = {.name = {name, size}}, *end = l->definitions + l->n;
    definition *found = bsearch(&wanted, l->definitions, l->n, sizeof wanted, compare_names);
    double product = 1, most = 0;
    while (found && found > l->definitions && compare_names(found - 1, &wanted) == 0) found--;
    for (; found && found < end && compare_names(found, &wanted) == 0; found++) {
        read_definition(l, found);
        if (is_terminal(found)) most = fmax(most, found->size);
        product = fmax(product, found->product);
    }
    own->size += most;
    add_item(p, product);
}

/* %json { ... }, %regex { ... } or another directive. %lark { ... } is a grammar, whose items follow. Returns its end. */
static const char *read_directive(lark *l, definition *own, products *p, const char *at, const char *end) {
    const char *name = at + 1, *rest = skip_name(name, end);
    const size_t n = (size_t)(rest - name);
    while (rest < end && isspace((unsigned char)*rest)) rest++;
    add_item(p, 1);
    if (rest == end || *rest != '{') return name;
    if (n == 4 && memcmp(name, "lark", 4) == 0) {
        read_name(l, own, p, "start", 5);
        return rest + 1;
    }
    if (n == 4 && memcmp(name, "json", 4) == 0) l->on_json(l->ctx, rest, (size_t)(end - rest));
    return skip_json(rest, end);
}

/* A regular expression with the bars around it; its flags follow. */
static void read_literal(lark *l, products *p, const char *at, const char *end, const char *limit) {
    const size_t n_flags = (size_t)(skip_name(end, limit) - end);
    l->counts.pattern = fmax(l->counts.pattern, (double)(end - at));
    add_item(p, read_regex_twice(at + 1, end, n_flags > 0 && memchr(end, 'x', n_flags), &l->counts.nested));
}

/* Read one item of a body. Returns its end. */
static const char *read_item(lark *l, definition *own, products *p, const char *at, const char *end) {
    const char *start = at;
    if (end - at > 1 && at[0] == '/' && at[1] == '/') return skip_line(at, end);
    if (*at == '"') {
        at = skip_literal(at, end);
        add_item(p, 1);
    } else if (*at == '/') {
        at = skip_literal(at, end);
        read_literal(l, p, start, at, end);
    } else if (is_name(*at)) {
        at = skip_name(at, end);
        read_name(l, own, p, start, (size_t)(at - start));
    } else if (*at == '%') {
        at = read_directive(l, own, p, at, end);
    } else if (*at == '{' || *at == '~') {
        at = *at == '{' ? read_count(p, at, end) : read_tilde(p, at, end);
        if (at < end && *at == '}') at++;
    } else {
        if (*at == '(' || *at == '[') open_group(p);
        if (*at == ')' || *at == ']') close_group(p);
        at++;
    }
    own->size += (double)(at - start);
    return at;
}

/* Read a definition, whose body is behind the name, unless it was. One that is in itself counts once. */
static void read_definition(lark *l, definition *own) {
    if (own->known || own->open) return;
    l->counts.too_deep |= l->depth == CL_MAX_DEPTH;
    if (l->depth == CL_MAX_DEPTH) return;
    own->open = true;
    l->depth++;
    products *p = malloc(sizeof *p); /* a thread's stack is small */
    if (p) {
        *p = nothing;
        for (const char *at = own->name.data + own->name.size; at < own->end;) at = read_item(l, own, p, at, own->end);
        own->product = p->open[0];
        l->counts.nested = fmax(l->counts.nested, p->nested);
        if (is_terminal(own)) l->counts.pattern = fmax(l->counts.pattern, own->size);
    }
    free(p);
    l->depth--;
    own->open = false;
    own->known = p;
}

/* Whether a definition begins at a place that is the first of its line. */
static bool is_definition(const char *at, const char *end) {
    while (at < end && (*at == '?' || *at == '!')) at++;
    const char *name = at;
    at = skip_name(at, end);
    if (at == name) return false;
    while (at < end && strchr(" \t.-0123456789", *at)) at++; /* a priority */
    return at < end && (*at == ':' || *at == '[');           /* attributes are in brackets */
}

/* Cut the text into definitions. It begins with one that has no name, for directives before the others. */
static void find_definitions(lark *l, const char *text) {
    l->definitions[l->n++] = (definition){.name = {text, 0}, .product = 1};
    for (const char *at = text; at < l->end;) {
        at = skip_space(at, l->end);
        if (is_definition(at, l->end)) {
            while (*at == '?' || *at == '!') at++;
            l->definitions[l->n - 1].end = at;
            l->definitions[l->n++] = (definition){.name = {at, (size_t)(skip_name(at, l->end) - at)}, .product = 1};
        }
        at = skip_line(at, l->end);
        if (at < l->end) at++;
    }
    l->definitions[l->n - 1].end = l->end;
    qsort(l->definitions, l->n, sizeof *l->definitions, compare_names);
}

static size_t count_same(const lark *l) {
    size_t most = 0, n = 0;
    for (size_t i = 0; i < l->n; i++) {
        n = i > 0 && compare_names(&l->definitions[i - 1], &l->definitions[i]) == 0 ? n + 1 : 1;
        if (n > most) most = n;
    }
    return most;
}

bool cl_count_lark(const char *text, size_t size, void (*on_json)(void *ctx, const char *json, size_t size), void *ctx,
                   cl_lark_counts *counts) {
    lark l = {.end = text + size, .counts = {.nested = 1}, .on_json = on_json, .ctx = ctx};
    size_t n_lines = 2;
    for (size_t i = 0; i < size; i++) n_lines += text[i] == '\n';
    l.definitions = calloc(n_lines, sizeof *l.definitions);
    if (!l.definitions) return false;
    bool ok = true;
    find_definitions(&l, text);
    l.counts.n_same = count_same(&l);
    for (size_t i = 0; i < l.n && l.counts.n_same <= CL_MAX_SAME; i++) {
        read_definition(&l, &l.definitions[i]);
        ok = ok && l.definitions[i].known;
    }
    free(l.definitions);
    *counts = l.counts;
    return ok;
}

/* ---- Multiples ---- */

/* The digits of a number as an integer, without the zeros at the end of a fraction; beyond `limit` any larger number. */
static double digits_of(double number, double limit) {
    for (int i = 0; i < 20 && number <= limit; i++, number *= 10)
        if (fabs(number - round(number)) <= 1e-9 * number) return round(number);
    return 2 * limit;
}

static double greatest_common_divisor(double a, double b) {
    while (b >= 1) {
        const double rest = fmod(a, b);
        a = b;
        b = rest;
    }
    return a;
}

double cl_common_multiple(double multiple, double number, double limit) {
    const double digits = digits_of(fabs(number), limit);
    if (!(digits >= 1)) return multiple; /* 0: the grammar's engine refuses it */
    if (multiple < 1 || multiple > limit || digits > limit) return fmax(multiple, digits);
    return multiple / greatest_common_divisor(multiple, digits) * digits;
}

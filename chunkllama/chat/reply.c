/* Splits a reply: finds markers, reads calls, and reports the parts. */
#include "reply.h"

#include <stdlib.h>

#include "reply_call.h"

typedef enum reply_state {
    REPLY_IN_TEXT,
    REPLY_IN_REASONING,
    REPLY_BEFORE_CALL, /* behind the marker of calls */
    REPLY_IN_CALL,
    REPLY_AFTER_CALL /* another call may follow without a marker of its own */
} reply_state;

struct cl_reply {
    cl_reply_options options;
    reply_state state;
    /*
     * Text of which the bytes before `start` are done with, and those before `at` have been read. If the bytes in between turn
     * out not to be what they seemed, the first n_plain of them are plain text, and the others are read once more.
     */
    reply_text held;
    size_t start, at, n_plain;
    reply_call call;
    int32_t n_calls; /* that have begun */
    bool in_array;   /* the calls are elements of an array */
    bool is_marked;  /* a marker precedes the calls */
    bool opens;      /* the marker before each call is still to come */
    /* White space beside markers is left out. What ends a part is kept here until it is known whether a marker follows. */
    reply_text space;
    bool has_content, has_reasoning; /* other than white space */
    reply_text out;                  /* the text of all parts */
    cl_reply_part *parts;            /* [n_parts]; while parts are added, `text` is not set */
    size_t n_parts, parts_capacity;
    bool no_memory;
};

/* Whether reasoning is recognised: to report it apart, or because no grammar constrains what looks like a call in it. */
static bool sees_reasoning(const cl_reply *r) { return r->options.reasoning || r->options.constrained; }

cl_reply *cl_reply_create(const cl_reply_options *options) {
    cl_reply *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->options = *options;
    if (options->in_reasoning && sees_reasoning(r)) r->state = REPLY_IN_REASONING;
    return r;
}

void cl_reply_free(cl_reply **reply) {
    cl_reply *r = *reply;
    if (!r) return;
    reply_call_free(&r->call);
    free(r->held.data);
    free(r->space.data);
    free(r->out.data);
    free(r->parts);
    free(r);
    *reply = NULL;
}

bool cl_reply_reasons(const cl_reply *r) { return r->state == REPLY_IN_REASONING && r->options.reasoning; }

/* ---- Parts ---- */

static void add_part(cl_reply *r, cl_reply_kind kind, const char *text, size_t size) {
    const int32_t call = kind == CL_REPLY_CALL || kind == CL_REPLY_ARGUMENTS ? r->n_calls - 1 : 0;
    cl_reply_part *last = r->n_parts ? &r->parts[r->n_parts - 1] : NULL;
    reply_text_add(&r->out, text, size);
    if (last && last->kind == kind && last->call == call) {
        last->size += size;
        return;
    }
    if (r->n_parts == r->parts_capacity) {
        const size_t capacity = 2 * r->parts_capacity + 8;
        cl_reply_part *grown = realloc(r->parts, capacity * sizeof *grown);
        r->no_memory |= !grown;
        if (!grown) return;
        r->parts = grown;
        r->parts_capacity = capacity;
    }
    r->parts[r->n_parts++] = (cl_reply_part){.kind = kind, .call = call, .size = size};
}

/* What the text in a state is. */
static cl_reply_kind kind_in(const cl_reply *r) { return cl_reply_reasons(r) ? CL_REPLY_REASONING : CL_REPLY_CONTENT; }

/* Whether something other than content was split off. */
static bool is_split(const cl_reply *r) { return r->has_reasoning || r->n_calls > 0; }

/* Report the white space before content or reasoning, unless that begins here, behind a marker. */
static void add_space(cl_reply *r, cl_reply_kind kind) {
    const bool begins = kind == CL_REPLY_REASONING ? !r->has_reasoning : !r->has_content && is_split(r);
    if (!begins && r->space.size > 0) add_part(r, kind, r->space.data, r->space.size);
    r->space.size = 0;
}

/* Report content or reasoning. */
static void add_text(cl_reply *r, cl_reply_kind kind, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (reply_is_space(text[i])) {
            reply_text_add(&r->space, &text[i], 1);
            continue;
        }
        add_space(r, kind);
        add_part(r, kind, &text[i], 1);
        *(kind == CL_REPLY_REASONING ? &r->has_reasoning : &r->has_content) = true;
    }
}

/* Report the parts that the call's reader has. */
static void add_call(cl_reply *r) {
    reply_call *c = &r->call;
    if (!c->begun) return;
    if (c->name.size > 0) {
        r->n_calls++;
        add_part(r, CL_REPLY_CALL, c->name.data, c->name.size);
        c->name.size = 0;
    }
    if (c->arguments.size > 0) add_part(r, CL_REPLY_ARGUMENTS, c->arguments.data, c->arguments.size);
    c->arguments.size = 0;
}

/* ---- Text that is held back ---- */

/* Forget the text that was read. */
static void release(cl_reply *r) {
    r->start = r->at;
    r->n_plain = 0;
}

/* The text that was read is no marker or call: its first n_plain bytes are plain text, and the others are read once more. */
static void give_up(cl_reply *r) {
    const cl_reply_kind kind = kind_in(r);
    if (r->state != REPLY_IN_REASONING) r->state = REPLY_IN_TEXT;
    add_text(r, kind, r->held.data + r->start, r->n_plain);
    r->at = r->start + r->n_plain;
    release(r);
}

/* Read the text once more, as plain text. */
static void read_again(cl_reply *r) {
    r->state = REPLY_IN_TEXT;
    r->at = r->start;
    release(r);
}

/* ---- Markers ---- */

typedef enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE } match;

/* A marker without the white space before it. */
static const char *without_space(const char *marker) {
    while (reply_is_space(*marker)) marker++;
    return marker;
}

/* Whether the text that was read is a marker or its beginning, from byte `from` on. */
static match match_marker(const cl_reply *r, const char *marker, size_t from) {
    const size_t size = strlen(marker), n = r->at - from;
    if (n > size || size == 0 || memcmp(marker, r->held.data + from, n) != 0) return MATCH_NONE;
    return n == size ? MATCH_WHOLE : MATCH_PART;
}

static match longer(match a, match b) { return a > b ? a : b; }

/* The same of a list of markers, which may be NULL: the longest match. */
static match match_any(const cl_reply *r, const char *const *markers, size_t from) {
    match best = MATCH_NONE;
    for (; markers && *markers; markers++) best = longer(best, match_marker(r, *markers, from));
    return best;
}

/* Whether calls may have another form around their JSON than the template's. */
static bool takes_other_forms(const cl_reply *r) {
    return r->options.format->syntax == CL_REPLY_JSON && !r->options.constrained;
}

/* Grammars write the first marker alone. */
static match match_begin(const cl_reply *r, size_t from) {
    const cl_reply_format *f = r->options.format;
    const bool is_bare = f->syntax == CL_REPLY_BARE && r->options.constrained;
    return longer(is_bare ? MATCH_NONE : match_marker(r, f->begin, from),
                  r->options.constrained ? MATCH_NONE : match_any(r, f->begins, from));
}

/* The marker before a call inside of those around all of them. */
static match match_open(const cl_reply *r, size_t from) { return match_marker(r, r->options.format->open, from); }

static match match_end(const cl_reply *r, size_t from) {
    const cl_reply_format *f = r->options.format;
    const char *other = f->syntax == CL_REPLY_JSON   ? CL_REPLY_CALLS_END
                        : f->syntax == CL_REPLY_TAGS ? f->tags->end /* behind JSON in place of tags */
                                                     : "";
    return longer(match_marker(r, f->end, from), match_marker(r, other, from));
}

/* A call may follow the text that was read; otherwise that text is plain. */
static void begin_call(cl_reply *r, bool is_marked) {
    r->is_marked = is_marked;
    r->in_array = r->opens = false;
    r->n_plain = r->at - r->start;
    r->state = REPLY_BEFORE_CALL;
}

/* A marker of reasoning was read, and the state behind it is another one. Where reasoning is content, the marker is, too. */
static void pass_thought_marker(cl_reply *r, reply_state state) {
    if (r->options.reasoning)
        r->space.size = 0;
    else
        add_text(r, CL_REPLY_CONTENT, r->held.data + r->start, r->at - r->start);
    r->state = state;
    release(r);
}

/* Whether a call without a marker may begin with a byte. */
static bool begins_bare_call(const cl_reply_format *f, char byte) {
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
    return (f->syntax == CL_REPLY_BARE && byte == '{') || (f->syntax == CL_REPLY_PYTHON && !f->begin[0] && byte == '[') ||
           (f->syntax == CL_REPLY_RECIPIENT && is_letter);
}

static void read_text(cl_reply *r) {
    const cl_reply_format *f = r->options.format;
    const bool fresh = !r->has_content; /* only the beginning of a reply is reasoning, or a call without a marker */
    /* Functionary writes a marker also before content. */
    const bool may_call = (r->options.tools || f->syntax == CL_REPLY_RECIPIENT) && r->n_calls < CL_REPLY_MAX_CALLS;
    const match thinks = sees_reasoning(r) && (fresh || f->rethinks) ? match_marker(r, f->think, r->start) : MATCH_NONE;
    const match calls = may_call ? match_begin(r, r->start) : MATCH_NONE;
    const match around = match_any(r, f->around, r->start);
    /* The first of two markers is left out at times. */
    const match opens = may_call && !r->options.constrained ? match_open(r, r->start) : MATCH_NONE;
    const match function = may_call && takes_other_forms(r) ? match_marker(r, f->tags->begin, r->start) : MATCH_NONE;
    if (thinks == MATCH_WHOLE) {
        pass_thought_marker(r, REPLY_IN_REASONING);
    } else if (calls == MATCH_WHOLE || opens == MATCH_WHOLE) {
        begin_call(r, true);
        r->opens = f->open[0] && opens != MATCH_WHOLE;
    } else if (around == MATCH_WHOLE) {
        release(r);
    } else if (function == MATCH_WHOLE || (may_call && fresh && begins_bare_call(f, r->held.data[r->start]))) {
        begin_call(r, false);
        r->at = r->start; /* these bytes belong to the call */
    } else if (longer(longer(thinks, calls), longer(longer(around, opens), function)) == MATCH_NONE) {
        r->n_plain = 1;
        give_up(r);
    }
}

/* Reasoning may begin with its marker once more, because the prompt or the model has written it before. */
static void read_reasoning(cl_reply *r) {
    const match ends = match_marker(r, r->options.format->answer, r->start);
    const match begins = r->has_reasoning ? MATCH_NONE : match_marker(r, r->options.format->think, r->start);
    if (ends == MATCH_WHOLE) {
        r->has_reasoning = r->options.reasoning;
        pass_thought_marker(r, REPLY_IN_TEXT);
    } else if (begins == MATCH_WHOLE) {
        pass_thought_marker(r, REPLY_IN_REASONING);
    } else if (ends == MATCH_NONE && begins == MATCH_NONE) {
        r->n_plain = 1;
        give_up(r);
    }
}

/* ---- Calls ---- */

static void begin_reader(cl_reply *r) {
    reply_call_free(&r->call);
    reply_call_init(&r->call, &r->options, !r->is_marked || !r->options.tools || r->options.constrained);
    r->state = REPLY_IN_CALL;
}

/* Read the marker before a call, behind the one before all calls. */
static void read_open(cl_reply *r) {
    size_t from = r->start + r->n_plain;
    while (from < r->at && reply_is_space(r->held.data[from])) from++;
    if (from == r->at) return;
    const match m = match_open(r, from);
    if (m == MATCH_NONE) give_up(r);
    r->opens = m == MATCH_PART;
}

/* Whether calls may be elements of an array. */
static bool may_have_array(const cl_reply_format *f) {
    return f->syntax == CL_REPLY_JSON || f->syntax == CL_REPLY_BARE || f->syntax == CL_REPLY_MISTRAL ||
           f->syntax == CL_REPLY_PYTHON;
}

static void read_before_call(cl_reply *r) {
    const char byte = r->held.data[r->at - 1];
    const cl_reply_format *f = r->options.format;
    if (r->opens) {
        read_open(r);
        return;
    }
    if (reply_is_space(byte) && f->syntax != CL_REPLY_RECIPIENT) return; /* whose name follows the marker at once */
    if (byte == '[' && !r->in_array && may_have_array(f)) {
        r->in_array = true;
        return;
    }
    begin_reader(r);
    r->at--;
}

static void read_call(cl_reply *r) {
    const reply_verdict v = reply_call_read(&r->call, r->held.data[r->at - 1]);
    r->no_memory |= reply_call_failed(&r->call);
    if (!r->call.begun && v == REPLY_WHOLE) {
        r->state = REPLY_IN_TEXT;
        r->has_content = true; /* so that it does not begin with a call without a marker */
        release(r);
    }
    if (!r->call.begun && v == REPLY_BROKEN) give_up(r);
    if (!r->call.begun) return;
    add_call(r);
    if (v == REPLY_BROKEN) {
        r->at--;
        r->state = REPLY_IN_TEXT;
    }
    if (v == REPLY_WHOLE) r->state = REPLY_AFTER_CALL;
    release(r);
}

/* Whether a byte may stand between two calls. */
static bool is_separator(const cl_reply *r, char byte) {
    if (r->in_array) return byte == ',' || byte == ']' || reply_is_space(byte);
    return reply_is_space(byte) || (byte == ';' && r->options.format->syntax == CL_REPLY_BARE);
}

enum { MAX_SEPARATORS = 64 };

/* Another call may follow in the same array or behind the same marker; then the marker of the end. */
static void read_after_call(cl_reply *r) {
    const cl_reply_format *f = r->options.format;
    const bool more = r->n_calls < CL_REPLY_MAX_CALLS;
    const bool again = more && (r->in_array || f->syntax == CL_REPLY_BARE || takes_other_forms(r));
    size_t i = r->start;
    while (i < r->at && i - r->start < MAX_SEPARATORS && is_separator(r, r->held.data[i])) i++;
    if (i == r->at && r->held.data[i - 1] == ']') {
        r->in_array = false;
        release(r);
    }
    if (i == r->at) return;
    const match end = match_end(r, i), close = match_marker(r, without_space(f->close), i);
    const match opens = more ? match_open(r, i) : MATCH_NONE;
    const match tag = more && f->syntax == CL_REPLY_TAGS ? match_marker(r, f->tags->begin, i) : MATCH_NONE;
    if (end == MATCH_WHOLE) {
        r->state = REPLY_IN_TEXT;
        release(r);
    } else if (close == MATCH_WHOLE) {
        release(r);
    } else if (opens == MATCH_WHOLE) {
        begin_call(r, true);
    } else if (longer(longer(end, close), longer(opens, tag)) == MATCH_PART) {
        return;
    } else if (tag == MATCH_WHOLE || (again && (f->syntax == CL_REPLY_PYTHON || r->held.data[i] == '{'))) {
        r->n_plain = i + 1 - r->start;
        begin_reader(r);
        r->at = i;
    } else {
        read_again(r);
    }
}

/* ---- The text ---- */

static void read_byte(cl_reply *r) {
    r->at++;
    switch (r->state) {
    case REPLY_IN_TEXT: read_text(r); break;
    case REPLY_IN_REASONING: read_reasoning(r); break;
    case REPLY_BEFORE_CALL: read_before_call(r); break;
    case REPLY_IN_CALL: read_call(r); break;
    case REPLY_AFTER_CALL: read_after_call(r); break;
    }
    if (r->n_plain > 0 && r->at - r->start > CL_REPLY_MAX_HELD) give_up(r);
}

/*
 * Nothing follows what is held back. Behind a call that is what would separate it from the next one, or the beginning of the
 * marker of its end, where the reply was cut: as little content as the whole marker. Where calls are required it is the
 * beginning of one.
 */
static void resolve(cl_reply *r) {
    if (r->state == REPLY_AFTER_CALL || (r->options.required && r->state != REPLY_IN_REASONING)) {
        release(r);
        return;
    }
    if (r->n_plain == 0) r->n_plain = 1; /* of the beginning of a marker */
    give_up(r);
}

static bool take_parts(cl_reply *r, const cl_reply_part **parts, size_t *n) {
    r->no_memory |= r->held.no_memory || r->space.no_memory || r->out.no_memory;
    size_t at = 0;
    for (size_t i = 0; !r->no_memory && i < r->n_parts; at += r->parts[i++].size) r->parts[i].text = r->out.data + at;
    *parts = r->parts;
    *n = r->no_memory ? 0 : r->n_parts;
    r->held.size -= r->start;
    if (r->held.size > 0) memmove(r->held.data, r->held.data + r->start, r->held.size);
    r->at -= r->start;
    r->start = r->out.size = r->n_parts = 0;
    return !r->no_memory;
}

static void read_all(cl_reply *r) {
    while (r->at < r->held.size && !r->no_memory) read_byte(r);
}

/* Report all that is held back. */
static void finish(cl_reply *r) {
    while (r->start < r->held.size && !r->no_memory) {
        resolve(r);
        read_all(r);
    }
    const bool keeps_space = kind_in(r) == CL_REPLY_CONTENT && (r->has_content ? r->n_calls == 0 : !is_split(r));
    if (keeps_space && r->space.size > 0) add_part(r, CL_REPLY_CONTENT, r->space.data, r->space.size);
    r->space.size = 0;
}

bool cl_reply_add(cl_reply *r, const char *text, size_t size, bool last, const cl_reply_part **parts, size_t *n) {
    reply_text_add(&r->held, text, size);
    read_all(r);
    if (last) finish(r);
    return take_parts(r, parts, n);
}

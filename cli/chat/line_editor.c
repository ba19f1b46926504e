/*
 * Edits lines with libedit.
 *
 * Debian 12's libedit knows nothing of bracketed paste: without the binding of ESC [200~ it would take each line end of a
 * pasted text as the end of a message. It gets its characters from read_char, which also turns Ctrl-C into the end of the line.
 */
#include "line_editor.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "chunkllama/common/str.h"
#include "line_history.h"
#include "terminal.h"

struct line_editor {
    EditLine *el;
    line_history history;
    bool in_message;  /* a line of the message was read, and another follows */
    bool interrupted; /* by Ctrl-C, in the line that is being read */
    char input[4096]; /* [n_input] bytes that were read, of which libedit has received the first `used` */
    size_t used, n_input;
};

static line_editor *editor_of(EditLine *el) {
    void *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return e;
}

static char *prompt(EditLine *el) {
    static char first[] = "> ", next[] = ". ";
    return editor_of(el)->in_message ? next : first;
}

/* ---- Characters ---- */

/* Read more bytes behind those that are not used yet. As libedit's functions: 1, at the end of the input 0, otherwise -1. */
static int read_more(line_editor *e) {
    e->n_input -= e->used;
    memmove(e->input, e->input + e->used, e->n_input);
    e->used = 0;
    for (;;) {
        switch (terminal_wait()) {
        case TERMINAL_INTERRUPTED:
            terminal_interrupted = 0;
            e->interrupted = true;
            return 1;
        case TERMINAL_CHANGED:
            el_resize(e->el);
            el_set(e->el, EL_REFRESH);
            continue;
        case TERMINAL_INPUT: break;
        }
        const ssize_t n = read(STDIN_FILENO, e->input + e->n_input, sizeof e->input - e->n_input);
        if (n > 0) {
            e->n_input += (size_t)n;
            return 1;
        }
        if (n == 0 || (errno != EINTR && errno != EAGAIN)) return n == 0 ? 0 : -1;
    }
}

/* The next character of the input, for libedit; bytes that are not UTF-8 become U+FFFD. After Ctrl-C it is the line's end. */
static int read_char(EditLine *el, wchar_t *c) {
    line_editor *e = editor_of(el);
    bool valid = false;
    size_t n = 0;
    while (!e->interrupted &&
           (e->used == e->n_input || (n = cl_utf8_part(e->input + e->used, e->n_input - e->used, &valid)) == 0)) {
        const int status = read_more(e);
        if (status != 1) return status;
    }
    *c = L'\n';
    if (e->interrupted) return 1;
    *c = 0xfffd;
    if (valid) mbrtowc(c, e->input + e->used, n, &(mbstate_t){0});
    e->used += n;
    return 1;
}

/* ---- Keys ---- */

/* Alt-Enter: a line feed within the message. */
static unsigned char insert_line_feed(EditLine *el, int key) {
    (void)key;
    return el_winsertstr(el, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/*
 * Add a pasted character behind `last`. Terminals send line ends as CR, LF or both; they become LF. Other control characters
 * but tab are dropped.
 */
static void add_pasted(wchar_t c, wchar_t last, FILE *out) {
    if (c == '\r' || (c == '\n' && last != '\r'))
        fputwc('\n', out);
    else if (c == '\t' || (c >= 0x20 && (c < 0x7f || c > 0x9f)))
        fputwc(c, out);
}

/* ESC [200~: insert all up to ESC [201~ at once, so that no line end in it ends the message. */
static unsigned char insert_paste(EditLine *el, int key) {
    static const wchar_t end[] = L"\033[201~"; /* in which ESC is the first character only */
    const line_editor *e = editor_of(el);
    wchar_t *text = NULL, c, last = 0;
    size_t size, n_met = 0; /* characters of `end` that have come */
    FILE *out = open_wmemstream(&text, &size);
    (void)key;
    while (out && end[n_met] && !e->interrupted && el_wgetc(el, &c) == 1) {
        if (c == end[n_met]) {
            n_met++;
            continue;
        }
        for (size_t i = 0; i < n_met; last = end[i++]) add_pasted(end[i], last, out);
        n_met = c == end[0];
        if (!n_met) add_pasted(c, last, out);
        last = c;
    }
    const bool ok = out && fclose(out) == 0 && (!size || el_winsertstr(el, text) == 0);
    free(text);
    return ok ? CC_REFRESH : CC_ERROR;
}

static void bind_keys(EditLine *el) {
    el_set(el, EL_ADDFN, "insert-line-feed", "Insert a line feed", insert_line_feed);
    el_set(el, EL_ADDFN, "insert-paste", "Insert pasted text", insert_paste);
    /* Terminals differ in what they send for the last ones: libedit binds only what terminfo says. */
    static const char *const keys[][2] = {
        {"\033[200~", "insert-paste"}, {"\033\n", "insert-line-feed"},     {"\033\r", "insert-line-feed"},
        {"^R", "em-inc-search-prev"},  {"\033[H", "ed-move-to-beg"},       {"\033[F", "ed-move-to-end"},
        {"\033[1~", "ed-move-to-beg"}, {"\033[4~", "ed-move-to-end"},      {"\033OH", "ed-move-to-beg"},
        {"\033OF", "ed-move-to-end"},  {"\033[3~", "ed-delete-next-char"}, {"\033[1;5C", "em-next-word"},
        {"\033[1;5D", "ed-prev-word"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

/* ---- The editor ---- */

/* libedit edits wide characters, which it converts as the locale says; what terminals send is UTF-8. */
static void use_utf8(void) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

/*
 * Set the terminal's modes. While lines are edited (-d), CR and LF stay apart, so that both together are one line end in pasted
 * text. Between lines (-x) typed text is not shown, and waits whole, whatever its length: a terminal that gives out lines cuts
 * them at 4,096 bytes.
 */
static void set_modes(EditLine *el) {
    el_set(el, EL_SETTY, "-d", "-icrnl", "-inlcr", NULL);
    el_set(el, EL_SETTY, "-x", "-icrnl", "-inlcr", "-icanon", "-echo", NULL);
}

cl_status line_editor_open(line_editor **out, bool keep_history, cl_error *error) {
    use_utf8();
    line_editor *e = *out = calloc(1, sizeof *e);
    if (e) e->el = el_init("chunkllama", stdin, stdout, stderr);
    cl_status status = e && e->el ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory to edit lines");
    if (status == CL_OK) status = line_history_open(&e->history, keep_history, error);
    if (status != CL_OK) {
        line_editor_close(out);
        return status;
    }
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, prompt);
    el_set(e->el, EL_GETCFN, read_char);
    el_set(e->el, EL_HIST, history, e->history.lines);
    el_set(e->el, EL_EDITOR, "emacs");
    set_modes(e->el);
    el_source(e->el, NULL); /* the user's ~/.editrc */
    bind_keys(e->el);
    return CL_OK;
}

void line_editor_close(line_editor **e) {
    if (!*e) return;
    if ((*e)->el) el_end((*e)->el);
    line_history_close(&(*e)->history);
    free(*e);
    *e = NULL;
}

/* Read a line, without its end, and append it to *message. */
static line_result read_line(line_editor *e, cli_text *message) {
    cl_error error;
    int n = 0;
    e->interrupted = false;
    const char *line = el_gets(e->el, &n);
    if (e->interrupted) return LINE_INTERRUPTED;
    if (!line || n <= 0) return LINE_END;
    if (line[n - 1] == '\n') n--;
    return text_buffer_append(message, line, (size_t)n, &error) == CL_OK ? LINE_MESSAGE : LINE_END;
}

line_result line_editor_read(line_editor *e, cli_text *message) {
    const size_t start = message->size;
    line_result result;
    e->in_message = false;
    for (;;) {
        result = read_line(e, message);
        if (result != LINE_MESSAGE || message->size == start || message->data[message->size - 1] != '\\') break;
        message->data[message->size - 1] = '\n';
        e->in_message = true;
    }
    if (result == LINE_MESSAGE && message->size > start) line_history_add(&e->history, message->data + start);
    return result;
}

/*
 * Sets options from a TOML file: keys at the top level for all commands, and a table for each command, such as [serve] or
 * [bench-serve], which counts before them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options_parse.h"
#include "text_buffer.h"
#include "toml.h"

typedef struct options_file {
    cli_command_id cmd;
    const char *path;
    const cli_rows *set; /* by what comes before the file */
    cli_rows in_table;   /* by the command's table of the file */
    cli_options *opt;
    cli_options scratch; /* for values of other commands, which are only checked */
    cli_message m;
} options_file;

/* The name of a command's table: its own with - between its words. */
static void table_name(cli_command_id cmd, char *name, size_t size) {
    snprintf(name, size, "%s", commands[cmd].name);
    for (char *c = name; *c; c++)
        if (*c == ' ') *c = '-';
}

static cli_command_id find_table(const char *table) {
    char name[32];
    cli_command_id cmd = 0;
    for (; cmd < N_COMMANDS; cmd++) {
        table_name(cmd, name, sizeof name);
        if (strcmp(name, table) == 0) break;
    }
    return cmd;
}

static cli_options_status unknown_table(const options_file *f, const toml_value *v) {
    char texts[N_COMMANDS][32];
    const char *names[N_COMMANDS + 1] = {NULL};
    for (cli_command_id cmd = 0; cmd < N_COMMANDS; cmd++) {
        table_name(cmd, texts[cmd], sizeof texts[cmd]);
        names[cmd] = texts[cmd];
    }
    const char *close = closest_name(v->table, names);
    if (close)
        return options_wrong(f->m, "%s:%d: no command is called [%s]; did you mean [%s]?", f->path, v->line, v->table, close);
    return options_wrong(f->m, "%s:%d: no command is called [%s]; chunkllama --help lists all commands", f->path, v->line,
                         v->table);
}

/* The options that a table's keys may name: the command's, or at the top level (N_COMMANDS) those of all commands. */
static bool is_allowed(const cli_option *o, cli_command_id table) { return table == N_COMMANDS || option_belongs(o, table); }

static cli_options_status unknown_key(const options_file *f, const toml_value *v, cli_command_id table) {
    char flag[80];
    const char *names[MAX_OPTIONS + 1];
    size_t n = 0;
    snprintf(flag, sizeof flag, "--%s", v->key);
    const peer_option *peer = peer_find(flag, strlen(flag));
    if (peer && peer->answer) return options_wrong(f->m, "%s:%d: %s: %s", f->path, v->line, v->key, peer->answer);
    for (size_t i = 0; i < option_table_size; i++)
        if (is_allowed(&option_table[i], table)) names[n++] = option_table[i].name;
    names[n] = NULL;
    const char *close = peer && peer->option ? peer->option : closest_name(v->key, names);
    if (close) return options_wrong(f->m, "%s:%d: unknown key '%s'; did you mean '%s'?", f->path, v->line, v->key, close);
    return options_wrong(f->m,
                         "%s:%d: unknown key '%s'; keys are options without their dashes, which chunkllama %s --help lists",
                         f->path, v->line, v->key, table == N_COMMANDS ? "COMMAND" : commands[table].name);
}

/* What a value of the option looks like; *accepted: whether this one does. */
static const char *expected_value(const cli_option *o, toml_kind kind, bool *accepted) {
    const bool is_list = strcmp(o->value, "LIST") == 0 || strcmp(o->value, "NAMES") == 0;
    switch (o->type) {
    case OPT_FLAG: *accepted = kind == TOML_BOOLEAN; return "true or false, without quotes";
    case OPT_INT: *accepted = kind == TOML_INTEGER; return "a whole number, without quotes";
    case OPT_SIZE:
        *accepted = kind == TOML_INTEGER || kind == TOML_STRING;
        return "a whole number of bytes, or a string such as \"2G\"";
    case OPT_REAL: *accepted = kind == TOML_REAL || kind == TOML_INTEGER; return "a number, without quotes";
    default:
        *accepted = kind == TOML_STRING || (is_list && (kind == TOML_LIST || kind == TOML_INTEGER));
        return is_list ? "a string or a list" : "a string, in quotes";
    }
}

/* Check the value, and set the option in *opt. */
static cli_options_status assign_value(options_file *f, const cli_option *o, const toml_value *v, cli_options *opt) {
    static const char *const kinds[] = {"a string", "a whole number", "a number with a fraction", "true or false",
                                        "a list",   "a table",        "of another kind"};
    bool accepted;
    const char *expected = expected_value(o, v->kind, &accepted);
    if (!accepted)
        return options_wrong(f->m, "%s:%d: %s is %s; it must be %s", f->path, v->line, v->key, kinds[v->kind], expected);
    char source[256];
    snprintf(source, sizeof source, "%.150s:%d: %s", f->path, v->line, o->name);
    char *text = strdup(v->text);
    const cli_options_status status = options_own(opt, text, f->m);
    return status == OPTIONS_OK ? option_assign(o, text, source, opt, f->m) : status;
}

/* Use a value for each command that its table is for, or check it if it is for none that runs. */
static cli_options_status read_value(options_file *f, const toml_value *v, cli_command_id table) {
    const cli_option *found = NULL, *own = NULL;
    for (size_t i = 0; i < option_table_size; i++) {
        const cli_option *o = &option_table[i];
        if (strcmp(o->name, v->key) != 0 || !is_allowed(o, table)) continue;
        found = o;
        if (option_belongs(o, f->cmd)) own = o;
    }
    if (!found) return unknown_key(f, v, table);
    if (strcmp(v->key, "config") == 0)
        return options_wrong(f->m, "%s:%d: config names this file; it has no meaning in it, so leave it out", f->path, v->line);
    if (!own || (table != N_COMMANDS && table != f->cmd)) return assign_value(f, found, v, &f->scratch);
    const size_t row = (size_t)(own - option_table);
    const bool counts = !f->set->row[row] && (table == f->cmd || !f->in_table.row[row]);
    if (table == f->cmd) f->in_table.row[row] = true;
    return assign_value(f, own, v, counts ? f->opt : &f->scratch);
}

/* The top level comes before all tables of a file, so what a table sets replaces what the top level has set. */
static bool take_value(void *ctx, const toml_value *v) {
    options_file *f = ctx;
    const cli_command_id table = *v->table ? find_table(v->table) : N_COMMANDS;
    if (*v->table && table == N_COMMANDS) return unknown_table(f, v) == OPTIONS_OK;
    return !*v->key || read_value(f, v, table) == OPTIONS_OK;
}

cli_options_status options_read_file(cli_command_id cmd, const char *path, const cli_rows *set, cli_options *opt,
                                     cli_message m) {
    options_file f = {.cmd = cmd, .path = path, .set = set, .opt = opt, .m = m};
    cli_text text = {0};
    cl_error error;
    cli_options_status status = OPTIONS_OK;
    if (text_buffer_read(&text, path, &error) != CL_OK)
        status = options_wrong(m, "--config: %s", error.message);
    else if (!toml_read(text.data, text.size, path, take_value, &f, m.text, m.size))
        status = OPTIONS_WRONG;
    text_buffer_free(&text);
    options_free(&f.scratch);
    return status;
}

/* Sets the options from the command line, otherwise from the environment, a file, or the defaults. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options_parse.h"

const cli_option *option_find(cli_command_id cmd, const char *name, size_t size) {
    for (size_t i = 0; i < option_table_size; i++) {
        const cli_option *o = &option_table[i];
        if (option_belongs(o, cmd) && strlen(o->name) == size && memcmp(o->name, name, size) == 0) return o;
    }
    return NULL;
}

const cli_option *option_find_letter(cli_command_id cmd, char letter) {
    for (size_t i = 0; i < option_table_size; i++)
        if (option_belongs(&option_table[i], cmd) && letter && option_table[i].letter == letter) return &option_table[i];
    return NULL;
}

void option_env_name(const cli_option *o, char *buf, size_t size) {
    snprintf(buf, size, "CHUNKLLAMA_%s", o->name);
    for (char *c = buf; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

cli_options_status options_own(cli_options *opt, char *text, cli_message m) {
    char **larger = text ? realloc(opt->owned, (opt->n_owned + 1) * sizeof *larger) : NULL;
    if (!larger) {
        free(text);
        options_wrong(m, "no memory for the options");
        return OPTIONS_WRONG;
    }
    opt->owned = larger;
    larger[opt->n_owned++] = text;
    return OPTIONS_OK;
}

void options_free(cli_options *opt) {
    for (size_t i = 0; i < opt->n_owned; i++) free(opt->owned[i]);
    free(opt->owned);
    *opt = (cli_options){0};
}

/* ---- Sources ---- */

/* What the command line is read into. */
typedef struct command_line {
    cli_command_id cmd;
    char **argv; /* [argc] */
    int argc;
    int at; /* the argument that is read */
    cli_rows set;
    const char *download[2]; /* model and draft model that are named on the hub or by an address; NULL: they are not */
    const char *hub_file;    /* the file that is meant of the first */
    cli_options *opt;
    cli_message m;
} command_line;

static cli_options_status parse_defaults(cli_command_id cmd, cli_options *opt, cli_message m) {
    cli_options_status status = OPTIONS_OK;
    for (size_t i = 0; i < option_table_size && status == OPTIONS_OK; i++) {
        const cli_option *o = &option_table[i];
        if (option_belongs(o, cmd) && o->fallback) status = option_assign(o, o->fallback, o->name, opt, m);
    }
    return status;
}

/*
 * Set the options that the command line has not set. A variable that the command line overrides is not even parsed, since it
 * may have another purpose: Kubernetes sets CHUNKLLAMA_PORT to a URL if a Service is named chunkllama.
 */
static cli_options_status parse_environment(command_line *c) {
    cli_options_status status = OPTIONS_OK;
    for (size_t i = 0; i < option_table_size && status == OPTIONS_OK; i++) {
        const cli_option *o = &option_table[i];
        if (!option_belongs(o, c->cmd) || c->set.row[i]) continue;
        char name[64];
        option_env_name(o, name, sizeof name);
        const char *text = getenv(name);
        if (!text || !*text) continue;
        c->set.row[i] = true;
        status = option_assign(o, text, name, c->opt, c->m);
    }
    return status;
}

/* ---- Flags ---- */

/* The first command that has the option; N_COMMANDS: none has. */
static cli_command_id owner_of(const char *name) {
    cli_command_id cmd = 0;
    while (cmd < N_COMMANDS && !option_find(cmd, name, strlen(name))) cmd++;
    return cmd;
}

static cli_options_status unknown(const command_line *c, const char *flag) {
    const char *names[MAX_OPTIONS + 2];
    size_t n = 0;
    for (size_t i = 0; i < option_table_size; i++)
        if (option_belongs(&option_table[i], c->cmd)) names[n++] = option_table[i].name;
    names[n++] = "help";
    names[n] = NULL;
    char name[64];
    const char *start = flag + (flag[1] == '-' ? 2 : 1);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    const char *close = closest_name(name, names);
    const cli_command_id owner = owner_of(name);
    const bool is_elsewhere = owner != N_COMMANDS;
    if (close && !is_elsewhere) return options_wrong(c->m, "unknown option %s; did you mean --%s?", flag, close);
    return options_wrong(c->m, "unknown option %s; chunkllama %s --help lists all options%s%s%s", flag, commands[c->cmd].name,
                         is_elsewhere ? ", and " : "", is_elsewhere ? commands[owner].name : "",
                         is_elsewhere ? " has this one" : "");
}

static cli_options_status set_option(command_line *c, const cli_option *o, const char *text, const char *source) {
    c->set.row[o - option_table] = true;
    return option_assign(o, text, source, c->opt, c->m);
}

/* Set the option to the arguments up to the next flag, with blanks between them. */
static cli_options_status set_words(command_line *c, const cli_option *o, const char *source) {
    size_t size = 1;
    const int first = c->at + 1;
    int end = first;
    for (; end < c->argc && c->argv[end][0] != '-'; end++) size += strlen(c->argv[end]) + 1;
    if (end == first) return options_wrong(c->m, "%s needs a value: %s", source, o->value);
    c->at = end - 1;
    char *words = malloc(size);
    for (int i = first, used = 0; words && i < end; i++)
        used += snprintf(words + used, size - (size_t)used, "%s%s", i > first ? " " : "", c->argv[i]);
    const cli_options_status status = options_own(c->opt, words, c->m);
    return status == OPTIONS_OK ? set_option(c, o, words, source) : status;
}

static bool is_switch(const char *text) {
    return strcmp(text, "on") == 0 || strcmp(text, "off") == 0 || strcmp(text, "auto") == 0;
}

/* What peers' flags expect that name models which are not here. */
static const char *const download_forms[] = {
    [PEER_HUB] = "OWNER/NAME, such as Qwen/Qwen3-0.6B-GGUF", [PEER_HUB_FILE] = "FILE", [PEER_URL] = "URL"};

/* Keep what such a flag names for check_model. */
static cli_options_status set_download(command_line *c, const peer_option *peer, const char *flag, const char *value) {
    if (!value || (peer->form == PEER_HUB && !model_is_hub_name(value)))
        return options_wrong(c->m, "%s needs a value: %s", flag, download_forms[peer->form]);
    *(peer->form == PEER_HUB_FILE ? &c->hub_file : &c->download[strcmp(peer->option, "model") != 0]) = value;
    return OPTIONS_OK;
}

/* Set what a peer's flag means, or say what takes its place here. value: what follows '=', or NULL. */
static cli_options_status parse_peer(command_line *c, const peer_option *peer, const char *flag, const cli_option *o,
                                     const char *value) {
    const bool has_next = c->at + 1 < c->argc;
    if (o && !value && peer->form == PEER_WORDS) return set_words(c, o, flag);
    const bool downloads = peer->form >= PEER_HUB;
    const bool takes_any = peer->form == PEER_VALUE || downloads;
    const bool takes_next = !value && has_next && (takes_any || (peer->form == PEER_OPTIONAL && is_switch(c->argv[c->at + 1])));
    if (takes_next) value = c->argv[++c->at];
    if (downloads) return set_download(c, peer, flag, value);
    if (o && !value && peer->form == PEER_FLAG) value = "1";
    if (o && !value) return options_wrong(c->m, "%s needs a value: %s", flag, o->value);
    if (o) return peer_holds(peer, value) ? OPTIONS_OK : set_option(c, o, value, flag);
    if (value ? peer_holds(peer, value) : peer->form == PEER_OPTIONAL) return OPTIONS_OK;
    if (peer->answer) return options_wrong(c->m, "%s: %s", flag, peer->answer);
    if (!value || strcmp(value, "1") == 0 || strcmp(value, "true") == 0) return OPTIONS_OK;
    return options_wrong(c->m, "%s is '%s'; it cannot be switched off here, so leave it out", flag, value);
}

/* Set the option at argv[at], whose value follows '=' or is the next argument; `at` is then advanced to that. */
static cli_options_status parse_flag(command_line *c) {
    const char *flag = c->argv[c->at], *value = strchr(flag, '=');
    const size_t size = value ? (size_t)(value - flag) : strlen(flag);
    const cli_option *o = flag[1] == '-' ? option_find(c->cmd, flag + 2, size - 2)
                          : size == 2    ? option_find_letter(c->cmd, flag[1])
                                         : NULL;
    const peer_option *peer = o ? NULL : peer_find(flag, size);
    char source[64];
    if (peer) {
        const cli_option *same = peer->option ? option_find(c->cmd, peer->option, strlen(peer->option)) : NULL;
        const bool runs_model = option_find(c->cmd, "kv-budget", strlen("kv-budget"));
        snprintf(source, sizeof source, "%.*s", (int)size, flag);
        if (same || (!peer->option && runs_model)) return parse_peer(c, peer, source, same, value ? value + 1 : NULL);
    }
    if (!o) return unknown(c, flag);
    snprintf(source, sizeof source, "--%s", o->name);
    if (value) return set_option(c, o, value + 1, source);
    if (o->type == OPT_FLAG) return set_option(c, o, "1", source);
    if (c->at + 1 == c->argc) return options_wrong(c->m, "%s needs a value: %s", source, o->value);
    return set_option(c, o, c->argv[++c->at], source);
}

/* ---- All ---- */

/* Refuse arguments that the command does not take; one of them may be a model, which other programs take there. */
static cli_options_status refuse_arguments(command_line *c, int n_args, bool has_model) {
    const char *name = commands[c->cmd].name, *const allowed = commands[c->cmd].arguments;
    if (n_args && has_model && model_is_here(c->argv[0]))
        return options_wrong(c->m, "'%s' is a model, so name it by -m: chunkllama %s -m '%s'", c->argv[0], name, c->argv[0]);
    if (n_args && !*allowed)
        return options_wrong(c->m, "unexpected argument '%s': chunkllama %s takes only options%s", c->argv[0], name,
                             has_model ? "; a model is named by -m" : "");
    if (n_args > 1)
        return options_wrong(c->m, "'%s' is one argument too many; name one %.*s, in quotes if it has blanks", c->argv[1],
                             (int)strlen(allowed) - 2, allowed + 1);
    return OPTIONS_OK;
}

/* Let the argument of a command such as `serve` be the model. */
static cli_options_status parse_arguments(command_line *c, int n_args) {
    const cli_option *model = option_find(c->cmd, "model", strlen("model"));
    const bool takes_model = strcmp(commands[c->cmd].arguments, "[MODEL]") == 0;
    const cli_options_status status = refuse_arguments(c, n_args, model && !takes_model);
    if (status != OPTIONS_OK || !n_args || !takes_model) return status;
    if (c->set.row[model - option_table])
        return options_wrong(c->m, "the model is '%s' and --model '%s'; name it once", c->argv[0], c->opt->model);
    return set_option(c, model, c->argv[0], "MODEL");
}

/* Write the command line up to the path of the model, or of the draft model, which comes after the model. */
static void write_use(const command_line *c, bool draft, char *buf, size_t size) {
    const char *name = commands[c->cmd].name, *model = c->opt->model;
    if (draft)
        snprintf(buf, size, "chunkllama %s%s%s%s --draft-model", name, model ? " -m '" : "", model ? model : "",
                 model ? "'" : "");
    else
        snprintf(buf, size, "chunkllama %s -m", name);
}

/* Refuse models that are not here, and say how to download them. argument: the first that is no option; NULL: there is none. */
static cli_options_status check_model(command_line *c, const char *argument) {
    const bool reads_model = option_find(c->cmd, "model", strlen("model"));
    const char *const models[] = {c->opt->model || !reads_model ? c->opt->model : argument, c->opt->draft_model};
    char use[400], advice[1000];
    for (int i = 0; i < 2; i++) {
        const char *model = c->download[i] ? c->download[i] : models[i];
        if (!model || (!c->download[i] && !model_is_elsewhere(model))) continue;
        write_use(c, i == 1, use, sizeof use);
        model_download_advice(model, i == 0 ? c->hub_file : NULL, use, advice, sizeof advice);
        return options_wrong(c->m, "%s: %s", model, advice);
    }
    return c->hub_file ? options_wrong(c->m, "--hf-file: %s", peer_find("--hf-file", strlen("--hf-file"))->answer) : OPTIONS_OK;
}

/* Options without effect unless another one names a folder. */
static const struct {
    const char *option, *needs;
} dependents[] = {{"kv-tier-size", "kv-tier"}, {"max-file-bytes", "files-dir"}};

/* Refuse such an option among the flags, if nothing sets the other one. */
static cli_options_status check_dependents(const command_line *c, const cli_rows *flags) {
    for (size_t i = 0; i < sizeof dependents / sizeof *dependents; i++) {
        const cli_option *o = option_find(c->cmd, dependents[i].option, strlen(dependents[i].option));
        const cli_option *needed = option_find(c->cmd, dependents[i].needs, strlen(dependents[i].needs));
        if (!o || !needed || !flags->row[o - option_table] || *(const char **)((char *)c->opt + needed->offset)) continue;
        return options_wrong(c->m, "--%s has no effect without --%s; name a %s by that, or leave it out", o->name, needed->name,
                             needed->value);
    }
    return OPTIONS_OK;
}

cli_options_status options_parse(cli_command_id cmd, int argc, char **argv, cli_options *opt, char *text, size_t text_size) {
    command_line c = {.cmd = cmd, .argv = argv, .argc = argc, .opt = opt, .m = {text, text_size}};
    assert(option_table_size <= MAX_OPTIONS);
    *opt = (cli_options){0};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return OPTIONS_HELP;
    cli_options_status status = parse_defaults(cmd, opt, c.m);
    int n_args = 0; /* the arguments that are not options are moved to the front of argv */
    for (; c.at < argc && status == OPTIONS_OK; c.at++) {
        char *arg = argv[c.at];
        if (strcmp(arg, "--") == 0) {
            c.at++;
            break;
        }
        if (arg[0] == '-' && arg[1])
            status = parse_flag(&c);
        else
            argv[n_args++] = arg;
    }
    while (c.at < argc) argv[n_args++] = argv[c.at++];
    if (status == OPTIONS_OK) status = parse_arguments(&c, n_args);
    const cli_rows flags = c.set;
    if (status == OPTIONS_OK) status = parse_environment(&c);
    if (status == OPTIONS_OK && opt->config) status = options_read_file(cmd, opt->config, &c.set, opt, c.m);
    if (status == OPTIONS_OK) status = check_dependents(&c, &flags);
    if (status == OPTIONS_OK) status = check_model(&c, n_args ? argv[0] : NULL);
    opt->args = (const char *const *)argv;
    opt->n_args = n_args;
    return status;
}

/* What a model's name stands for: a file or folder that is here, or a name or address from which it is downloaded first. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options.h"

static bool begins_with(const char *text, const char *begin) { return strncmp(text, begin, strlen(begin)) == 0; }

static bool ends_with(const char *text, size_t size, const char *end) {
    return size > strlen(end) && strncasecmp(text + size - strlen(end), end, strlen(end)) == 0;
}

/* ---- Names on the hub of Hugging Face ---- */

/* The parts of OWNER/NAME, OWNER/NAME:TYPE or, behind the hub's address, OWNER/NAME/FILE. They are borrowed from the name. */
typedef struct hub_name {
    const char *repo; /* [n_repo] OWNER/NAME */
    const char *name; /* [n_name] NAME alone */
    const char *type; /* of the weights; NULL: it is not named */
    const char *file; /* [n_file] a path in the repository; NULL: it is not named */
    int n_repo, n_name, n_file;
} hub_name;

#define PART "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* The length of a part of a name. */
static size_t part_size(const char *text) { return strspn(text, PART); }

/* What follows the first of the words [n] that the text begins with, or the text. */
static const char *after(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (begins_with(text, words[i])) return text + strlen(words[i]);
    return text;
}

/* A model's name without the address of the hub. */
static const char *after_address(const char *model) {
    static const char *const addresses[] = {
        "https://huggingface.co/", "http://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://", "hf:"};
    return after(model, addresses, sizeof addresses / sizeof *addresses);
}

/* Set the file that an address of the hub names behind OWNER/NAME, if it does. */
static void parse_file(const char *path, hub_name *h) {
    static const char *const views[] = {"resolve/main/", "blob/main/", "tree/main/", "tree/main"};
    const char *file = after(path, views, sizeof views / sizeof *views);
    h->n_file = (int)strcspn(file, "?#");
    if (h->n_file > 0) h->file = file;
}

static bool parse_hub_name(const char *model, hub_name *h) {
    const char *repo = after_address(model);
    const size_t owner = part_size(repo), name = repo[owner] == '/' ? part_size(repo + owner + 1) : 0;
    if (owner == 0 || name == 0 || repo[0] == '.') return false;
    const char *end = repo + owner + 1 + name;
    const bool has_type = *end == ':' && end[1 + part_size(end + 1)] == '\0', has_file = *end == '/' && repo != model;
    *h = (hub_name){.repo = repo, .n_repo = (int)(owner + 1 + name), .name = repo + owner + 1, .n_name = (int)name};
    if (has_type && end[1]) h->type = end + 1;
    if (has_file) parse_file(end + 1, h);
    return *end == '\0' || has_type || has_file;
}

bool model_is_hub_name(const char *model) {
    hub_name h;
    return parse_hub_name(model, &h);
}

/* ---- Files ---- */

bool model_is_here(const char *path) {
    char config[512];
    struct stat st;
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) return ends_with(path, strlen(path), ".gguf");
    const int n = snprintf(config, sizeof config, "%s/config.json", path);
    return n > 0 && (size_t)n < sizeof config && access(config, F_OK) == 0;
}

/* Whether a name is that of a file that may have been meant: in a folder that exists, or with a file's ending. */
static bool names_file(const char *model) {
    char folder[256];
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(model, "/"), model);
    return access(folder, F_OK) == 0 || ends_with(model, strlen(model), ".gguf") ||
           ends_with(model, strlen(model), ".safetensors");
}

bool model_is_elsewhere(const char *model) {
    if (access(model, F_OK) == 0) return false;
    if (begins_with(model, "https://") || begins_with(model, "http://")) return true;
    return model_is_hub_name(model) && (after_address(model) != model || !names_file(model));
}

/* ---- How to download a model ---- */

/* Write a pattern of the files of a type, whose names have it in either case: "*[-._][qQ]8_0[-.]*gguf". */
static void write_pattern(const char *type, char *buf, size_t size) {
    enum { MOST_CHARACTERS = 40 };
    size_t used = (size_t)snprintf(buf, size, "*[-._]");
    for (int i = 0; type[i] && i < MOST_CHARACTERS; i++)
        used += (size_t)snprintf(buf + used, size - used, isalpha((unsigned char)type[i]) ? "[%c%c]" : "%c",
                                 tolower((unsigned char)type[i]), toupper((unsigned char)type[i]));
    snprintf(buf + used, size - used, "[-.]*gguf");
}

static void advise_hub(const hub_name *h, const char *use, char *buf, size_t size) {
    /* A folder whose name ends so has one file for each type of the weights. */
    const bool one_of_several = !h->file && (h->type || ends_with(h->name, (size_t)h->n_name, "-GGUF"));
    const char *quote = h->file && (int)strspn(h->file, PART "/") < h->n_file ? "'" : "";
    char file[300] = "", include[340] = "";
    if (h->file) snprintf(file, sizeof file, "%s%.*s%s", quote, h->n_file, h->file, quote);
    if (one_of_several) write_pattern(h->type ? h->type : "Q4_K_M", file, sizeof file);
    if (*file) snprintf(include, sizeof include, one_of_several ? " --include '%s'" : " %s", file);
    snprintf(buf, size,
             "models are not downloaded here; run: hf download %.*s%s --local-dir %.*s && %s %.*s%s%s (hf: pipx install "
             "huggingface_hub)%s",
             h->n_repo, h->repo, include, h->n_name, h->name, use, h->n_name, h->name, *file ? "/" : "", file,
             one_of_several && !h->type ? "; where there is no Q4_K_M, name a type after a colon, such as :Q8_0" : "");
}

static void advise_url(const char *address, const char *use, char *buf, size_t size) {
    const char *slash = strrchr(address, '/'), *file = slash ? slash + 1 : address;
    snprintf(buf, size, "models are not downloaded here; run: curl -L -o '%.*s' '%s' && %s '%.*s'", (int)strcspn(file, "?"),
             file, address, use, (int)strcspn(file, "?"), file);
}

void model_download_advice(const char *model, const char *file, const char *use, char *buf, size_t size) {
    hub_name h;
    if (!parse_hub_name(model, &h)) {
        advise_url(model, use, buf, size);
        return;
    }
    if (file) h.file = file, h.n_file = (int)strlen(file);
    advise_hub(&h, use, buf, size);
}

/* `cattn-bench kernel`: the latency of one decode step over one layer, or several that differ, by several methods side by side.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/methods/compare.h"

static int64_t heads = 32, kv_heads, head_dim = 128, chunk = 64, batch = 32, prefix = 4096, shared = -1;
static int64_t window, sink_tokens, softcap;
static const char *layers_text;
static const option_row options[] = {
    {"heads", OPTION_INT, &heads, 1, 1024, "query heads", 0},
    {"kv-heads", OPTION_INT, &kv_heads, 0, 1024, "KV heads; 0: as many as query heads", 0},
    {"head-dim", OPTION_INT, &head_dim, 1, 512, "head size, one that the library supports: 64, 128, ...", 0},
    {"chunk", OPTION_INT, &chunk, 16, 256, "tokens of a chunk: 16, 32, 64, 128 or 256", 0},
    {"batch", OPTION_INT, &batch, 1, 1024, "sequences", 0},
    {"prefix", OPTION_INT, &prefix, 1, 1000000, "tokens in the cache before the step's own", 0},
    {"shared", OPTION_INT, &shared, -1, 1000000, "leading tokens of the prefix that all sequences have in common; -1: all", 0},
    {"window", OPTION_INT, &window, 0, 1000000, "positions that a row sees; 0: all", 0},
    {"sink-tokens", OPTION_INT, &sink_tokens, 0, 1000000, "first positions that stay visible under a window", 0},
    {"softcap", OPTION_INT, &softcap, 0, 1000000, "cap of the scores; 0: none", 0},
    {"layers", OPTION_TEXT, &layers_text, 0, 0,
     "layers that differ, in place of --heads, --kv-heads, --head-dim and --window: HEADSxKV_HEADSxHEAD_DIM, with @WINDOW, and "
     "with =N if it reads the K/V of layer N; such as 8x2x256@512,8x2x512,8x2x256@512=0",
     0},
    {0}};

enum { MAX_FORMS = 256 };
static layer_form forms[MAX_FORMS];
static int32_t n_forms;

/* A number behind a mark, if there is to be one; the text moves on behind it. */
static bool read_number(const char **text, char mark, int32_t least, int32_t most, int32_t *out) {
    if (mark && *(*text)++ != mark) return false;
    char *end;
    const long n = strtol(*text, &end, 10);
    if (**text < '0' || **text > '9' || n < least || n > most) return false;
    *text = end;
    *out = (int32_t)n;
    return true;
}

static bool read_form(const char **text, layer_form *f) {
    *f = (layer_form){.source = n_forms};
    return read_number(text, 0, 1, 1024, &f->heads) && read_number(text, 'x', 1, 1024, &f->kv_heads) &&
           read_number(text, 'x', 1, 512, &f->head_dim) && (**text != '@' || read_number(text, '@', 1, 1000000, &f->window)) &&
           (**text != '=' || read_number(text, '=', 0, n_forms - 1, &f->source)) && f->heads % f->kv_heads == 0 &&
           f->heads * f->head_dim <= METHOD_MAX_ROW && (**text == 0 || **text == ',');
}

static bool read_forms(const bench *b) {
    for (const char *text = layers_text; n_forms < MAX_FORMS && read_form(&text, &forms[n_forms]); text++) {
        n_forms++;
        if (*text == 0) return true;
    }
    return bench_fail(
        b,
        "layer %d of --layers must be HEADSxKV_HEADSxHEAD_DIM, with @WINDOW and =N if it has these: heads a multiple "
        "of KV heads, heads times head size at most %d, N an earlier layer; and at most %d layers",
        n_forms, METHOD_MAX_ROW, MAX_FORMS);
}

static bool know_windows(void) {
    for (int i = 0; i < compare_given.n_methods; i++)
        if (compare_given.methods[i] == METHOD_NAIVE || compare_given.methods[i] == METHOD_FLASH) return false;
    return true;
}

static void write_title(bench *b) {
    char layer[200], seen[96] = "";
    if (n_forms)
        snprintf(layer, sizeof layer, "%d layers, %.150s", n_forms, layers_text);
    else
        snprintf(layer, sizeof layer, "%" PRId64 " heads, %" PRId64 " KV heads, head size %" PRId64, heads, kv_heads, head_dim);
    if (window > 0)
        snprintf(seen, sizeof seen, ", of which a row sees the last %" PRId64 " and the first %" PRId64, window, sink_tokens);
    snprintf(b->title, sizeof b->title,
             "%s, %s K/V, chunks of %" PRId64 "; %" PRId64 " sequences of %" PRId64 " + 1 tokens, %" PRId64
             " shared%s; medians of %d",
             layer, compare_given.kv_type_text, chunk, batch, prefix, shared, seen, compare_given.n_steps);
}

static bool prepare(bench *b) {
    if (!compare_prepare(b)) return false;
    if (layers_text && !read_forms(b)) return false;
    if (kv_heads == 0) kv_heads = heads;
    if (shared < 0) shared = prefix;
    if (heads % kv_heads) return bench_fail(b, "--heads must be a multiple of --kv-heads");
    if (heads * head_dim > METHOD_MAX_ROW) return bench_fail(b, "--heads times --head-dim must be at most %d", METHOD_MAX_ROW);
    if (shared > prefix) return bench_fail(b, "--shared must be at most --prefix");
    if ((window || softcap || n_forms) && !know_windows())
        return bench_fail(b, "naive and flash know none of --window, --softcap and --layers; choose --methods "
                             "paged,paged_shared,chunk");
    if (b->quick) {
        prefix = prefix < 100 ? prefix : 100;
        shared = shared < prefix ? shared : prefix;
    }
    write_title(b);
    return true;
}

static bool measure(bench *b) {
    static comparison c;
    shape s = {.heads = (int32_t)heads,
               .kv_heads = (int32_t)kv_heads,
               .head_dim = (int32_t)head_dim,
               .chunk = (int32_t)chunk,
               .batch = (int32_t)batch,
               .prefix = prefix,
               .shared = shared,
               .window = (int32_t)window,
               .sink_tokens = (int32_t)sink_tokens,
               .softcap = (int32_t)softcap,
               .forms = forms,
               .n_forms = n_forms};
    if (!compare_run(b, &s, &c)) return false;
    for (int i = 0; i < c.n; i++) {
        json_t *row = compare_row(b, &c, i);
        json_object_update_new(row, json_pack("{sI sI si si si}", "prefix", (json_int_t)prefix, "shared", (json_int_t)shared,
                                              "window", s.window, "sink_tokens", s.sink_tokens, "softcap", s.softcap));
        if (n_forms) { /* in place of the shape of a layer */
            static const char *const keys[] = {"heads", "kv_heads", "head_dim", "window"};
            for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) json_object_del(row, keys[k]);
            json_object_set_new(row, "layers", json_string(layers_text));
        }
        bench_add(b, row);
    }
    return true;
}

static const bench_column columns[] = {
    COMPARE_COLUMNS,
    {"times_faster_than.naive", "/ naive", 2},
    {"times_faster_than.flash", "/ flash", 2},
    {"times_faster_than.paged", "/ paged", 2},
    {"times_faster_than.paged_shared", "/ paged_shared", 2},
    {"times_faster_than.chunk", "/ chunk", 2},
    {0},
};

static const bench_plot bars = {
    .kind = "bars", .x = "method", .y = "step_us", .series = "method", .y_label = "µs for a step", .accent = "chunk"};

const bench_command command_kernel = {
    .name = "kernel",
    .about = "latency of one decode step over a layer, method by method",
    .options = {options, compare_step_options, compare_method_options},
    .prepare = prepare,
    .columns = columns,
    .note = "/ method: how many times faster than it. K/V GB/s: distinct K/V bytes that a step reads, each counted once.\n",
    .plot = &bars,
    .measure = measure,
    .in_paper = true,
};

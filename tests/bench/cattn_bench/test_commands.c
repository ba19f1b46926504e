/* Each subcommand of cattn-bench on tiny shapes: its rows, its files, and its messages for wrong options. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "tests/support/testing.h"

enum { MAX_TEXT = 1 << 18, MAX_ROWS = 1024, MAX_KEYS = 8 };

typedef struct command {
    const char *name, *options;
    int n_rows;
    const char *keys[MAX_KEYS]; /* every row has them */
} command;

static const command commands[] = {
    {"machine", "", 8, {"figure", "one_thread", "all_threads", "unit"}},
    {"kernel", "--steps 2", 5, {"method", "level", "step_us", "gflops", "kv_gbs", "prefix", "shared", "kv_type"}},
    {"kernel",
     "--steps 2 --methods paged,paged_shared,chunk --layers 8x2x32@64,4x2x64,8x2x32@64=0,4x2x64=1",
     3,
     {"method", "step_us", "gflops", "kv_gbs", "layers"}},
    {"kernel",
     "--steps 2 --methods chunk,chunk_int8,pages16,pages64 --layers 8x2x32@64,4x2x64,8x2x32@64=0",
     4,
     {"method", "step_us", "gflops", "kv_type", "layers"}},
    {"level", "--steps 2 --level avx2", 14, {"level", "work", "method", "figure", "value", "least", "step_us"}},
    {"table1", "--steps 2", 36, {"part", "phase", "batch", "gflop", "mbytes", "intensity", "step_us"}},
    {"table3", "--steps 2", 60, {"prompt", "shared", "method", "step_us", "read_fraction", "times_faster_than"}},
    {"fig3", "--steps 2", 90, {"prompt", "completion", "tokens_per_s", "method", "step_us"}},
    {"fig4", "--steps 2", 75, {"varied", "batch", "shared", "tokens_per_s", "method", "step_us"}},
    {"prefill", "--steps 2", 8, {"head_counts", "tokens", "attend_ms", "gflops", "level"}},
    {"retention", "--workloads " CATTN_WORKLOADS, 90, {"trace", "policy"}},
    {"never_worse", "", 36, {"level", "work", "shared_ms", "private_ms", "ratio", "low", "high", "rounds"}},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static char folder[] = "/tmp/cattn_bench_XXXXXX";

/* Run cattn-bench and return its exit status; text: what it printed, errors too where the options redirect them. */
static int run(const char *arguments, char *text) {
    char line[1024];
    snprintf(line, sizeof line, "%s %s", CATTN_BENCH, arguments);
    FILE *f = popen(line, "r"); // NOLINT(cert-env33-c): a fixed program
    assert_non_null(f);
    const size_t n = fread(text, 1, MAX_TEXT - 1, f);
    text[n] = 0;
    const int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The lines of NAME.jsonl in the folder, of which line 0 is the head; returns their number. */
static int load(const char *name, json_t **lines) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s.jsonl", folder, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    int n = 0;
    while ((lines[n] = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        n++;
        assert_true(n < MAX_ROWS);
    }
    assert_true(feof(f));
    fclose(f);
    return n;
}

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }
static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static void check_head(const json_t *line, const char *name) {
    static const char *const keys[] = {"title", "date", "command", "cpu", "compiler", "flags"};
    assert_string_equal(text_of(line, "results"), name);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) assert_non_null(text_of(line, keys[i]));
    assert_int_equal(number(line, "threads"), 2);
    assert_true(json_is_true(json_object_get(line, "quick")));
    assert_true(number(line, "read_gbs") > 0);
}

static void check_row(const json_t *row, const command *c) {
    for (int k = 0; k < MAX_KEYS && c->keys[k]; k++) {
        const json_t *value = json_object_get(row, c->keys[k]);
        if (!value) fail_msg("%s: a row has no %s", c->name, c->keys[k]);
    }
    const json_t *us = json_object_get(row, "step_us");
    if (us) assert_true(json_is_real(us) && json_real_value(us) > 0);
}

/* The rows have what their plot shows; those without its y are not in it. */
static void check_plot(const char *name, json_t *const *lines, int n) {
    static const char *const fields[] = {"x", "series", "panel"};
    const json_t *plot = json_object_get(lines[0], "plot");
    assert_non_null(text_of(plot, "kind"));
    assert_non_null(text_of(plot, "y_label"));
    int n_drawn = 0;
    for (int i = 1; i < n; i++) {
        if (!json_is_number(json_object_get(lines[i], text_of(plot, "y")))) continue;
        n_drawn++;
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
            const char *key = text_of(plot, fields[k]);
            const json_t *value = key ? json_object_get(lines[i], key) : NULL;
            if (key && !json_is_string(value) && !json_is_number(value)) fail_msg("%s, row %d: no %s", name, i, key);
        }
    }
    assert_in_range(n_drawn, 1, n - 1);
}

static void rows_and_files(void **state) {
    (void)state;
    static char text[MAX_TEXT];
    static json_t *lines[MAX_ROWS];
    for (int i = 0; i < N_COMMANDS; i++) {
        const command *c = &commands[i];
        char arguments[256];
        snprintf(arguments, sizeof arguments, "%s --quick --threads 2 %s -o %s", c->name, c->options, folder);
        assert_int_equal(run(arguments, text), 0);
        const int n = load(c->name, lines);
        if (n - 1 != c->n_rows) fail_msg("%s has %d rows, not %d", c->name, n - 1, c->n_rows);
        check_head(lines[0], c->name);
        for (int k = 1; k < n; k++) check_row(lines[k], c);
        check_plot(c->name, lines, n);
        for (int k = 0; k < n; k++) json_decref(lines[k]);
    }
}

/* Tokens a second follow from the steps' latencies: n_c * batch over the time from the start. */
static void throughput_is_cumulative(void **state) {
    (void)state;
    static json_t *lines[MAX_ROWS];
    const int n = load("fig4", lines);
    for (int i = 1; i < n; i++) {
        const double batch = number(lines[i], "batch") > 8 ? 8 : number(lines[i], "batch"); /* with --quick */
        assert_float_equal(number(lines[i], "tokens_per_s"), batch / number(lines[i], "step_us") * 1e6,
                           1e-4 * number(lines[i], "tokens_per_s"));
    }
    for (int i = 0; i < n; i++) json_decref(lines[i]);
}

/* All parts but the one that needs a model. */
static void paper_runs_all(void **state) {
    (void)state;
    static char text[MAX_TEXT];
    static json_t *lines[MAX_ROWS];
    static const char *const parts[] = {"machine", "table1", "table3", "fig3", "fig4", "prefill", "kernel"};
    char arguments[256];
    empty_folder(folder);
    snprintf(arguments, sizeof arguments, "paper --quick --threads 2 -o %s --json 2>&1 >/dev/null", folder);
    unsetenv("CHUNKLLAMA_MODEL");
    assert_int_equal(run(arguments, text), 0);
    assert_non_null(strstr(text, "table2: skipped, it needs --model"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const int n = load(parts[i], lines);
        assert_true(n > 1);
        check_head(lines[0], parts[i]);
        for (int k = 0; k < n; k++) json_decref(lines[k]);
    }
}

static void json_is_what_the_file_has(void **state) {
    (void)state;
    static char text[MAX_TEXT];
    assert_int_equal(run("kernel --quick --threads 2 --steps 2 --json", text), 0);
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        assert_non_null(json_object_get(row, n ? "method" : "cpu"));
        json_decref(row);
    }
    assert_int_equal(n, 6);
}

static void wrong_options_name_the_field(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *says;
    } wrong[] = {
        {"machine --threads many", "--threads is \"many\"; it must be a whole number"},
        {"machine --steps 3", "--steps"},
        {"machine -o /dev/null/x", "--out /dev/null/x cannot be made"},
        {"kernel --kv-type f8", "--kv-type is \"f8\"; it must be"},
        {"kernel --methods chunk,chunk", "--methods is \"chunk,chunk\"; it must list"},
        {"kernel --methods pages16 --kv-type int8 --quick", "kv_type is CATTN_I8; pages may be"},
        {"level --level avx3", "level is \"avx3\""},
        {"kernel --heads 3 --kv-heads 2", "--heads must be a multiple of --kv-heads"},
        {"kernel --prefix 5 --shared 6", "--shared must be at most --prefix"},
        {"kernel --layers 8x2x64,8x3x64", "layer 1 of --layers must be"},
        {"kernel --layers 8x2x64@64=0", "layer 0 of --layers must be"},
        {"kernel --layers 8x2x64", "know none of --window, --softcap and --layers"},
        {"kernel --methods chunk --quick --layers 8x2x64,8x1x64=0", "kv_source[1] is 0, which has 2 KV heads"},
        {"table3 --steps -1", "--steps is \"-1\""},
        {"paper --quick", "--out must name a folder"},
        {"fig3 4096", "\"4096\" is not an option"},
        {"memory", "--model must name a GGUF file"},
        {"memory --only chats,chat", "--only is \"chats,chat\"; it must be some of chats,itl,"},
        {"nothing", "there is no command \"nothing\""},
    };
    static char text[MAX_TEXT];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "%s 2>&1", wrong[i].arguments);
        const int status = run(arguments, text);
        if (!strstr(text, wrong[i].says)) fail_msg("%s says: %s", wrong[i].arguments, text);
        assert_in_range(status, 1, 2);
    }
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    return remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_files),
        cmocka_unit_test(throughput_is_cumulative),
        cmocka_unit_test(json_is_what_the_file_has),
        cmocka_unit_test(paper_runs_all),
        cmocka_unit_test(wrong_options_name_the_field),
    };
    return cmocka_run_group_tests(tests, make_folder, tear_down);
}

/* Plots: the JSON form of their description, and what an SVG file of each kind holds. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/plot/plot.h"
#include "tests/support/testing.h"

enum { MAX_FILE = 1 << 16 };

static char path[] = "/tmp/cattn_plot_XXXXXX";

/* The file that a plot of these rows is. */
static const char *draw(const plot *p, const char *rows_text) {
    static char text[MAX_FILE];
    json_t *rows = json_loads(rows_text, 0, NULL);
    assert_non_null(rows);
    assert_true(plot_write(p, rows, "a < b", path));
    json_decref(rows);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, MAX_FILE - 1, f)] = 0;
    fclose(f);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_non_null(strstr(text, "<title>a &lt; b</title>"));
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

/* The y of the text element that has these words. */
static double y_of(const char *svg, const char *words) {
    char ending[64];
    snprintf(ending, sizeof ending, ">%s</text>", words);
    const char *end = strstr(svg, ending), *y = NULL;
    assert_non_null(end);
    for (const char *at = svg; (at = strstr(at, " y=\"")) && at < end; at++) y = at;
    assert_non_null(y);
    return strtod(y + 4, NULL);
}

static const plot lines = {.kind = PLOT_LINES,
                           .x = "n",
                           .y = "rate",
                           .series = "method",
                           .x_label = "sequences",
                           .y_label = "tokens/s",
                           .accent = "ours"};

static void lines_carry_their_names(void **state) {
    (void)state;
    const char *svg =
        draw(&lines, "[{\"n\": 1, \"rate\": 10, \"method\": \"ours\"}, {\"n\": 2, \"rate\": 20, \"method\": \"ours\"},"
                     " {\"n\": 1, \"rate\": 9, \"method\": \"x & y\"}, {\"n\": 2, \"rate\": 19.9, \"method\": \"x & y\"},"
                     " {\"n\": 2, \"rate\": null, \"method\": \"none\"}]");
    assert_int_equal(count(svg, "<circle "), 4);
    assert_int_equal(count(svg, "none</text>"), 0);
    const double apart = y_of(svg, "x &amp; y") - y_of(svg, "ours");
    assert_true(apart >= 14 && apart < 30); /* their ends are less than a pixel apart */
    assert_int_equal(count(svg, "<text ") >= 6, 1);
    assert_true(y_of(svg, "sequences") > y_of(svg, "tokens/s"));
}

static void panels_share_their_y_axis(void **state) {
    (void)state;
    plot p = lines;
    p.panel = "p", p.panel_label = "part: ";
    const char *svg = draw(
        &p, "[{\"n\": 1, \"rate\": 10, \"method\": \"a\", \"p\": 7}, {\"n\": 2, \"rate\": 90, \"method\": \"a\", \"p\": 8}]");
    assert_int_equal(count(svg, ">part: 7</text>"), 1);
    assert_int_equal(count(svg, ">part: 8</text>"), 1);
    assert_int_equal(count(svg, ">80</text>"), 2);
}

static void logarithmic_axes_have_round_ticks(void **state) {
    (void)state;
    plot p = lines;
    p.log_x = p.log_y = true;
    const char *svg = draw(&p, "[{\"n\": 1, \"rate\": 3, \"method\": \"a\"}, {\"n\": 64, \"rate\": 20000, \"method\": \"a\"}]");
    assert_int_equal(count(svg, ">1000</text>"), 1);
    assert_int_equal(count(svg, ">10k</text>"), 1);
    assert_int_equal(count(svg, ">64</text>"), 1);
}

static void an_axis_with_a_zero_is_linear(void **state) {
    (void)state;
    plot p = lines;
    p.log_x = p.log_y = true;
    static const char rows[] = "[{\"n\": 0, \"rate\": 0, \"method\": \"a\"}, {\"n\": 64, \"rate\": 20, \"method\": \"a\"}]";
    assert_int_equal(count(draw(&p, rows), "<circle "), 2);
    p.kind = PLOT_DOTS;
    draw(&p, rows);
}

static void limits_are_drawn_where_they_are_known(void **state) {
    (void)state;
    plot p = lines;
    static const char rows[] =
        "[{\"n\": 1, \"rate\": 10, \"method\": \"a\", \"most\": 15}, {\"n\": 2, \"rate\": 20, \"method\": \"a\"}]";
    assert_int_equal(count(draw(&p, rows), ">limit</text>"), 0);
    p.limit = "most";
    assert_int_equal(count(draw(&p, rows), ">limit</text>"), 1);
}

static void bars_show_their_values(void **state) {
    (void)state;
    const plot p = {.kind = PLOT_BARS, .x = "what", .y = "ms", .y_label = "ms"};
    const char *svg = draw(&p, "[{\"what\": \"a\", \"ms\": 1234.5}, {\"what\": \"b\", \"ms\": 0.25}, {\"what\": \"c\"}]");
    assert_int_equal(count(svg, "<rect "), 2);
    assert_int_equal(count(svg, ">1234</text>") + count(svg, ">1235</text>"), 1);
    assert_int_equal(count(svg, ">0.25</text>"), 1);
    assert_int_equal(count(svg, ">c</text>"), 0);
}

static void dots_have_a_key_and_intervals(void **state) {
    (void)state;
    const plot p = {.kind = PLOT_DOTS,
                    .x = "what",
                    .y = "ratio",
                    .series = "who",
                    .low = "low",
                    .high = "high",
                    .y_label = "ratio",
                    .mark = 1};
    const char *svg = draw(&p, "[{\"what\": \"a\", \"ratio\": 1.1, \"who\": \"x\", \"low\": 1.0, \"high\": 1.3},"
                               " {\"what\": \"a\", \"ratio\": 0.9, \"who\": \"y\"}]");
    assert_int_equal(count(svg, "<circle "), 4); /* two in the key */
    assert_int_equal(count(svg, "stroke-dasharray"), 1);
    assert_int_equal(count(svg, ">a</text>"), 1);
    assert_int_equal(count(svg, "stroke-width=\"1.5\"/>"), 2); /* the mark and one interval */
}

static void nothing_to_draw(void **state) {
    (void)state;
    assert_int_equal(count(draw(&lines, "[]"), "<text "), 0);
}

static void json_gives_the_same_plot(void **state) {
    (void)state;
    const plot p = {.kind = PLOT_DOTS,
                    .x = "a",
                    .y = "b",
                    .series = "c",
                    .panel = "d",
                    .panel_label = "e",
                    .x_label = "f",
                    .y_label = "g",
                    .accent = "h",
                    .limit = "i",
                    .low = "j",
                    .high = "k",
                    .mark = 2,
                    .log_x = true,
                    .from_zero = true};
    plot q;
    json_t *o = plot_to_json(&p);
    assert_true(plot_from_json(o, &q));
    json_t *again = plot_to_json(&q);
    assert_true(json_equal(o, again));
    assert_int_equal(json_object_size(o), 15);
    json_object_set_new(o, "kind", json_string("pie"));
    assert_false(plot_from_json(o, &q));
    json_decref(again);
    json_decref(o);
}

static int make_file(void **state) {
    (void)state;
    const int f = mkstemp(path);
    return f < 0 ? -1 : close(f);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_carry_their_names),           cmocka_unit_test(panels_share_their_y_axis),
        cmocka_unit_test(logarithmic_axes_have_round_ticks), cmocka_unit_test(bars_show_their_values),
        cmocka_unit_test(an_axis_with_a_zero_is_linear),     cmocka_unit_test(limits_are_drawn_where_they_are_known),
        cmocka_unit_test(dots_have_a_key_and_intervals),     cmocka_unit_test(nothing_to_draw),
        cmocka_unit_test(json_gives_the_same_plot),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}

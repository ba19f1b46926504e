/*
 * Plots of result rows as SVG files.
 *
 * Colours are of medium lightness on a transparent background, so that one file serves light and dark pages, and differ in
 * lightness and hue for colour-blind readers. Lines carry their names at their ends; where no line ends, a key stands on top.
 */
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 96, MAX_TEXT = 96, MAX_TICKS = 16 };
enum { FONT = 12, LINE_HEIGHT = 15, PANEL_WIDTH = 300, PANEL_HEIGHT = 260, ROW_HEIGHT = 20, MARGIN = 12 };
static const double char_width = 0.56 * FONT; /* of the average character */

static const char accent_colour[] = "#d9480f", text_colour[] = "#7a838d", grid_colour[] = "#8b949e";
static const char *const colours[] = {"#8b949e", "#2f9e78", "#3f7fd0", "#a86bc4", "#b08900", "#5fa8b8", "#c0697f"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

/* ---- A plot as JSON ---- */

static const char *const kind_names[] = {
    [PLOT_LINES] = "lines", [PLOT_POINTS] = "points", [PLOT_BARS] = "bars", [PLOT_DOTS] = "dots"};
enum { N_KINDS = sizeof kind_names / sizeof *kind_names };

/* The texts of a plot by their names in JSON. */
typedef struct text_field {
    const char *name, **value;
} text_field;
enum { N_TEXTS = 11 };

static void list_texts(plot *p, text_field *fields) {
    const text_field all[N_TEXTS] = {{"x", &p->x},
                                     {"y", &p->y},
                                     {"series", &p->series},
                                     {"panel", &p->panel},
                                     {"panel_label", &p->panel_label},
                                     {"x_label", &p->x_label},
                                     {"y_label", &p->y_label},
                                     {"accent", &p->accent},
                                     {"limit", &p->limit},
                                     {"low", &p->low},
                                     {"high", &p->high}};
    memcpy(fields, all, sizeof all);
}

json_t *plot_to_json(const plot *plot_) {
    plot p = *plot_;
    text_field texts[N_TEXTS];
    list_texts(&p, texts);
    json_t *o = json_pack("{ss}", "kind", kind_names[p.kind]);
    for (int i = 0; i < N_TEXTS; i++)
        if (*texts[i].value) json_object_set_new(o, texts[i].name, json_string(*texts[i].value));
    if (p.mark != 0) json_object_set_new(o, "mark", json_real(p.mark));
    if (p.log_x) json_object_set_new(o, "log_x", json_true());
    if (p.log_y) json_object_set_new(o, "log_y", json_true());
    if (p.from_zero) json_object_set_new(o, "from_zero", json_true());
    return o;
}

bool plot_from_json(const json_t *o, plot *p) {
    const char *kind = json_string_value(json_object_get(o, "kind"));
    int k = 0;
    *p = (plot){0};
    while (kind && k < N_KINDS && strcmp(kind, kind_names[k]) != 0) k++;
    if (!kind || k == N_KINDS) return false;
    text_field texts[N_TEXTS];
    list_texts(p, texts);
    for (int i = 0; i < N_TEXTS; i++) *texts[i].value = json_string_value(json_object_get(o, texts[i].name));
    p->kind = (plot_kind)k;
    p->mark = json_number_value(json_object_get(o, "mark"));
    p->log_x = json_is_true(json_object_get(o, "log_x"));
    p->log_y = json_is_true(json_object_get(o, "log_y"));
    p->from_zero = json_is_true(json_object_get(o, "from_zero"));
    return p->x && p->y && p->y_label;
}

/* ---- What the rows hold ---- */

/* Distinct values of a key among the rows that are drawn, in their order. */
typedef struct values {
    char text[MAX_VALUES][MAX_TEXT];
    int n;
} values;

/* A plot at work. */
typedef struct drawing {
    const plot *p;
    const json_t *rows;
    FILE *f;
    values panels, series;
} drawing;

static void text_of(const json_t *row, const char *key, char *text) {
    const json_t *value = key ? json_object_get(row, key) : NULL;
    if (json_is_string(value))
        snprintf(text, MAX_TEXT, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, MAX_TEXT, "%g", json_number_value(value));
    else
        *text = 0;
}

static int find_value(const values *v, const char *text) {
    int k = 0;
    while (k < v->n && strcmp(v->text[k], text) != 0) k++;
    return k;
}

/* Whether a row is drawn in a panel; NULL: in any. */
static bool is_drawn(const drawing *d, const json_t *row, const char *panel) {
    char in[MAX_TEXT];
    text_of(row, d->p->panel, in);
    return json_is_number(json_object_get(row, d->p->y)) && (!panel || strcmp(in, panel) == 0);
}

static void collect(const drawing *d, const char *key, const char *panel, values *v) {
    size_t i;
    const json_t *row;
    v->n = 0;
    json_array_foreach(d->rows, i, row) {
        char text[MAX_TEXT];
        if (!is_drawn(d, row, panel)) continue;
        text_of(row, key, text);
        if (find_value(v, text) == v->n && v->n < MAX_VALUES) memcpy(v->text[v->n++], text, sizeof text);
    }
}

static int series_of(const drawing *d, const json_t *row) {
    char text[MAX_TEXT];
    text_of(row, d->p->series, text);
    return find_value(&d->series, text);
}

static double number(const json_t *row, const char *key) { return key ? json_number_value(json_object_get(row, key)) : 0; }

static int accent_of(const drawing *d) {
    const int k = d->p->accent ? find_value(&d->series, d->p->accent) : 0;
    return k < d->series.n ? k : 0;
}

static const char *colour_of(const drawing *d, int series) {
    const int accent = accent_of(d), among_others = series > accent ? series - 1 : series;
    return series == accent ? accent_colour : colours[(unsigned)among_others % N_COLOURS];
}

static double longest(const values *v) {
    size_t most = 0;
    for (int i = 0; i < v->n; i++)
        if (strlen(v->text[i]) > most) most = strlen(v->text[i]);
    return (double)most * char_width;
}

/* ---- Axes ---- */

typedef struct axis {
    double low, high;  /* values at the ends */
    double begin, end; /* their pixels */
    bool log;
    double ticks[MAX_TICKS];
    int n_ticks;
} axis;

static double place(const axis *a, double value) {
    const double part = a->log ? log(value / a->low) / log(a->high / a->low) : (value - a->low) / (a->high - a->low);
    return a->begin + part * (a->end - a->begin);
}

static void add_tick(axis *a, double value) {
    if (a->n_ticks < MAX_TICKS) a->ticks[a->n_ticks++] = value;
}

/* The largest of 1, 2 and 5 times a power of ten that is at most x, or the least that is at least x. */
static double round_down(double x) {
    const double power = pow(10, floor(log10(x) + 1e-9)), digit = x / power * (1 + 1e-9);
    return power * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
}
static double round_up(double x) {
    const double down = round_down(x);
    if (down >= x * (1 - 1e-9)) return down;
    return round_down(down * 2.5 * (1 + 1e-9));
}

/* Ends and ticks at 1, 2 and 5 times powers of ten, or at the powers alone where there are many. */
static void set_log_ticks(axis *a, double low, double high) {
    a->low = round_down(low);
    a->high = round_up(high > low ? high : 2 * low);
    const bool all = a->high / a->low <= 200;
    double t = a->low;
    while (t <= a->high * 1.001) {
        if (all || fabs(log10(t) - round(log10(t))) < 1e-6) add_tick(a, t);
        t = round_up(t * 1.01);
    }
}

/* Ends and ticks at round values around [low, high]. */
static void set_round_ticks(axis *a, double low, double high) {
    if (a->log) {
        set_log_ticks(a, low, high);
        return;
    }
    const double step = round_up((high > low ? high - low : fabs(high) + 1e-9) / 6);
    const double first = floor(low / step + 1e-9), last = ceil((high > low ? high : low + step) / step - 1e-9);
    a->low = first * step;
    a->high = last * step;
    for (int i = 0; i <= (int)(last - first); i++) add_tick(a, (first + i) * step);
}

static void format_tick(double x, char *text) {
    if (fabs(x) >= 1e6)
        snprintf(text, MAX_TEXT, "%gM", x / 1e6);
    else if (fabs(x) >= 1e4)
        snprintf(text, MAX_TEXT, "%gk", x / 1e3);
    else
        snprintf(text, MAX_TEXT, "%g", x);
}

/* ---- SVG ---- */

static void put_escaped(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", f);
        else if (*text == '<')
            fputs("&lt;", f);
        else if (*text == '>')
            fputs("&gt;", f);
        else
            fputc(*text, f);
    }
}

/* anchor: start, middle or end; y: of the letters' middle. */
static void put_text(const drawing *d, double x, double y, const char *anchor, const char *colour, bool bold,
                     const char *text) {
    fprintf(d->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"%s>", x, y + 4, anchor, colour,
            bold ? " font-weight=\"600\"" : "");
    put_escaped(d->f, text);
    fputs("</text>\n", d->f);
}

static void put_line(const drawing *d, double x0, double y0, double x1, double y1, const char *style) {
    fprintf(d->f, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" %s/>\n", x0, y0, x1, y1, grid_colour, style);
}

static const char faint[] = "stroke-opacity=\"0.3\"", dashed[] = "stroke-dasharray=\"5 4\" stroke-width=\"1.5\"";

static void put_dot(const drawing *d, double x, double y, int series) {
    fprintf(d->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"/>\n", x, y, series == accent_of(d) ? "3.6" : "3",
            colour_of(d, series));
}

static void begin_svg(const drawing *d, double width, double height, const char *title) {
    fprintf(d->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" fill=\"none\" "
            "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"%d\">\n<title>",
            width, height, width, height, FONT);
    put_escaped(d->f, title);
    fputs("</title>\n", d->f);
}

static void panel_title(const drawing *d, int panel, char *text) {
    snprintf(text, 2 * MAX_TEXT, "%s%s", d->p->panel_label ? d->p->panel_label : "", d->panels.text[panel]);
}

/* ---- Lines and points over x ---- */

/* The drawing area of a panel and its axes. */
typedef struct area {
    axis x, y;
    const char *panel;
} area;

static void widen(double value, double *low, double *high) {
    if (value < *low) *low = value;
    if (value > *high) *high = value;
}

static void set_ranges(const drawing *d, area *a) {
    double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY, own_x, own_y;
    size_t i;
    const json_t *row;
    json_array_foreach(d->rows, i, row) {
        if (!is_drawn(d, row, NULL)) continue;
        own_x = number(row, d->p->x), own_y = number(row, d->p->y);
        if (is_drawn(d, row, a->panel)) widen(own_x, &low_x, &high_x);
        widen(own_y, &low_y, &high_y); /* of all panels, so that they can be compared */
    }
    if (d->p->from_zero) low_y = 0;
    a->y.log = d->p->log_y && low_y > 0;
    set_round_ticks(&a->y, low_y, high_y);
    a->x.log = d->p->log_x && low_x > 0;
    a->x.low = low_x;
    a->x.high = high_x > low_x ? high_x : low_x * 2 + 1;
}

/* A tick at each x value of the rows that is far enough from those before it; round ones where the values are many. */
static void set_x_ticks(const drawing *d, area *a) {
    values x;
    collect(d, d->p->x, a->panel, &x);
    if (x.n > MAX_TICKS) {
        set_round_ticks(&a->x, a->x.low, a->x.high);
        return;
    }
    double sorted[MAX_TICKS], last = -INFINITY;
    for (int i = 0; i < x.n; i++) {
        int k = i;
        for (const double value = strtod(x.text[i], NULL); k > 0 && sorted[k - 1] > value; k--) sorted[k] = sorted[k - 1];
        sorted[k] = strtod(x.text[i], NULL);
    }
    for (int i = 0; i < x.n; i++) {
        char text[MAX_TEXT];
        format_tick(sorted[i], text);
        const double half = (double)strlen(text) * char_width / 2;
        if (place(&a->x, sorted[i]) - half < last + 5) continue;
        add_tick(&a->x, sorted[i]);
        last = place(&a->x, sorted[i]) + half;
    }
}

static void draw_axes(const drawing *d, const area *a, int panel) {
    char text[2 * MAX_TEXT];
    for (int i = 0; i < a->y.n_ticks; i++) {
        const double y = place(&a->y, a->y.ticks[i]);
        put_line(d, a->x.begin, y, a->x.end, y, faint);
        format_tick(a->y.ticks[i], text);
        put_text(d, a->x.begin - 6, y, "end", text_colour, false, text);
    }
    for (int i = 0; i < a->x.n_ticks; i++) {
        const double x = place(&a->x, a->x.ticks[i]);
        put_line(d, x, a->y.begin, x, a->y.begin + 4, "");
        format_tick(a->x.ticks[i], text);
        put_text(d, x, a->y.begin + 14, "middle", text_colour, false, text);
    }
    put_line(d, a->x.begin, a->y.begin, a->x.end, a->y.begin, "");
    const double middle = (a->x.begin + a->x.end) / 2;
    put_text(d, middle, a->y.begin + 32, "middle", text_colour, false, d->p->x_label ? d->p->x_label : a->panel);
    put_text(d, a->x.begin - 40, a->y.end - 16, "start", text_colour, false, d->p->y_label);
    if (!d->p->panel || !d->p->x_label) return;
    panel_title(d, panel, text);
    put_text(d, middle, a->y.end - 34, "middle", text_colour, true, text);
}

/* One series in one panel; returns the y of its end, or a negative number without points. */
static double draw_series(const drawing *d, const area *a, int series) {
    double end = -1;
    size_t i;
    const json_t *row;
    if (d->p->kind == PLOT_LINES) {
        bool first = true;
        json_array_foreach(d->rows, i, row) {
            if (!is_drawn(d, row, a->panel) || series_of(d, row) != series) continue;
            fprintf(d->f, "%s%.1f %.1f", first ? "<path d=\"M" : "L", place(&a->x, number(row, d->p->x)),
                    place(&a->y, number(row, d->p->y)));
            first = false;
        }
        if (!first)
            fprintf(d->f, "\" stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\"/>\n", colour_of(d, series),
                    series == accent_of(d) ? "2.6" : "1.8");
    }
    json_array_foreach(d->rows, i, row) {
        if (!is_drawn(d, row, a->panel) || series_of(d, row) != series) continue;
        end = place(&a->y, number(row, d->p->y));
        put_dot(d, place(&a->x, number(row, d->p->x)), end, series);
    }
    return end;
}

/* The x of a series' last point. */
static double end_of(const drawing *d, const area *a, int series) {
    double end = a->x.begin;
    size_t i;
    const json_t *row;
    json_array_foreach(d->rows, i, row) if (is_drawn(d, row, a->panel) && series_of(d, row) == series) end =
        place(&a->x, number(row, d->p->x));
    return end;
}

/* Names at the lines' ends, moved apart where they would overlap; a name that is far from its line's end has a thin line to it.
 */
static void draw_names(const drawing *d, const area *a, const double *ends) {
    int order[MAX_VALUES], n = 0;
    double y[MAX_VALUES];
    for (int s = 0; s < d->series.n; s++) {
        if (ends[s] < 0) continue;
        int k = n++;
        for (; k > 0 && ends[order[k - 1]] > ends[s]; k--) order[k] = order[k - 1];
        order[k] = s;
    }
    for (int i = 0; i < n; i++) {
        y[i] = ends[order[i]];
        if (i > 0 && y[i] < y[i - 1] + LINE_HEIGHT) y[i] = y[i - 1] + LINE_HEIGHT;
    }
    double below = a->y.begin + LINE_HEIGHT - 6;
    for (int i = n - 1; i >= 0 && y[i] > below - LINE_HEIGHT; below = y[i--]) y[i] = below - LINE_HEIGHT;
    for (int i = 0; i < n; i++) {
        const int s = order[i];
        const double x = end_of(d, a, s);
        if (x < a->x.end - 20 || fabs(y[i] - ends[s]) > LINE_HEIGHT / 2.0)
            fprintf(d->f, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-opacity=\"0.4\"/>\n", x + 4, ends[s],
                    a->x.end + 8, y[i], colour_of(d, s));
        put_text(d, a->x.end + 10, y[i], "start", colour_of(d, s), s == accent_of(d), d->series.text[s]);
    }
}

/* A dashed line at y, if y is a number within the axis. */
static void draw_limit(const drawing *d, const area *a, double y) {
    if (!(y >= a->y.low && y <= a->y.high)) return;
    put_line(d, a->x.begin, place(&a->y, y), a->x.end, place(&a->y, y), dashed);
    put_text(d, a->x.begin + 4, place(&a->y, y) - 9, "start", text_colour, false, "limit");
}

static double limit_of(const drawing *d, const char *panel) {
    size_t i;
    const json_t *row;
    json_array_foreach(d->rows, i, row) if (is_drawn(d, row, panel) && d->p->limit) return number(row, d->p->limit);
    return NAN;
}

/* Panels stand in two columns, since a page has no room for more. */
static void draw_over_x(drawing *d, const char *title) {
    enum { COLUMNS = 2, LEFT = 50, BELOW = 46 };
    const double names = d->p->series ? longest(&d->series) + 16 : 0, pitch = LEFT + PANEL_WIDTH + names + MARGIN;
    const double top = d->p->panel && d->p->x_label ? 50 : 32, row_pitch = top + PANEL_HEIGHT + BELOW;
    const int n_columns = d->panels.n < COLUMNS ? d->panels.n : COLUMNS, n_rows = (d->panels.n + COLUMNS - 1) / COLUMNS;
    begin_svg(d, pitch * n_columns, row_pitch * n_rows, title);
    for (int i = 0; i < d->panels.n; i++) {
        area a = {.panel = d->panels.text[i]};
        set_ranges(d, &a);
        a.x.begin = pitch * (i % COLUMNS) + LEFT;
        a.x.end = a.x.begin + PANEL_WIDTH;
        a.y.end = row_pitch * (i / COLUMNS) + top; // NOLINT(bugprone-integer-division): the row of panels
        a.y.begin = a.y.end + PANEL_HEIGHT;
        set_x_ticks(d, &a);
        draw_axes(d, &a, i);
        draw_limit(d, &a, d->p->limit ? limit_of(d, a.panel) : d->p->mark != 0 ? d->p->mark : NAN);
        double ends[MAX_VALUES];
        for (int s = 0; s < d->series.n; s++) ends[s] = s == accent_of(d) ? -1 : draw_series(d, &a, s);
        ends[accent_of(d)] = draw_series(d, &a, accent_of(d)); /* last, so that it lies above the others */
        if (d->p->series) draw_names(d, &a, ends);
    }
}

/* ---- Bars and dots beside their labels ---- */

static void draw_bar(const drawing *d, const axis *a, const json_t *row, double y, int series) {
    char text[MAX_TEXT];
    const double value = number(row, d->p->y), end = place(a, value);
    fprintf(d->f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"%s\"/>\n", a->begin, y - 6,
            end > a->begin ? end - a->begin : 0, 12, colour_of(d, series));
    snprintf(text, sizeof text, fabs(value) >= 1000 ? "%.0f" : fabs(value) >= 100 ? "%.1f" : "%.3g", value);
    put_text(d, end + 6, y, "start", text_colour, false, text);
}

static void draw_interval(const drawing *d, const axis *a, const json_t *row, double y, int series) {
    if (!d->p->low || !json_is_number(json_object_get(row, d->p->low))) return;
    fprintf(d->f, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", place(a, number(row, d->p->low)),
            y, place(a, number(row, d->p->high)), y, colour_of(d, series));
}

/* The value axis of one panel. Bars begin at 0. */
static void set_value_axis(const drawing *d, const char *panel, axis *a) {
    double low = INFINITY, high = -INFINITY;
    size_t i;
    const json_t *row;
    json_array_foreach(d->rows, i, row) {
        if (!is_drawn(d, row, panel)) continue;
        widen(number(row, d->p->y), &low, &high);
        if (d->p->low) widen(number(row, d->p->low), &low, &high);
        if (d->p->high) widen(number(row, d->p->high), &low, &high);
    }
    if (d->p->mark != 0) widen(d->p->mark, &low, &high);
    if (d->p->kind == PLOT_BARS || d->p->from_zero) low = 0;
    a->log = d->p->log_y && low > 0;
    set_round_ticks(a, low, high);
}

/* Pixels from the top of a panel of n labels to the top of the next. */
static double label_panel_height(const drawing *d, int n) {
    return ROW_HEIGHT * (n + (d->p->panel != NULL)) + (d->p->kind == PLOT_DOTS ? 24 : 6);
}

static void draw_label_panel(const drawing *d, int panel, double y, double labels, double width) {
    const char *name = d->panels.text[panel];
    values x;
    axis a = {.begin = MARGIN + labels + 8, .end = MARGIN + labels + 8 + width};
    size_t i;
    const json_t *row;
    collect(d, d->p->x, name, &x);
    set_value_axis(d, name, &a);
    if (d->p->panel) {
        char text[2 * MAX_TEXT];
        panel_title(d, panel, text);
        put_text(d, a.begin, y, "start", text_colour, true, text);
        y += ROW_HEIGHT;
    }
    const double bottom = y + ROW_HEIGHT * x.n - ROW_HEIGHT / 2.0;
    if (d->p->kind == PLOT_DOTS)
        for (int t = 0; t < a.n_ticks; t++) {
            char text[MAX_TEXT];
            put_line(d, place(&a, a.ticks[t]), y - ROW_HEIGHT / 2.0, place(&a, a.ticks[t]), bottom, faint);
            format_tick(a.ticks[t], text);
            put_text(d, place(&a, a.ticks[t]), bottom + 10, "middle", text_colour, false, text);
        }
    if (d->p->mark != 0) put_line(d, place(&a, d->p->mark), y - ROW_HEIGHT / 2.0, place(&a, d->p->mark), bottom, dashed);
    for (int k = 0; k < x.n; k++) put_text(d, MARGIN + labels, y + ROW_HEIGHT * k, "end", text_colour, false, x.text[k]);
    json_array_foreach(d->rows, i, row) {
        char label[MAX_TEXT];
        if (!is_drawn(d, row, name)) continue;
        text_of(row, d->p->x, label);
        const double own_y = y + ROW_HEIGHT * find_value(&x, label);
        const int series = series_of(d, row);
        if (d->p->kind == PLOT_BARS) {
            draw_bar(d, &a, row, own_y, series);
            continue;
        }
        draw_interval(d, &a, row, own_y, series);
        put_dot(d, place(&a, number(row, d->p->y)), own_y, series);
    }
}

static void draw_key(const drawing *d, double x, double y) {
    for (int s = 0; s < d->series.n; s++) {
        put_dot(d, x, y, s);
        put_text(d, x + 8, y, "start", colour_of(d, s), s == accent_of(d), d->series.text[s]);
        x += (double)strlen(d->series.text[s]) * char_width + 30;
    }
}

static void draw_beside_labels(drawing *d, const char *title) {
    values x;
    collect(d, d->p->x, NULL, &x);
    const bool key = d->p->series && d->series.n > 1 && (!d->p->panel || strcmp(d->p->series, d->p->panel) != 0);
    const double labels = longest(&x), width = d->p->kind == PLOT_BARS ? 380 : 480;
    double heights[MAX_VALUES], height = MARGIN + ROW_HEIGHT * (1 + key);
    for (int i = 0; i < d->panels.n; i++) {
        values of_panel;
        collect(d, d->p->x, d->panels.text[i], &of_panel);
        heights[i] = label_panel_height(d, of_panel.n);
        height += heights[i];
    }
    begin_svg(d, MARGIN + labels + 8 + width + 70, height, title);
    double y = MARGIN;
    put_text(d, MARGIN + labels + 8, y, "start", text_colour, false, d->p->y_label);
    if (key) draw_key(d, MARGIN + labels + 8 + 4, y += ROW_HEIGHT);
    y += ROW_HEIGHT + 2;
    for (int i = 0; i < d->panels.n; y += heights[i++]) draw_label_panel(d, i, y, labels, width);
}

bool plot_write(const plot *p, const json_t *rows, const char *title, const char *path) {
    drawing d = {.p = p, .rows = rows, .f = fopen(path, "we")};
    if (!d.f) return false;
    collect(&d, p->panel, NULL, &d.panels);
    collect(&d, p->series, NULL, &d.series);
    if (d.panels.n == 0)
        begin_svg(&d, 1, 1, title);
    else if (p->kind == PLOT_LINES || p->kind == PLOT_POINTS)
        draw_over_x(&d, title);
    else
        draw_beside_labels(&d, title);
    fputs("</svg>\n", d.f);
    const bool ok = !ferror(d.f);
    return fclose(d.f) == 0 && ok;
}

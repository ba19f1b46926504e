/*
 * Normalises text to form C with utf8proc's tables. Combining marks are ordered here, since utf8proc's own ordering takes
 * quadratic time over a long run of marks, which a hostile prompt may contain.
 */
#include "nfc.h"

#include <stdint.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "chunkllama/common/deadline.h"

static const utf8proc_option_t OPTIONS = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
enum {
    LONGEST = 16,     /* code points; a canonical decomposition has at most 4 */
    CODES_A_BYTE = 2, /* code points: U+0390 and others become 3 for their 2 bytes, U+1FA2 and others 4 for 3 */
};

bool cl_nfc_may_change(cl_str text) {
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] >= 0xcc) return true; /* the first byte of U+0300 */
    return false;
}

static int class_of(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Sort marks [n] by their class and keep the order of those of one class. scratch: [n]. */
static void order_marks(utf8proc_int32_t *marks, size_t n, utf8proc_int32_t *scratch) {
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++) at[class_of(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++) at[c + 1] += at[c];
    for (size_t i = 0; i < n; i++) scratch[at[class_of(marks[i])]++] = marks[i];
    for (size_t i = 0; i < n; i++) marks[i] = scratch[i];
}

static void order(utf8proc_int32_t *points, size_t n, utf8proc_int32_t *scratch) {
    for (size_t i = 0; i < n; i++) {
        size_t end = i;
        while (end < n && class_of(points[end]) > 0) end++;
        if (end > i + 1) order_marks(points + i, end - i, scratch);
        i = end;
    }
}

cl_status cl_nfc_normalize(cl_str text, char **buf, cl_str *out, cl_error *error) {
    const size_t capacity = CODES_A_BYTE * text.size + LONGEST;
    utf8proc_int32_t *points = NULL, *scratch = NULL;
    *buf = NULL;
    if (capacity < PTRDIFF_MAX / sizeof *points) {
        points = malloc(capacity * sizeof *points);
        scratch = malloc(capacity * sizeof *scratch);
    }
    cl_status status = CL_OK;
    if (!points || !scratch) status = cl_fail(error, CL_ERR_NOMEM, "no memory for a text of %zu bytes", text.size);
    size_t n = 0;
    for (size_t i = 0, turn = 0; status == CL_OK && i < text.size; turn++) {
        utf8proc_int32_t c;
        int bound = 0; /* state of the search for graphemes, which is off */
        const utf8proc_ssize_t size =
            utf8proc_iterate((const utf8proc_uint8_t *)text.data + i, (utf8proc_ssize_t)(text.size - i), &c);
        const utf8proc_ssize_t n_added =
            size > 0 ? utf8proc_decompose_char(c, points + n, (utf8proc_ssize_t)(capacity - n), OPTIONS, &bound) : -1;
        if (n_added < 0 || (size_t)n_added > capacity - n)
            status = cl_fail(error, CL_ERR_FORMAT, "byte %zu of a text cannot be normalised", i);
        else
            status = cl_deadline_look(turn, error);
        n += (size_t)(n_added > 0 ? n_added : 0);
        i += (size_t)(size > 0 ? size : 1);
    }
    if (status == CL_OK) {
        order(points, n, scratch);
        *out = (cl_str){(char *)points, (size_t)utf8proc_reencode(points, (utf8proc_ssize_t)n, OPTIONS)};
        *buf = (char *)points;
        points = NULL;
    }
    free(points);
    free(scratch);
    return status;
}

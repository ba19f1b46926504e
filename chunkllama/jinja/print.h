/* Writes values as text: as Python's str and repr, and as JSON. */
#ifndef CHUNKLLAMA_JINJA_PRINT_H
#define CHUNKLLAMA_JINJA_PRINT_H

#include "value.h"

/* The text that {{ v }} prints. */
cj_text cj_str_of(cj_run *r, const cj_value *v);
void cj_put_str(cj_builder *b, const cj_value *v);
void cj_put_repr(cj_builder *b, const cj_value *v);

/* JSON as json.dumps writes it. */
typedef struct cj_json_style {
    bool ascii;
    const cj_text *indent; /* one level's, or NULL: all on one line */
    cj_text item, colon;   /* the separators */
} cj_json_style;
void cj_put_json(cj_builder *b, const cj_value *v, const cj_json_style *style);

#endif

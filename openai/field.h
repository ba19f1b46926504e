/* Typed fields of a JSON object. Absent and null leave *value as it is; what is wrong is told with field, limit and value. */
#ifndef OPENAI_FIELD_H
#define OPENAI_FIELD_H

#include "openai.h"

/* The field, NULL where it is absent or null. */
const json_t *field_get(const json_t *object, const char *name);

/* The same, and NULL where it is false, 0 or empty and so asks for nothing. */
const json_t *field_get_asking(const json_t *object, const char *name);

/* What a value is, for messages: "a string", "an integer", ... */
const char *field_kind(const json_t *value);

bool field_bool(const json_t *object, const char *name, bool *value, openai_error *error);
bool field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *value, openai_error *error);
bool field_int32(const json_t *object, const char *name, int32_t min, int32_t max, int32_t *value, openai_error *error);
bool field_float(const json_t *object, const char *name, double min, double max, float *value, openai_error *error);

/* One token id of `model`; param names where it stands. */
bool field_token(const json_t *value, const char *param, const cl_model *model, int32_t *id, openai_error *error);

#endif

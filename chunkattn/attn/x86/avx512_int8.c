/* Level avx512 for int8 K and V. */
#include "vec512.h"

#include "int8_words.h"

INT8_FUNCTIONS(avx512)

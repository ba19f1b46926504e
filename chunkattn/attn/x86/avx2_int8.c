/* Level avx2 for int8 K and V. */
#include "vec256.h"

#include "int8_words.h"

INT8_FUNCTIONS(avx2)

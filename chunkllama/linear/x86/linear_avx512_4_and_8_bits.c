/* The level "avx512": layouts with codes of 4 and 8 bits. */
#include "linear_avx512_dot.h"

LINEAR_LAYOUTS_4_AND_8_BITS(LINEAR_MULTIPLY)

/* The level "avx512": layouts with codes of 5 bits. */
#include "linear_avx512_dot.h"

LINEAR_LAYOUTS_5_BITS(LINEAR_MULTIPLY)

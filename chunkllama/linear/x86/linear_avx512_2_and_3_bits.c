/* The level "avx512": layouts with codes of 2 and 3 bits, and scale groups of 32 inputs. */
#include "linear_avx512_dot.h"

LINEAR_LAYOUTS_2_AND_3_BITS(LINEAR_MULTIPLY)

/* The level "avx512_vnni": layouts with codes of 2 and 3 bits, and scale groups of 32 inputs. */
#include "linear_avx512_vnni_dot.h"

LINEAR_LAYOUTS_2_AND_3_BITS(LINEAR_MULTIPLY)

/* The level "avx512_vnni": layouts with codes of 4 and 8 bits. */
#include "linear_avx512_vnni_dot.h"

LINEAR_LAYOUTS_4_AND_8_BITS(LINEAR_MULTIPLY)

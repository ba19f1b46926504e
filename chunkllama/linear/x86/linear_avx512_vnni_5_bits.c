/* The level "avx512_vnni": layouts with codes of 5 bits. */
#include "linear_avx512_vnni_dot.h"

LINEAR_LAYOUTS_5_BITS(LINEAR_MULTIPLY)

/* The level "avx512": layouts with scale groups of 16 inputs. */
#include "linear_avx512_dot.h"

LINEAR_LAYOUTS_GROUPS_OF_16(LINEAR_MULTIPLY)

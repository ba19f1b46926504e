/* The level "avx512_vnni": layouts with scale groups of 16 inputs. */
#include "linear_avx512_vnni_dot.h"

LINEAR_LAYOUTS_GROUPS_OF_16(LINEAR_MULTIPLY)

/* What attention computes and moves on paper, to hold measurements against. */
#include "formulas.h"

double formula_moved_chunk(double b, double h, double d, double c, double n, double r) {
    return b * h * d * (2 * n * r * (1 / b + 1 / c) + 2 + 2 * n * (1 - r));
}

double formula_moved_naive(double b, double h, double d, double n) { return b * h * d * (2 + 2 * n); }

double formula_flops(int32_t heads, int32_t head_dim, double n) { return 4.0 * heads * head_dim * n; }

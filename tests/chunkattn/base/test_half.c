/*
 * Half-precision conversions of all 65536 values, and at every rounding boundary between two of them, against arithmetic in
 * double, in the default floating-point mode and in that of tasks.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>

#include "chunkattn/base/fp.h"
#include "chunkattn/base/half.h"

enum { N_VALUES = 65536, INF_F16 = 0x7c00, INF_BF16 = 0x7f80 };

/* No value of f16 or bf16 is denormal in double, so the mode of tasks does not change what is expected. */
static double value_of_f16(uint32_t h) {
    const int exponent = h >> 10 & 31;
    const double fraction = h & 0x3ff;
    const double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static double value_of_bf16(uint32_t h) {
    const int exponent = h >> 7 & 255;
    const double fraction = h & 0x7f;
    const double magnitude = exponent ? ldexp(128 + fraction, exponent - 134) : ldexp(fraction, -133);
    return h & 0x8000 ? -magnitude : magnitude;
}

/* Convert a finite double that is exactly a float, possibly a denormal one, without arithmetic in float. */
static float exact_float(double x) {
    int exponent;
    const uint32_t sign = signbit(x) ? 0x80000000u : 0;
    const double fraction = frexp(fabs(x), &exponent); /* [0.5, 1) */
    if (fraction == 0) return ca_f32_from_bits(sign);
    if (exponent < -125) return ca_f32_from_bits(sign | (uint32_t)ldexp(fabs(x), 149));
    const uint32_t mantissa = (uint32_t)ldexp(fraction, 24);
    return ca_f32_from_bits(sign | ((uint32_t)(exponent + 126) << 23) | (mantissa & 0x7fffff));
}

static void check_every_value(void) {
    for (uint32_t h = 0; h < N_VALUES; h++) {
        const float f16 = ca_f32_from_f16((uint16_t)h), bf16 = ca_f32_from_bf16((uint16_t)h);
        if ((h & 0x7fff) < INF_F16) assert_int_equal(ca_f32_bits(f16), ca_f32_bits(exact_float(value_of_f16(h))));
        if ((h & 0x7fff) < INF_BF16) assert_int_equal(ca_f32_bits(bf16), ca_f32_bits(exact_float(value_of_bf16(h))));
        const int f16_is_nan = (h & 0x7fff) > INF_F16, bf16_is_nan = (h & 0x7fff) > INF_BF16;
        assert_int_equal((ca_f32_bits(f16) & 0x7fffffff) > 0x7f800000, f16_is_nan);
        assert_int_equal((ca_f32_bits(bf16) & 0x7fffffff) > 0x7f800000, bf16_is_nan);
        /* Converted back, each value is the same; a NaN is some NaN of the same sign. */
        const uint32_t f16_back = ca_f16_from_f32(f16), bf16_back = ca_bf16_from_f32(bf16);
        if (f16_is_nan)
            assert_true((f16_back & 0x7fff) > INF_F16 && (f16_back & 0x8000) == (h & 0x8000));
        else
            assert_int_equal(f16_back, h);
        if (bf16_is_nan)
            assert_true((bf16_back & 0x7fff) > INF_BF16 && (bf16_back & 0x8000) == (h & 0x8000));
        else
            assert_int_equal(bf16_back, h);
    }
}

/*
 * Between neighbours h and h + 1, the middle rounds to the even one, and the floats next to the middle to the nearer one. For
 * the largest finite h, the neighbour is infinity, with the value that would come next.
 */
static void check_boundary(uint32_t h, double low, double high, uint16_t (*convert)(float)) {
    const uint32_t even = h & 1 ? h + 1 : h;
    const float middle = exact_float((low + high) / 2);
    const uint32_t bits = ca_f32_bits(middle); /* the next larger float has the next larger bits */
    assert_int_equal(convert(middle), even);
    assert_int_equal(convert(ca_f32_from_bits(bits - 1)), h);
    assert_int_equal(convert(ca_f32_from_bits(bits + 1)), h + 1);
    assert_int_equal(convert(ca_f32_from_bits(bits | 0x80000000)), even | 0x8000);
    assert_int_equal(convert(ca_f32_from_bits((bits - 1) | 0x80000000)), h | 0x8000);
    assert_int_equal(convert(ca_f32_from_bits((bits + 1) | 0x80000000)), (h + 1) | 0x8000);
}

static void check_every_boundary(void) {
    for (uint32_t h = 0; h < INF_F16; h++) check_boundary(h, value_of_f16(h), value_of_f16(h + 1), ca_f16_from_f32);
    for (uint32_t h = 0; h < INF_BF16; h++) check_boundary(h, value_of_bf16(h), value_of_bf16(h + 1), ca_bf16_from_f32);
}

static void check_special(void) {
    const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0x7fc00000, 0x7f80ffff, 0xff800001, 0xffffffff};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        const float nan = ca_f32_from_bits(nans[i]);
        assert_true((ca_f16_from_f32(nan) & 0x7fff) > INF_F16);
        assert_true((ca_bf16_from_f32(nan) & 0x7fff) > INF_BF16);
    }
    assert_int_equal(ca_f16_from_f32(INFINITY), INF_F16);
    assert_int_equal(ca_f16_from_f32(-INFINITY), INF_F16 | 0x8000);
    assert_int_equal(ca_f16_from_f32(3.4e38f), INF_F16);
    assert_int_equal(ca_bf16_from_f32(INFINITY), INF_BF16);
    assert_int_equal(ca_bf16_from_f32(-INFINITY), INF_BF16 | 0x8000);
    assert_int_equal(ca_f16_from_f32(ca_f32_from_bits(1)), 0); /* the smallest denormal float */
    assert_int_equal(ca_f16_from_f32(-0.0f), 0x8000);
}

/* Floats of the whole range round to the nearest value. The stride is prime to 2^32, so it visits every exponent and sign. */
static void check_nearest(void) {
    uint32_t u = 1;
    for (int i = 0; i < 4000000; i++, u += 2654435761u) {
        const double x = ca_f32_from_bits(u);
        const uint32_t h = ca_f16_from_f32(ca_f32_from_bits(u)), b = ca_bf16_from_f32(ca_f32_from_bits(u));
        if (fabs(x) < 65520) {
            const double error = fabs(x - value_of_f16(h));
            if (h & 0x7fff) assert_true(error <= fabs(x - value_of_f16(h - 1)));
            assert_true(error <= fabs(x - value_of_f16(h + 1)));
        }
        if (fabs(x) < 3.38e38) {
            const double error = fabs(x - value_of_bf16(b));
            if (b & 0x7fff) assert_true(error <= fabs(x - value_of_bf16(b - 1)));
            assert_true(error <= fabs(x - value_of_bf16(b + 1)));
        }
    }
}

static void in_default_mode(void **state) {
    (void)state;
    check_every_value();
    check_every_boundary();
    check_special();
    check_nearest();
}

static void in_task_mode(void **state) {
    (void)state;
    const unsigned before = ca_fp_enter();
    check_every_value();
    check_every_boundary();
    check_special();
    ca_fp_leave(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_default_mode),
        cmocka_unit_test(in_task_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The rows of a step on synthetic machines: steps end within the target, whatever a row costs. */
#include "tests/support/testing.h"

#include "chunkllama/engine/pace.h"

enum { MAX_ROWS = 512 };

/* Seconds of a step whose rows cost more with depth. */
static double step_s(double fixed, double row, double depth, int32_t n_rows) {
    return fixed + row * (1 + depth / 4096) * (double)n_rows;
}

/* A prompt of 16384 tokens beside 16 choices that decode: after a few steps none takes much more than the target, or less. */
static void steps_take_the_target(void **state) {
    (void)state;
    static const double fixed[] = {0.001, 0.004, 0.01}, row[] = {0.00002, 0.0002, 0.001};
    for (int i = 0; i < 9; i++) {
        cl_pace p;
        cl_pace_init(&p, 0.05, MAX_ROWS);
        double depth = 0;
        for (int step = 0; depth < 16384; step++) {
            const int32_t n_prefill = cl_pace_rows(&p, 16, 1) - 16;
            const double s = fixed[i / 3] + row[i % 3] * 16 + step_s(0, row[i % 3], depth, n_prefill);
            assert_in_range(n_prefill, step % (CL_PACE_MOST_MIXED + 1) == 0 ? 0 : CL_PACE_MIN_ROWS, MAX_ROWS - 16);
            if (step > 12 && n_prefill > 0) {
                assert_true(s < 0.05 * 1.1);
                if (n_prefill < MAX_ROWS - 16) assert_true(s > 0.05 * 0.8);
            }
            cl_pace_learn(&p, s, 16, 1, n_prefill);
            depth += n_prefill;
        }
    }
}

/* A row behind 16384 tokens takes a fifth of what 16 choices take to decode: steps have one, or two now and then. */
static void deep_rows_are_few(void **state) {
    (void)state;
    cl_pace p;
    cl_pace_init(&p, 0.02, MAX_ROWS);
    int n_computed = 0;
    for (int step = 0; step < 200; step++) {
        const int32_t n_prefill = cl_pace_rows(&p, 16, 1) - 16;
        if (step > 12) assert_in_range(n_prefill, 0, 2);
        cl_pace_learn(&p, 0.016 + 0.0032 * n_prefill, 16, 1, n_prefill);
        n_computed += n_prefill;
    }
    assert_in_range(n_computed, 200, 400);
}

/*
 * A target that decoding alone exceeds: steps take a quarter more than decoding does, also after that has doubled, and one step
 * in 33 has no prefill. From one row the number grows again when rows get cheap.
 */
static void decoding_exceeds_the_target(void **state) {
    (void)state;
    cl_pace p;
    cl_pace_init(&p, 0.02, MAX_ROWS);
    for (int phase = 0; phase < 3; phase++) {
        const double decode_s = phase == 1 ? 0.06 : 0.03, row_s = phase == 1 ? 0.02 : 0.0002;
        int n_without = 0;
        for (int step = 0; step < 330; step++) {
            const int32_t n_prefill = cl_pace_rows(&p, 16, 1) - 16;
            const double s = decode_s + row_s * n_prefill;
            n_without += n_prefill == 0;
            if (step > 250 && n_prefill > 1) assert_true(s > decode_s * 1.2 && s < decode_s * 1.3);
            if (step > 250 && phase != 1) assert_in_range(n_prefill, n_prefill == 0 ? 0 : 30, 45);
            if (step > 250 && phase == 1) assert_in_range(n_prefill, 0, 1);
            cl_pace_learn(&p, s, 16, 1, n_prefill);
        }
        assert_in_range(n_without, 9, 10);
    }
}

/* Without a target or without choices that decode, steps are as large as they may be. */
static void no_target_no_limit(void **state) {
    (void)state;
    cl_pace p;
    cl_pace_init(&p, 0, MAX_ROWS);
    cl_pace_learn(&p, 10, 4, 1, 100);
    assert_int_equal(cl_pace_rows(&p, 4, 1), MAX_ROWS);
    cl_pace_init(&p, 0.01, MAX_ROWS);
    cl_pace_learn(&p, 10, 0, 1, 100);
    assert_int_equal(cl_pace_rows(&p, 0, 1), MAX_ROWS);
    cl_pace_learn(&p, 0.001, 4, 1, 0);
    assert_true(cl_pace_rows(&p, 4, 1) < 100);
}

/*
 * By default each prompt adds twice what decoding takes, however many choices there are: when their number changes, one step is
 * timed without prefill, and the next ones have about as many rows as they may. When the number of prompts changes, the next
 * step has them at once.
 */
static void by_default_decoding_is_the_measure(void **state) {
    (void)state;
    static const struct {
        int32_t n_decoding, n_prompts;
    } phases[] = {{1, 1}, {16, 1}, {3, 1}, {32, 1}, {32, 5}, {32, 2}, {1, 1}};
    cl_pace p;
    cl_pace_init(&p, -1, 10 * MAX_ROWS);
    for (size_t phase = 0, step = 0; phase < sizeof phases / sizeof *phases; phase++) {
        const int32_t n = phases[phase].n_decoding, n_prompts = phases[phase].n_prompts;
        const double decode_s = step_s(0.004, 0.0005, 0, n), added_s = 2 * n_prompts * decode_s;
        if (phase == 0 || n != phases[phase - 1].n_decoding) step = 0;
        for (const size_t end = step + 100; step < end; step++) {
            const int32_t n_prefill = cl_pace_rows(&p, n, n_prompts) - n;
            const double s = 0.0003 * n_prefill;
            assert_true(step % (CL_PACE_MOST_MIXED + 1) == 0 ? n_prefill == 0 : n_prefill > 0);
            assert_true(s < 1.5 * added_s);
            if (step > 10 && n_prefill > 0) assert_true(s > 0.9 * added_s && s < 1.05 * added_s);
            cl_pace_learn(&p, decode_s + s, n, n_prompts, n_prefill);
        }
    }
}

/* A step of 16 choices beside a prompt. Returns the prompt's rows. */
static int32_t take_step(cl_pace *p) {
    const int32_t n_prefill = cl_pace_rows(p, 16, 1) - 16;
    cl_pace_learn(p, step_s(0.004, 0.0005, 0, 16) + 0.0003 * n_prefill, 16, 1, n_prefill);
    return n_prefill;
}

/* The choices end one after the other, and as many come at once: a prompt has about as many rows beside these as beside the
 * first. */
static void choices_that_end_slowly_leave_no_rows(void **state) {
    (void)state;
    static const double targets[] = {-1, 0.04};
    for (int i = 0; i < 2; i++) {
        cl_pace p;
        cl_pace_init(&p, targets[i], MAX_ROWS);
        int32_t before = 0;
        for (int step = 0; step < 30; step++) before = take_step(&p);
        for (int32_t n = 16; n > 0; n--) cl_pace_learn(&p, step_s(0.004, 0.0005, 0, n), n, 1, 0);
        assert_int_equal(take_step(&p), 0); /* decoding is timed */
        assert_in_range(take_step(&p), before * 9 / 10, before * 11 / 10);
    }
}

/* A time that is set is that of any number of prompts. */
static void a_target_holds_for_all_prompts(void **state) {
    (void)state;
    cl_pace p;
    cl_pace_init(&p, 0.05, MAX_ROWS);
    for (int step = 0; step < 100; step++) {
        const int32_t n_prefill = cl_pace_rows(&p, 4, 8) - 4;
        const double s = step_s(0.01, 0.0002, 0, n_prefill);
        assert_true(s < 0.051);
        cl_pace_learn(&p, s, 4, 8, n_prefill);
    }
    assert_in_range(cl_pace_rows(&p, 4, 8), 180, 204);
}

/* A target that no step can keep leaves the smallest number of rows; one slow step is forgotten after a few. */
static void prefill_always_progresses(void **state) {
    (void)state;
    cl_pace p;
    cl_pace_init(&p, 0.001, MAX_ROWS);
    for (int i = 0; i < 20; i++) {
        const int32_t n_prefill = cl_pace_rows(&p, 4, 1) - 4;
        cl_pace_learn(&p, n_prefill > 0 ? 1 : 0.1, 4, 1, n_prefill);
    }
    assert_int_equal(cl_pace_rows(&p, 4, 1), 4 + CL_PACE_MIN_ROWS);
    cl_pace_init(&p, 0.05, MAX_ROWS);
    for (int i = 0; i < 30; i++)
        cl_pace_learn(&p, i == 20 ? 5 : step_s(0.01, 0.0002, 0, cl_pace_rows(&p, 4, 1)), 4, 1, cl_pace_rows(&p, 4, 1) - 4);
    assert_in_range(cl_pace_rows(&p, 4, 1), 180, 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_the_target),          cmocka_unit_test(deep_rows_are_few),
        cmocka_unit_test(decoding_exceeds_the_target),    cmocka_unit_test(no_target_no_limit),
        cmocka_unit_test(prefill_always_progresses),      cmocka_unit_test(by_default_decoding_is_the_measure),
        cmocka_unit_test(a_target_holds_for_all_prompts), cmocka_unit_test(choices_that_end_slowly_leave_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

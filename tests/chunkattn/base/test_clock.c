/* Timed waits end when they must, also if the time of day changes meanwhile: it is an hour ahead when they begin. */
#include "tests/support/testing.h"

#include <errno.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    const int failed = __real_clock_gettime(clock, t);
    if (clock == CLOCK_REALTIME) t->tv_sec += 3600;
    return failed;
}

static void waits_do_not_follow_the_time_of_day(void **state) {
    (void)state;
    alarm(600); /* a wait of an hour fails */
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed;
    clock_cond_init(&changed);
    pthread_mutex_lock(&lock);
    static const double waits[] = {0, 0.05, 1.0 / 3};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        const double start = clock_seconds();
        const struct timespec until = clock_deadline(waits[i]);
        assert_in_range(until.tv_nsec, 0, 999999999);
        int result;
        do result = pthread_cond_timedwait(&changed, &lock, &until);
        while (result == 0);
        assert_int_equal(result, ETIMEDOUT);
        assert_true(clock_seconds() - start >= waits[i] - 1e-6);
    }
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&changed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits_do_not_follow_the_time_of_day)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

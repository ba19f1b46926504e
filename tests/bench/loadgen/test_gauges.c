/* Peaks from the /metrics pages of several servers. */
#include "tests/support/testing.h"

#include "bench/loadgen/gauges.h"

static void test_polled_peak(void **state) {
    (void)state;
    load_gauges g = {0};
    load_gauges_update(&g,
                       "# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine=\"0\",model_name=\"a }b\"} 3.0\n"
                       "vllm:num_requests_running{engine=\"1\"} 4\nvllm:num_requests_running_total 99\n"
                       "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25");
    load_gauges_update(&g, "vllm:num_requests_running{engine=\"0\"} 2\n");
    assert_true(g.known[LOAD_GAUGE_BATCH] && g.peak[LOAD_GAUGE_BATCH] == 7);
    assert_true(g.known[LOAD_GAUGE_KV_USAGE] && g.peak[LOAD_GAUGE_KV_USAGE] == 0.25);
    assert_false(g.known[LOAD_GAUGE_KV_BYTES]);
}

static void test_other_names(void **state) {
    (void)state;
    load_gauges g = {0};
    load_gauges_update(&g, "llamacpp:requests_processing 5\nllamacpp:requests_deferred 2\n");
    assert_true(g.peak[LOAD_GAUGE_BATCH] == 5 && g.peak[LOAD_GAUGE_WAITING] == 2);
}

/* A peak since the server's start is older than this run unless it rises during the run. */
static void test_own_peak(void **state) {
    (void)state;
    load_gauges g = {0};
    load_gauges_update(&g, "chunkattn_kv_bytes_live{m=\"x\"} 10\nchunkattn_kv_bytes_live_peak{m=\"x\"} 500\n");
    assert_true(g.peak[LOAD_GAUGE_KV_BYTES] == 10);
    load_gauges_update(&g, "chunkattn_kv_bytes_live{m=\"x\"} 20\nchunkattn_kv_bytes_live_peak{m=\"x\"} 500\n");
    assert_true(g.peak[LOAD_GAUGE_KV_BYTES] == 20);
    load_gauges_update(&g, "chunkattn_kv_bytes_live{m=\"x\"} 5\nchunkattn_kv_bytes_live_peak{m=\"x\"} 700\n");
    assert_true(g.peak[LOAD_GAUGE_KV_BYTES] == 700);
}

/* Only finite numbers count, and only those of the sample's own line. */
static void test_no_numbers(void **state) {
    (void)state;
    load_gauges g = {0};
    load_gauges_update(&g, "vllm:num_requests_running NaN\nvllm:num_requests_waiting \n7777 1\nvllm:kv_cache_usage_perc +Inf\n"
                           "chunkattn_kv_bytes_live 1e308\nchunkattn_kv_bytes_live 1e308\nchunkattn_kv_bytes_unshared \r\n 5");
    assert_false(g.known[LOAD_GAUGE_BATCH] || g.known[LOAD_GAUGE_WAITING] || g.known[LOAD_GAUGE_KV_USAGE] ||
                 g.known[LOAD_GAUGE_KV_BYTES_UNSHARED]);
    assert_true(g.peak[LOAD_GAUGE_KV_BYTES] == 1e308);
    load_gauges_update(&g, "vllm:num_requests_running{a=\"1\"} nan\nvllm:num_requests_running{a=\"2\"} 3\n"
                           "vllm:num_requests_waiting x\nvllm:num_requests_waiting");
    assert_true(g.peak[LOAD_GAUGE_BATCH] == 3);
    assert_false(g.known[LOAD_GAUGE_WAITING]);
}

static void test_nothing(void **state) {
    (void)state;
    load_gauges g = {0};
    load_gauges_update(&g, "");
    load_gauges_update(&g, "<html>\n\n");
    for (load_gauge i = 0; i < N_LOAD_GAUGES; i++) assert_false(g.known[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_polled_peak), cmocka_unit_test(test_other_names),
                                       cmocka_unit_test(test_own_peak), cmocka_unit_test(test_no_numbers),
                                       cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

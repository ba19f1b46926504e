/* The device side of the interface: a request that cannot be served says what is missing, and changes nothing. */
#define CATTN_EXPERIMENTAL
#include "tests/support/status.h"

#include <string.h>

#include "chunkattn/cuda/runtime.h"
#include "chunkattn_cuda.h"

static cattn_config small(void) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = 1;
    c.head_dim = 64;
    c.n_threads = 1;
    c.budget_bytes = (uint64_t)16 << 20;
    return c;
}

static void caches_are_on_the_cpu_by_default(void **state) {
    (void)state;
    const cattn_config config = small();
    assert_null(config.cuda);
    cattn_cache *cache;
    assert_int_equal(cattn_cache_create(&config, &cache, NULL), CATTN_OK);
    cattn_cache_destroy(&cache);
}

static void a_device_that_is_not_there_is_refused(void **state) {
    (void)state;
    cattn_config config = small();
    cattn_cache *cache = (cattn_cache *)&config;
    cattn_error error = {0};
    int32_t n = -1;
    cattn_cuda_config cuda = {.device = -2};
    config.cuda = &cuda;
    expect(cattn_cache_create(&config, &cache, &error), CATTN_ERR_ARG, &error, "cuda->device is -2");
    assert_null(cache);
    const cattn_status counted = cattn_cuda_device_count(&n, &error);
    cuda.device = n;
    if (!ca_cuda_get())
        expect(counted, CATTN_ERR_UNSUPPORTED, &error, "-DCATTN_CUDA=ON");
    else if (n == 0)
        expect(counted, CATTN_ERR_UNSUPPORTED, &error, "nvidia-smi");
    else
        assert_int_equal(counted, CATTN_OK);
    const cattn_status missing = n > 0 ? CATTN_ERR_ARG : CATTN_ERR_UNSUPPORTED;
    cattn_error created = {0};
    expect(cattn_cache_create(&config, &cache, &created), missing, &created, n > 0 ? "must be from 0" : error.message);
    assert_null(cache);
}

static void devices_are_described(void **state) {
    (void)state;
    int32_t n;
    cattn_error error = {0};
    cattn_cuda_device_info info = {.struct_size = 1};
    expect(cattn_cuda_device_count(NULL, &error), CATTN_ERR_ARG, &error, "n is NULL");
    expect(cattn_cuda_device_get_info(0, NULL, &error), CATTN_ERR_ARG, &error, "info is NULL");
    expect(cattn_cuda_device_get_info(0, &info, &error), CATTN_ERR_ARG, &error, "struct_size");
    info.struct_size = sizeof info;
    if (cattn_cuda_device_count(&n, &error)) {
        assert_int_equal(cattn_cuda_device_get_info(0, &info, &error), CATTN_ERR_UNSUPPORTED);
        assert_int_equal(info.major, 0);
        return;
    }
    assert_int_equal(cattn_cuda_device_get_info(n - 1, &info, &error), CATTN_OK);
    assert_true(info.major > 0 && info.n_processors > 0 && info.memory_bytes > 0 && info.name[0]);
    assert_int_equal(cattn_cuda_device_get_info(n, &info, &error), CATTN_ERR_ARG);
}

static void steps_on_the_device_need_a_cache_there(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *cache;
    cattn_error error = {0};
    assert_int_equal(cattn_cache_create(&config, &cache, NULL), CATTN_OK);
    expect(cattn_cuda_step_begin(NULL, NULL, 0, 0, NULL, NULL, &error), CATTN_ERR_ARG, &error, "cache is NULL");
    expect(cattn_cuda_step_begin(cache, NULL, 0, 0, NULL, NULL, &error), CATTN_ERR_ARG, &error, "on the CPU");
    expect(cattn_cuda_step_write(cache, 0, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "on the CPU");
    expect(cattn_cuda_step_attend(cache, 0, NULL, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "on the CPU");
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_are_on_the_cpu_by_default),
        cmocka_unit_test(a_device_that_is_not_there_is_refused),
        cmocka_unit_test(devices_are_described),
        cmocka_unit_test(steps_on_the_device_need_a_cache_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

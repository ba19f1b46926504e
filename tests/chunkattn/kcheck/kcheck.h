/* kcheck: compares every kernel level of this CPU with the reference in double and with itself, and measures it. */
#ifndef TESTS_CHUNKATTN_KCHECK_KCHECK_H
#define TESTS_CHUNKATTN_KCHECK_KCHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkattn/attn/head_sizes.h"
#include "chunkattn/attn/kernels.h"
#include "chunkattn/cache/layout.h"
#include "tests/support/rng.h"

extern const char *const type_names[CA_N_TYPES];

static inline bool rng_one_in(rng *r, int32_t n) { return rng_below(r, n) == 0; }

/* Memory, aligned to 64 bytes, between two patterns that guard_check compares. The program ends if there is none. */
void *guard_new(size_t bytes);
bool guard_check(const void *p);
void guard_free(void *p);

ca_layout layout_of(cattn_type type, int32_t d_k, int32_t d_v, int32_t c);

/* Check every `every`-th case of one level's kernel, or only case `only` if it is not negative. Prints the first failure. */
bool check_kernel(const ca_kernel *kernel, uint64_t seed, int32_t every, int32_t only);

/* Check how the level writes K and V, and converts between f32 and f16 or bf16. */
bool check_write(const ca_kernel *kernel, uint64_t seed);

/* Time a level's kernel on heads of a size; 0: of 64 and of 128. */
void bench_kernel(const ca_kernel *kernel, int32_t head_dim);

/* Measure the constants of the cost model (ca_kernel.chunk_cost), and print them with those of the kernel table. */
void measure_costs(const ca_kernel *kernel);

/* Measured peak of the instruction with which a level multiplies, on one core; 0 if not known. */
double peak_gflops(const char *level, cattn_type kv_type);

#endif

/* Random rows without a generator in the way: windows of one table, so that filling gigabytes costs hardly more than copying.
 */
#include "method.h"

enum { TABLE_BITS = 16 };

static float table[(1 << TABLE_BITS) + METHOD_MAX_ROW];

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void method_rows_init(void) {
    for (int i = 0; i < (1 << TABLE_BITS) + METHOD_MAX_ROW; i++) table[i] = 0x1p-31f * (float)(int32_t)mix((uint64_t)i + 1);
}

const float *method_kv_row(int32_t layer, int32_t run, int64_t position, int v) {
    const uint64_t row = mix(mix(mix((uint64_t)run) + (uint64_t)position) + (uint64_t)layer * 2 + (uint64_t)v);
    return table + (row & ((1 << TABLE_BITS) - 1));
}

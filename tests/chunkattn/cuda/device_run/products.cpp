/*
 * What chunkattn/cuda/products.cuh finds, over many tiles and for each way.
 *
 *   products [TILES [SPOILED]]   tiles of each type; SPOILED: one sum of this way is changed, to see that it is found
 *
 * Prints a line for each type and way: sums, those that differ from the first way's, and where one of them is. Exits with 1 if
 * the ways by mma differ.
 */
#include <cstdio>
#include <cstdlib>

#include "chunkattn/cuda/primitives.h"
#include "chunkattn/cuda/products.h"
#include "tests/chunkattn/cuda/kernels/machine.h"

namespace {

int columns_of(int way) { return way < CA_PRODUCT_BY_WGMMA ? CA_PRODUCT_COLUMNS : 32 << (way - CA_PRODUCT_BY_WGMMA) % 4; }

std::string name_of(int way) {
    static const char *const by_mma[] = {"mma, rows as A", "mma, rows as A in other places", "mma, rows as B"};
    if (way < CA_PRODUCT_BY_WGMMA) return by_mma[way];
    const int form = (way - CA_PRODUCT_BY_WGMMA) / 4;
    return "wgmma N " + std::to_string(columns_of(way)) + (form < 2 ? ", Y K-major" : ", Y MN-major") +
           (form % 2 ? ", X in registers" : ", X in shared memory");
}

ca_cuda_products compare(const std::string &type, bool by_wgmma, int n_tiles, int spoiled) {
    machine::owner memory;
    const int n_blocks = std::min(n_tiles, 2 * machine::open().n_processors);
    const ca_cuda_products_args a = {memory.array(std::vector<ca_cuda_products>(1)),
                                     memory.unset<float>((size_t)n_blocks * CA_PRODUCT_SUMS), n_tiles, spoiled};
    machine::launch(*machine::find((by_wgmma ? "products_wgmma_" : "products_") + type), n_blocks, &a);
    ca_cuda_products found;
    machine::from_device(&found, a.found, sizeof found);
    return found;
}

void print_way(const std::string &type, int way, int n_tiles, const ca_cuda_products &found) {
    const double sums = (double)n_tiles * CA_PRODUCT_STEPS * CA_PRODUCT_ROWS * columns_of(way);
    printf("%s\t%s\t%.0f\t%u", type.c_str(), name_of(way).c_str(), sums, found.n_differ[way]);
    const ca_cuda_difference &d = found.first[way];
    if (found.n_differ[way])
        printf("\ttile %d, step %d, row %d, column %d: %a, not %a", d.tile, d.step, d.row, d.column, (double)d.got,
               (double)d.want);
    printf("\n");
}

} // namespace

int main(int argc, char **argv) {
    const int n_tiles = argc > 1 ? atoi(argv[1]) : machine::open().emulated ? 4 : 2048;
    const int spoiled = argc > 2 ? atoi(argv[2]) : -1;
    const bool has_wgmma = machine::open().sm == 90; /* other devices have none */
    bool by_mma = true, by_wgmma = true;
    printf("type\tway\tsums\tdiffer\tone of them\n");
    for (const std::string type : {"bf16", "f16"}) {
        const ca_cuda_products found = compare(type, has_wgmma, n_tiles, spoiled);
        for (int way = CA_PRODUCT_ROWS_MOVED; way < (has_wgmma ? CA_PRODUCT_WAYS : CA_PRODUCT_BY_WGMMA); way++) {
            print_way(type, way, n_tiles, found);
            (way < CA_PRODUCT_BY_WGMMA ? by_mma : by_wgmma) &= found.n_differ[way] == 0;
        }
    }
    printf("%s\n", by_mma ? "rows as A, rows as B: equal bits" : "FAILED: rows as A, rows as B: other bits");
    if (has_wgmma) printf("mma, wgmma: %s bits\n", by_wgmma ? "equal" : "other");
    return !by_mma;
}

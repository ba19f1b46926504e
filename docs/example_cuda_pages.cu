/* An engine with pages of its own on a CUDA device: four sequences share a prefix, which each decode step reads once. */
#define CATTN_EXPERIMENTAL
#include <chunkattn_cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 128, STEPS = 100 };
enum { PAGE = 16, SEQS = 4, COMMON = 64, OWN = 16, PAGES = COMMON + SEQS * OWN }; /* COMMON, OWN and PAGES in pages */
static cattn_error error;

static void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(status == CATTN_ERR_UNSUPPORTED ? 77 : 1);
}

/* Elements of bf16 on the device, which a model's kernels would write; here zeros. */
static void *tensor(size_t elements) {
    void *data = nullptr;
    if (cudaMalloc(&data, elements * 2) || cudaMemset(data, 0, elements * 2)) exit(1);
    return data;
}

int main() {
    const cattn_cuda_config device = {0}; /* the first */
    cattn_pages_config config;
    cattn_pages_config_init(&config);
    config.common.n_heads = HEADS, config.common.n_kv_heads = KV_HEADS, config.common.head_dim = DIM;
    config.page_size = PAGE, config.n_pages = PAGES, config.common.cuda = &device;
    cattn_pages *pages;
    check(cattn_pages_create(&config, &pages, &error));
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    const cattn_view q = {tensor(SEQS * HEADS * DIM), CATTN_BF16, HEADS * DIM, DIM};
    const cattn_view out = {tensor(SEQS * HEADS * DIM), CATTN_BF16, HEADS * DIM, DIM};
    void *kv = tensor(2 * PAGES * PAGE * KV_HEADS * DIM); /* of a layer: [K, V][page][slot][head][DIM] as vLLM has it */
    cattn_page_view k, v;
    check(cattn_pages_views(pages, 0, CATTN_PAGES_VLLM, kv, PAGES, &k, &v, &error));

    /* The engine's allocator: COMMON pages hold the common prefix, and each sequence has OWN pages behind them. */
    int32_t block_table[SEQS][COMMON + OWN], seq_lens[SEQS];
    for (int s = 0; s < SEQS; s++)
        for (int i = 0; i < COMMON + OWN; i++) block_table[s][i] = i < COMMON ? i : i + s * OWN;
    cattn_pages_batch batch = {};
    batch.struct_size = sizeof batch, batch.n_seqs = SEQS;
    batch.page_ids = block_table[0], batch.page_stride = COMMON + OWN, batch.seq_lens = seq_lens;
    for (int step = 0; step < STEPS; step++) {
        for (int s = 0; s < SEQS; s++) seq_lens[s] = COMMON * PAGE + 1 + step;
        uint64_t graph; /* steps with the same number may replay a captured graph, as in example_cuda.cu */
        check(cattn_cuda_pages_plan(pages, &batch, stream, &graph, &error));
        check(cattn_cuda_pages_attend(pages, 0, &k, &v, &q, &out, nullptr, stream, &error)); /* in each layer */
    }
    if (cudaStreamSynchronize(stream) != cudaSuccess) return 1;
    printf("%d decode steps\n", STEPS);
    cattn_pages_destroy(&pages);
}

/* Decoding on a CUDA device: four prompts share a prefix; decode steps of a layer are captured once and replayed. */
#define CATTN_EXPERIMENTAL
#include <chunkattn_cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <map>

enum { HEADS = 8, KV_HEADS = 2, DIM = 128, SEQS = 4, COMMON = 1000, PROMPT = 1020, STEPS = 100, MAX_ROWS = SEQS * PROMPT };
static cattn_error error;

static void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(status == CATTN_ERR_UNSUPPORTED ? 77 : 1);
}

/* A tensor [rows][heads][DIM] in bf16 on the device, which a model's kernels would write; here zeros. */
static cattn_view tensor(int heads) {
    void *data = nullptr;
    const size_t bytes = (size_t)MAX_ROWS * heads * DIM * 2;
    if (cudaMalloc(&data, bytes) || cudaMemset(data, 0, bytes)) exit(1);
    return {data, CATTN_BF16, heads * DIM, DIM};
}

int main() {
    const cattn_cuda_config device = {0}; /* the first */
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = 1, config.n_heads = HEADS, config.n_kv_heads = KV_HEADS, config.head_dim = DIM, config.cuda = &device;
    cattn_cache *cache;
    check(cattn_cache_create(&config, &cache, &error));
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    const cattn_view k = tensor(KV_HEADS), v = tensor(KV_HEADS), q = tensor(HEADS), out = tensor(HEADS);

    cattn_entry batch[SEQS] = {};
    for (int s = 0; s < SEQS; s++) {
        int32_t prompt[PROMPT];
        for (int i = 0; i < PROMPT; i++) prompt[i] = i < COMMON ? i : 5000 + 100 * s + i;
        batch[s].max_rows = PROMPT;
        check(cattn_seq_join(cache, prompt, PROMPT, nullptr, &batch[s].seq, nullptr, &error));
    }
    std::map<uint64_t, cudaGraphExec_t> graphs; /* by what the steps launch */
    for (int step = 0; step <= STEPS; step++) { /* the first one is prefill */
        uint64_t graph;
        check(cattn_cuda_step_begin(cache, batch, SEQS, 0, stream, &graph, &error));
        if (!graphs.count(graph)) {
            cudaGraph_t captured;
            cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
            check(cattn_cuda_step_write(cache, 0, &k, &v, stream, &error)); /* a model's own kernels would be captured, too */
            check(cattn_cuda_step_attend(cache, 0, &q, &out, nullptr, stream, &error));
            cudaStreamEndCapture(stream, &captured);
            cudaGraphInstantiateWithFlags(&graphs[graph], captured, 0);
            cudaGraphDestroy(captured);
        }
        cudaGraphLaunch(graphs[graph], stream);
        check(cattn_step_end(cache, &error));
        for (int s = 0; s < SEQS; s++) {
            const int32_t token = 7000 + 100 * s + step; /* a sampler takes it from the logits of the sequence's last row */
            check(cattn_seq_append(cache, batch[s].seq, &token, 1, &error));
        }
    }
    if (cudaStreamSynchronize(stream) != cudaSuccess) return 1;
    printf("%d decode steps with %zu graphs\n", STEPS, graphs.size());
    cattn_cache_destroy(&cache);
}

/* The flags of other programs, llama-server, vLLM and SGLang, and what takes their place here. */
#include <string.h>

#include "options.h"

/* The flag is another name of our option. */
#define ALIAS(flag, option)                                                                                                    \
    { flag, option, NULL, NULL, PEER_VALUE }
/* The flag asks for what always holds here. */
#define ALWAYS(flag)                                                                                                           \
    { flag, NULL, NULL, NULL, PEER_FLAG }
/* The flag asks for what always holds here if its value is one of `holds`; otherwise `answer` says what to do. */
#define HOLDS(flag, holds, answer)                                                                                             \
    { flag, NULL, holds, answer, PEER_VALUE }
/* Nothing here means the same; `answer` says what comes closest. */
#define ANSWER(flag, answer)                                                                                                   \
    { flag, NULL, NULL, answer, PEER_VALUE }

static const char cpu_only[] = "the model runs on the CPU; leave it out";
static const char one_process[] = "one process computes the whole model; start a server for each machine, or leave it out";
static const char budget[] = "use --kv-budget, the memory for keys and values in bytes, such as 8G";
static const char step_rows[] = "use --max-step-rows, the largest number of tokens computed in one step";
static const char kv_type[] = "use --kv-type, of keys and values alike: f32, f16, bf16 or int8";
static const char tier[] = "use --kv-tier, a folder for K/V that memory does not hold, and --kv-tier-size";
static const char replies[] = "the form of tool calls and reasoning is found in the chat template; leave it out";
static const char drafts[] = "use --speculate and --draft-model";
static const char one_file[] = "all of the model is in the file or folder of --model; download it, and leave this out";
static const char all_threads[] = "use --threads, for prompts and answers alike";
static const char weights[] = "the types of the weights are those of the model's file; leave it out";
static const char sharing[] = "use --sharing private and --retention none";
static const char grammars[] = "grammars are compiled by llguidance, whose file --grammar-library names; leave it out";
static const char pinning[] = "use --pin-threads; limit the CPUs with taskset or the control group";
static const char segment[] = "use --prefill-segment, the largest number of prompt tokens of a sequence in a step";
static const char origin[] = "use --cors-origin, one origin or *";
static const char key_password[] = "write a key without a password by 'openssl pkey -in FILE -out NEW', and leave it out";
static const char client_certs[] = "clients show who they are by API keys, not by certificates; leave it out";
static const char kernels[] = "use --level, the highest kernel level, such as avx2";

const peer_option peer_options[] = {
    /* The model */
    ALIAS("--model-path", "model"),
    ALIAS("--chunks", "passages"),
    ALIAS("-a", "model-name"),
    ALIAS("--alias", "model-name"),
    {"--served-model-name", "model-name", NULL, NULL, PEER_WORDS},
    ANSWER("-hf", one_file),
    ANSWER("--hf-repo", one_file),
    ANSWER("-mu", one_file),
    ANSWER("--model-url", one_file),
    ANSWER("--tokenizer", one_file),
    ANSWER("--tokenizer-path", one_file),
    ANSWER("--revision", one_file),
    ANSWER("--download-dir", one_file),
    HOLDS("--load-format", "auto gguf safetensors", one_file),
    HOLDS("--dtype", "auto", weights),
    ANSWER("--quantization", weights),
    ALWAYS("--trust-remote-code"),

    /* Sizes */
    ALIAS("--ctx-size", "ctx"),
    ALIAS("--max-model-len", "ctx"),
    ALIAS("--context-length", "ctx"),
    ALIAS("-np", "max-seqs"),
    ALIAS("--parallel", "max-seqs"),
    ALIAS("--max-num-seqs", "max-seqs"),
    ALIAS("--max-running-requests", "max-seqs"),
    ANSWER("-b", step_rows),
    ANSWER("--batch-size", step_rows),
    ANSWER("-ub", step_rows),
    ANSWER("--ubatch-size", step_rows),
    ANSWER("--max-num-batched-tokens", step_rows),
    ANSWER("--max-prefill-tokens", step_rows),
    ANSWER("--chunked-prefill-size", segment),
    ANSWER("--long-prefill-token-threshold", segment),
    ALWAYS("--enable-chunked-prefill"),
    ALWAYS("-cb"),
    ALWAYS("--cont-batching"),
    ALWAYS("--async-scheduling"),

    /* Keys and values */
    ALIAS("--block-size", "chunk-size"),
    ALIAS("--page-size", "chunk-size"),
    ALIAS("--kv-cache-memory-bytes", "kv-budget"),
    ANSWER("--gpu-memory-utilization", budget),
    ANSWER("--mem-fraction-static", budget),
    ANSWER("--max-total-tokens", budget),
    ANSWER("--num-gpu-blocks-override", budget),
    ANSWER("-ctk", kv_type),
    ANSWER("--cache-type-k", kv_type),
    ANSWER("-ctv", kv_type),
    ANSWER("--cache-type-v", kv_type),
    HOLDS("--kv-cache-dtype", "auto", kv_type),
    HOLDS("--swap-space", "0", tier),
    HOLDS("--cpu-offload-gb", "0", tier),
    ANSWER("--slot-save-path", tier),
    {"--enable-hierarchical-cache", NULL, NULL, tier, PEER_FLAG},
    ALWAYS("--enable-prefix-caching"),
    ALWAYS("--cache-prompt"),
    {"--no-enable-prefix-caching", NULL, NULL, sharing, PEER_FLAG},
    {"--no-cache-prompt", NULL, NULL, sharing, PEER_FLAG},
    {"--disable-radix-cache", NULL, NULL, sharing, PEER_FLAG},

    /* The machine */
    ALIAS("-t", "threads"),
    ANSWER("-tb", all_threads),
    ANSWER("--threads-batch", all_threads),
    HOLDS("-ngl", "0", cpu_only),
    HOLDS("--gpu-layers", "0", cpu_only),
    HOLDS("--n-gpu-layers", "0", cpu_only),
    HOLDS("--device", "cpu none", cpu_only),
    HOLDS("--split-mode", "none", cpu_only),
    HOLDS("-tp", "1", one_process),
    HOLDS("--tp", "1", one_process),
    HOLDS("--tp-size", "1", one_process),
    HOLDS("--tensor-parallel-size", "1", one_process),
    HOLDS("-pp", "1", one_process),
    HOLDS("--pp-size", "1", one_process),
    HOLDS("--pipeline-parallel-size", "1", one_process),
    HOLDS("-dp", "1", one_process),
    HOLDS("--dp", "1", one_process),
    HOLDS("--dp-size", "1", one_process),
    HOLDS("--data-parallel-size", "1", one_process),
    {"-fa", NULL, "on auto 1", "attention is always computed without a matrix of scores; leave it out", PEER_OPTIONAL},
    {"--flash-attn", NULL, "on auto 1", "attention is always computed without a matrix of scores; leave it out", PEER_OPTIONAL},
    ALWAYS("--enforce-eager"),
    ANSWER("--attention-backend", kernels),
    ANSWER("--numa", pinning),
    ANSWER("-C", pinning),
    ANSWER("--cpu-mask", pinning),
    ANSWER("--cpu-range", pinning),
    {"--mlock", NULL, NULL, "the weights are packed into memory of the process; limit other programs, or leave it out",
     PEER_FLAG},
    ALWAYS("--no-mmap"),

    /* Requests and answers */
    ALIAS("--api-key-file", "api-keys"),
    ALIAS("--uds", "unix-socket"),
    ALIAS("--ssl-cert-file", "tls-cert"),
    ALIAS("--ssl-certfile", "tls-cert"),
    ALIAS("--ssl-key-file", "tls-key"),
    ALIAS("--ssl-keyfile", "tls-key"),
    ANSWER("--ssl-keyfile-password", key_password),
    ANSWER("--ssl-ca-certs", client_certs),
    HOLDS("--ssl-cert-reqs", "0", client_certs),
    {"--enable-ssl-refresh", NULL, NULL, "send SIGHUP after a renewal; leave it out", PEER_FLAG},
    ANSWER("--allowed-origins", origin),
    {"--no-webui", "no-page", NULL, NULL, PEER_FLAG},
    ALWAYS("--webui"),
    ALWAYS("--metrics"),
    ALWAYS("--enable-metrics"),
    ALWAYS("--embedding"),
    ALWAYS("--embeddings"),
    ALWAYS("--jinja"),
    ALIAS("--chat-template-file", "chat-template"),
    ALIAS("--default-chat-template-kwargs", "chat-template-kwargs"),
    ALWAYS("--enable-auto-tool-choice"),
    ANSWER("--tool-call-parser", replies),
    ANSWER("--reasoning-parser", replies),
    ANSWER("--reasoning-format", replies),
    HOLDS("--grammar-backend", "llguidance", grammars),
    HOLDS("--guided-decoding-backend", "auto guidance", grammars),
    ALIAS("--predict", "max-tokens"),
    ALIAS("--n-predict", "max-tokens"),
    ALIAS("--temp", "temperature"),
    ALIAS("--repeat-penalty", "repetition-penalty"),
    ALIAS("-sys", "system"),
    ALIAS("--system-prompt", "system"),

    /* Drafts */
    ALIAS("-md", "draft-model"),
    ALIAS("--model-draft", "draft-model"),
    ALIAS("--speculative-draft-model-path", "draft-model"),
    ANSWER("--speculative-config", drafts),
    ANSWER("--speculative-algorithm", drafts),
    ANSWER("--draft", drafts),
    ANSWER("--draft-max", drafts),
};

const size_t n_peer_options = sizeof peer_options / sizeof *peer_options;

const peer_option *peer_find(const char *flag, size_t size) {
    for (size_t i = 0; i < n_peer_options; i++)
        if (strlen(peer_options[i].flag) == size && memcmp(peer_options[i].flag, flag, size) == 0) return &peer_options[i];
    return NULL;
}

bool peer_holds(const peer_option *peer, const char *value) {
    const size_t size = strlen(value);
    for (const char *at = peer->holds; at && *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (n == size && memcmp(at, value, n) == 0) return true;
        at += n;
    }
    return false;
}

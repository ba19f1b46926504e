/* The flags of other programs, llama-server, vLLM and SGLang, and what takes their place here. */
#include <string.h>

#include "options.h"

/* In all of these, `flags` are flags with the same meaning, separated by blanks. */
/* The flags are other names of our option. */
#define ALIAS(flags, option)                                                                                                   \
    { flags, option, NULL, NULL, PEER_VALUE }
/* The flags request what always holds here. */
#define ALWAYS(flags)                                                                                                          \
    { flags, NULL, NULL, NULL, PEER_FLAG }
/* The flags request what always holds here if the value is one of `holds`; otherwise `answer` says what to do. */
#define HOLDS(flags, holds, answer)                                                                                            \
    { flags, NULL, holds, answer, PEER_VALUE }
/* Nothing here means the same; `answer` says what comes closest. */
#define ANSWER(flags, answer)                                                                                                  \
    { flags, NULL, NULL, answer, PEER_VALUE }
/* The same for flags without a value. */
#define REFUSED(flags, answer)                                                                                                 \
    { flags, NULL, NULL, answer, PEER_FLAG }

static const char cpu_only[] = "the model runs on the CPU; leave it out";
static const char one_file[] = "all of the model is in the file or folder of --model; download it, and leave this out";
static const char weights[] = "the types of the weights are those of the model's file; leave it out";
static const char kv_type[] = "use --kv-type, of keys and values alike: f32, f16, bf16 or int8";
static const char tier[] = "use --kv-tier, a folder for K/V that memory does not hold, and --kv-tier-size";
static const char grammars[] = "grammars are compiled by llguidance, whose file --grammar-library names; leave it out";
static const char generation_config[] =
    "what the model's folder recommends is read from there; use --sampling-defaults openai for OpenAI's defaults";
static const char no_lora[] = "adapters are not supported; merge the adapter into the model's weights, and name that model";
static const char no_images[] = "only text is supported; leave it out";
static const char log_level[] = "use --log-level: debug, info, warn, error or off";
static const char rope[] = "the rotation is that of the model's file; leave it out";
static const char client_certs[] = "clients show who they are by API keys, not by certificates; leave it out";

static const peer_option peer_options[] = {
    ALWAYS("--trust-remote-code --enable-chunked-prefill -cb --cont-batching --async-scheduling --enable-prefix-caching "
           "--cache-prompt --enforce-eager --no-mmap --webui --metrics --enable-metrics --embedding --embeddings --jinja "
           "--enable-auto-tool-choice --slots --rerank --reranking"),

    /* The model */
    ALIAS("--model-path", "model"),
    ALIAS("--chunks", "passages"),
    ALIAS("-a --alias", "model-name"),
    {"--served-model-name", "model-name", NULL, NULL, PEER_WORDS},
    {"-hf -hfr --hf-repo", "model", NULL, one_file, PEER_HUB},
    {"-hff --hf-file", "model", NULL, one_file, PEER_HUB_FILE},
    {"-mu --model-url", "model", NULL, one_file, PEER_URL},
    {"-hfd -hfrd --hf-repo-draft", "draft-model", NULL, one_file, PEER_HUB},
    ANSWER("--tokenizer --tokenizer-path --revision --download-dir -dr --docker-repo", one_file),
    HOLDS("--load-format", "auto gguf safetensors", one_file),
    HOLDS("--dtype", "auto", weights),
    ANSWER("--quantization", weights),
    ANSWER("--lora --lora-scaled --lora-modules --lora-paths --max-loras --max-lora-rank --control-vector", no_lora),
    REFUSED("--enable-lora", no_lora),
    ANSWER("--mmproj --mmproj-url --limit-mm-per-prompt --media-path", no_images),
    ANSWER("--override-kv --hf-overrides", "change the model's file itself; leave it out"),
    ANSWER("--rope-scaling --rope-scale --rope-theta --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
           "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
           rope),

    /* Sizes */
    ALIAS("--ctx-size --max-model-len --context-length", "ctx"),
    ALIAS("-np --parallel --max-num-seqs --max-running-requests", "max-seqs"),
    ANSWER("-b --batch-size -ub --ubatch-size --max-num-batched-tokens --max-prefill-tokens",
           "use --max-step-rows, the largest number of tokens computed in one step"),
    ANSWER("--chunked-prefill-size --long-prefill-token-threshold",
           "use --prefill-segment, the largest number of prompt tokens of a sequence in a step"),

    /* Keys and values */
    ALIAS("--block-size --page-size", "chunk-size"),
    ALIAS("--kv-cache-memory-bytes", "kv-budget"),
    ANSWER("--gpu-memory-utilization --mem-fraction-static --max-total-tokens --num-gpu-blocks-override",
           "use --kv-budget, the memory for keys and values in bytes, such as 8G"),
    ANSWER("-ctk --cache-type-k -ctv --cache-type-v", kv_type),
    HOLDS("--kv-cache-dtype", "auto", kv_type),
    HOLDS("--swap-space --cpu-offload-gb", "0", tier),
    ANSWER("--slot-save-path", tier),
    REFUSED("--enable-hierarchical-cache", tier),
    REFUSED("--no-enable-prefix-caching --no-cache-prompt --disable-radix-cache", "use --sharing private and --retention none"),

    /* The machine */
    ALIAS("-t", "threads"),
    ANSWER("-tb --threads-batch", "use --threads, for prompts and answers alike"),
    HOLDS("-ngl --gpu-layers --n-gpu-layers", "0", cpu_only),
    HOLDS("--device", "cpu none", cpu_only),
    HOLDS("--split-mode", "none", cpu_only),
    HOLDS("-tp --tp --tp-size --tensor-parallel-size -pp --pp-size --pipeline-parallel-size -dp --dp --dp-size "
          "--data-parallel-size",
          "1", "one process computes the whole model; start a server for each machine, or leave it out"),
    {"-fa --flash-attn", NULL, "on auto 1", "attention is always computed without a matrix of scores; leave it out",
     PEER_OPTIONAL},
    ANSWER("--attention-backend", "use --level, the highest kernel level, such as avx2"),
    ANSWER("--numa -C --cpu-mask --cpu-range", "use --pin-threads; limit the CPUs with taskset or the control group"),
    REFUSED("--mlock", "the weights are packed into memory of the process; limit other programs, or leave it out"),

    /* Requests and answers */
    ALIAS("--api-key-file", "api-keys"),
    ALIAS("--uds", "unix-socket"),
    ALIAS("--ssl-cert-file --ssl-certfile", "tls-cert"),
    ALIAS("--ssl-key-file --ssl-keyfile", "tls-key"),
    ANSWER("--ssl-keyfile-password", "write a key without a password by 'openssl pkey -in FILE -out NEW', and leave it out"),
    ANSWER("--ssl-ca-certs", client_certs),
    HOLDS("--ssl-cert-reqs", "0", client_certs),
    REFUSED("--enable-ssl-refresh", "send SIGHUP after a renewal; leave it out"),
    ANSWER("--allowed-origins", "use --cors-origin, one origin or *"),
    {"--no-webui", "no-page", NULL, NULL, PEER_FLAG},
    ANSWER("--root-path --api-prefix", "let the proxy cut the path; the page and the endpoints need none. Leave it out"),
    REFUSED("--no-slots", "GET /slots is always there, and shows no prompts; leave it out"),
    REFUSED("--props", "GET /props is always there, and changes nothing; leave it out"),
    REFUSED("-v --verbose --log-verbose --log-disable", log_level),
    ANSWER("-lv --verbosity --log-verbosity --uvicorn-log-level", log_level),
    REFUSED("--disable-log-requests --disable-log-stats --no-enable-log-requests",
            "requests are logged at the level info; use --log-level warn"),
    REFUSED("--enable-log-requests --log-requests",
            "requests are logged at the level info; use --log-prompts to log prompts, too"),
    ANSWER("--log-file", "the log goes to standard error; redirect that to the file, and leave it out"),
    ALIAS("--chat-template-file", "chat-template"),
    ALIAS("--default-chat-template-kwargs", "chat-template-kwargs"),
    ANSWER("--tool-call-parser --reasoning-parser --reasoning-format",
           "the form of tool calls and reasoning is found in the chat template; leave it out"),
    HOLDS("--grammar-backend", "llguidance", grammars),
    HOLDS("--guided-decoding-backend", "auto guidance", grammars),
    ANSWER("--grammar --grammar-file", "grammars belong to requests: send the file's text in the field grammar; leave it out"),
    ALIAS("--predict --n-predict", "max-tokens"),
    HOLDS("--generation-config", "auto", generation_config),
    ANSWER("--override-generation-config", "use --temperature, --top-p, --top-k, --min-p and --repetition-penalty"),
    ALIAS("--temp", "temperature"),
    ALIAS("--repeat-penalty", "repetition-penalty"),
    ALIAS("-sys --system-prompt", "system"),
    ANSWER("-s", "use --seed, or --system for a system message"),

    /* Throughput */
    ALIAS("-npp", "pp"),
    ALIAS("-ntg", "tg"),
    ALIAS("-npl", "batch"),

    /* Drafts */
    ALIAS("-md --model-draft --speculative-draft-model-path", "draft-model"),
    ANSWER("--speculative-config --speculative-algorithm --draft --draft-max", "use --speculate and --draft-model"),
};

/* Whether a word [size] is one of `words`, which blanks separate. */
static bool has_word(const char *words, const char *word, size_t size) {
    for (; *words; words += strspn(words, " ")) {
        const size_t n = strcspn(words, " ");
        if (n == size && memcmp(words, word, n) == 0) return true;
        words += n;
    }
    return false;
}

const peer_option *peer_find(const char *flag, size_t size) {
    for (size_t i = 0; i < sizeof peer_options / sizeof *peer_options; i++)
        if (has_word(peer_options[i].flags, flag, size)) return &peer_options[i];
    return NULL;
}

bool peer_holds(const peer_option *peer, const char *value) {
    return peer->holds && has_word(peer->holds, value, strlen(value));
}

/* The flags of other programs, llama-server, vLLM and SGLang, and what takes their place here. */
#include "chunkllama/common/str.h"
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

static const char cpu_only[] = "all of the model runs where --device says; leave it out";
static const char one_file[] = "all of the model is in the file or folder of --model; download it, and leave this out";
static const char weights[] = "the types of the weights are those of the model's file; leave it out";
static const char kv_type[] = "use --kv-type, of keys and values alike: f32, f16, bf16, int8, or e4m3 on a CUDA device";
static const char tier[] = "use --kv-tier, a folder for K/V that memory does not hold, and --kv-tier-size";
static const char grammars[] = "grammars are compiled by llguidance, whose file --grammar-library names; leave it out";
static const char generation_config[] =
    "what the model's folder recommends is read from there; use --sampling-defaults openai for OpenAI's defaults";
static const char no_lora[] = "adapters are not supported; merge the adapter into the model's weights, and name that model";
static const char no_images[] = "only text is supported; leave it out";
static const char log_level[] = "use --log-level: debug, info, warn, error or off";
static const char rope[] = "the rotation is that of the model's file; leave it out";
static const char one_process[] = "one process computes the whole model; start a server for each machine, or leave it out";
static const char one_model[] = "a server has one model; start one for each, and leave it out";
static const char drafts[] = "use --speculate and --draft-model";
static const char samplers[] = "tokens are drawn by --temperature, --top-k, --top-p, --min-p and the penalties; leave it out";
static const char log_access[] = "requests are logged at the level info; use --log-level warn";
static const char log_form[] = "use --log-format: text or json";
static const char kv_budget[] = "use --kv-budget, the memory for keys and values in bytes, such as 8G";
static const char memory[] = "the weights are packed into memory of the process; limit other programs, or leave it out";
static const char whole_prefixes[] = "prompts share what they begin with, as long as --kv-budget has room; leave it out";
static const char context_end[] = "an answer ends where the context is full; leave it out";
static const char pinning[] = "use --pin-threads; limit the CPUs with taskset or the control group";
static const char conversation[] = "a conversation is what chunkllama chat is; use that, and leave it out";
static const char own_origin[] = "use --cors-origin, one origin or *";
static const char own_tools[] = "tools belong to requests, and clients run them; leave it out";
static const char client_certs[] = "clients show who they are by API keys, not by certificates; leave it out";

static const peer_option peer_options[] = {
    ALWAYS("--trust-remote-code --enable-chunked-prefill -cb --cont-batching --async-scheduling --enable-prefix-caching "
           "--cache-prompt --enforce-eager --no-mmap --webui --metrics --enable-metrics --embedding --embeddings --jinja "
           "--enable-auto-tool-choice --slots --rerank --reranking --is-embedding --ui --offline --repack --warmup --no-warmup "
           "--skip-server-warmup --no-context-shift --no-prefill-assistant --no-mmproj --no-mmproj-auto --no-mmproj-offload "
           "--no-op-offload -cmoe --cpu-moe -nkvo --no-kv-offload -kvu --kv-unified --cache-idle-slots --swa-full "
           "--no-display-prompt --no-escape --enable-reasoning --enable-prompt-tokens-details --enable-cache-report "
           "--enable-request-id-headers --enable-tokenizer-info-endpoint --disable-cuda-graph --enable-mixed-chunk "
           "--enable-deterministic-inference"),

    /* The model */
    ALIAS("--model-path", "model"),
    ALIAS("--chunks", "passages"),
    ALIAS("-a --alias", "model-name"),
    {"--served-model-name", "model-name", NULL, NULL, PEER_WORDS},
    {"-hf -hfr --hf-repo", "model", NULL, one_file, PEER_HUB},
    {"-hff --hf-file", "model", NULL, one_file, PEER_HUB_FILE},
    {"-mu --model-url", "model", NULL, one_file, PEER_URL},
    {"-hfd -hfrd --hf-repo-draft --spec-draft-hf", "draft-model", NULL, one_file, PEER_HUB},
    ANSWER("--tokenizer --tokenizer-path --revision --code-revision --tokenizer-revision --download-dir -dr --docker-repo -hft "
           "--hf-token",
           one_file),
    HOLDS("--tokenizer-mode --config-format --model-impl", "auto", one_file),
    ANSWER("--models-dir --models-preset --models-max", one_model),
    REFUSED("--models-autoload --no-models-autoload", one_model),
    HOLDS("--task --runner --convert", "auto generate embed embedding score none pooling",
          "a server generates, embeds and scores; models that classify or reward are not supported. Leave it out"),
    HOLDS("--load-format", "auto gguf safetensors", one_file),
    HOLDS("--dtype", "auto", weights),
    ANSWER("-q --quantization --torchao-config", weights),
    REFUSED("-nr --no-repack", "the weights are always packed for the CPU; leave it out"),
    REFUSED("--check-tensors", "the weights are not searched for NaN and infinity; leave it out"),
    ANSWER(
        "--lora --lora-scaled --lora-modules --lora-paths --max-loras --max-lora-rank --control-vector --control-vector-scaled "
        "--control-vector-layer-range",
        no_lora),
    REFUSED("--enable-lora --lora-init-without-apply", no_lora),
    ANSWER(
        "-mm --mmproj -mmu --mmproj-url --limit-mm-per-prompt --media-path --allowed-local-media-path --image --audio --video "
        "--image-min-tokens --image-max-tokens --mm-processor-kwargs -mv --model-vocoder -hfv -hfrv --hf-repo-v -hffv "
        "--hf-file-v",
        no_images),
    REFUSED("--mmproj-auto --mmproj-offload --enable-multimodal", no_images),
    ANSWER("--override-kv --hf-overrides", "change the model's file itself; leave it out"),
    ANSWER("--rope-scaling --rope-scale --rope-theta --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
           "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
           rope),
    REFUSED("--disable-sliding-window", "the windows are those of the model's file; leave it out"),
    ANSWER("-gan --grp-attn-n -gaw --grp-attn-w", rope),

    /* Sizes */
    ALIAS("--ctx-size --context-length", "ctx"),
    {"--max-model-len", "ctx", "auto -1", NULL, PEER_VALUE},
    ANSWER("-fit --fit -fitt --fit-target -fitc --fit-ctx", "use --kv-budget and --ctx, and leave it out"),
    ALIAS("-np --parallel --max-num-seqs --max-running-requests", "max-seqs"),
    ANSWER("-b --batch-size -ub --ubatch-size --max-num-batched-tokens --max-prefill-tokens",
           "use --max-step-rows, the largest number of tokens computed in one step"),
    ANSWER("--chunked-prefill-size --long-prefill-token-threshold",
           "use --prefill-segment, the largest number of prompt tokens of a sequence in a step"),
    REFUSED("--no-enable-chunked-prefill",
            "a prompt is computed in steps of at most --max-step-rows tokens; raise that, or leave it out"),
    REFUSED("-nocb --no-cont-batching", "use --max-seqs 1 to compute one request after the other"),
    HOLDS("--scheduling-policy", "fcfs priority", "requests run by their field priority, then as they came; leave it out"),
    HOLDS("--schedule-policy", "lpm fcfs", "requests whose prefix is in the cache may go before others; leave it out"),

    /* Keys and values */
    ALIAS("--block-size --page-size", "chunk-size"),
    ALIAS("--kv-cache-memory-bytes", "kv-budget"),
    ANSWER("--gpu-memory-utilization --mem-fraction-static --max-total-tokens --num-gpu-blocks-override -cram --cache-ram",
           kv_budget),
    ANSWER("-ctk --cache-type-k -ctv --cache-type-v -ctkd --cache-type-k-draft -ctvd --cache-type-v-draft", kv_type),
    HOLDS("--cache-reuse", "0", whole_prefixes),
    ANSWER("-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step -sps --slot-prompt-similarity",
           whole_prefixes),
    HOLDS("--keep", "0", context_end),
    REFUSED("--context-shift", context_end),
    ANSWER("-dt --defrag-thold", "the memory for keys and values has no gaps that matter; leave it out"),
    REFUSED("--no-cache-idle-slots", "use --retention none"),
    ANSWER("--radix-eviction-policy", "use --retention: learned, lru or none"),
    ANSWER("--sleep-idle-seconds", "use --memory-pressure, which returns memory for keys and values; the weights stay"),
    HOLDS("--kv-cache-dtype", "auto", kv_type),
    HOLDS("--swap-space --cpu-offload-gb", "0", tier),
    ANSWER("--slot-save-path --prompt-cache --kv-offloading-size --kv-transfer-config", tier),
    REFUSED("--enable-hierarchical-cache --prompt-cache-all --prompt-cache-ro", tier),
    REFUSED("--no-enable-prefix-caching --no-cache-prompt --disable-radix-cache", "use --sharing private and --retention none"),

    /* The machine */
    ALIAS("-t", "threads"),
    ANSWER("-tb --threads-batch", "use --threads, for prompts and answers alike"),
    HOLDS("-ngl --gpu-layers --n-gpu-layers -ngld --gpu-layers-draft --n-gpu-layers-draft", "0 auto", cpu_only),
    HOLDS("-dev", "cpu none", "use --device: cpu, cuda or cuda:N"),
    HOLDS("-devd --device-draft", "cpu none", "the draft model runs where the model does; leave it out"),
    HOLDS("-sm --split-mode", "none", cpu_only),
    ANSWER("-mg --main-gpu -ts --tensor-split -ot --override-tensor -otd --override-tensor-draft -ncmoe --n-cpu-moe "
           "--cuda-graph-max-bs --cuda-graph-bs -O --compilation-config --base-gpu-id",
           cpu_only),
    REFUSED("-kvo --kv-offload --op-offload --enable-torch-compile --disable-custom-all-reduce", cpu_only),
    REFUSED("--list-devices", "use chunkllama doctor, which says what this machine offers"),
    HOLDS("-tp --tp --tp-size --tensor-parallel-size -pp --pp-size --pipeline-parallel-size -dp --dp --dp-size "
          "--data-parallel-size --api-server-count --nnodes",
          "1", one_process),
    ANSWER("--rpc --distributed-executor-backend --node-rank --dist-init-addr --master-addr --master-port", one_process),
    REFUSED("--reuse-port", one_process),
    {"-fa --flash-attn", NULL, "on auto 1", "attention is always computed without a matrix of scores; leave it out",
     PEER_OPTIONAL},
    ANSWER("--attention-backend", "use --level, the highest kernel level, such as avx2"),
    ANSWER("--numa -C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch",
           pinning),
    HOLDS("--prio --prio-batch", "0", "start the program by nice or chrt, and leave it out"),
    ANSWER("--poll --poll-batch", "threads decide by themselves how they wait; leave it out"),
    ANSWER("--threads-http", "connections need no threads of their own; leave it out"),
    ANSWER("-td --threads-draft -tbd --threads-batch-draft", "use --threads, for both models alike"),
    REFUSED("--mlock --mmap -dio --direct-io", memory),
    HOLDS("-lm --load-mode", "none", memory),

    /* Requests and answers */
    ALIAS("--api-key-file", "api-keys"),
    ALIAS("--uds", "unix-socket"),
    ALIAS("--ssl-cert-file --ssl-certfile", "tls-cert"),
    ALIAS("--ssl-key-file --ssl-keyfile", "tls-key"),
    ANSWER("--ssl-keyfile-password", "write a key without a password by 'openssl pkey -in FILE -out NEW', and leave it out"),
    ANSWER("--ssl-ca-certs", client_certs),
    HOLDS("--ssl-cert-reqs", "0", client_certs),
    REFUSED("--enable-ssl-refresh", "send SIGHUP after a renewal; leave it out"),
    ALIAS("-to", "timeout"),
    ALIAS("--file-storage-path", "files-dir"),
    ANSWER("--allowed-origins --cors-origins --allowed-methods --cors-methods --allowed-headers --cors-headers", own_origin),
    REFUSED("--allow-credentials --cors-credentials", own_origin),
    {"--no-webui --no-ui", "no-page", NULL, NULL, PEER_FLAG},
    ANSWER("--path", "let a web server offer your files; --no-page leaves out the page. Leave it out"),
    ANSWER("--tools --tool-server", own_tools),
    REFUSED("-ag --agent", own_tools),
    ANSWER("--root-path --fastapi-root-path --api-prefix",
           "let the proxy cut the path; the page and the endpoints need none. Leave it out"),
    REFUSED("--no-slots", "GET /slots is always there, and shows no prompts; leave it out"),
    REFUSED("--props", "GET /props is always there, and changes nothing; leave it out"),
    REFUSED("-v --verbose --log-verbose --log-disable", log_level),
    ANSWER("-lv --verbosity --log-verbosity --uvicorn-log-level", log_level),
    REFUSED("--disable-log-requests --disable-log-stats --no-enable-log-requests --disable-uvicorn-access-log", log_access),
    {"--log-colors", NULL, "off auto", log_form, PEER_OPTIONAL},
    REFUSED("--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", log_form),
    ANSWER("--log-prompts-dir", "use --log-prompts to log prompts"),
    REFUSED("--enable-log-requests --log-requests",
            "requests are logged at the level info; use --log-prompts to log prompts, too"),
    ANSWER("--log-file", "the log goes to standard error; redirect that to the file, and leave it out"),
    ALIAS("--chat-template-file", "chat-template"),
    ALIAS("--default-chat-template-kwargs", "chat-template-kwargs"),
    REFUSED("--no-jinja", "chats are written by the model's Jinja template; use --chat-format for a built-in form"),
    HOLDS("--chat-template-content-format", "auto", "the form of contents is found in the chat template; leave it out"),
    HOLDS("--response-role", "assistant", "answers have the role assistant; leave it out"),
    REFUSED("--prefill-assistant", "requests have it: send the field continue_final_message"),
    {"-rea --reasoning", NULL, "auto", "use --chat-template-kwargs, with the variable of the template, such as enable_thinking",
     PEER_VALUE},
    HOLDS("--reasoning-budget", "-1", "requests have it: send the field reasoning_budget_tokens"),
    ANSWER("--reasoning-budget-message", "reasoning ends without a message of its own; leave it out"),
    ANSWER("--tool-call-parser --reasoning-parser --reasoning-format",
           "the form of tool calls and reasoning is found in the chat template; leave it out"),
    HOLDS("--grammar-backend", "llguidance", grammars),
    HOLDS("--guided-decoding-backend", "auto guidance", grammars),
    ANSWER("--json-schema -jf --json-schema-file", "schemas belong to requests: send the field response_format"),
    ANSWER("--grammar --grammar-file", "grammars belong to requests: send the file's text in the field grammar; leave it out"),
    ALIAS("--predict --n-predict", "max-tokens"),
    HOLDS("--generation-config", "auto", generation_config),
    ANSWER("--override-generation-config", "use --temperature, --top-p, --top-k, --min-p and --repetition-penalty"),
    ALIAS("--temp", "temperature"),
    ALIAS("--repeat-penalty", "repetition-penalty"),
    ALIAS("--random-seed", "seed"),
    ANSWER("--repeat-last-n", "requests have it: send the field repeat_last_n"),
    ANSWER("-l --logit-bias", "requests have it: send the field logit_bias"),
    REFUSED("--return-tokens-as-token-ids", "requests have it: send the field return_tokens_as_token_ids"),
    HOLDS("--mirostat --dry-multiplier --xtc-probability --dynatemp-range", "0 0.0", samplers),
    HOLDS("--typical --typical-p", "1 1.0", samplers),
    HOLDS("--top-nsigma --top-n-sigma", "-1 -1.0", samplers),
    ANSWER("--samplers --sampler-seq --sampling-seq --mirostat-lr --mirostat-ent --dry-base --dry-allowed-length "
           "--dry-penalty-last-n --dry-sequence-breaker --xtc-threshold --dynatemp-exp --adaptive-target --adaptive-decay "
           "--sampling-backend",
           samplers),
    HOLDS("--embd-normalize", "2", "embeddings have the length 1; leave it out"),
    ALIAS("-sys --system-prompt", "system"),
    ANSWER("-s", "use --seed, or --system for a system message"),

    /* Conversations on the terminal */
    REFUSED("-cnv --conversation -i --interactive -if --interactive-first -mli --multiline-input", conversation),
    {"-no-cnv --no-conversation", "raw", NULL, NULL, PEER_FLAG},
    REFUSED("-st --single-turn", "chunkllama run answers one prompt; use that, and leave it out"),
    ALIAS("-r --reverse-prompt", "stop"),
    ANSWER("-sysf --system-prompt-file", "use --system with the text of the file"),
    REFUSED("-e --escape", "write line ends as such, in Bash as $'...\\n...', and leave it out"),
    REFUSED("--display-prompt --verbose-prompt", "only the answer is printed; leave it out"),
    {"-co --color", NULL, "off auto", "the answer has no colours; leave it out", PEER_OPTIONAL},

    /* Throughput */
    ALIAS("-npp", "pp"),
    ALIAS("-ntg", "tg"),
    ALIAS("-npl", "batch"),

    /* Drafts */
    ALIAS("-md --model-draft --spec-draft-model --speculative-draft-model-path", "draft-model"),
    HOLDS("--spec-type", "none", drafts),
    ANSWER("--speculative-config --speculative-algorithm --draft --draft-n --draft-max --draft-min --draft-n-min --draft-p-min "
           "--draft-p-split --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split -lcs "
           "--lookup-cache-static -lcd --lookup-cache-dynamic --speculative-num-steps --speculative-eagle-topk "
           "--speculative-num-draft-tokens",
           drafts),
};

const peer_option *peer_find(const char *flag, size_t size) {
    for (size_t i = 0; i < sizeof peer_options / sizeof *peer_options; i++)
        if (cl_str_is_one_of((cl_str){flag, size}, peer_options[i].flags)) return &peer_options[i];
    return NULL;
}

bool peer_holds(const peer_option *peer, const char *value) {
    return peer->holds && cl_str_is_one_of(cl_str_of(value), peer->holds);
}

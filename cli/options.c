/* The table of all options: a row for each name, or for each meaning that a name has in different commands. */
#include "options.h"

#include <float.h>
#include <limits.h>
#include <math.h>

#include "bench/loadgen/load_requests.h"
#include "serve/http/log.h"
#include "serve/http/metrics.h"

static const char *const sharing_names[] = {"shared", "shared_storage", "private", NULL};
static const char *const kv_type_names[] = {"f32", "f16", "bf16", "int8", "e4m3", NULL};
static const char *const speculate_names[] = {"off", "lookup", NULL};
static const char *const retention_names[] = {"lru", "none", "learned", NULL};
static const char *const log_format_names[] = {"text", "json", NULL};
static const char *const sampling_names[] = {[SAMPLING_OF_MODEL] = "model", [SAMPLING_OF_OPENAI] = "openai", NULL};
static const char *const pooling_names[] = {"model", "last", "mean", NULL};

/* Sets of commands. */
#define IN(cmd) (1u << CMD_##cmd)
enum {
    /* draw tokens */
    SAMPLES = IN(RUN) | IN(CHAT) | IN(BATCH) | IN(SERVE),
    /* run the model */
    STEPS = SAMPLES | IN(LOGITS) | IN(PERPLEXITY) | IN(BENCH) | IN(BENCH_GRAMMAR),
    /* read the model's file */
    ALL = STEPS | IN(INFO) | IN(TOKENIZE) | IN(DOCTOR),
    EVERY = (1u << N_COMMANDS) - 1,
};

#define AT(field) offsetof(cli_options, field)
#define FLAG(name, letter, field, help, cmds)                                                                                  \
    { name, letter, OPT_FLAG, AT(field), NULL, 0, 0, NULL, "", help, cmds }
#define TEXT(name, letter, field, value, help, cmds)                                                                           \
    { name, letter, OPT_STRING, AT(field), NULL, 0, 0, NULL, value, help, cmds }
#define UTF8(name, letter, field, fallback, value, help, cmds)                                                                 \
    { name, letter, OPT_UTF8, AT(field), fallback, 0, 0, NULL, value, help, cmds }
#define INT(name, letter, field, fallback, min, max, help, cmds)                                                               \
    { name, letter, OPT_INT, AT(field), fallback, min, max, NULL, "N", help, cmds }
#define REAL(name, field, fallback, min, max, help, cmds)                                                                      \
    { name, 0, OPT_REAL, AT(field), fallback, min, max, NULL, "X", help, cmds }
#define CHOICE(name, field, fallback, choices, help, cmds)                                                                     \
    { name, 0, OPT_CHOICE, AT(field), fallback, 0, 0, choices, "NAME", help, cmds }

const cli_option option_table[] = {
    TEXT("model", 'm', model, "FILE", "the model: a GGUF file, or a folder with safetensors, config.json and tokenizer.json",
         ALL),

    /* Prompts and files */
    TEXT("prompt", 'p', prompt, "TEXT", "the prompt, instead of the argument", IN(RUN)),
    TEXT("system", 0, system, "TEXT", "a system message before the conversation", IN(RUN) | IN(CHAT)),
    FLAG("raw", 0, raw, "continue the prompt as plain text, without the model's chat format", IN(RUN)),
    FLAG("no-history", 0, no_history,
         "neither read nor write the file of earlier messages, chunkllama/chat_history in $XDG_STATE_HOME", IN(CHAT)),
    TEXT("input", 'i', input, "FILE", "the file of requests, one JSON object per line; - means standard input", IN(BATCH)),
    {"output", 'o', OPT_STRING, AT(output), "-", 0, 0, NULL, "FILE",
     "the file of answers, one JSON object per line; - means standard output", IN(BATCH)},
    TEXT("output", 'o', output, "FILE", "the .npy file to write", IN(LOGITS)),
    TEXT("summary", 0, summary, "FILE", "also write the summary to this file, as JSON", IN(BATCH)),
    FLAG("resume", 0, resume,
         "continue a stopped job: requests whose answers are in the output or its partial file are not computed again",
         IN(BATCH)),
    TEXT("shard", 0, shard, "I/N",
         "compute only part I of N of the requests, with I from 1; parts are cut where prompts have little in common",
         IN(BATCH)),
    TEXT("file", 'f', file, "FILE", "read the text from this file; - means standard input",
         IN(RUN) | IN(TOKENIZE) | IN(PERPLEXITY)),
    TEXT("tokens", 't', tokens, "FILE", "the file with a JSON array of token ids; - means standard input", IN(LOGITS)),

    /* serve */
    {"host", 0, OPT_STRING, AT(host), "127.0.0.1", 0, 0, NULL, "ADDRESS", "the address to listen on", IN(SERVE)},
    INT("port", 0, port, "-1", -1, 65535, "the port to listen on; 0: any free port; -1: 8080, or with --unix-socket no port",
        IN(SERVE)),
    TEXT("unix-socket", 0, unix_socket, "PATH",
         "listen on a Unix socket, a file that is created for it; on a port as well only if --port is set", IN(SERVE)),
    {"unix-socket-mode", 0, OPT_STRING, AT(unix_socket_mode), "600", 0, 0, NULL, "MODE",
     "the mode of the file of --unix-socket, in octal: users who may write to it may connect", IN(SERVE)},
    TEXT("tls-cert", 0, tls_cert, "FILE",
         "encrypt connections to the port with this certificate, a PEM file, and --tls-key; both are read again at SIGHUP",
         IN(SERVE)),
    TEXT("tls-key", 0, tls_key, "FILE", "the private key of --tls-cert, a PEM file without a password", IN(SERVE)),
    TEXT("api-key", 0, api_key, "KEY", "clients must send this key as a bearer token; by default no key is needed", IN(SERVE)),
    TEXT("api-keys", 0, api_keys, "FILE",
         "clients must send one of the keys in this file of lines NAME KEY [WEIGHT] [requests_per_minute=N] "
         "[tokens_per_minute=N]. Each name is a tenant: only requests of the same tenant share K/V, and tenants get tokens by "
         "weight, up to their quotas; SIGHUP reads the file again",
         IN(SERVE)),
    TEXT("cors-origin", 0, cors_origin, "ORIGIN",
         "web pages of this origin may call the server, * allows all pages; by default none may", IN(SERVE)),
    TEXT("allowed-hosts", 0, allowed_hosts, "NAMES",
         "the names by which clients may address the server, beside localhost and IP addresses, separated by commas, * allows "
         "all; by default all, but without a key none where only this machine can connect",
         IN(SERVE)),
    UTF8("model-name", 0, model_name, NULL, "NAMES",
         "the names of the model that requests may use, separated by commas or blanks; answers contain the first one; * allows "
         "any name; by default the file's name",
         IN(SERVE) | IN(BATCH)),

    REAL("timeout", timeout, "0", 0, 1e9, "seconds after which a request that has not ended gets an error; 0: no limit",
         IN(SERVE)),
    INT("max-queued-requests", 0, max_queued_requests, "0", 0, INT_MAX,
        "refuse further requests with status 429 while this many wait; 0: no limit", IN(SERVE)),
    INT("max-queued-tokens", 0, max_queued_tokens, "0", 0, INT_MAX,
        "refuse further requests with status 429 while prompts of this many tokens wait; 0: no limit", IN(SERVE)),
    REAL("queue-timeout", queue_timeout, "0", 0, 1e9,
         "seconds after which a request that has not been admitted is refused with status 429; 0: no limit", IN(SERVE)),
    REAL("shutdown-timeout", shutdown_timeout, "30", 0, 1e9,
         "seconds after SIGINT or SIGTERM within which the program ends, at least 2; accepted requests may take three quarters "
         "of them, or all but 8 if that is more, while new ones are refused",
         IN(SERVE)),
    REAL("target-itl", target_itl, "-1", -1, 1e6,
         "seconds that a step should take at most while answers are generated, by fewer prompt tokens in it; 0: no target; "
         "below 0: each prompt may add twice what it takes without prompt tokens",
         IN(SERVE)),
    TEXT("pin", 0, pin, "FILE",
         "compute the prompts of this file's requests, in the forms that batch reads, before the server is ready, and keep "
         "them in the cache",
         IN(SERVE)),
    {"pin-budget", 0, OPT_SIZE, AT(pin_budget), "0", 0, 1e15, NULL, "BYTES",
     "the part of --kv-budget that only pinned prompts use, those of --pin, POST /cache/pin and cache_control; 0: a quarter "
     "with --pin, else none",
     IN(SERVE)},
    TEXT(
        "warm", 0, warm, "FILE",
        "compute the prompts of this file's requests before the server is ready; they stay in the cache until memory is needed",
        IN(SERVE)),
    CHOICE("pooling", pooling, "model", pooling_names,
           "embeddings are the state of the last token, or the mean of all; model: as the model's file says, or else last; a "
           "request's field pooling overrides it",
           IN(SERVE)),
    FLAG("parse-special", 0, parse_special,
         "let the names of special tokens in prompts of completions and embeddings stand for these tokens; a request's field "
         "parse_special overrides it. Prompts must not contain texts of strangers then",
         IN(SERVE) | IN(BATCH)),
    TEXT("memory-pressure", 0, memory_pressure, "FILE",
         "return K/V memory to the system while tasks wait for memory, as this PSI file says; auto: that of the control group, "
         "or /proc/pressure/memory; by default the memory is kept",
         IN(SERVE)),
    TEXT(
        "files-dir", 0, files_dir, "DIR",
        "offer /v1/files and /v1/batches, and keep files and batches in this folder, which is created if its parent exists; by "
        "default there are none",
        IN(SERVE)),
    {"max-file-bytes", 0, OPT_SIZE, AT(max_file_bytes), "512M", 1, 1e15, NULL, "BYTES",
     "largest file that a client may send; the number may end with K, M or G", IN(SERVE)},
    {"request-memory", 0, OPT_SIZE, AT(request_memory), "512M", 0, 1e15, NULL, "BYTES",
     "memory for large requests that arrive, wait or run, of which a client or tenant gets half while nobody else needs it; "
     "beyond it they are refused with status 503; the number may end with K, M or G",
     IN(SERVE)},
    FLAG("no-page", 0, no_page, "no page for browsers at /, which otherwise shows a chat and the cache", IN(SERVE)),
    FLAG("sandbox", 0, sandbox,
         "give up the right to write and run files, and, once the server is ready, to open any file and to make connections",
         IN(SERVE)),
    CHOICE(
        "log-level", log_level, "info", log_level_names,
        "which lines the log on standard error has: error: requests on which the server failed; warn: also requests refused by "
        "overload, and warnings; info: also all other requests and the load; debug: also requests that only read, such as "
        "/health",
        IN(SERVE)),
    INT("metrics-tenants", 0, metrics_tenants, "0", 0, METRICS_MOST_TENANTS,
        "number of tenants whose requests and tokens /metrics counts one by one; all others are counted together; 0: none are",
        IN(SERVE)),
    CHOICE("log-format", log_format, "text", log_format_names,
           "text: each line of the log is text; json: each line is a JSON object", IN(SERVE)),
    FLAG("log-prompts", 0, log_prompts, "also log prompts, and the messages of errors, which may quote prompts", IN(SERVE)),
    REAL("log-load", log_load, "10", 0, 1e6,
         "seconds between two lines of the log about the load, while there are requests; 0: no such lines", IN(SERVE)),

    /* tokenize, logits, info, perplexity, bench */
    FLAG("jsonl", 0, jsonl, "each input line is a JSON string, whose ids are printed as an array on a line", IN(TOKENIZE)),
    FLAG("special", 0, special, "names of special tokens in the text become these tokens", IN(TOKENIZE)),
    FLAG("bos", 0, bos, "begin with BOS if the model's file requires it", IN(TOKENIZE)),
    FLAG("last", 0, last, "write only the logits of the last position", IN(LOGITS)),
    FLAG("tensors", 0, tensors, "list every tensor", IN(INFO)),
    INT("passages", 0, passages, "0", 0, INT_MAX, "stop after this many passages of --ctx tokens; 0: use the whole text",
        IN(PERPLEXITY)),
    {"pp", 0, OPT_STRING, AT(pp), "512", 0, 0, NULL, "LIST", "numbers of prompt tokens of a sequence, separated by commas",
     IN(BENCH)},
    INT("tg", 0, tg, "128", 0, 1 << 20, "number of tokens to generate for each sequence", IN(BENCH)),
    INT("tg", 0, tg, "128", 2, 1 << 20, "largest number of tokens to generate for each sequence", IN(BENCH_GRAMMAR)),
    INT("streams", 0, streams, "32", 1, 4096, "number of sequences that decode together", IN(BENCH_GRAMMAR)),
    INT("rounds", 0, rounds, "5", 1, 1000, "number of pairs of runs", IN(BENCH_GRAMMAR)),
    {"batch", 0, OPT_STRING, AT(batch), "1,8,32", 0, 0, NULL, "LIST", "numbers of sequences, separated by commas", IN(BENCH)},
    FLAG("shared", 0, shared, "all sequences have the same prompt", IN(BENCH)),
    FLAG("json", 0, json, "print the results as JSON, one object per line",
         IN(BENCH) | IN(BENCH_GRAMMAR) | IN(PERPLEXITY) | IN(DOCTOR) | IN(TIER)),

    /* bench serve */
    UTF8("url", 0, url, "http://127.0.0.1:8080", "URL", "the endpoint, without /v1", IN(BENCH_SERVE) | IN(EXPLAIN)),
    UTF8("model-name", 0, model_name, NULL, "NAME",
         "the name of the model in requests; by default the first model that the endpoint lists", IN(BENCH_SERVE)),
    TEXT("api-key", 0, api_key, "KEY", "send this key as a bearer token", IN(BENCH_SERVE) | IN(EXPLAIN)),
    TEXT("input", 'i', input, "FILE",
         "send the requests of this file, in the forms that batch reads; by default synthetic ones", IN(BENCH_SERVE)),
    INT("requests", 0, requests, "0", 0, 1 << 24,
        "number of requests; 0: 100, or all requests of the file. A file with fewer requests is repeated", IN(BENCH_SERVE)),
    INT("prompt-tokens", 0, prompt_tokens, "1024", 1, 1 << 24, "tokens of a synthetic prompt, including the shared ones",
        IN(BENCH_SERVE)),
    INT("shared-tokens", 0, shared_tokens, "0", 0, 1 << 24,
        "leading tokens that the prompts with the same prefix have in common", IN(BENCH_SERVE)),
    INT("prefixes", 0, prefixes, "1", 1, 1 << 24, "number of different shared prefixes, which the requests use in turn",
        IN(BENCH_SERVE)),
    INT("completion-tokens", 'n', completion_tokens, "128", 0, 1 << 24,
        "tokens of each completion, which continues after an end token; 0: as the file's requests say", IN(BENCH_SERVE)),
    INT("vocab", 0, vocab, "16384", LOAD_FIRST_TOKEN + 1, INT_MAX, "synthetic prompts have token ids from 256 to N - 1",
        IN(BENCH_SERVE)),
    FLAG("text", 0, text,
         "synthetic prompts are common words of about one token each, for endpoints that do not accept token ids",
         IN(BENCH_SERVE)),
    {"rate", 'r', OPT_REAL, AT(rate), "inf", 1e-6, INFINITY, NULL, "X", "mean requests per second; inf: all at once",
     IN(BENCH_SERVE)},
    INT("max-concurrency", 0, max_concurrency, "0", 0, 1 << 20, "largest number of requests in flight; 0: no limit",
        IN(BENCH_SERVE)),
    INT("seed", 0, seed, "1", 0, 9007199254740992., "the same seed gives the same prompts and arrival times", IN(BENCH_SERVE)),
    INT("warm-up", 0, warm_up, "1", 0, 1 << 20, "number of requests, with prompts of their own, before the measurement",
        IN(BENCH_SERVE)),
    FLAG("warm-prefixes", 0, warm_prefixes, "send each shared prefix once before the measurement, so that it is cached",
         IN(BENCH_SERVE)),
    REAL("time-limit", time_limit, "0", 0, 1e6, "seconds after which all remaining requests are cut off; 0: no limit",
         IN(BENCH_SERVE)),
    TEXT("extra-body", 0, extra_body, "JSON", "an object whose fields are added to every request", IN(BENCH_SERVE)),
    FLAG("json", 0, json, "print the results as one JSON object instead of a table", IN(BENCH_SERVE)),
    TEXT("output", 'o', output, "FILE",
         "also write the results to this file, as one JSON object with the distributions of TTFT and TPOT, which "
         "bench/tools/plot of the source code draws",
         IN(BENCH_SERVE)),

    /* explain */
    UTF8("tenant", 0, tenant, NULL, "NAME", "the tenant whose requests have the prompt; by default the request says it",
         IN(EXPLAIN)),
    UTF8("path", 0, path, NULL, "PATH",
         "the path of the API that the request is for, such as /v1/messages; by default the request's `url` says it, or else "
         "its fields",
         IN(EXPLAIN)),
    FLAG("json", 0, json, "print the server's answer as JSON", IN(EXPLAIN)),

    /* Generation */
    INT("max-tokens", 'n', max_tokens, "-1", -1, INT_MAX, "largest number of tokens to generate; -1: up to the context's end",
        IN(RUN) | IN(CHAT)),
    INT("max-tokens", 'n', max_tokens, "-1", -1, INT_MAX,
        "largest number of tokens for chat requests without max_tokens; -1: up to the context's end", IN(SERVE)),
    INT("max-tokens", 'n', max_tokens, "512", -1, INT_MAX,
        "largest number of tokens for requests without max_tokens; -1: up to the context's end", IN(BATCH)),
    CHOICE(
        "sampling-defaults", sampling_defaults, "model", sampling_names,
        "what auto is for temperature, top-k, top-p, min-p and repetition-penalty: model: what the model's files recommend; if "
        "they recommend nothing, 0.8, 40, 0.95, 0.05 and 1 as in llama.cpp for run, chat, the page and llama-server's "
        "endpoints, else OpenAI's; openai: OpenAI's, which are 1, 0, 1, 0 and 1",
        SAMPLES),
    REAL("temperature", temperature, "auto", 0, 10000, "0: always the likeliest token", SAMPLES),
    INT("top-k", 0, top_k, "auto", 0, INT_MAX, "draw from the N likeliest tokens; 0: from all", SAMPLES),
    REAL("top-p", top_p, "auto", 0, 1, "draw from the likeliest tokens whose probabilities add up to X; 1: from all", SAMPLES),
    REAL("min-p", min_p, "auto", 0, 1, "draw from tokens with at least X times the probability of the likeliest one", SAMPLES),
    REAL("repetition-penalty", repetition_penalty, "auto", 0.01, 100,
         "above 1: tokens that occurred in the prompt or the output become less likely", SAMPLES),
    REAL("presence-penalty", presence_penalty, "0", -2, 2, "above 0: tokens that occurred in the output become less likely",
         SAMPLES),
    REAL("frequency-penalty", frequency_penalty, "0", -2, 2,
         "above 0: tokens become less likely each time that they occur in the output", SAMPLES),
    INT("seed", 0, seed, "-1", -1, 9007199254740992., "the same seed draws the same tokens; -1: a different seed each time",
        SAMPLES),
    TEXT("stop", 0, stop, "TEXT", "end the answer before this text", IN(RUN) | IN(CHAT)),
    FLAG("ignore-eos", 0, ignore_eos, "continue after the model's end token", IN(RUN) | IN(BATCH)),
    INT("logprobs", 0, logprobs, "-1", -1, 20, "report the logprobs of each token and of the N likeliest tokens; -1: none",
        IN(BATCH)),
    TEXT("chat-template", 0, chat_template, "FILE",
         "write chats with the Jinja template in this file; by default with the one in the model's file", SAMPLES),
    TEXT("chat-template-kwargs", 0, chat_kwargs, "JSON",
         "variables of the chat template, such as '{\"enable_thinking\": false}'; requests may replace them", SAMPLES),
    TEXT("chat-format", 0, chat_format, "NAME",
         "write chats with the built-in template of this name: chatml, llama2, llama3, zephyr, mistral or gemma", SAMPLES),

    /* The cache and the machine */
    INT("ctx", 'c', ctx, "0", 0, 1 << 24, "largest number of tokens of a prompt with its completion; 0: the model's context",
        SAMPLES),
    INT("ctx", 'c', ctx, "512", 2, 1 << 24, "tokens of a passage", IN(PERPLEXITY)),
    INT("max-seqs", 0, max_seqs, "32", 1, 4096, "largest number of sequences that run at once", IN(BATCH) | IN(SERVE)),
    INT("max-step-rows", 0, max_step_rows, "512", 1, 65536, "largest number of tokens computed in one step", STEPS),
    INT("prefill-segment", 0, prefill_segment, "0", 0, INT_MAX,
        "largest number of prompt tokens of one sequence in a step; 0: only --max-step-rows limits it", STEPS),
    CHOICE("sharing", sharing, "shared", sharing_names,
           "shared: common prefixes are stored, computed and read once; shared_storage: they are stored and computed once, and "
           "read by each sequence; private: nothing is shared",
           STEPS),
    CHOICE(
        "retention", retention, "learned", retention_names,
        "learned: the K/V of finished requests are retained until memory is needed; what is evicted depends on how often and "
        "how soon prompts have come back; lru: the least recently used are evicted; none: the K/V are freed at once",
        SAMPLES),
    CHOICE(
        "speculate", speculate, "lookup", speculate_names,
        "lookup: draft the tokens that followed the same tokens earlier, and verify several in one step; the answers stay the "
        "same; off: one token per step",
        SAMPLES),
    TEXT("draft-model", 0, draft_model, "FILE", "a smaller model with the same vocabulary that drafts instead of the lookup",
         SAMPLES),
    TEXT("grammar-library", 0, grammar_library, "FILE",
         "the shared object of llguidance, which requests with a grammar need; by default libllguidance.so, if it is installed",
         IN(SERVE) | IN(BATCH) | IN(BENCH_GRAMMAR) | IN(DOCTOR)),
    FLAG("grammars-in-process", 0, grammars_in_process,
         "grammars have no processes of their own, which end what takes too much time or memory, but work in this one",
         IN(SERVE) | IN(BATCH) | IN(BENCH_GRAMMAR)),
    FLAG(
        "open-objects", 0, open_objects,
        "objects may have properties that their JSON schema does not declare, unless it forbids them; by default it must allow "
        "them",
        IN(SERVE) | IN(BATCH)),
    CHOICE("kv-type", kv_type, "bf16", kv_type_names,
           "how keys and values are stored: f32, f16, bf16 or int8; on a CUDA device f16, bf16 or e4m3", STEPS | IN(DOCTOR)),
    {"kv-budget", 0, OPT_SIZE, AT(kv_budget), "0", 0, 1e15, NULL, "BYTES",
     "memory for keys and values; the number may end with K, M or G; 0: three quarters of the memory that is free beside the "
     "weights",
     STEPS | IN(DOCTOR)},
    TEXT("kv-tier", 0, kv_tier, "DIR",
         "keep K/V also in a file in this folder, which is created if its parent exists, so that prompts that were evicted, or "
         "computed before a restart, are read instead of computed; by default none are kept",
         IN(SERVE) | IN(BATCH)),
    TEXT("kv-tier", 0, kv_tier, "DIR", "the folder", IN(TIER)),
    FLAG("remove", 0, remove, "remove the files that no process uses now", IN(TIER)),
    {"kv-tier-size", 0, OPT_SIZE, AT(kv_tier_size), "16G", 1 << 20, 1e15, NULL, "BYTES",
     "the file of --kv-tier takes at most this much; the number may end with K, M or G", IN(SERVE) | IN(BATCH)},
    INT("chunk-size", 0, chunk_size, "64", 16, 256, "tokens of a chunk of keys and values: 16, 32, 64, 128 or 256",
        STEPS | IN(DOCTOR)),
    INT("threads", 'j', threads, "0", 0, 1024, "number of threads; 0: one for each CPU that this process may use",
        STEPS | IN(DOCTOR)),
    FLAG("pin-threads", 0, pin_threads, "bind each thread but the first to a CPU of its own", STEPS),
    TEXT("device", 0, device, "DEVICE",
         "where the model runs: cpu, which is the default, cuda, or cuda:N, the N-th CUDA device from 0", STEPS),
    TEXT("level", 0, level, "LEVEL", "highest kernel level to use, such as ref, avx2 or avx512; by default the CPU's best",
         STEPS),
    TEXT("config", 0, config, "FILE",
         "a TOML file with values for options that neither the command line nor the environment sets. A key is the name of an "
         "option without its dashes, at the top level for all commands, or in the table of one command, such as [serve]",
         EVERY),
};

const size_t option_table_size = sizeof option_table / sizeof option_table[0];

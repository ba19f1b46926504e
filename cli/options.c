/* The table of all options. */
#include "options.h"

#include <float.h>
#include <limits.h>
#include <math.h>

#include "loadgen/requests.h"

static const char *const sharing_names[] = {"shared", "shared_storage", "private", NULL};
static const char *const kv_type_names[] = {"f32", "f16", "bf16", "int8", NULL};
static const char *const speculate_names[] = {"off", "lookup", NULL};
static const char *const retention_names[] = {"lru", "none", NULL};

#define IN(cmd) (1u << CMD_##cmd)
enum {
    SAMPLES = IN(RUN) | IN(CHAT) | IN(BATCH) | IN(SERVE),
    STEPS = SAMPLES | IN(LOGITS) | IN(PERPLEXITY) | IN(BENCH), /* runs the model */
    ALL = STEPS | IN(INFO) | IN(TOKENIZE),
};

#define AT(field) offsetof(options, field)
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

const option option_table[] = {
    TEXT("model", 'm', model, "FILE", "the model: a GGUF file, or a folder with safetensors, config.json and tokenizer.json",
         ALL),

    TEXT("prompt", 'p', prompt, "TEXT", "the prompt, instead of the argument", IN(RUN)),
    TEXT("system", 's', system, "TEXT", "a system message that stands before the conversation", IN(RUN) | IN(CHAT)),
    FLAG("raw", 0, raw, "continue the prompt as plain text, without the model's chat format", IN(RUN)),
    TEXT("input", 'i', input, "FILE", "the requests, one JSON object a line; - is standard input", IN(BATCH)),
    {"output", 'o', OPT_STRING, AT(output), "-", 0, 0, NULL, "FILE",
     "the answers, one JSON object a line; - is standard output", IN(BATCH)},
    TEXT("output", 'o', output, "FILE", "the .npy file to write", IN(LOGITS)),
    TEXT("summary", 0, summary, "FILE", "write the summary as JSON too", IN(BATCH)),
    TEXT("file", 'f', file, "FILE", "read the text from a file; - is standard input", IN(RUN) | IN(TOKENIZE) | IN(PERPLEXITY)),
    TEXT("tokens", 't', tokens, "FILE", "a JSON array of token ids; - is standard input", IN(LOGITS)),

    {"host", 0, OPT_STRING, AT(host), "127.0.0.1", 0, 0, NULL, "ADDRESS", "the address to listen on", IN(SERVE)},
    INT("port", 0, port, "8080", 0, 65535, "the port to listen on; 0: any free one", IN(SERVE)),
    TEXT("api-key", 0, api_key, "KEY", "clients must send it as a bearer token; none is asked for if absent", IN(SERVE)),
    TEXT("cors-origin", 0, cors_origin, "ORIGIN", "web pages from here may call the server; * is all, none if absent",
         IN(SERVE)),
    UTF8("model-name", 0, model_name, NULL, "NAME", "the model's name in answers; the file's name if absent",
         IN(SERVE) | IN(BATCH)),

    FLAG("jsonl", 0, jsonl, "each input line is a JSON string and gives an array of its own", IN(TOKENIZE)),
    FLAG("special", 0, special, "names of special tokens in the text stand for these tokens", IN(TOKENIZE)),
    FLAG("bos", 0, bos, "begin with the token that begins a prompt, where the model's file asks for it", IN(TOKENIZE)),
    FLAG("last", 0, last, "only the logits of the last position", IN(LOGITS)),
    FLAG("tensors", 0, tensors, "list every tensor", IN(INFO)),
    INT("chunks", 0, chunks, "0", 0, INT_MAX, "stop after this many chunks of --ctx tokens; 0: all", IN(PERPLEXITY)),
    {"pp", 0, OPT_STRING, AT(pp), "512", 0, 0, NULL, "LIST", "prompt tokens of a sequence, separated by commas", IN(BENCH)},
    INT("tg", 0, tg, "128", 0, 1 << 20, "tokens to generate for a sequence", IN(BENCH)),
    {"batch", 'b', OPT_STRING, AT(batch), "1,8,32", 0, 0, NULL, "LIST", "numbers of sequences, separated by commas", IN(BENCH)},
    FLAG("shared", 0, shared, "all sequences have the same prompt", IN(BENCH)),
    FLAG("json", 0, json, "print the results as JSON, one object per line", IN(BENCH) | IN(PERPLEXITY)),

    UTF8("url", 0, url, "http://127.0.0.1:8080", "URL", "the endpoint, without /v1", IN(BENCH_SERVE)),
    UTF8("model-name", 0, model_name, NULL, "NAME", "the model to ask for; the first that the endpoint lists if absent",
         IN(BENCH_SERVE)),
    TEXT("api-key", 0, api_key, "KEY", "sent as a bearer token", IN(BENCH_SERVE)),
    TEXT("input", 'i', input, "FILE", "send the requests of a JSONL file as batch reads it; synthetic ones if absent",
         IN(BENCH_SERVE)),
    INT("requests", 0, requests, "0", 0, 1 << 24, "requests to send; 0: 100, or all of the file; a file is gone through again",
        IN(BENCH_SERVE)),
    INT("prompt-tokens", 0, prompt_tokens, "1024", 1, 1 << 24, "tokens of a synthetic prompt, shared ones among them",
        IN(BENCH_SERVE)),
    INT("shared-tokens", 0, shared_tokens, "0", 0, 1 << 24, "leading tokens that all prompts of a prefix have in common",
        IN(BENCH_SERVE)),
    INT("prefixes", 0, prefixes, "1", 1, 1 << 24, "number of different shared prefixes; requests have them in turn",
        IN(BENCH_SERVE)),
    INT("completion-tokens", 'n', completion_tokens, "128", 0, 1 << 24,
        "tokens of each completion, also after an end token; 0: as the file's requests say", IN(BENCH_SERVE)),
    INT("vocab", 0, vocab, "16384", LOAD_FIRST_TOKEN + 1, INT_MAX, "synthetic prompts have token ids from 256 to N - 1",
        IN(BENCH_SERVE)),
    FLAG("text", 0, text, "synthetic prompts are common words, about a token each, for endpoints that take no token ids",
         IN(BENCH_SERVE)),
    {"rate", 'r', OPT_REAL, AT(rate), "inf", 1e-6, INFINITY, NULL, "X", "requests a second on average; inf: all at once",
     IN(BENCH_SERVE)},
    INT("max-concurrency", 0, max_concurrency, "0", 0, 1 << 20, "requests under way at once; 0: all that are due",
        IN(BENCH_SERVE)),
    INT("seed", 0, seed, "1", 0, 9007199254740992., "the same seed gives the same prompts and arrivals", IN(BENCH_SERVE)),
    INT("warm-up", 0, warm_up, "1", 0, 1 << 20, "requests before those that count, with prompts of their own", IN(BENCH_SERVE)),
    FLAG("warm-prefixes", 0, warm_prefixes, "send each shared prefix once before, so that it is cached", IN(BENCH_SERVE)),
    REAL("time-limit", time_limit, "0", 0, 1e6, "seconds after which all that is left is cut off; 0: none", IN(BENCH_SERVE)),
    TEXT("extra-body", 0, extra_body, "JSON", "an object whose fields every request gets", IN(BENCH_SERVE)),
    FLAG("json", 0, json, "print the results as one JSON object instead of a table", IN(BENCH_SERVE)),
    TEXT("output", 'o', output, "FILE", "also write the results to this file, as one JSON object", IN(BENCH_SERVE)),

    INT("max-tokens", 'n', max_tokens, "-1", -1, INT_MAX, "generate at most this many tokens; -1: up to the context's end",
        IN(RUN) | IN(CHAT)),
    INT("max-tokens", 'n', max_tokens, "-1", -1, INT_MAX,
        "generate at most this many tokens for a chat that does not say; -1: up to the context's end", IN(SERVE)),
    INT("max-tokens", 'n', max_tokens, "512", -1, INT_MAX,
        "generate at most this many tokens for a request that does not say; -1: up to the context's end", IN(BATCH)),
    REAL("temperature", temperature, "1", 0, 2, "0: always the likeliest token", SAMPLES),
    INT("top-k", 0, top_k, "0", 0, INT_MAX, "draw from the likeliest N tokens; 0: all", SAMPLES),
    REAL("top-p", top_p, "1", 0, 1, "draw from the likeliest tokens with this probability together; 1: all", SAMPLES),
    REAL("min-p", min_p, "0", 0, 1, "draw from tokens with at least X times the likeliest one's probability", SAMPLES),
    REAL("repetition-penalty", repetition_penalty, "1", 0.01, 100, "over 1: less of what occurred in prompt or output",
         SAMPLES),
    REAL("presence-penalty", presence_penalty, "0", -2, 2, "over 0: less of what occurred in the output", SAMPLES),
    REAL("frequency-penalty", frequency_penalty, "0", -2, 2, "over 0: less of what occurred often in the output", SAMPLES),
    INT("seed", 0, seed, "-1", -1, 9007199254740992., "the same seed draws the same tokens; -1: another one each time",
        SAMPLES),
    TEXT("stop", 0, stop, "TEXT", "end the answer before this text", IN(RUN) | IN(CHAT)),
    FLAG("ignore-eos", 0, ignore_eos, "go on after the model's end token", IN(RUN) | IN(BATCH)),
    INT("logprobs", 0, logprobs, "-1", -1, 20, "logprobs of each token and of the N likeliest in its place; -1: none",
        IN(BATCH)),
    TEXT("chat-format", 0, chat_format, "NAME", "chatml, llama2, llama3, zephyr, mistral or gemma; the model file's if absent",
         SAMPLES),

    INT("ctx", 'c', ctx, "0", 0, 1 << 24, "longest prompt and completion together, in tokens; 0: the model's", SAMPLES),
    INT("ctx", 'c', ctx, "512", 2, 1 << 24, "tokens of a chunk", IN(PERPLEXITY)),
    INT("max-seqs", 0, max_seqs, "32", 1, 4096, "sequences that run at once", IN(BATCH) | IN(SERVE)),
    INT("max-step-rows", 0, max_step_rows, "512", 1, 65536, "tokens computed in one step over all sequences", STEPS),
    INT("prefill-piece", 0, prefill_piece, "0", 0, INT_MAX, "prompt tokens of one sequence in a step; 0: no limit of its own",
        STEPS),
    CHOICE("sharing", sharing, "shared", sharing_names,
           "shared: common prefixes are stored, computed and read once; shared_storage: stored and computed once; private: not "
           "shared",
           STEPS),
    CHOICE("retention", retention, "lru", retention_names,
           "finished prefixes stay until memory is needed (lru) or are dropped at once (none)", SAMPLES),
    CHOICE("speculate", speculate, "lookup", speculate_names,
           "lookup: verify several tokens in a step, those that followed the same ones before; the answers stay the same; off: "
           "one "
           "token a step",
           SAMPLES),
    TEXT("draft-model", 0, draft_model, "FILE", "instead of looking up, let this smaller model of the same family draft",
         SAMPLES),
    CHOICE("kv-type", kv_type, "bf16", kv_type_names, "how keys and values are stored: f32, f16, bf16 or int8", STEPS),
    {"kv-budget", 0, OPT_SIZE, AT(kv_budget), "2G", 1 << 20, 1e15, NULL, "BYTES", "memory for keys and values; K, M and G work",
     STEPS},
    INT("chunk-size", 0, chunk_size, "64", 16, 256, "tokens of a chunk of keys and values: 16, 32, 64, 128 or 256", STEPS),
    INT("threads", 'j', threads, "0", 0, 1024, "0: one for each CPU that this process may use", STEPS),
    FLAG("pin-threads", 0, pin_threads, "keep each thread but the first on a CPU of its own", STEPS),
    TEXT("level", 0, level, "LEVEL", "highest kernel level to use, such as ref, avx2 or avx512; the CPU's best if absent",
         STEPS),
};

const size_t option_table_size = sizeof option_table / sizeof option_table[0];

/*
 * The fingerprint with which an engine opens a file tier: models of the same weights that differ in any field of their rotation
 * have different ones, and the same model always has the same.
 */
#include "tests/support/testing.h"

#include <string.h>

#include "chunkllama/engine/kv_fingerprint.h"
#include "tests/chunkllama/model/hf_folder.h"

/* ---- Models of one layer and one head, whose weights are zero ---- */

enum { SIZE = 32, N_VOCAB = 8, N_CTX = 2048, MAX_TEXT = 4096 };

typedef struct matrix {
    const char *name;
    int rows; /* 0: a vector */
} matrix;

#define LAYER "model.layers.0."
#define COMMON                                                                                                                 \
    {"model.embed_tokens", N_VOCAB}, {"lm_head", N_VOCAB}, {"model.norm", 0}, {LAYER "input_layernorm", 0},                    \
        {LAYER "post_attention_layernorm", 0}, {LAYER "self_attn.o_proj", SIZE}, {                                             \
        LAYER "mlp.down_proj", SIZE                                                                                            \
    }

static const matrix llama[] = {
    COMMON,
    {LAYER "self_attn.q_proj", SIZE},
    {LAYER "self_attn.k_proj", SIZE},
    {LAYER "self_attn.v_proj", SIZE},
    {LAYER "mlp.gate_proj", SIZE},
    {LAYER "mlp.up_proj", SIZE},
    {0},
};
static const matrix phi3[] = {COMMON, {LAYER "self_attn.qkv_proj", 3 * SIZE}, {LAYER "mlp.gate_up_proj", 2 * SIZE}, {0}};

static void write_part(const char *folder, int i, const char *text) {
    hf_folder_write_file(folder, i, (const uint8_t *)text, strlen(text));
}

static void write_weights(const char *folder, const matrix *m) {
    char text[MAX_TEXT];
    int at = 0, offset = 0;
    for (; m->name; m++) {
        const int rows = m->rows ? m->rows : 1, end = offset + 4 * SIZE * rows;
        char shape[32];
        snprintf(shape, sizeof shape, m->rows ? "%d,%d" : "%.0d%d", m->rows, SIZE);
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "%s\"%s.weight\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", at ? "," : "{", m->name,
                       shape, offset, end);
        offset = end;
    }
    snprintf(text + at, sizeof text - (size_t)at, "}");
    write_part(folder, HF_FOLDER_WEIGHTS, text);
}

static const char tokenizer[] =
    "{\"added_tokens\":[],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"},"
    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"<0x41>\":3,\"c\":4,"
    "\"a\":5,\"b\":6,\"ab\":7},\"merges\":[[\"a\",\"b\"]]}}";

/* A folder of the class with these fields of the rotation. */
static void write_folder(const char *folder, const char *class, const char *rotation) {
    char text[MAX_TEXT];
    snprintf(text, sizeof text,
             "{\"architectures\":[\"%sForCausalLM\"],\"num_hidden_layers\":1,\"hidden_size\":%d,\"intermediate_size\":%d,"
             "\"num_attention_heads\":1,\"max_position_embeddings\":%d,\"rms_norm_eps\":1e-5,\"vocab_size\":%d,"
             "\"tie_word_embeddings\":false,%s}",
             class, SIZE, SIZE, N_CTX, N_VOCAB, rotation);
    write_part(folder, 0, text);
    write_part(folder, 1, tokenizer);
    write_weights(folder, strcmp(class, "Phi3") == 0 ? phi3 : llama);
}

typedef struct print {
    uint64_t words[2];
} print;

static print print_of(const char *folder, int64_t n_ctx) {
    cl_model_options options;
    cl_model_options_init(&options);
    options.n_threads = 1;
    options.fingerprint = true;
    cl_model *m;
    cl_error error;
    print p;
    if (cl_model_load(folder, &options, &m, &error) != CL_OK) fail_msg("%s", error.message);
    assert_int_equal(cl_kv_fingerprint(m, n_ctx, p.words, &error), CL_OK);
    cl_model_free(&m);
    return p;
}

static bool same(print a, print b) { return a.words[0] == b.words[0] && a.words[1] == b.words[1]; }

/* ---- Tests ---- */

#define BASE            "\"rope_theta\":1e4"
#define SCALING(fields) BASE ",\"rope_scaling\":{" fields "}"
#define LINEAR(fields)  SCALING("\"rope_type\":\"linear\"," fields)
#define YARN(fields)    SCALING("\"rope_type\":\"yarn\",\"factor\":4.0" fields)
#define LLAMA3(factor, low, high, trained)                                                                                     \
    SCALING("\"rope_type\":\"llama3\",\"factor\":" factor ",\"low_freq_factor\":" low ",\"high_freq_factor\":" high            \
            ",\"original_max_position_embeddings\":" trained)
#define FACTORS(last) "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1," last "]"
#define LONG(short_factor, long_factor, more)                                                                                  \
    SCALING("\"type\":\"longrope\",\"short_factor\":" short_factor ",\"long_factor\":" long_factor more)
#define TRAINED(n) ",\"original_max_position_embeddings\":" #n

static const struct {
    const char *class, *rotation;
} models[] = {
    {"Llama", BASE},
    {"Llama", "\"rope_theta\":2e4"},
    {"Llama", LINEAR("\"factor\":2.0")},
    {"Llama", LINEAR("\"factor\":4.0")},
    {"Llama", SCALING("\"rope_type\":\"dynamic\",\"alpha\":1000")},
    {"Llama", YARN("")},
    {"Llama", YARN(",\"beta_fast\":16")},
    {"Llama", YARN(",\"beta_slow\":2")},
    {"Llama", YARN(",\"attention_factor\":1.5")},
    {"Llama", YARN(",\"mscale\":0.5,\"mscale_all_dim\":1.0")},
    {"Llama", YARN(",\"truncate\":false")},
    {"Llama", YARN(",\"original_max_position_embeddings\":512")},
    {"Llama", YARN(",\"llama_4_scaling_beta\":0.1")},
    {"Llama", LLAMA3("8.0", "1.0", "4.0", "512")},
    {"Llama", LLAMA3("9.0", "1.0", "4.0", "512")},
    {"Llama", LLAMA3("8.0", "1.5", "4.0", "512")},
    {"Llama", LLAMA3("8.0", "1.0", "4.5", "512")},
    {"Llama", LLAMA3("8.0", "1.0", "4.0", "768")},
    {"SmolLM3", BASE ",\"no_rope_layers\":[1]"},
    {"SmolLM3", BASE ",\"no_rope_layers\":[0]"},
    {"Phi3", BASE},
    {"Phi3", BASE ",\"partial_rotary_factor\":0.5"},
    {"Phi3", LONG(FACTORS("2"), FACTORS("9"), TRAINED(512))},
    {"Phi3", LONG(FACTORS("2"), FACTORS("10"), TRAINED(512))},
    {"Phi3", LONG(FACTORS("3"), FACTORS("9"), TRAINED(512))},
    {"Phi3", LONG(FACTORS("2"), FACTORS("9"), TRAINED(768))},
    {"Phi3", LONG(FACTORS("2"), FACTORS("9"), TRAINED(512) ",\"attention_factor\":1.25")},
};
enum { N_MODELS = sizeof models / sizeof *models };

static void any_field_of_the_rotation_counts(void **state) {
    (void)state;
    char folder[HF_FOLDER_PATH];
    print prints[N_MODELS];
    hf_folder_create(folder);
    for (int i = 0; i < N_MODELS; i++) {
        write_folder(folder, models[i].class, models[i].rotation);
        prints[i] = print_of(folder, N_CTX);
        assert_true(same(prints[i], print_of(folder, N_CTX)));
        for (int j = 0; j < i; j++)
            if (same(prints[i], prints[j])) fail_msg("%s and %s have one fingerprint", models[i].rotation, models[j].rotation);
    }
    hf_folder_remove(folder);
}

/* The context of an engine chooses between the divisors of LongRoPE, and changes nothing else. */
static void the_context_counts_where_it_chooses_divisors(void **state) {
    (void)state;
    char folder[HF_FOLDER_PATH];
    hf_folder_create(folder);
    write_folder(folder, "Phi3", LONG(FACTORS("2"), FACTORS("9"), TRAINED(512)));
    const print of_short = print_of(folder, 512), of_long = print_of(folder, 513);
    assert_false(same(of_short, of_long));
    assert_true(same(of_short, print_of(folder, 100)) && same(of_long, print_of(folder, N_CTX)));
    write_folder(folder, "Llama", LLAMA3("8.0", "1.0", "4.0", "512"));
    assert_true(same(print_of(folder, 512), print_of(folder, 513)));
    hf_folder_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_field_of_the_rotation_counts),
        cmocka_unit_test(the_context_counts_where_it_chooses_divisors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* An engine with pages of its own, in vLLM's layout: four sequences share a prefix, which one decode step reads once. */
#define CATTN_EXPERIMENTAL
#include <chunkattn_pages.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, PAGE = 16, SEQS = 4, COMMON = 1024, OWN = 40, TABLE = 80, PAGES = 128, LAYERS = 2 };

/* [layer][K, V][page][slot][head][DIM] in bf16: what the engine writes; here zeros. */
static uint16_t kv[LAYERS][2][PAGES][PAGE][KV_HEADS][DIM];
static float q_data[SEQS][HEADS][DIM], out_data[SEQS][HEADS][DIM], lse[SEQS][HEADS];

static cattn_error error;

static void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(1);
}

int main(void) {
    /* The engine's allocator: pages 0 to 63 hold the common prefix, then each sequence has some of its own. */
    static int32_t block_table[SEQS][TABLE], seq_lens[SEQS];
    int32_t next_page = COMMON / PAGE;
    for (int s = 0; s < SEQS; s++) {
        seq_lens[s] = COMMON + OWN + s; /* with the token of this step */
        for (int i = 0; i * PAGE < seq_lens[s]; i++) block_table[s][i] = i < COMMON / PAGE ? i : next_page++;
    }

    cattn_pages_config config;
    cattn_pages_config_init(&config);
    config.common.n_heads = HEADS, config.common.n_kv_heads = KV_HEADS, config.common.head_dim = DIM;
    config.page_size = PAGE, config.n_pages = PAGES;
    cattn_pages *pages;
    check(cattn_pages_create(&config, &pages, &error));

    /* A step: plan once, attend in each layer. */
    cattn_pages_batch batch = {.struct_size = sizeof batch, .n_seqs = SEQS};
    batch.page_ids = block_table[0], batch.page_stride = TABLE, batch.seq_lens = seq_lens;
    check(cattn_pages_plan(pages, &batch, &error));
    for (int layer = 0; layer < LAYERS; layer++) {
        /* The model computes q, k and v of the rows here, and writes K and V into their pages. */
        cattn_page_view k, v;
        const cattn_view q = {q_data, CATTN_F32, HEADS * DIM, DIM}, out = {out_data, CATTN_F32, HEADS * DIM, DIM};
        check(cattn_pages_views(pages, 0, CATTN_PAGES_VLLM, kv[layer], PAGES, &k, &v, &error));
        check(cattn_pages_attend(pages, 0, &k, &v, &q, &out, lse[0], &error)); /* all layers have the options of layer 0 */
    }

    cattn_pages_info info = {.struct_size = sizeof info};
    check(cattn_pages_get_info(pages, &info));
    printf("pages referenced: %d, read: %d; runs that are shared: %d\n", (int)info.pages_referenced, (int)info.pages_read,
           (int)info.shared_runs);
    cattn_pages_destroy(&pages);
    return 0;
}

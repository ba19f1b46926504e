/* The public functions of chunkattn_pages.h. */
#include "chunkattn/base/error.h"
#include "chunkattn/base/levels.h"
#include "chunkattn/pages/handle.h"
#include "chunkattn/pages/pack.h"
#include "config.h"
#include "setup.h"
#include "struct_size.h"

/* ---- Configuration ---- */

void cattn_pages_config_init(cattn_pages_config *config) {
    *config = (cattn_pages_config){
        .struct_size = sizeof *config, .n_layers = 1, .page_size = 16, .kv_type = CATTN_BF16, .cuda_device = -1};
}

static cattn_status check_pages(const cattn_pages_config *c, cattn_error *error) {
    if (c->page_size != 16 && c->page_size != 32 && c->page_size != 64 && c->page_size != 128)
        return ca_fail(error, CATTN_ERR_ARG, -1, "page_size is %d; it must be 16, 32, 64 or 128", c->page_size);
    if (c->n_pages < 0) return ca_fail(error, CATTN_ERR_ARG, -1, "n_pages is %d; it must not be negative", c->n_pages);
    if (c->kv_type != CATTN_F32 && c->kv_type != CATTN_F16 && c->kv_type != CATTN_BF16)
        return ca_fail(error, CATTN_ERR_ARG, -1, "kv_type is %d; pages may be CATTN_F32, CATTN_F16 or CATTN_BF16", c->kv_type);
    if (c->cuda_device < -1)
        return ca_fail(error, CATTN_ERR_ARG, -1, "cuda_device is %d; it must be -1, for the CPU, or the number of a device",
                       c->cuda_device);
    return CATTN_OK;
}

/*
 * Check *config. *own gets its fields, with defaults for those that it lacks; *c the config of a cache whose chunks are those
 * of the plan.
 */
static cattn_status resolve(const cattn_pages_config *config, cattn_pages_config *own, cattn_config *c, cattn_error *error) {
    cattn_status s;
    cattn_pages_config_init(own);
    if ((s = CA_STRUCT_READ(cattn_pages_config, reserved, own, config, error)) || (s = check_pages(own, error))) return s;
    cattn_config same;
    cattn_config_init(&same);
    same.n_layers = own->n_layers;
    same.n_heads = own->n_heads;
    same.n_kv_heads = own->n_kv_heads;
    same.head_dim = own->head_dim;
    same.head_dim_v = own->head_dim_v;
    same.chunk_size = own->cuda_device < 0 ? own->page_size : CA_CUDA_CHUNK;
    same.kv_type = own->kv_type;
    same.sharing = own->sharing;
    same.scale = own->scale;
    same.n_threads = own->n_threads;
    same.level = own->level;
    same.allocator = own->allocator;
    same.parallel = own->parallel;
    same.windows = own->windows;
    same.n_sink_tokens = own->n_sink_tokens;
    same.softcap = own->softcap;
    same.sink_logits = own->sink_logits;
    same.alibi_slopes = own->alibi_slopes;
    same.cuda_device = own->cuda_device;
    same.reserved = own->reserved;
    return ca_config_resolve(&same, c, error);
}

/* ---- Tiles ---- */

static ca_page_rows rows_of(const cattn_pages *p, const cattn_page_view *view, int32_t page, int32_t head) {
    const int64_t size = (int64_t)ca_type_size(p->layout.type);
    return (ca_page_rows){(const char *)view->data + (page * view->page_stride + head * view->head_stride) * size,
                          view->token_stride * size};
}

/* As ca_tile_source.announce: the page is only noted here, and prefetched while the next one is packed. */
static void announce(const void *ctx, int32_t worker, int32_t head, ca_chunk_id page, int32_t n) {
    ca_page_worker *w = &((const cattn_pages *)ctx)->workers[worker];
    w->next_head = head;
    w->next_page = page;
    w->n_next = n;
}

/* As ca_tile_source.pack. */
static const char *pack(const void *ctx, int32_t worker, int32_t head, ca_chunk_id page, int32_t n) {
    const cattn_pages *p = ctx;
    ca_page_worker *w = &p->workers[worker];
    ca_page_pack job = {.type = p->layout.type,
                        .d_k = p->layout.d_k,
                        .d_v = p->layout.d_v,
                        .c = p->layout.c,
                        .n = n,
                        .k = rows_of(p, &p->k, page, head),
                        .v = rows_of(p, &p->v, page, head),
                        .k_tile = w->tile,
                        .v_tile = w->tile + p->layout.k_bytes,
                        .n_next = w->n_next};
    if (w->n_next > 0) {
        job.next_k = rows_of(p, &p->k, w->next_page, w->next_head);
        job.next_v = rows_of(p, &p->v, w->next_page, w->next_head);
    }
    w->n_next = 0;
    ca_pack_page(&job);
    return w->tile;
}

/* As ca_page_source.find. */
static void find_places(const void *ctx, ca_chunk_id chunk, int32_t places[CA_CUDA_QUARTERS]) {
    const cattn_pages *p = ctx;
    for (int32_t i = 0; i < CA_CUDA_QUARTERS; i++) places[i] = ca_page_plan_find(&p->plan, chunk, i);
}

/* ---- Handle ---- */

/*
 * What packing a page adds to the cost of a chunk, in units of one query head's attention over it: measured 3 to 6, with K and
 * V in the second-level cache (Zen 5, d = 128, pages of 16 and 64).
 */
static const float PACK_COST = 4;

/* A plan for each different window among the layers. */
static cattn_status create_plans(cattn_pages *p, const cattn_config *config) {
    ca_plan_config plan = p->device ? ca_device_plan_for(p->device, config->n_sink_tokens) : ca_setup_plan(config, &p->attn);
    if (!p->device) plan.chunk_cost += (double)PACK_COST;
    p->layer_plan = ca_new(&p->alloc, (size_t)config->n_layers, sizeof *p->layer_plan);
    if (!p->layer_plan) return CATTN_ERR_NOMEM;
    ca_page_plan_init(&p->plan, p->layout.log2_c, p->device != NULL, config->sharing == CATTN_PRIVATE, &p->alloc);
    for (int32_t layer = 0; layer < config->n_layers; layer++) {
        const size_t n_plans = p->plan.plans.n;
        plan.window = config->windows ? config->windows[layer] : 0;
        p->layer_plan[layer] = ca_page_plan_add(&p->plan, &plan, &p->chunk_layout);
        if (p->layer_plan[layer] < 0) return CATTN_ERR_NOMEM;
        if (p->device && p->plan.plans.n > n_plans && ca_device_add_plan(p->device)) return CATTN_ERR_NOMEM;
    }
    return CATTN_OK;
}

static cattn_status create_workers(cattn_pages *p) {
    p->workers = ca_new_zero(&p->alloc, (size_t)p->n_threads, sizeof *p->workers);
    if (!p->workers) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < p->n_threads; i++) {
        p->workers[i].tile = ca_new_zero(&p->alloc, 1, p->layout.tile_bytes);
        if (!p->workers[i].tile) return CATTN_ERR_NOMEM;
    }
    return CATTN_OK;
}

static cattn_status create_on_cpu(cattn_pages *p, const cattn_config *config, cattn_error *error) {
    int level = CA_LEVEL_ref;
    cattn_status s = ca_setup_level(config->level, &level, error);
    if (s) return s;
    const ca_kernel *kernel = ca_kernel_find(level, config->kv_type);
    p->level = kernel->level;
    p->n_threads = config->n_threads;
    if ((s = ca_setup_threads(config, &p->threads, &p->parallel, error))) return s;
    const ca_attn_options options = {config->softcap, config->alibi_slopes, config->sink_logits};
    if ((s = ca_attn_init(&p->attn, kernel, &p->layout, NULL, &p->alloc, &p->parallel, config->n_threads,
                          config->n_heads / config->n_kv_heads, config->scale, &options)) ||
        (s = create_workers(p)))
        return ca_fail(error, s, -1, "no memory for the workers' scratch");
    p->source = (ca_tile_source){pack, announce, p};
    p->attn.source = &p->source;
    return CATTN_OK;
}

/* A job line holds a segment's index in 16 bits, and a quarter's place in 31. */
static cattn_status create_on_device(cattn_pages *p, const cattn_config *config, cattn_error *error) {
    const int64_t most_quarters = (int64_t)INT32_MAX + 1,
                  most_ids = (most_quarters << CA_CUDA_LOG2_QUARTER) >> p->layout.log2_c;
    p->level = "cuda";
    p->attn.group = config->n_heads / config->n_kv_heads;
    p->most_tokens = CA_CUDA_MAX_TOKENS;
    if (p->most_ids > most_ids) p->most_ids = most_ids;
    p->page_source = (ca_page_source){find_places, p};
    return ca_device_create(&p->device, &p->alloc, &p->chunk_layout, config, 0, &p->page_source, error);
}

static void init_layout(ca_layout *layout, const cattn_config *config, int32_t chunk_size) {
    ca_layout_init(layout, config->kv_type, config->n_layers, config->n_kv_heads, config->head_dim, config->head_dim_v,
                   chunk_size);
}

static cattn_status create_parts(cattn_pages *p, const cattn_pages_config *own, const cattn_config *config,
                                 cattn_error *error) {
    p->most_ids = own->n_pages > 0 ? own->n_pages : (int64_t)INT32_MAX + 1;
    p->most_tokens = INT32_MAX;
    init_layout(&p->layout, config, own->page_size);
    init_layout(&p->chunk_layout, config, config->chunk_size);
    cattn_status s = config->cuda_device < 0 ? create_on_cpu(p, config, error) : create_on_device(p, config, error);
    if (s) return s;
    if ((s = create_plans(p, config))) return ca_fail(error, s, -1, "no memory for the plans");
    return CATTN_OK;
}

cattn_status cattn_pages_create(const cattn_pages_config *config, cattn_pages **pages, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(pages, "pages", error))) return s;
    *pages = NULL;
    cattn_pages_config own;
    cattn_config resolved;
    if ((s = ca_need(config, "config", error)) || (s = resolve(config, &own, &resolved, error))) return s;
    ca_alloc alloc = ca_alloc_default();
    if (resolved.allocator.alloc)
        alloc = (ca_alloc){resolved.allocator.alloc, resolved.allocator.free, resolved.allocator.ctx, 0};
    cattn_pages *p = ca_new_zero(&alloc, 1, sizeof *p);
    if (!p) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the handle");
    p->alloc = alloc;
    if ((s = create_parts(p, &own, &resolved, error))) {
        cattn_pages_destroy(&p);
        return s;
    }
    *pages = p;
    return CATTN_OK;
}

void cattn_pages_destroy(cattn_pages **pages) {
    if (!pages || !*pages) return;
    cattn_pages *p = *pages;
    ca_device_destroy(&p->device);
    if (p->plan.alloc) ca_page_plan_free(&p->plan);
    ca_delete(&p->alloc, p->layer_plan, (size_t)p->layout.n_layers, sizeof *p->layer_plan);
    for (int32_t i = 0; p->workers && i < p->n_threads; i++) ca_delete(&p->alloc, p->workers[i].tile, 1, p->layout.tile_bytes);
    ca_delete(&p->alloc, p->workers, (size_t)p->n_threads, sizeof *p->workers);
    CA_ARRAY_FREE(&p->alloc, &p->seqs);
    if (p->attn.workers) ca_attn_free(&p->attn);
    ca_pool_destroy(&p->threads);
    ca_alloc alloc = p->alloc;
    ca_delete(&alloc, p, 1, sizeof *p);
    *pages = NULL;
}

const char *cattn_pages_level(const cattn_pages *pages) { return pages ? pages->level : NULL; }

/* ---- Plan ---- */

cattn_status ca_pages_check_place(const cattn_pages *p, bool on_device, const char *call, cattn_error *error) {
    const cattn_status s = ca_need(p, "pages", error);
    if (s || (p->device != NULL) == on_device) return s;
    if (on_device)
        return ca_fail(error, CATTN_ERR_ARG, -1, "the handle is on the CPU; use cattn_pages_%s, or set cuda_device", call);
    return ca_fail(error, CATTN_ERR_ARG, -1, "the handle is on CUDA device %d; use cattn_cuda_pages_%s of chunkattn_cuda.h",
                   p->device->id, call);
}

cattn_status cattn_pages_plan(cattn_pages *p, const cattn_pages_batch *batch, cattn_error *error) {
    int64_t n_rows;
    cattn_status s;
    if ((s = ca_pages_check_place(p, false, "plan", error)) || (s = ca_need(batch, "batch", error))) return s;
    if ((s = ca_pages_read_batch(p, batch, &n_rows, error))) return s;
    if ((s = ca_page_plan_update(&p->plan, &p->attn, p->seqs.at, (int32_t)p->seqs.n)))
        return ca_fail(error, s, -1, "no memory for the plan of %lld rows", (long long)n_rows);
    p->n_rows = n_rows;
    return CATTN_OK;
}

cattn_status cattn_pages_get_info(const cattn_pages *p, cattn_pages_info *info) {
    if (!p || !info) return CATTN_ERR_ARG;
    cattn_pages_info now = {0};
    if (p->plan.exists) ca_page_plan_count(&p->plan, &now);
    return CA_STRUCT_WRITE(cattn_pages_info, n_kept, info, &now, NULL);
}

/* ---- Attend ---- */

cattn_status cattn_pages_views(const cattn_pages *p, cattn_page_layout layout, const void *kv, int64_t n_pages,
                               cattn_page_view *k, cattn_page_view *v, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(p, "pages", error)) || (s = ca_need(kv, "kv", error)) || (s = ca_need(k, "k", error)) ||
        (s = ca_need(v, "v", error)))
        return s;
    const ca_layout *l = &p->layout;
    if (l->d_k != l->d_v)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "head_dim is %d and head_dim_v %d, but K and V of this layout have one size; fill the views by hand",
                       l->d_k, l->d_v);
    if (n_pages < 1) return ca_fail(error, CATTN_ERR_ARG, -1, "n_pages is %lld; it must be at least 1", (long long)n_pages);
    const int64_t d = l->d_k, all_heads = l->n_kv_heads * d, page = l->c * all_heads;
    const struct {
        cattn_page_view view;
        int64_t v_begin; /* elements behind K's */
    } layouts[] = {
        [CATTN_PAGES_VLLM] = {{kv, page, all_heads, d}, n_pages * page},
        [CATTN_PAGES_NHD] = {{kv, 2 * page, all_heads, d}, page},
        [CATTN_PAGES_HND] = {{kv, 2 * page, d, l->c * d}, page},
        [CATTN_PAGES_VLLM_HND] = {{kv, page, d, l->c * d}, n_pages * page},
    };
    if ((size_t)layout >= sizeof layouts / sizeof *layouts)
        return ca_fail(error, CATTN_ERR_ARG, -1, "layout is %d; it must be one of cattn_page_layout", (int)layout);
    *k = *v = layouts[layout].view;
    v->data = (const char *)kv + layouts[layout].v_begin * (int64_t)ca_type_size(l->type);
    return CATTN_OK;
}

static cattn_status check_page_stride(const char *name, const char *field, int64_t stride, int64_t least, cattn_error *error) {
    if (stride >= least) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "%s->%s is %lld; it must be at least the head size, %lld", name, field,
                   (long long)stride, (long long)least);
}

static cattn_status check_pages_view(const cattn_pages *p, const char *name, const cattn_page_view *view, int32_t d,
                                     cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(view, name, error)) || (s = ca_need(view->data, name, error)) ||
        (s = check_page_stride(name, "token_stride", view->token_stride, d, error)) ||
        (s = check_page_stride(name, "page_stride", view->page_stride, d, error)))
        return s;
    return p->layout.n_kv_heads > 1 ? check_page_stride(name, "head_stride", view->head_stride, d, error) : CATTN_OK;
}

cattn_status ca_pages_check_attend(const cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                   cattn_error *error) {
    cattn_status s;
    if (!p->plan.exists)
        return ca_fail(error, CATTN_ERR_STATE, -1, "there is no plan; call cattn_%spages_plan first", p->device ? "cuda_" : "");
    if (layer < 0 || layer >= p->layout.n_layers)
        return ca_fail(error, CATTN_ERR_ARG, -1, "layer is %d; it must be from 0 to %d", layer, p->layout.n_layers - 1);
    if (p->n_rows == 0) return CATTN_OK;
    if ((s = check_pages_view(p, "k", k, p->layout.d_k, error))) return s;
    return check_pages_view(p, "v", v, p->layout.d_v, error);
}

cattn_status cattn_pages_attend(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                const cattn_view *q, const cattn_view *out, float *lse, cattn_error *error) {
    cattn_status s;
    if ((s = ca_pages_check_place(p, false, "attend", error)) || (s = ca_pages_check_attend(p, layer, k, v, error))) return s;
    if (p->n_rows == 0) return CATTN_OK;
    const int32_t n_heads = p->layout.n_kv_heads * p->attn.group;
    if ((s = ca_check_view("q", q, p->n_rows, n_heads, p->layout.d_k, error)) ||
        (s = ca_check_view("out", out, p->n_rows, n_heads, p->layout.d_v, error)))
        return s;
    p->k = *k;
    p->v = *v;
    ca_attn_run(&p->attn, &p->plan.plans.at[p->layer_plan[layer]], layer, q, out, lse);
    return CATTN_OK;
}

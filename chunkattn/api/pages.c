/* The public functions of chunkattn_pages.h. */
#include "backends.h"
#include "checks.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/pages/handle.h"
#include "config.h"
#include "public_struct.h"

/* ---- Configuration ---- */

void cattn_pages_config_init(cattn_pages_config *config) {
    config->page_size = 16;
    config->n_pages = 0;
    cattn_config_init(&config->common);
    config->common.n_layers = 1;
}

/* Check *config. *c gets the config of a cache whose chunks are those of the plan. */
static cattn_status resolve(const cattn_pages_config *config, cattn_config *c, cattn_error *error) {
    const int32_t size = config->page_size;
    const cattn_status s = ca_config_resolve(&config->common, c, error);
    if (s) return s;
    if (size != 16 && size != 32 && size != 64 && size != 128)
        return ca_fail(error, CATTN_ERR_ARG, -1, "page_size is %d; it must be 16, 32, 64 or 128", size);
    if (config->n_pages < 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "n_pages is %d; it must not be negative", config->n_pages);
    if (c->kv_type != CATTN_F32 && c->kv_type != CATTN_F16 && c->kv_type != CATTN_BF16)
        return ca_fail(error, CATTN_ERR_ARG, -1, "kv_type is %s; pages may be CATTN_F32, CATTN_F16 or CATTN_BF16",
                       ca_type_name(c->kv_type));
    c->chunk_size = CA_PAGE_CHUNK;
    return CATTN_OK;
}

/* ---- Handle ---- */

/* A plan for each different shape and window among the layers. */
static cattn_status create_plans(cattn_pages *p, const cattn_config *config) {
    const ca_backend *b = p->compute.backend;
    p->layer_plan = ca_new(&p->alloc, (size_t)config->n_layers, sizeof *p->layer_plan);
    if (!p->layer_plan) return CATTN_ERR_NOMEM;
    for (int32_t layer = 0; layer < config->n_layers; layer++) {
        const size_t n_plans = p->plan.plans.n;
        const int32_t shape = p->layout.layers[layer].shape;
        ca_plan_config plan = b->plan_config(&p->compute, config, shape);
        if (config->windows) plan.window = config->windows[layer];
        p->layer_plan[layer] = ca_page_plan_add(&p->plan, &plan, &p->layout);
        if (p->layer_plan[layer] < 0) return CATTN_ERR_NOMEM;
        if (p->plan.plans.n > n_plans && b->add_plan && b->add_plan(&p->compute, shape)) return CATTN_ERR_NOMEM;
    }
    return CATTN_OK;
}

static cattn_status create_parts(cattn_pages *p, const cattn_pages_config *own, const cattn_config *config,
                                 cattn_error *error) {
    p->compute = ca_compute_for(config);
    p->most_ids = own->n_pages > 0 ? own->n_pages : (int64_t)INT32_MAX + 1;
    p->most_tokens = (int32_t)ca_min(INT32_MAX, p->compute.backend->max_tokens);
    ca_page_plan_init(&p->plan, own->page_size, config->sharing == CATTN_PRIVATE, &p->alloc);
    cattn_status s = ca_chunk_layout_init(&p->layout, config, config->chunk_size, &p->alloc);
    if (s) return ca_fail(error, s, -1, "no memory for the shapes of %d layers", config->n_layers);
    if ((s = p->compute.backend->create_pages(p, config, error))) return s;
    if ((s = create_plans(p, config))) return ca_fail(error, s, -1, "no memory for the plans");
    return CATTN_OK;
}

cattn_status cattn_pages_create(const cattn_pages_config *config, cattn_pages **pages, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(pages, "pages", error))) return s;
    *pages = NULL;
    cattn_config resolved;
    if ((s = ca_need(config, "config", error)) || (s = resolve(config, &resolved, error))) return s;
    ca_alloc alloc = ca_alloc_default();
    if (resolved.allocator.alloc)
        alloc = (ca_alloc){resolved.allocator.alloc, resolved.allocator.free, resolved.allocator.ctx, 0};
    cattn_pages *p = ca_new_zero(&alloc, 1, sizeof *p);
    if (!p) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the handle");
    p->alloc = alloc;
    ca_guard_init(&p->guard);
    if ((s = create_parts(p, config, &resolved, error))) {
        cattn_pages_destroy(&p);
        return s;
    }
    *pages = p;
    return CATTN_OK;
}

/* Free a handle that no call uses. */
static void destroy(cattn_pages *p) {
    p->compute.backend->destroy(&p->compute, ca_guard_is_inherited(&p->guard));
    if (p->plan.alloc) ca_page_plan_free(&p->plan);
    ca_delete(&p->alloc, p->layer_plan, (size_t)p->layout.n_layers, sizeof *p->layer_plan);
    for (int32_t i = 0; p->workers && i < p->compute.n_threads; i++)
        ca_delete(&p->alloc, p->workers[i].tile, 1, p->layout.tile_bytes);
    ca_delete(&p->alloc, p->workers, (size_t)p->compute.n_threads, sizeof *p->workers);
    CA_ARRAY_FREE(&p->alloc, &p->seqs);
    ca_chunk_layout_free(&p->layout, &p->alloc);
    ca_alloc alloc = p->alloc;
    ca_delete(&alloc, p, 1, sizeof *p);
}

/* As cattn_cache_destroy. */
void cattn_pages_destroy(cattn_pages **pages) {
    if (!pages || !*pages) return;
    const bool busy = atomic_exchange(&(*pages)->guard.busy, true);
    if (busy && !ca_guard_is_inherited(&(*pages)->guard)) return;
    if (!busy) destroy(*pages);
    *pages = NULL;
}

const char *cattn_pages_level(const cattn_pages *pages) { return pages ? pages->compute.level : NULL; }

/* ---- Plan ---- */

cattn_status cattn_pages_plan(cattn_pages *p, const cattn_pages_batch *batch, cattn_error *error) {
    CA_CALL(p, "pages", error);
    int64_t n_rows;
    cattn_status s;
    if ((s = ca_pages_read_batch(p, &ca_backend_cpu, batch, &n_rows, error))) return s;
    if ((s = ca_page_plan_update(&p->plan, &p->compute.attn, p->seqs.at, (int32_t)p->seqs.n, error))) return s;
    p->n_rows = n_rows;
    return CATTN_OK;
}

cattn_status cattn_pages_get_info(const cattn_pages *p, cattn_pages_info *info) {
    CA_CALL(p, "pages", NULL);
    if (!info) return CATTN_ERR_ARG;
    cattn_pages_info now = {0};
    if (p->plan.exists) ca_page_plan_count(&p->plan, &now);
    return CA_STRUCT_WRITE(cattn_pages_info, n_kept, info, &now, NULL);
}

/* ---- Attend ---- */

static cattn_status check_layer(const cattn_pages *p, int32_t layer, cattn_error *error) {
    if (layer >= 0 && layer < p->layout.n_layers) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "layer is %d; it must be from 0 to %d", layer, p->layout.n_layers - 1);
}

cattn_status cattn_pages_views(const cattn_pages *p, int32_t layer, cattn_page_layout layout, const void *kv, int64_t n_pages,
                               cattn_page_view *k, cattn_page_view *v, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(p, "pages", error)) || (s = ca_need(kv, "kv", error)) || (s = ca_need(k, "k", error)) ||
        (s = ca_need(v, "v", error)) || (s = check_layer(p, layer, error)))
        return s;
    const ca_shape *shape = ca_shape_of(&p->layout, layer);
    const ca_layout *l = &shape->tiles;
    if (l->d_k != l->d_v)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "head_dim is %d and head_dim_v %d, but K and V of this layout have one size; fill the views by hand",
                       l->d_k, l->d_v);
    if (n_pages < 1) return ca_fail(error, CATTN_ERR_ARG, -1, "n_pages is %lld; it must be at least 1", (long long)n_pages);
    const int64_t d = l->d_k, all_heads = shape->n_kv_heads * d, size = INT64_C(1) << p->plan.log2_page,
                  page = size * all_heads;
    const struct {
        cattn_page_view view;
        int64_t v_begin; /* elements behind K's */
    } layouts[] = {
        [CATTN_PAGES_VLLM] = {{kv, page, all_heads, d}, n_pages * page},
        [CATTN_PAGES_NHD] = {{kv, 2 * page, all_heads, d}, page},
        [CATTN_PAGES_HND] = {{kv, 2 * page, d, size * d}, page},
        [CATTN_PAGES_VLLM_HND] = {{kv, page, d, size * d}, n_pages * page},
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

static cattn_status check_pages_view(const cattn_pages *p, int32_t layer, const char *name, const cattn_page_view *view,
                                     int32_t d, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(view, name, error)) || (s = ca_need(view->data, name, error)) ||
        (s = check_page_stride(name, "token_stride", view->token_stride, d, error)) ||
        (s = check_page_stride(name, "page_stride", view->page_stride, d, error)))
        return s;
    const int32_t n_heads = ca_shape_of(&p->layout, layer)->n_kv_heads;
    if (n_heads > 1 && (s = check_page_stride(name, "head_stride", view->head_stride, d, error))) return s;
    const ca_backend *b = p->compute.backend;
    return b->check_page_alignment ? b->check_page_alignment(p, name, view, n_heads, error) : CATTN_OK;
}

/* Check what does not depend on the rows: that there is a plan, the layer, and both views of pages unless the plan has no rows.
 */
static cattn_status check_attend(const cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 cattn_error *error) {
    cattn_status s;
    if (!p->plan.exists)
        return ca_fail(error, CATTN_ERR_STATE, -1, "there is no plan; call %splan first", p->compute.backend->pages.prefix);
    if ((s = check_layer(p, layer, error)) || p->n_rows == 0) return s;
    const ca_layout *l = &ca_shape_of(&p->layout, layer)->tiles;
    if ((s = check_pages_view(p, layer, "k", k, l->d_k, error))) return s;
    return check_pages_view(p, layer, "v", v, l->d_v, error);
}

cattn_status ca_pages_attend(cattn_pages *p, const ca_backend *of, int32_t layer, const cattn_page_view *k,
                             const cattn_page_view *v, const cattn_view *q, const cattn_view *out, float *lse, void *stream,
                             cattn_error *error) {
    CA_CALL(p, "pages", error);
    cattn_status s;
    if ((s = ca_check_pages_call(p, of, "attend", error)) || (s = check_attend(p, layer, k, v, error)) ||
        (s = ca_check_attend_views(&p->compute, ca_shape_of(&p->layout, layer), q, out, lse, p->n_rows, error)))
        return s;
    return p->n_rows > 0 ? of->attend_pages(p, layer, k, v, q, out, lse, stream, error) : CATTN_OK;
}

cattn_status cattn_pages_attend(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                const cattn_view *q, const cattn_view *out, float *lse, cattn_error *error) {
    return ca_pages_attend(p, &ca_backend_cpu, layer, k, v, q, out, lse, NULL, error);
}

/* A problem's K/V in foreign pages. */
#include <algorithm>
#include <cstring>
#include <numeric>

#include "problem.h"

enum { QUARTER = CA_CUDA_CHUNK / CA_CUDA_QUARTERS };

/* [chunk][quarter] whether some row's position lies in it or behind it. */
static std::vector<bool> find_seen(const problem &p) {
    std::vector<bool> seen((size_t)p.n_chunks * CA_CUDA_QUARTERS);
    for (size_t r = 0; r < p.chunks.size(); r++)
        for (size_t i = 0; i < p.chunks[r].size(); i++)
            for (size_t q = 0; q < CA_CUDA_QUARTERS; q++)
                if (p.position[r] >= (int)(i * CA_CUDA_CHUNK + q * QUARTER))
                    seen[(size_t)p.chunks[r][i] * CA_CUDA_QUARTERS + q] = true;
    return seen;
}

static void fill_quarter(const problem &p, const memory &m, int index, int page_size) {
    const int per_page = page_size / QUARTER, place = m.places[(size_t)index], chunk = index / CA_CUDA_QUARTERS;
    for (int v = 0; v < 2; v++) {
        const ca_cuda_page_view &view = v ? m.args.pages.v : m.args.pages.k;
        for (int head = 0; head < p.n_kv_heads; head++)
            for (int s = 0; s < QUARTER; s++) {
                unsigned char *line = const_cast<unsigned char *>(view.data) + place / per_page * view.page_stride +
                                      (place % per_page * QUARTER + s) * view.slot_stride + head * view.head_stride;
                for (int i = 0; i < p.d; i++) {
                    const u16 x = m.bits_of(p, chunk, head, v, index % CA_CUDA_QUARTERS * QUARTER + s, i);
                    memcpy(line + i * 2, &x, 2);
                }
            }
    }
}

void add_pages(const problem &p, memory &m, int page_size, bool dense, uint64_t seed) {
    std::mt19937_64 rng(seed);
    const bool hnd = rng() % 2;
    const int per_page = page_size / QUARTER, n_pages = (p.n_chunks * CA_CUDA_QUARTERS + per_page - 1) / per_page;
    const int64_t gap = dense ? 0 : 16, line = p.d * 2 + gap;
    const int64_t slot = hnd ? line : p.n_kv_heads * line + gap, head = hnd ? page_size * line + gap : line;
    const int64_t half = hnd ? p.n_kv_heads * head : page_size * slot; /* K of a page, with V behind it */
    m.page_bytes = (size_t)(n_pages * 2 * half);
    unsigned char *data = m.device.array<unsigned char>(m.page_bytes, "pages");
    m.args.pages.k = {data, 2 * half, slot, head};
    m.args.pages.v = {data + half, 2 * half, slot, head};
    m.args.pages.log2_quarters = __builtin_ctz((unsigned)per_page);
    m.places.resize((size_t)(n_pages * per_page));
    std::iota(m.places.begin(), m.places.end(), 0);
    std::shuffle(m.places.begin(), m.places.end(), rng);
    const std::vector<bool> seen = find_seen(p);
    for (size_t i = 0; i < seen.size(); i++)
        if (seen[i])
            fill_quarter(p, m, (int)i, page_size);
        else
            m.places[i] = -1;
}

void remove_pages(memory &m) {
    m.device.free(const_cast<unsigned char *>(m.args.pages.k.data));
    m.args.pages = {};
    m.places.clear();
    m.page_bytes = 0;
}

std::vector<ca_work_item_pages> pages_of(const memory &m, const std::vector<ca_work_item> &items) {
    std::vector<ca_work_item_pages> pages(items.size());
    for (size_t j = 0; j < items.size(); j++)
        for (size_t i = 0; i < CA_CUDA_SEGMENT_CHUNKS * CA_CUDA_QUARTERS; i++) {
            const size_t chunk = i / CA_CUDA_QUARTERS;
            const bool listed = chunk < items[j].n_chunks;
            pages[j].quarter[i] =
                listed ? m.places[(size_t)items[j].chunk[chunk] * CA_CUDA_QUARTERS + i % CA_CUDA_QUARTERS] : -1;
        }
    return pages;
}

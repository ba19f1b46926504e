/* Noting K/V commands. */
#include "kv_commands.h"

#include <assert.h>
#include <string.h>

int ca_kv_reserve(ca_kv_pending *pending, ca_alloc *alloc, size_t n) {
    return n == 0 ? 0 : CA_RESERVE(alloc, pending, pending->executor.run ? CA_KV_PENDING : pending->n + n);
}

void ca_kv_note_copy(ca_kv_pending *pending, ca_chunk_pool *pool, ca_chunk_id to, ca_chunk_id from, int32_t begin,
                     int32_t end) {
    assert(begin < end && to != from);
    if (pending->n == CA_KV_PENDING) ca_kv_carry_out(pending);
    assert(pending->n < pending->capacity);
    pending->at[pending->n++] =
        (ca_kv_command){CA_KV_COPY, from, to, begin, end, ca_chunk_open(pool, from), ca_chunk_open(pool, to)};
}

bool ca_kv_touches(const ca_kv_pending *pending, ca_chunk_id id) {
    for (size_t i = 0; i < pending->n; i++)
        if (pending->at[i].from == id || pending->at[i].to == id) return true;
    return false;
}

void ca_kv_carry_out(ca_kv_pending *pending) {
    const size_t n = pending->n;
    if (n == 0 || !pending->executor.run) return;
    pending->n = 0;
    pending->executor.run(pending->executor.ctx, pending->at, n);
}

void ca_kv_take(ca_kv_pending *pending, ca_kv_commands *commands) {
    if (pending->n == 0) return; /* the list may be empty, without memory */
    assert(commands->n + pending->n <= commands->capacity);
    memcpy(commands->at + commands->n, pending->at, pending->n * sizeof *pending->at);
    commands->n += pending->n;
    pending->n = 0;
}

void ca_kv_open_and_close(const ca_chunk_layout *layout, ca_chunk_pool *pool, ca_chunk_id id, int32_t begin, int32_t end,
                          ca_kv_commands *commands) {
    const int32_t last = end / CA_SLOT_GROUP * CA_SLOT_GROUP; /* slot groups before it are full */
    const bool opens = begin <= last && end > last;
    if (!layout->has_open || (begin / CA_SLOT_GROUP == end / CA_SLOT_GROUP && !opens)) return;
    ca_chunk *chunk = ca_chunk_at(pool, id);
    const uint32_t full = ca_slot_group_bits(last) & ~ca_slot_group_bits(begin / CA_SLOT_GROUP * CA_SLOT_GROUP);
    for (uint32_t left = chunk->open & full; left; left &= left - 1) {
        const int32_t first = __builtin_ctz(left) * CA_SLOT_GROUP;
        assert(commands->n < commands->capacity);
        commands->at[commands->n++] =
            (ca_kv_command){CA_KV_TRANSPOSE, id, id, first, first + CA_SLOT_GROUP, chunk->open, chunk->open};
        chunk->open &= ~ca_slot_group_bit(first);
    }
    if (opens) chunk->open |= ca_slot_group_bit(last);
}

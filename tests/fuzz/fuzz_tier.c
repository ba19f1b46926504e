/*
 * The file of a tier. Either the input is the file, or the file has records that a tier has written and the input says what
 * happens to them: wrong bytes, records that are copied to other cells, forged parents and sequence numbers, a file that is
 * cut. Then the tier is opened and used: what a read brings must be the K/V of the tokens that were requested.
 */
#include "fuzz.h"

#include "tests/chunkattn/tier/small_tier.h"

enum { N_CELLS = 6, N_CHAINS = 3, N_DAMAGES = 20, N_CALLS = 60 };

static const ca_record_format format = {{1, 2}, SMALL_TOKENS, SMALL_PAYLOAD};

/* Two chains of three records, in six cells. */
static void write_records(small_tier *s) {
    for (int i = 0; i < N_CELLS; i++) small_put(s, i / 3, i % 3);
    ca_tier_close(&s->tier);
}

/* Give a record another parent or sequence number, and the hashes that belong to it. */
static void forge(small_tier *s, ca_record_header *header, fuzz_bytes *in) {
    int32_t tokens[SMALL_TOKENS];
    memcpy(tokens, header->tokens, sizeof tokens);
    ca_tier_key parent = header->parent;
    if (fuzz_below(in, 2))
        parent = ((const ca_record_header *)(const void *)(s->disk.bytes + SMALL_CELL * fuzz_below(in, 6)))->key;
    const uint64_t sequence = fuzz_below(in, 4) ? fuzz_byte(in) : UINT64_MAX;
    ca_record_seal(&format, header, (const uint8_t *)header + CA_RECORD_HEADER_BYTES, parent, tokens, sequence);
}

static void damage(small_tier *s, fuzz_bytes *in) {
    uint8_t *cell = s->disk.bytes + (size_t)SMALL_CELL * (size_t)fuzz_below(in, N_CELLS);
    switch (fuzz_below(in, 4)) {
    case 0: cell[fuzz_below(in, CA_RECORD_HEADER_BYTES)] ^= (uint8_t)(1 + fuzz_below(in, 255)); break;
    case 1: cell[CA_RECORD_HEADER_BYTES + fuzz_below(in, SMALL_PAYLOAD)] ^= (uint8_t)(1 + fuzz_below(in, 255)); break;
    case 2: memmove(cell, s->disk.bytes + (size_t)SMALL_CELL * (size_t)fuzz_below(in, N_CELLS), SMALL_CELL); break;
    default: {
        /* Only a record whose payload is that of its tokens, since a forged payload would be right by its hash. */
        ca_record_header *header = (ca_record_header *)(void *)cell;
        memcpy(s->kv[2], cell + CA_RECORD_HEADER_BYTES, SMALL_PAYLOAD);
        if (ca_record_header_valid(&format, header) && small_holds(s, 2, header->tokens[0], header->tokens[1]))
            forge(s, header, in);
    }
    }
}

static void use(small_tier *s, fuzz_bytes *in) {
    for (int n = 0; n < N_CALLS && in->at < in->end; n++) {
        const int chain = fuzz_below(in, N_CHAINS), i = fuzz_below(in, 4);
        switch (fuzz_below(in, 5)) {
        case 0: ca_tier_touch(s->tier, small_key(s, chain, i)); break;
        case 1:
            ca_tier_release(s->tier, 0); /* it may be queued with other tokens */
            small_write(s, chain, i, 0);
            break;
        case 2: ca_tier_flush(s->tier, 0); break;
        case 3: ca_tier_work(s->tier); break;
        default: small_get(s, chain, i); /* checks what it has read */
        }
        const ca_tier_stats stats = small_stats(s);
        FUZZ_CHECK(stats.n_records <= stats.n_cells && stats.file_bytes <= s->disk.size, "statistics");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static small_tier s;
    fuzz_bytes in = {data, data + size};
    small_setup(&s, N_CELLS);
    if (fuzz_byte(&in) % 4 == 0) {
        ca_tier_close(&s.tier);
        const size_t n = (size_t)(in.end - in.at);
        s.disk.files.resize(&s.disk, 0, (n + SMALL_CELL - 1) / SMALL_CELL * SMALL_CELL);
        if (n > 0) memcpy(s.disk.bytes, in.at, n);
    } else {
        write_records(&s);
        for (int n = fuzz_below(&in, N_DAMAGES); n > 0; n--) damage(&s, &in);
        if (fuzz_below(&in, 4) == 0)
            s.disk.files.resize(&s.disk, 0, (uint64_t)fuzz_below(&in, N_CELLS) * SMALL_CELL + (uint64_t)fuzz_below(&in, 256));
    }
    small_open(&s, N_CELLS);
    use(&s, &in);
    small_teardown(&s);
    return 0;
}

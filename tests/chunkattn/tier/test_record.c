/* Records: what is sealed is valid, and no flipped bit, other tokens, parent, domain, fingerprint or size pass for it. */
#include "tests/support/testing.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "chunkattn/tier/record.h"

enum { C = 16, PAYLOAD = 777 };

static const ca_record_format format = {{11, 22}, C, PAYLOAD};

typedef struct record {
    ca_record_header header;
    uint8_t payload[PAYLOAD];
    int32_t tokens[C];
    ca_tier_key parent;
} record;

static void make(record *r) {
    for (int i = 0; i < C; i++) r->tokens[i] = i * i + 5;
    for (int i = 0; i < PAYLOAD; i++) r->payload[i] = (uint8_t)(i * 13 + i / 256);
    r->parent = ca_record_root(&format, 3);
    memset(&r->header, 0xff, sizeof r->header);
    ca_record_seal(&format, &r->header, r->payload, r->parent, r->tokens, 42);
}

static bool valid(const record *r) { return ca_record_valid(&format, &r->header, r->payload, r->parent, r->tokens); }

static void sealed_is_valid(void **state) {
    (void)state;
    static record r;
    make(&r);
    assert_true(valid(&r));
    assert_true(ca_record_header_valid(&format, &r.header));
    assert_int_equal(r.header.sequence, 42);
    assert_true(ca_tier_key_equal(r.header.key, ca_record_next(&format, r.parent, r.tokens)));
}

static void each_bit_counts(void **state) {
    (void)state;
    static record r;
    make(&r);
    uint8_t *bytes = (uint8_t *)&r.header;
    for (size_t i = 0; i < sizeof r.header; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            assert_false(ca_record_header_valid(&format, &r.header));
            assert_false(valid(&r));
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t i = 0; i < PAYLOAD; i++) {
        for (int bit = 0; bit < 8; bit++) {
            r.payload[i] ^= (uint8_t)(1 << bit);
            assert_false(valid(&r));
            r.payload[i] ^= (uint8_t)(1 << bit);
        }
    }
    assert_true(valid(&r));
}

/* A whole record that is another one's: a collision of keys, or a lying disk. */
static void others_are_refused(void **state) {
    (void)state;
    static record r;
    for (int i = 0; i < C; i++) {
        make(&r);
        r.tokens[i]++;
        assert_false(valid(&r));
    }
    make(&r);
    r.parent = ca_record_root(&format, 4);
    assert_false(valid(&r));
    make(&r);
    r.parent = r.header.key;
    assert_false(valid(&r));
    make(&r);
    for (int i = 0; i < 4; i++) {
        ca_record_format other = format;
        if (i < 2)
            other.fingerprint[i]++;
        else if (i == 2)
            other.chunk_tokens--;
        else
            other.payload_bytes--;
        assert_false(ca_record_header_valid(&other, &r.header));
        assert_false(ca_record_valid(&other, &r.header, r.payload, r.parent, r.tokens));
    }
    static const ca_record_header zeros;
    assert_false(ca_record_header_valid(&format, &zeros));
}

/* Of a header whose own hash is right, each field counts still, and the key is that of the parent and the tokens. */
static void forged_headers(void **state) {
    (void)state;
    static record r;
    const size_t fields[] = {offsetof(ca_record_header, magic),         offsetof(ca_record_header, chunk_tokens),
                             offsetof(ca_record_header, payload_bytes), offsetof(ca_record_header, fingerprint),
                             offsetof(ca_record_header, parent),        offsetof(ca_record_header, key),
                             offsetof(ca_record_header, tokens)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        make(&r);
        ((uint8_t *)&r.header)[fields[i]] ^= 1;
        r.header.header_hash = XXH3_64bits(&r.header, offsetof(ca_record_header, header_hash));
        assert_false(ca_record_header_valid(&format, &r.header));
    }
    make(&r);
    r.header.sequence ^= 1;
    r.header.header_hash = XXH3_64bits(&r.header, offsetof(ca_record_header, header_hash));
    assert_true(valid(&r));
}

/* The format must not change unnoticed: later builds read the file. The values are those of Python's xxhash for the same bytes.
 */
static void format_is_stable(void **state) {
    (void)state;
    static record r;
    make(&r);
    assert_true(ca_tier_key_is_root(r.parent) && !ca_tier_key_is_root(r.header.key) && r.parent.low == 0xd2f87a82241fbdad);
    assert_true(r.header.key.low == 0xfc31def8257e0d3d);
    assert_true(r.header.header_hash == 0x0370f2124aef40e2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_is_valid), cmocka_unit_test(each_bit_counts),  cmocka_unit_test(others_are_refused),
        cmocka_unit_test(forged_headers),  cmocka_unit_test(format_is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

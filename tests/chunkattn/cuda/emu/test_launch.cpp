/* Launches: counts, the order of threads, several host threads, device memory, and what reports say. */
#include "support.h"

#include "chunkattn/cuda/primitives.h"

#include <thread>

namespace {

int lane() { return thread_index() % 32; }
u32 word(int i) { return shared_base() + (u32)i * 4; }

emu::config make_config(int blocks, int threads, size_t shared_bytes, u64 seed) {
    emu::config c;
    c.blocks = blocks;
    c.threads = threads;
    c.shared_bytes = shared_bytes;
    c.seed = seed;
    return c;
}

emu::report run(emu::device &device, const emu::config &c, const std::function<void()> &kernel) {
    emu::report r = device.launch(c, kernel);
    if (!r.errors.empty()) fail_msg("%s", r.text().c_str());
    return r;
}

/* ---- Counts ---- */

struct expected {
    uint64_t emu::counts::*field;
    uint64_t n;
};
/* What a warp counts that runs the kernel. */
void expect_counts(emu::device &device, const std::function<void()> &kernel, const std::vector<expected> &all) {
    const emu::counts n = run(device, make_config(1, 32, 32768, 1), kernel).n;
    for (const expected &e : all) assert_int_equal(n.*e.field, e.n);
}

void sectors(void **) {
    using n = emu::counts;
    emu::device device;
    u32 *p = device.array<u32>(4096, "p");
    expect_counts(device, [=] { ld_global(p + lane()); },
                  {{&n::load_requests, 1}, {&n::load_bytes, 128}, {&n::load_sectors, 4}});
    expect_counts(device, [=] { ld_global(p + 8 * lane()); }, {{&n::load_sectors, 32}});
    expect_counts(device, [=] { ld_global(p + 4 + lane()); }, {{&n::load_sectors, 5}}); /* begins within a sector */
    expect_counts(device, [=] { ld_global(reinterpret_cast<const u4 *>(p) + lane()); }, {{&n::load_sectors, 16}});
    expect_counts(device, [=] { ld_global(p); }, {{&n::load_sectors, 1}});
    expect_counts(device, [=] { st_global(p + lane() / 16 * 1000 + lane(), 1u); },
                  {{&n::store_requests, 1}, {&n::store_sectors, 4}});
    const auto copy = [=] {
        cp_async16(word(4 * lane()), p);
        cp_async_commit();
        cp_async_wait<0>();
    };
    expect_counts(device, copy, {{&n::async_sectors, 1}});
}

void wavefronts(void **) {
    using n = emu::counts;
    emu::device device;
    expect_counts(device, [] { st_shared(word(lane()), 1u); },
                  {{&n::shared_requests, 1}, {&n::shared_wavefronts, 1}, {&n::shared_least, 1}});
    expect_counts(device, [] { st_shared(word(2 * lane()), 1u); }, {{&n::shared_wavefronts, 2}, {&n::shared_least, 1}});
    expect_counts(device, [] { st_shared(word(32 * lane()), 1u); }, {{&n::shared_wavefronts, 32}});
    expect_counts(device, [] { st_shared(word(4 * lane()), f4{}); }, {{&n::shared_wavefronts, 4}, {&n::shared_least, 4}});
    expect_counts(device, [] { st_shared(word(2 * lane()), u64{0}); }, {{&n::shared_wavefronts, 2}});
    const auto one_word = [] {
        if (lane() == 0) st_shared(word(5), 1u);
        sync_warp();
        ld_shared<u32>(word(5)); /* for all */
    };
    expect_counts(device, one_word, {{&n::shared_wavefronts, 2}, {&n::shared_least, 2}});
}

void lanes_that_take_other_paths(void **) {
    emu::device device;
    u32 *p = device.array<u32>(4096, "p");
    const emu::counts n = run(device, make_config(1, 32, 0, 1), [=] {
                              for (int i = 0; i < (lane() < 8 ? 3 : 1); i++) ld_global(p + 32 * i + lane());
                              if (lane() >= 16) st_global(p + 1024 + lane(), 1u);
                          }).n;
    assert_int_equal(n.load_requests, 3); /* 32 lanes, then 8 and 8 */
    assert_int_equal(n.load_sectors, 4 + 1 + 1);
    assert_int_equal(n.store_requests, 1);
    assert_int_equal(n.store_bytes, 64);
}

void instructions(void **) {
    emu::device device;
    const emu::counts n = run(device, make_config(2, 64, 4096, 1), [] {
                              u32 a[4] = {}, b[2] = {};
                              float c[4] = {};
                              mma<BF16>(c, a, b);
                              mma<F16>(c, a, b);
                              movmatrix(a[0]);
                              any_sync(true);
                          }).n;
    assert_int_equal(n.mma, 8); /* 2 of each of 4 warps */
    assert_int_equal(n.movmatrix, 4);
    assert_int_equal(n.votes, 4);
}

/* ---- Order ---- */

/* Each warp of each block takes the next number. */
std::vector<u32> order_of(u64 seed) {
    emu::device device;
    u32 *next = device.array<u32>(1, "next"), *order = device.array<u32>(64, "order");
    *next = 0;
    emu::config c = make_config(16, 128, 0, seed);
    c.resident = 4;
    run(device, c, [=] {
        if (lane() == 0) st_global(order + block_index() * 4 + thread_index() / 32, atomic_add_relaxed(next, 1));
    });
    assert_int_equal(*next, 64);
    return {order, order + 64};
}

void a_seed_is_an_order(void **) {
    assert_true(order_of(1) == order_of(1));
    assert_true(order_of(1) != order_of(2));
}

void host_threads_are_independent(void **) {
    std::vector<std::vector<u32>> alone, together(8);
    for (size_t i = 0; i < together.size(); i++) alone.push_back(order_of(i));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < together.size(); i++) threads.emplace_back([&, i] { together[i] = order_of(i); });
    for (std::thread &t : threads) t.join();
    assert_true(alone == together);
}

void more_blocks_than_resident(void **) {
    emu::device device;
    u32 *out = device.array<u32>(1000, "out");
    emu::config c = make_config(1000, 32, 64, 7);
    c.resident = 5;
    run(device, c, [=] {
        if (lane() == 0) st_shared(word(0), (u32)block_index());
        sync_block();
        if (lane() == 31) st_global(out + block_index(), ld_shared<u32>(word(0)));
    });
    for (u32 i = 0; i < 1000; i++) assert_int_equal(out[i], i);
}

/* A producer warp and three consumer warps: stages by mbarriers, as kernels on sm 90 do it. */
void a_pipeline(void **) {
    enum { STAGES = 3, STEPS = 17, STAGE_WORDS = 256 };
    emu::device device;
    u32 *in = device.array<u32>(STEPS * STAGE_WORDS, "in"), *out = device.array<u32>(96, "out");
    for (u32 i = 0; i < STEPS * STAGE_WORDS; i++) in[i] = i;
    for (u64 seed = 1; seed <= 20; seed++) {
        run(device, make_config(1, 128, STAGES * STAGE_WORDS * 4 + 64, seed), [=] {
            const u32 full = word(STAGES * STAGE_WORDS), empty = full + 8 * STAGES;
            if (thread_index() == 0) {
                for (u32 s = 0; s < STAGES; s++) {
                    mbar_init(full + 8 * s, 1);
                    mbar_init(empty + 8 * s, 3);
                }
                mbar_fence_init();
            }
            sync_block();
            if (thread_index() < 32) {
                for (u32 i = 0; i < STEPS && lane() == 0; i++) {
                    const u32 s = i % STAGES;
                    mbar_wait(empty + 8 * s, i / STAGES % 2 ^ 1);
                    mbar_arrive_expect(full + 8 * s, STAGE_WORDS * 4);
                    bulk_copy(word((int)(s * STAGE_WORDS)), in + i * STAGE_WORDS, STAGE_WORDS * 4, full + 8 * s);
                }
                return;
            }
            u32 sum = 0;
            for (u32 i = 0; i < STEPS; i++) {
                const u32 s = i % STAGES;
                mbar_wait(full + 8 * s, i / STAGES % 2);
                sum += ld_shared<u32>(word((int)(s * STAGE_WORDS) + lane()));
                sync_warp();
                if (lane() == 0) mbar_arrive(empty + 8 * s);
            }
            st_global(out + thread_index() - 32, sum);
        });
        for (u32 t = 0; t < 96; t++) assert_int_equal(out[t], STEPS * (STEPS - 1) / 2 * STAGE_WORDS + STEPS * (t % 32));
    }
}

/* ---- Reports ---- */

void a_deadlock_says_who_waits_where(void **) {
    emu::device device;
    const emu::report r = device.launch(make_config(1, 96, 0, 1), [] {
        if (thread_index() / 32 == 0) return;
        if (thread_index() / 32 == 1)
            sync_named(4, 96);
        else
            sync_block();
    });
    assert_int_equal(r.errors.size(), 1);
    assert_true(r.errors[0].what == emu::kind::deadlock);
    for (const char *part : {"32 threads ended", "32 threads at sync_named in line ", "32 threads at sync_block in line "})
        if (r.text().find(part) == std::string::npos) fail_msg("\"%s\" is not in %s", part, r.text().c_str());
}

void an_error_is_reported_once_a_line(void **) {
    emu::device device;
    u32 *p = device.array<u32>(32, "the list");
    const emu::report r = device.launch(make_config(4, 64, 0, 1), [=] {
        for (int i = 0; i < 3; i++) ld_global(p + 32 + i);
        ld_global(p + 33);
    });
    assert_int_equal(r.errors.size(), 2);
    assert_int_equal(r.errors[0].line + 1, r.errors[1].line);
    assert_non_null(strstr(r.text().c_str(), "the list at byte 128 of 128"));
    assert_non_null(strstr(r.text().c_str(), "test_launch.cpp:"));
}

void launches_after_an_error_are_sound(void **) {
    emu::device device;
    for (int i = 0; i < 50; i++)
        assert_int_equal(device
                             .launch(make_config(2, 128, 0, 1),
                                     [] {
                                         if (lane() < 16)
                                             shfl(1, 2);
                                         else
                                             sync_warp();
                                     })
                             .errors.size(),
                         1);
    assert_true(order_of(3) == order_of(3));
}

void limits_of_a_launch(void **) {
    emu::device device;
    const auto refused = [&](const std::function<void(emu::config &)> &change) {
        emu::config c = make_config(1, 128, 1024, 1);
        change(c);
        const emu::report r = device.launch(c, [] { fail_msg("the kernel ran"); });
        return r.errors.size() == 1 && r.errors[0].what == emu::kind::launch_limits;
    };
    assert_true(refused([](emu::config &c) { c.threads = 1056; }));
    assert_true(refused([](emu::config &c) { c.threads = 40; }));
    assert_true(refused([](emu::config &c) { c.shared_bytes = 228 << 10; }));
    assert_true(refused([](emu::config &c) { c.shared_bytes = 164 << 10, c.sm = 80; }));
    assert_true(refused([](emu::config &c) { c.shared_bytes = 120 << 10, c.blocks_per_sm = 2; }));
    assert_true(refused([](emu::config &c) { c.threads = 512, c.registers = 168; }));
}

/* ---- Device memory ---- */

void device_memory(void **) {
    emu::device device;
    u32 *a = device.array<u32>(100, "a"), *b = device.array<u32>(100, "b");
    assert_int_equal(a[99], 0xffffffff);
    assert_int_equal(reinterpret_cast<uintptr_t>(a) % 4096, 0);
    assert_true(device.owns(a, 400));
    assert_false(device.owns(a, 401));
    assert_false(device.owns(a + 100, 4));
    device.free(a);
    assert_false(device.owns(a, 4));
    assert_true(device.owns(b, 4));
    u32 host[32] = {};
    const u32 *const p = host;
    const emu::report r = device.launch(make_config(1, 32, 0, 1), [=] { ld_global(p + lane()); });
    assert_int_equal(r.errors.size(), 1);
    assert_true(r.errors[0].what == emu::kind::device_bounds);
}

/* What a launch wrote is there for the next one. */
void launches_follow_each_other(void **) {
    emu::device device;
    u32 *p = device.array<u32>(64, "p");
    run(device, make_config(2, 32, 0, 1), [=] { st_global(p + block_index() * 32 + lane(), (u32)lane()); });
    run(device, make_config(2, 32, 0, 1),
        [=] { st_global(p + lane() + (1 - block_index()) * 32, ld_global(p + lane() + (1 - block_index()) * 32) + 1); });
    for (u32 i = 0; i < 64; i++) assert_int_equal(p[i], i % 32 + 1);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(sectors),
        cmocka_unit_test(lanes_that_take_other_paths),
        cmocka_unit_test(wavefronts),
        cmocka_unit_test(instructions),
        cmocka_unit_test(a_seed_is_an_order),
        cmocka_unit_test(host_threads_are_independent),
        cmocka_unit_test(more_blocks_than_resident),
        cmocka_unit_test(a_pipeline),
        cmocka_unit_test(a_deadlock_says_who_waits_where),
        cmocka_unit_test(an_error_is_reported_once_a_line),
        cmocka_unit_test(launches_after_an_error_are_sound),
        cmocka_unit_test(limits_of_a_launch),
        cmocka_unit_test(device_memory),
        cmocka_unit_test(launches_follow_each_other),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

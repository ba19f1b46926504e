/*
 * wgmma and setmaxnreg for nvcc, included by device_primitives.h only. The instruction names each of its N / 2 accumulators, so
 * every N has an operand list of its own; each list is the one before and four more.
 */
#ifndef CHUNKATTN_CUDA_DEVICE_WGMMA_H
#define CHUNKATTN_CUDA_DEVICE_WGMMA_H

#define ACC(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])

#define NAMES_8   "%0, %1, %2, %3"
#define NAMES_16  NAMES_8 ", %4, %5, %6, %7"
#define NAMES_24  NAMES_16 ", %8, %9, %10, %11"
#define NAMES_32  NAMES_24 ", %12, %13, %14, %15"
#define NAMES_40  NAMES_32 ", %16, %17, %18, %19"
#define NAMES_48  NAMES_40 ", %20, %21, %22, %23"
#define NAMES_56  NAMES_48 ", %24, %25, %26, %27"
#define NAMES_64  NAMES_56 ", %28, %29, %30, %31"
#define NAMES_72  NAMES_64 ", %32, %33, %34, %35"
#define NAMES_80  NAMES_72 ", %36, %37, %38, %39"
#define NAMES_88  NAMES_80 ", %40, %41, %42, %43"
#define NAMES_96  NAMES_88 ", %44, %45, %46, %47"
#define NAMES_104 NAMES_96 ", %48, %49, %50, %51"
#define NAMES_112 NAMES_104 ", %52, %53, %54, %55"
#define NAMES_120 NAMES_112 ", %56, %57, %58, %59"
#define NAMES_128 NAMES_120 ", %60, %61, %62, %63"
#define NAMES_136 NAMES_128 ", %64, %65, %66, %67"
#define NAMES_144 NAMES_136 ", %68, %69, %70, %71"
#define NAMES_152 NAMES_144 ", %72, %73, %74, %75"
#define NAMES_160 NAMES_152 ", %76, %77, %78, %79"
#define NAMES_168 NAMES_160 ", %80, %81, %82, %83"
#define NAMES_176 NAMES_168 ", %84, %85, %86, %87"
#define NAMES_184 NAMES_176 ", %88, %89, %90, %91"
#define NAMES_192 NAMES_184 ", %92, %93, %94, %95"
#define NAMES_200 NAMES_192 ", %96, %97, %98, %99"
#define NAMES_208 NAMES_200 ", %100, %101, %102, %103"
#define NAMES_216 NAMES_208 ", %104, %105, %106, %107"
#define NAMES_224 NAMES_216 ", %108, %109, %110, %111"
#define NAMES_232 NAMES_224 ", %112, %113, %114, %115"
#define NAMES_240 NAMES_232 ", %116, %117, %118, %119"
#define NAMES_248 NAMES_240 ", %120, %121, %122, %123"
#define NAMES_256 NAMES_248 ", %124, %125, %126, %127"

#define ACCS_8   ACC(0)
#define ACCS_16  ACCS_8, ACC(1)
#define ACCS_24  ACCS_16, ACC(2)
#define ACCS_32  ACCS_24, ACC(3)
#define ACCS_40  ACCS_32, ACC(4)
#define ACCS_48  ACCS_40, ACC(5)
#define ACCS_56  ACCS_48, ACC(6)
#define ACCS_64  ACCS_56, ACC(7)
#define ACCS_72  ACCS_64, ACC(8)
#define ACCS_80  ACCS_72, ACC(9)
#define ACCS_88  ACCS_80, ACC(10)
#define ACCS_96  ACCS_88, ACC(11)
#define ACCS_104 ACCS_96, ACC(12)
#define ACCS_112 ACCS_104, ACC(13)
#define ACCS_120 ACCS_112, ACC(14)
#define ACCS_128 ACCS_120, ACC(15)
#define ACCS_136 ACCS_128, ACC(16)
#define ACCS_144 ACCS_136, ACC(17)
#define ACCS_152 ACCS_144, ACC(18)
#define ACCS_160 ACCS_152, ACC(19)
#define ACCS_168 ACCS_160, ACC(20)
#define ACCS_176 ACCS_168, ACC(21)
#define ACCS_184 ACCS_176, ACC(22)
#define ACCS_192 ACCS_184, ACC(23)
#define ACCS_200 ACCS_192, ACC(24)
#define ACCS_208 ACCS_200, ACC(25)
#define ACCS_216 ACCS_208, ACC(26)
#define ACCS_224 ACCS_216, ACC(27)
#define ACCS_232 ACCS_224, ACC(28)
#define ACCS_240 ACCS_232, ACC(29)
#define ACCS_248 ACCS_240, ACC(30)
#define ACCS_256 ACCS_248, ACC(31)

/* Operands after the accumulators: A's descriptor or four registers, B's descriptor, whether to add. */
#define WGMMA_SS(N, types, n_a, n_b, n_add, n_trans_a, n_trans_b)                                                              \
    asm volatile("{ .reg .pred p;\n setp.ne.u32 p, %" n_add ", 0;\n"                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." types " {" NAMES_##N                                        \
                 "}, %" n_a ", %" n_b ", p, 1, 1, %" n_trans_a ", %" n_trans_b "; }"                                           \
                 : ACCS_##N                                                                                                    \
                 : "l"(a), "l"(b), "r"((u32)add), "n"((int)A), "n"((int)B))
#define WGMMA_RS(N, types, n_a0, n_a1, n_a2, n_a3, n_b, n_add, n_trans_b)                                                      \
    asm volatile("{ .reg .pred p;\n setp.ne.u32 p, %" n_add ", 0;\n"                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." types " {" NAMES_##N                                        \
                 "}, {%" n_a0 ", %" n_a1 ", %" n_a2 ", %" n_a3 "}, %" n_b ", p, 1, 1, %" n_trans_b "; }"                       \
                 : ACCS_##N                                                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)add), "n"((int)B))
#define WGMMA_CASE(N, o0, o1, o2, o3, o4, o5, o6)                                                                              \
    if constexpr (ROWS * 8 == N) {                                                                                             \
        if constexpr (E == BF16)                                                                                               \
            WGMMA_FORM(N, "bf16.bf16", o0, o1, o2, o3, o4, o5, o6);                                                            \
        else                                                                                                                   \
            WGMMA_FORM(N, "f16.f16", o0, o1, o2, o3, o4, o5, o6);                                                              \
    }
#define WGMMA_CASES                                                                                                            \
    WGMMA_CASE(8, "4", "5", "6", "7", "8", "9", "10")                                                                          \
    WGMMA_CASE(16, "8", "9", "10", "11", "12", "13", "14")                                                                     \
    WGMMA_CASE(24, "12", "13", "14", "15", "16", "17", "18")                                                                   \
    WGMMA_CASE(32, "16", "17", "18", "19", "20", "21", "22")                                                                   \
    WGMMA_CASE(40, "20", "21", "22", "23", "24", "25", "26")                                                                   \
    WGMMA_CASE(48, "24", "25", "26", "27", "28", "29", "30")                                                                   \
    WGMMA_CASE(56, "28", "29", "30", "31", "32", "33", "34")                                                                   \
    WGMMA_CASE(64, "32", "33", "34", "35", "36", "37", "38")                                                                   \
    WGMMA_CASE(72, "36", "37", "38", "39", "40", "41", "42")                                                                   \
    WGMMA_CASE(80, "40", "41", "42", "43", "44", "45", "46")                                                                   \
    WGMMA_CASE(88, "44", "45", "46", "47", "48", "49", "50")                                                                   \
    WGMMA_CASE(96, "48", "49", "50", "51", "52", "53", "54")                                                                   \
    WGMMA_CASE(104, "52", "53", "54", "55", "56", "57", "58")                                                                  \
    WGMMA_CASE(112, "56", "57", "58", "59", "60", "61", "62")                                                                  \
    WGMMA_CASE(120, "60", "61", "62", "63", "64", "65", "66")                                                                  \
    WGMMA_CASE(128, "64", "65", "66", "67", "68", "69", "70")                                                                  \
    WGMMA_CASE(136, "68", "69", "70", "71", "72", "73", "74")                                                                  \
    WGMMA_CASE(144, "72", "73", "74", "75", "76", "77", "78")                                                                  \
    WGMMA_CASE(152, "76", "77", "78", "79", "80", "81", "82")                                                                  \
    WGMMA_CASE(160, "80", "81", "82", "83", "84", "85", "86")                                                                  \
    WGMMA_CASE(168, "84", "85", "86", "87", "88", "89", "90")                                                                  \
    WGMMA_CASE(176, "88", "89", "90", "91", "92", "93", "94")                                                                  \
    WGMMA_CASE(184, "92", "93", "94", "95", "96", "97", "98")                                                                  \
    WGMMA_CASE(192, "96", "97", "98", "99", "100", "101", "102")                                                               \
    WGMMA_CASE(200, "100", "101", "102", "103", "104", "105", "106")                                                           \
    WGMMA_CASE(208, "104", "105", "106", "107", "108", "109", "110")                                                           \
    WGMMA_CASE(216, "108", "109", "110", "111", "112", "113", "114")                                                           \
    WGMMA_CASE(224, "112", "113", "114", "115", "116", "117", "118")                                                           \
    WGMMA_CASE(232, "116", "117", "118", "119", "120", "121", "122")                                                           \
    WGMMA_CASE(240, "120", "121", "122", "123", "124", "125", "126")                                                           \
    WGMMA_CASE(248, "124", "125", "126", "127", "128", "129", "130")                                                           \
    WGMMA_CASE(256, "128", "129", "130", "131", "132", "133", "134")

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define IF_90A(...) __VA_ARGS__
#else
#define IF_90A(...) __trap();
#endif

#define WGMMA_FORM(N, types, o0, o1, o2, o3, o4, o5, o6) WGMMA_SS(N, types, o0, o1, o2, o3, o4)
template <element E, major A, major B, int ROWS> DEV void wgmma(float (&d)[ROWS][4], u64 a, u64 b, bool add) {
    static_assert(ROWS <= 32, "N is at most 256");
    IF_90A(WGMMA_CASES)
}
#undef WGMMA_FORM
#define WGMMA_FORM WGMMA_RS
template <element E, major B, int ROWS> DEV void wgmma(float (&d)[ROWS][4], const u32 (&a)[4], u64 b, bool add) {
    static_assert(ROWS <= 32, "N is at most 256");
    IF_90A(WGMMA_CASES)
}

DEV void wgmma_commit() { IF_90A(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");) }
/* No instruction: the compiler must take them as written here. */
template <int ROWS> DEV void touch(float (&d)[ROWS][4]) {
    UNROLL
    for (int j = 0; j < ROWS; j++) asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
}
DEV void touch(u32 (&a)[4]) { asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory"); }
template <int STEPS> DEV void touch(u32 (&a)[STEPS][4]) {
    UNROLL
    for (int j = 0; j < STEPS; j++) touch(a[j]);
}
template <class... D> DEV void wgmma_fence(D &...d) {
    (touch(d), ...);
    IF_90A(asm volatile("wgmma.fence.sync.aligned;" ::: "memory");)
}
template <int PENDING, class... D> DEV void wgmma_wait(D &...d) {
    IF_90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");)
    (touch(d), ...);
}

template <int N> DEV void registers_increase() { IF_90A(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));) }
template <int N> DEV void registers_decrease() { IF_90A(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));) }

#endif

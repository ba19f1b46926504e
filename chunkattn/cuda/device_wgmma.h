/*
 * wgmma and setmaxnreg for nvcc, included by device_primitives.h only. The instruction names each of its N / 2 accumulators, so
 * every N has an operand list of its own; each list begins with the one before.
 */
#ifndef CHUNKATTN_CUDA_DEVICE_WGMMA_H
#define CHUNKATTN_CUDA_DEVICE_WGMMA_H

#define ACC(j)   "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define ACC_4(j) ACC(j), ACC(j + 1), ACC(j + 2), ACC(j + 3)

#define ACCS_32  ACC_4(0)
#define ACCS_64  ACCS_32, ACC_4(4)
#define ACCS_128 ACCS_64, ACC_4(8), ACC_4(12)
#define ACCS_256 ACCS_128, ACC_4(16), ACC_4(20), ACC_4(24), ACC_4(28)

#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_64 NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_128                                                                                                              \
    NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                                \
             ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_256                                                                                                              \
    NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                               \
              ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                               \
              ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"                   \
              ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* Operands after the accumulators: A's descriptor or four registers, B's descriptor, whether to add. */
#define WGMMA_SS(N, types, n_a, n_b, n_add, n_trans_b)                                                                         \
    asm volatile("{ .reg .pred p;\n setp.ne.u32 p, %" n_add ", 0;\n"                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." types " {" NAMES_##N "}, %" n_a ", %" n_b                   \
                                                                                        ", p, 1, 1, 0, %" n_trans_b "; }"      \
                 : ACCS_##N                                                                                                    \
                 : "l"(a), "l"(b), "r"((u32)add), "n"((int)B))
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
    WGMMA_CASE(32, "16", "17", "18", "19", "20", "21", "22")                                                                   \
    WGMMA_CASE(64, "32", "33", "34", "35", "36", "37", "38")                                                                   \
    WGMMA_CASE(128, "64", "65", "66", "67", "68", "69", "70")                                                                  \
    WGMMA_CASE(256, "128", "129", "130", "131", "132", "133", "134")

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define IF_90A(...) __VA_ARGS__
#else
#define IF_90A(...) __trap();
#endif

template <int N> constexpr bool is_wgmma_n = N == 32 || N == 64 || N == 128 || N == 256;
#define WGMMA_FORM(N, types, o0, o1, o2, o3, o4, o5, o6) WGMMA_SS(N, types, o0, o1, o2, o3)
template <element E, major B, int ROWS> DEV void wgmma(float (&d)[ROWS][4], u64 a, u64 b, bool add) {
    static_assert(is_wgmma_n<ROWS * 8>, "the instructions that kernels use");
    IF_90A(WGMMA_CASES)
}
#undef WGMMA_FORM
#define WGMMA_FORM WGMMA_RS
template <element E, major B, int ROWS> DEV void wgmma(float (&d)[ROWS][4], const u32 (&a)[4], u64 b, bool add) {
    static_assert(is_wgmma_n<ROWS * 8>, "the instructions that kernels use");
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

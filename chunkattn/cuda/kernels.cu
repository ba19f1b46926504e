/* All kernels of kernels.def in one translation unit. */
#include "decode.cuh"
#include "prefill.cuh"
#include "prefill_wgmma.cuh"
#include "products.cuh"
#include "write.cuh"

/*
 * For each device function, a constant of the same name with what the function needs of a block. Inside this namespace a row's
 * last field is thus an expression, whose value must equal the row's threads and shared bytes.
 */
namespace block_of {
struct needs {
    u32 n_threads, shared_bytes;
};
template <auto... A> constexpr needs decode = {decode_shape<A...>::THREADS, decode_shape<A...>::SHARED};
template <auto... A> constexpr needs prefill = {prefill_shape<A...>::THREADS, prefill_shape<A...>::SHARED};
template <auto... A> constexpr needs prefill_wgmma = {prefill_shape<A...>::BLOCK_THREADS, prefill_shape<A...>::SHARED};
template <int D> constexpr needs write_bf16 = {WRITE_THREADS, 0};
template <int D> constexpr needs write_f16 = {WRITE_THREADS, 0};
template <int D> constexpr needs write_e4m3 = {WRITE_THREADS, 0};
template <int D> constexpr needs copy = {WRITE_THREADS, 0};
template <int D> constexpr needs copy_e4m3 = {WRITE_THREADS, 0};
template <element E, bool BY_WGMMA> constexpr needs products = {128, BY_WGMMA ? PRODUCT_SHARED_WGMMA : PRODUCT_SHARED};

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    static_assert((function).n_threads == (threads) && (function).shared_bytes == (shared),                                    \
                  "kernels.def: threads or shared of " #name);
#include "kernels.def"
#undef CA_CUDA_KERNEL
} // namespace block_of

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    KERNEL(threads, blocks, ca_cuda_##name, const args a) { FROM_SM(sm, (function)(a)); }
#include "kernels.def"
#undef CA_CUDA_KERNEL

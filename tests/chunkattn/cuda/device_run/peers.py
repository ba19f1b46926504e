#!/usr/bin/env python3
"""Times a decode step of one layer by PyTorch, FlashAttention and FlashInfer on a CUDA device, in the shapes that `bench` times.

peers.py SHAPE ...     shared_N or table3_N_SHARED: 32 sequences of N tokens each, which share the first SHARED (or all)

    sdpa           PyTorch's scaled_dot_product_attention: each sequence has its own contiguous K/V
    flash_attn     FlashAttention's flash_attn_with_kvcache, over the same K/V
    paged          FlashInfer over pages of 64 tokens, one copy for each sequence
    paged_shared   the same over shared pages, which each sequence reads
    cascade        FlashInfer's cascade: shared pages are read once for all sequences

Prints a line of tab-separated values for each shape and form. As in `bench`, a graph has one call for each layer, layers have K/V
of their own, several times as large as L2 together, and a time is the median of the graph's replays divided by the layers. The
results of all forms must agree with the first one's. Exits with 77, after saying why, where there is no device or no PyTorch; a
form that cannot be run has its reason in place of a time. Exits with 1 if results differ.
"""
import importlib
import re
import statistics
import sys

BATCH, HEADS, DIM, PAGE = 32, 32, 128, 64
TOLERANCE = 2e-2  # |V| is below 1, and bf16 rounds K, V, p and the output by at most 2^-9 each


def parse_shape(name):
    """(tokens, shared tokens)"""
    found = re.fullmatch(r"(?:shared|table3)_(\d+)(?:_(\d+))?", name)
    if not found or found.group(0).startswith("shared") != (found.group(2) is None):
        sys.exit(f"{name}: a shape is shared_N or table3_N_SHARED")
    n, shared = int(found.group(1)), int(found.group(2) or found.group(1))
    if n == 0 or shared > n or n % PAGE or shared % PAGE:
        sys.exit(f"{name}: N and SHARED must be multiples of {PAGE}, and SHARED at most N")
    return n, shared


def import_libraries():
    """torch, and each other library, or the reason why it is not there, by its name."""
    try:
        import torch
    except Exception as error:  # a broken installation raises other errors than ImportError
        print(f"PyTorch cannot be imported: {error}")
        sys.exit(77)
    if not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} finds no CUDA device")
        sys.exit(77)
    others = {}
    for name in ("flash_attn", "flashinfer"):
        try:
            others[name] = importlib.import_module(name)
        except Exception as error:
            others[name] = f"it cannot be imported: {error}"
    return torch, others


class Step:
    """One step: its queries, and K/V of several layers as pages [pages][2][64][heads][dim], shared ones first."""

    def __init__(self, torch, n, shared):
        self.torch, self.n_pages, self.n_shared = torch, n // PAGE, shared // PAGE
        self.q = self.random(BATCH, HEADS, DIM)

    def random(self, *shape):
        return (self.torch.rand(*shape, device="cuda") * 2 - 1).to(self.torch.bfloat16)

    def pages(self, shared_storage):
        """The page ids of each sequence: [batch][pages]."""
        common = self.n_shared if shared_storage else 0
        own = self.n_pages - common
        return [[i if i < common else common + s * own + i - common for i in range(self.n_pages)] for s in range(BATCH)]

    def layers(self, shared_storage):
        """K/V of each layer. All of them hold the same numbers, and both storages give a sequence the same tokens."""
        torch = self.torch
        torch.manual_seed(1)
        common = self.random(self.n_shared, 2, PAGE, HEADS, DIM)
        own = [self.random(self.n_pages - self.n_shared, 2, PAGE, HEADS, DIM) for _ in range(BATCH)]
        parts = [common, *own] if shared_storage else [part for o in own for part in (common, o)]
        first = torch.cat(parts)
        bytes_each, about = first.numel() * 2, torch.cuda.get_device_properties(0)
        n = min(256, max(4, 8 * about.L2_cache_size // bytes_each), int(0.6 * torch.cuda.mem_get_info()[0] // bytes_each))
        return [first] + [first.clone() for _ in range(n - 1)]


def contiguous(step, arrange):
    """K and V of each layer, from [batch][tokens][heads][dim]."""
    return [[arrange(kv[:, i].reshape(BATCH, -1, HEADS, DIM)).contiguous() for i in (0, 1)] for kv in step.layers(False)]


def sdpa(step, torch):
    q, attention = step.q.unsqueeze(2), torch.nn.functional.scaled_dot_product_attention
    return [lambda k=k, v=v: attention(q, k, v)[:, :, 0] for k, v in contiguous(step, lambda x: x.transpose(1, 2))]


def flash_attn(step, library):
    q, attention = step.q.unsqueeze(1), library.flash_attn_with_kvcache
    return [lambda k=k, v=v: attention(q, k, v)[:, 0] for k, v in contiguous(step, lambda x: x)]


def ints(step, values):
    return step.torch.tensor(values, dtype=step.torch.int32, device="cuda")


def workspace(step):
    return step.torch.empty(128 << 20, dtype=step.torch.uint8, device="cuda")


def paged(step, flashinfer, shared_storage=False):
    ids = [page for sequence in step.pages(shared_storage) for page in sequence]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(step), "NHD")
    wrapper.plan(ints(step, [s * step.n_pages for s in range(BATCH + 1)]), ints(step, ids), ints(step, [PAGE] * BATCH), HEADS, HEADS,
                 DIM, PAGE, q_data_type=step.torch.bfloat16, kv_data_type=step.torch.bfloat16)
    return [lambda kv=kv: wrapper.run(step.q, kv) for kv in step.layers(shared_storage)]


def paged_shared(step, flashinfer):
    return paged(step, flashinfer, True)


def cascade(step, flashinfer):
    """Two levels: the pages that all rows share, and those of each row alone. The second is omitted where it has no pages."""
    own = step.n_pages - step.n_shared
    levels = [([0, BATCH], [0, step.n_shared], list(range(step.n_shared)), [PAGE])]
    if own:
        ids = [page for sequence in step.pages(True) for page in sequence[step.n_shared:]]
        levels.append((list(range(BATCH + 1)), [s * own for s in range(BATCH + 1)], ids, [PAGE] * BATCH))
    arrays = [[ints(step, values) for values in column] for column in zip(*levels)]
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(len(levels), workspace(step), "NHD")
    wrapper.plan(*arrays, HEADS, HEADS, DIM, PAGE, q_data_type=step.torch.bfloat16)
    return [lambda kv=kv: wrapper.run(step.q, kv) for kv in step.layers(True)]


def time_us(torch, calls):
    """Of one call."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for i in range(51):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if i > 0:
            times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)


def measure(torch, others, name):
    """Whether the results agree."""
    step, expected, agree = Step(torch, *parse_shape(name)), None, True
    for form in (sdpa, flash_attn, paged, paged_shared, cascade):
        library = torch if form is sdpa else others["flash_attn" if form is flash_attn else "flashinfer"]
        if form in (paged_shared, cascade) and step.n_shared == 0:
            continue
        try:
            if isinstance(library, str):
                raise RuntimeError(library)
            calls = form(step, library)
            result = calls[0]().float()
            expected = result if expected is None else expected
            worst = (result - expected).abs().max().item()
            agree &= worst < TOLERANCE
            print(f"{name}\t{form.__name__}\t{len(calls)}\t{time_us(torch, calls):.2f}\t{worst:.1g}", flush=True)
        except Exception as error:  # one form's failure must not stop the others
            print(f"{name}\t{form.__name__}\t\tnot run: {str(error).splitlines()[0] if str(error) else repr(error)}\t", flush=True)
        calls = result = None
        torch.cuda.empty_cache()
    return agree


def main():
    names = sys.argv[1:]
    if not names:
        sys.exit("usage: peers.py SHAPE ...")
    for name in names:
        parse_shape(name)
    torch, others = import_libraries()
    print(", ".join(f"{name} {getattr(library, '__version__', 'is not there')}" for name, library in {"PyTorch": torch, **others}.items()))
    print("shape\tform\tlayers\tmedian us\tlargest difference")
    with torch.inference_mode():
        agree = [measure(torch, others, name) for name in names]
    sys.exit(0 if all(agree) else 1)


main()

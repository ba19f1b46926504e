"""PyTorch's scaled_dot_product_attention on the CPU, in several forms; run.py starts it.

private    each sequence has its own contiguous K/V, and its row is a batch entry, as engines do by default
unified    the shared tokens once, then the own tokens of all sequences, in one run of K/V; the rows are one matrix under a mask
cascade    the shared tokens by all rows as one matrix, the own ones by each, merged by their log-sum-exp: put together by hand
           from the operator behind scaled_dot_product_attention, which alone gives a log-sum-exp
"""
import torch
import torch.nn.functional as F

import peer

TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def forms_of(shape, tokens, name, dtype):
    b, h, d = shape.batch, shape.heads, shape.head_dim
    q, shared, own = [torch.from_numpy(tokens[0]), [torch.from_numpy(x) for x in tokens[1]],
                      [torch.from_numpy(x) for x in tokens[2]]]
    token_bytes = 2 * h * d * dtype.itemsize
    out = {}

    def form(kind, kv, run, result):
        def keep(layer):
            out[kind] = run(kv[layer])

        return peer.Form(kind, name, len(kv), keep, lambda: result(out[kind]).float().numpy())

    def copies(n_tokens, make):
        return [tuple(make(i).to(dtype).contiguous() for i in range(2)) for _ in range(shape.n_layers(n_tokens * token_bytes))]

    rows = q.transpose(0, 1).unsqueeze(0).to(dtype).contiguous()  # [1][heads][batch][dim]
    entries = q.unsqueeze(2).to(dtype).contiguous()               # [batch][heads][1][dim]
    mask = torch.from_numpy(shape.own_tokens_mask())
    mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, float("-inf"))

    private = copies(b * (shape.shared + shape.own),
                     lambda i: torch.cat([shared[i].expand(b, -1, -1, -1), own[i]], dim=2))
    unified = copies(shape.shared + b * shape.own,
                     lambda i: torch.cat([shared[i], own[i].transpose(0, 1).reshape(h, b * shape.own, d)], dim=1).unsqueeze(0))
    parts = list(zip(copies(shape.shared, lambda i: shared[i].unsqueeze(0)), copies(b * shape.own, lambda i: own[i])))

    def cascade(kv):
        (k, v), (own_k, own_v) = kv
        o, lse = flash(rows, k, v)                       # [1][heads][batch][dim], [1][heads][batch]
        own_o, own_lse = flash(entries, own_k, own_v)    # [batch][heads][1][dim], [batch][heads][1]
        weight = torch.sigmoid(lse[0].transpose(0, 1) - own_lse[:, :, 0]).unsqueeze(2)
        return torch.lerp(own_o[:, :, 0].float(), o[0].transpose(0, 1).float(), weight)

    return [
        form("private", private, lambda kv: F.scaled_dot_product_attention(entries, *kv), lambda o: o[:, :, 0]),
        form("unified", unified, lambda kv: F.scaled_dot_product_attention(rows, *kv, attn_mask=mask), lambda o: o[0].transpose(0, 1)),
        form("cascade", parts, cascade, lambda o: o),
    ]


def main():
    shape = peer.Shape.from_argv()
    torch.set_num_threads(shape.threads)
    tokens = shape.tokens()
    with torch.inference_mode():
        forms = [form for name, dtype in TYPES.items() for form in forms_of(shape, tokens, name, dtype)]
        about = f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
        peer.serve(about, shape, tokens, forms)


main()

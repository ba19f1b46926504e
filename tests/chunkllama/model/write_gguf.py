"""Models for the tests: SmolLM2 with its weights written out in F32, and small random ones."""

import dataclasses

import gguf
import numpy as np
import first_layers
from archs import ARCHS
from gguf.quants import dequantize, quantize
from random_blocks import BLOCKS, random_blocks

Type = gguf.GGMLQuantizationType
QUANTISABLE = {Type[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")}  # by gguf.quants; others have random blocks
value_type = gguf.GGUFValueType
N_STATES, RANK = 4, 32  # of models with several states of a row, and low-rank products


def write(path, architecture, fields, tensors):
    """fields: (name, value, type, element type); tensors: name to (float32 array, or bytes in the file's form; type)."""
    writer = gguf.GGUFWriter(path, architecture)
    for field in fields:
        writer.add_key_value(*field)
    for name, (values, tensor_type) in tensors.items():
        if tensor_type == Type.F32 or values.dtype == np.uint8:
            writer.add_tensor(name, values, raw_dtype=tensor_type)
        else:
            writer.add_tensor(name, quantize(values, tensor_type), raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def in_f32(source, path):
    """The model `source` with every weight dequantised, so that no product quantises activations."""
    reader = gguf.GGUFReader(source)
    tensors = {}
    for t in reader.tensors:
        values = np.asarray(dequantize(t.data, t.tensor_type), np.float32)
        tensors[t.name] = (values.reshape([int(n) for n in t.shape[::-1]]), Type.F32)
    write(path, "llama", first_layers.fields(reader), tensors)


@dataclasses.dataclass
class Layer:
    window: bool  # whether it has the window
    n_kv_heads: int
    head_dim: int
    n_q: int
    n_kv: int
    n_ff: int


def layers_of(a, n_layers, n_heads, n_kv_heads, head_dim, n_ff, options):
    """The layers' shapes. options, for models whose layers differ: full_every (such a layer has no window), window_head_dim,
    full_kv_heads, shared_kv (so many layers at the end have the K and V of others) and wide (these have twice the n_ff)."""
    full_every, shared = options.get("full_every", a.full_every), shared_layers(n_layers, options)
    layers = []
    for i in range(n_layers):
        window = "full_every" in options and (i + 1) % full_every != 0
        d = options.get("window_head_dim", head_dim) if window else head_dim
        kv = n_kv_heads if window else options.get("full_kv_heads", n_kv_heads)
        layers.append(Layer(window, kv, d, n_heads * d, kv * d, n_ff * (2 if options.get("wide") and i >= n_layers - shared else 1)))
    return layers


def shared_layers(n_layers, options):
    """Their number, with at least one layer of each kind before them."""
    return max(0, min(options.get("shared_kv", 0), n_layers - options.get("full_every", 1)))


def layer_fields(arch, layers, head_dim, options):
    """Metadata of layers that differ, which replace those of all layers."""
    full_every, n = options["full_every"], len(layers)
    values = {
        "attention.head_count_kv": ([layer.n_kv_heads for layer in layers], value_type.ARRAY, value_type.UINT32),
        "feed_forward_length": ([layer.n_ff for layer in layers], value_type.ARRAY, value_type.UINT32),
        "attention.sliding_window_pattern": ([layer.window for layer in layers], value_type.ARRAY, value_type.BOOL),
        "attention.shared_kv_layers": (shared_layers(n, options), value_type.UINT32),
        "embedding_length_per_layer_input": (options.get("layer_embd", 0), value_type.UINT32),
        "rope.freq_base_swa": (ARCHS[arch].window_base, value_type.FLOAT32),
    }
    if "window_head_dim" in options:
        lengths = ("rope.dimension_count_swa", "attention.key_length_swa", "attention.value_length_swa")
        values |= {name: (options["window_head_dim"], value_type.UINT32) for name in lengths}
    if ARCHS[arch].altup:
        cuts = [float(x) for x in options["cuts"]][:n]
        values |= {"altup.num_inputs": (N_STATES, value_type.UINT32), "altup.active_idx": (0, value_type.UINT32),
                   "activation_sparsity_scale": (cuts, value_type.ARRAY, value_type.FLOAT32)}  # fmt: skip
    return {f"{arch}.{name}": value for name, value in values.items()}


def altup_tensors(rng, at, n_embd):
    """Those of a layer that are F32 in every file."""
    shapes = {"router": (N_STATES, n_embd), "predict_coef": (N_STATES**2, N_STATES), "correct_coef": (N_STATES, N_STATES)}
    values = {name: rng.normal(0, (1 if name == "router" else 0.4) / np.sqrt(shape[-1]), shape) for name, shape in shapes.items()}
    values |= {"router_norm": rng.uniform(0.6, 1.4, n_embd) * n_embd, "correct_scale": rng.uniform(0.6, 1.4, n_embd)}
    return {f"{at}altup_{name}.weight": (tensor.astype(np.float32), Type.F32) for name, tensor in values.items()}


def vectors(arch, layers, n_embd, biases, options):
    """The norms and the biases of an architecture: two dicts of name to length."""
    a = ARCHS[arch]
    norms, offsets = {"output_norm": n_embd}, {}
    layer_embd, experts = options.get("layer_embd"), options.get("experts", {})
    if layer_embd:
        norms["per_layer_proj_norm"] = layer_embd
    for i, layer in enumerate(layers):
        n_q, n_kv, n_ff = layer.n_q, layer.n_kv, layer.n_ff
        q_norm, k_norm = dict(head=(layer.head_dim, layer.head_dim)).get(a.qk_norm, (n_q, n_kv))
        of = dict(qkv=dict(attn_q=n_q, attn_k=n_kv, attn_v=n_kv), output=dict(attn_output=n_embd),
                  ffn={**({"ffn_gate": n_ff} if a.gated else {}), "ffn_up": n_ff, "ffn_down": n_embd})  # fmt: skip
        sizes = {}
        if a.before:
            sizes |= {"attn_norm": n_embd} | ({} if a.parallel else {a.ffn_norm: n_embd})
        if a.qk_norm:
            sizes |= dict(attn_q_norm=q_norm, attn_k_norm=k_norm)
        if a.behind:
            sizes |= dict(post_attention_norm=n_embd, post_ffw_norm=n_embd)
        if layer_embd:
            sizes["post_norm"] = n_embd
        if a.altup:
            sizes["laurel_post_norm"] = n_embd
        if a.beside and experts:
            sizes |= dict(pre_ffw_norm_2=n_embd, post_ffw_norm_1=n_embd, post_ffw_norm_2=n_embd)
        norms |= {f"blk.{i}.{part}": n for part, n in sizes.items()}
        for word in biases.split():
            offsets |= {f"blk.{i}.{part}": n for part, n in of.get(word, {}).items()}
    if "norm" in biases.split():
        offsets |= {name: n for name, n in norms.items() if "_q_norm" not in name and "_k_norm" not in name}
    return norms, offsets


def expert_fields(arch, experts):
    values = dict(expert_count=experts["n"], expert_used_count=experts["used"], expert_feed_forward_length=experts["n_ff"],
                  expert_shared_feed_forward_length=experts.get("shared", 0), leading_dense_block_count=experts.get("dense", 0))  # fmt: skip
    if "groups" in experts:
        values |= dict(zip(("expert_group_count", "expert_group_used_count"), experts["groups"]))
    return [(f"{arch}.{name}", value, value_type.UINT32) for name, value in values.items()] + [
        (f"{arch}.expert_weights_scale", experts.get("scale", 1.0), value_type.FLOAT32)
    ]


def expert_shapes(at, a, experts, n_embd):
    """experts: n, used, n_ff; shared: n_ff of the shared one; form: "all" in a tensor, "fused" gate and up, or "single" ones."""
    n, n_ff = experts["n"], experts["n_ff"]
    sizes = {"gate": (n_ff, n_embd), "up": (n_ff, n_embd), "down": (n_embd, n_ff)}
    if experts.get("form") == "fused":
        del sizes["gate"], sizes["up"]
        sizes["gate_up"] = (2 * n_ff, n_embd)
    shapes = {f"{at}ffn_{part}_exps": (n, *shape) for part, shape in sizes.items()}
    if experts.get("form") == "single":
        shapes = {f"{at}ffn_{part}.{e}": shape for part, shape in sizes.items() for e in range(n)}
    shared = experts.get("shared", 0)
    if shared:
        shapes |= {f"{at}ffn_gate_shexp": (shared, n_embd), f"{at}ffn_up_shexp": (shared, n_embd), f"{at}ffn_down_shexp": (n_embd, shared)}
    return shapes


def routers(rng, at, a, experts, n_embd):
    """The tensors of a layer that are F32 in every file."""
    deviation = 1.5 / np.sqrt(n_embd)
    tensors = {"ffn_gate_inp.weight": rng.normal(0, deviation, (experts["n"], n_embd))}
    if a.shared_router:
        tensors["ffn_gate_inp_shexp.weight"] = rng.normal(0, deviation, n_embd)
    if a.choice_bias:
        tensors["exp_probs_b.bias"] = rng.normal(0, 0.2, experts["n"])
    if a.expert_biases:
        n, n_ff = experts["n"], experts["n_ff"]
        sizes = {"ffn_gate_inp": n, "ffn_gate_exps": (n, n_ff), "ffn_up_exps": (n, n_ff), "ffn_down_exps": (n, n_embd)}
        tensors |= {name + ".bias": rng.normal(0, 0.3, size) for name, size in sizes.items()}
    if a.beside:
        tensors["ffn_gate_inp.scale"] = rng.uniform(0.6, 1.4, n_embd) * np.sqrt(n_embd)
        tensors["ffn_down_exps.scale"] = rng.uniform(0.6, 1.4, experts["n"])
    return {at + name: (values.astype(np.float32), Type.F32) for name, values in tensors.items()}


def random_model(path, types, n_heads, n_kv_heads, head_dim, n_layers=2, n_embd=160, n_ff=224, tied=False, arch="llama", **options):
    """A model of random weights. types: the tensor types that its matrices take in turn. options: rope_freqs, rope_factors_long and _short (arrays),
    rope_linear (a factor), rope_base, n_rot, biases (words of archs.Arch.biases), experts (expert_shapes; dense: layers without, groups: of experts and used ones, scale);
    those of layers_of, layer_embd (the length of layers' own embeddings), layer_vocab (how many tokens have them),
    values_are_keys (layers without a window have no V), cuts (of the layers' gates); replace_fields (name, in which ARCH. is the architecture, to (value, type)) and
    replace_tensors (name to (values, type)), None to leave one out."""
    rng = np.random.default_rng(7)
    a = ARCHS[arch]
    n_vocab = 3 + 256 + 2  # not a multiple of 16
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["a", "b"]
    kinds = [2, 3, 3] + [6] * 256 + [1, 1]
    value = value_type
    fields = [
        (f"{arch}.block_count", n_layers, value.UINT32),
        (f"{arch}.context_length", 2048, value.UINT32),
        (f"{arch}.embedding_length", n_embd, value.UINT32),
        (f"{arch}.feed_forward_length", n_ff, value.UINT32),
        (f"{arch}.attention.head_count", n_heads, value.UINT32),
        (f"{arch}.attention.head_count_kv", n_kv_heads, value.UINT32),
        (f"{arch}.attention.key_length", head_dim, value.UINT32),
        (f"{arch}.attention.value_length", head_dim, value.UINT32),
        (f"{arch}.rope.dimension_count", options.get("n_rot", head_dim), value.UINT32),
        (f"{arch}.rope.freq_base", float(options.get("rope_base", 10000)), value.FLOAT32),
        (f"{arch}.attention.layer_norm{'' if a.layer_norm else '_rms'}_epsilon", 1e-5, value.FLOAT32),
        ("tokenizer.ggml.model", "llama", value.STRING),
        ("tokenizer.ggml.tokens", tokens, value.ARRAY, value.STRING),
        ("tokenizer.ggml.scores", [0.0] * n_vocab, value.ARRAY, value.FLOAT32),
        ("tokenizer.ggml.token_type", kinds, value.ARRAY, value.INT32),
        ("tokenizer.ggml.unknown_token_id", 0, value.UINT32),
        ("tokenizer.ggml.bos_token_id", 1, value.UINT32),
        ("tokenizer.ggml.eos_token_id", 2, value.UINT32),
    ]
    if "rope_linear" in options:
        fields.append((f"{arch}.rope.scaling.type", "linear", value.STRING))
        fields.append((f"{arch}.rope.scaling.factor", float(options["rope_linear"]), value.FLOAT32))

    experts = options.get("experts")
    if experts:
        fields += expert_fields(arch, experts)
    layers = layers_of(a, n_layers, n_heads, n_kv_heads, head_dim, n_ff, options)
    layer_embd = options.get("layer_embd")
    if "full_every" in options:
        differing = layer_fields(arch, layers, head_dim, options)
        fields = [f for f in fields if f[0] not in differing] + [(name, *value) for name, value in differing.items()]
    shapes = {"token_embd": (n_vocab, n_embd)}
    if not tied:
        shapes["output"] = (n_vocab, n_embd)
    if layer_embd:
        n_tokens = options.get("layer_vocab", n_vocab)
        shapes |= {"per_layer_token_embd": (n_tokens, n_layers * layer_embd), "per_layer_model_proj": (n_layers * layer_embd, n_embd)}
    if a.altup:
        shapes |= {name: (N_STATES - 1, n_embd, n_embd) for name in ("altup_proj", "altup_unembd_proj")}
    for i, layer in enumerate(layers):
        n_q, n_kv, n_ff = layer.n_q, layer.n_kv, layer.n_ff
        if a.altup:
            shapes |= {f"blk.{i}.laurel_l": (RANK, n_embd), f"blk.{i}.laurel_r": (n_embd, RANK)}
        if layer_embd:
            shapes |= {f"blk.{i}.inp_gate": (layer_embd, n_embd), f"blk.{i}.proj": (n_embd, layer_embd)}
        if a.fused:
            shapes[f"blk.{i}.attn_qkv"] = (n_q + 2 * n_kv, n_embd)
        else:
            shapes |= {f"blk.{i}.attn_{part}": (n, n_embd) for part, n in dict(q=n_q, k=n_kv, v=n_kv).items()}
        if options.get("values_are_keys") and not layer.window:
            del shapes[f"blk.{i}.attn_v"]
        shapes[f"blk.{i}.attn_output"] = (n_embd, n_q)
        if experts and i >= experts.get("dense", 0):
            shapes |= expert_shapes(f"blk.{i}.", a, experts, n_embd)
            if not a.beside:
                continue
        if a.fused or a.fused_gate:
            shapes[f"blk.{i}.ffn_up"] = (2 * n_ff, n_embd)
        else:
            shapes |= {f"blk.{i}.ffn_{part}": (n_ff, n_embd) for part in (("gate", "up") if a.gated else ("up",))}
        shapes[f"blk.{i}.ffn_down"] = (n_embd, n_ff)
    tensors = {}
    for i, (name, shape) in enumerate(shapes.items()):
        tensor_type, deviation = types[i % len(types)], 1.5 / np.sqrt(shape[-1])
        if ".ffn_" in name and experts and experts.get("form") == "single":
            tensor_type = types[0]
        if tensor_type.name in BLOCKS and tensor_type not in QUANTISABLE:
            values = random_blocks(rng, tensor_type.name, int(np.prod(shape[:-1])), shape[-1], deviation)
            values = values.reshape(*shape[:-1], -1)
        else:
            values = rng.normal(0, deviation, shape).astype(np.float32)
        tensors[name + ".weight"] = (values, tensor_type)
    norms, biases = vectors(arch, layers, n_embd, options.get("biases", a.biases), options)
    for name, n in norms.items():
        values = rng.normal(1, 0.2, n).clip(0.5, 2).astype(np.float32)
        if a.qk_norm == "own" and name.endswith(("q_norm", "k_norm")):
            values = values.reshape(-1, head_dim)
        if a.unscaled and name.endswith("k_norm"):  # scores are of the usual size
            values /= np.sqrt(n, dtype=np.float32)
        tensors[name + ".weight"] = (values, Type.F32)
    for name, n in biases.items():
        tensors[name + ".bias"] = (rng.normal(0, 0.5, n).astype(np.float32), Type.F32)
    for i in range(n_layers):
        if a.sinks:
            tensors[f"blk.{i}.attn_sinks.weight"] = (rng.normal(0, 2, n_heads).astype(np.float32), Type.F32)
        if experts and i >= experts.get("dense", 0):
            tensors |= routers(rng, f"blk.{i}.", a, experts, n_embd)
        if a.altup:
            tensors |= altup_tensors(rng, f"blk.{i}.", n_embd)
        if a.layer_scale:
            tensors[f"blk.{i}.layer_output_scale.weight"] = (rng.uniform(0.7, 1.1, 1).astype(np.float32), Type.F32)
    for name in ("rope_freqs", "rope_factors_long", "rope_factors_short"):
        if name in options:
            tensors[name + ".weight"] = (np.asarray(options[name], np.float32), Type.F32)
    for name, new in options.get("replace_fields", {}).items():
        name = name.replace("ARCH.", arch + ".")
        fields = [f for f in fields if f[0] != name] + ([(name, *new)] if new else [])
    tensors.update(options.get("replace_tensors", {}))
    write(path, arch, fields, {name: tensor for name, tensor in tensors.items() if tensor})

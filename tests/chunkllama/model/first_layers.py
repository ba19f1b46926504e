#!/usr/bin/env python3
"""usage: first_layers.py MODEL.gguf N OUT.gguf   writes a model that ends after the first N layers of another."""
import pathlib
import sys

import gguf


def fields(reader):
    """The metadata of a file as (name, value, type, type of elements), but for what a writer writes by itself."""
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            is_array = field.types[0] == gguf.GGUFValueType.ARRAY
            yield field.name, field.contents(), field.types[0], field.types[-1] if is_array else None


def write_first_layers(source, n_layers, path):
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, value, *types in fields(reader):
        writer.add_key_value(name, n_layers if name == f"{architecture}.block_count" else value, *types)
    for tensor in reader.tensors:
        block, number, *_ = tensor.name.split(".")
        if block != "blk" or int(number) < n_layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    source, n_layers, path = sys.argv[1:]
    part = pathlib.Path(path + ".part")
    write_first_layers(source, int(n_layers), part)
    part.rename(path)

"""A server on a real port, for the time of a test; and a model that fills gaps."""

from pathlib import Path

import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from tests.own_server import Listening, listening


@pytest.fixture(name="listening")
def own_listening() -> Listening:
    """`async with listening(service, ...) as url:`"""
    return listening


@pytest.fixture(scope="session")
def coder(lamb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the embedded model whose tokens 5, 6 and 7 stand before a prefix, a suffix and the middle."""
    target = tmp_path_factory.mktemp("models") / "coder.gguf"
    reader = GGUFReader(lamb)
    writer = GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind, inner = field.types[0], field.types[-1]
            is_array = kind == GGUFValueType.ARRAY
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner if is_array else None)
    for token, part in enumerate(("pre", "suf", "mid"), 5):
        writer.add_uint32(f"tokenizer.ggml.fim_{part}_token_id", token)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target

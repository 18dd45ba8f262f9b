"""Makes projectors (mmproj) with random weights for the models of `tiny_gguf`, and images for them to look at.

llava    CLIP with a two-layer projection: 16 tokens, positions as of text
gemma3   SigLIP, pooled: 16 tokens, which all see each other
qwen     Qwen2-VL: as many tokens as the image needs, M-RoPE
anyres   LLaVA 1.6: tiles of 16 tokens right behind each other
idefics  Idefics 3, SmolVLM: tiles of 4 tokens, with text between them
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from PIL import Image
from tests.engine.tiny_gguf import N_EMBD, RECIPES, Shapes, Vocabulary, values, write

WIDTH, N_FF, N_LAYER, N_HEAD, PATCH = 32, 48, 2, 2, 8


@dataclass(frozen=True, slots=True)
class Projector:
    """One kind of projector, and the kind of model that it is for."""

    model: str
    kind: str
    tensors: Shapes
    image_size: int
    keys: Mapping[str, int | bool | list[int]] = field(default_factory=dict)


def _layers() -> Shapes:
    made: Shapes = {}
    for layer in range(N_LAYER):
        prefix = f"v.blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            made |= {f"{prefix}{name}.weight": (WIDTH, WIDTH), f"{prefix}{name}.bias": (WIDTH,)}
        for name in ("ln1", "ln2"):
            made |= {f"{prefix}{name}.weight": (WIDTH,), f"{prefix}{name}.bias": (WIDTH,)}
        made |= {f"{prefix}ffn_up.weight": (N_FF, WIDTH), f"{prefix}ffn_up.bias": (N_FF,)}
        made |= {f"{prefix}ffn_down.weight": (WIDTH, N_FF), f"{prefix}ffn_down.bias": (WIDTH,)}
    return made


def _patches(size: int, *, extra: int = 0) -> Shapes:
    return {
        "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH),
        "v.position_embd.weight": ((size // PATCH) ** 2 + extra, WIDTH),
    }


_CLIP = {
    "v.class_embd": (WIDTH,), "v.pre_ln.weight": (WIDTH,), "v.pre_ln.bias": (WIDTH,),
    "mm.0.weight": (N_EMBD, WIDTH), "mm.0.bias": (N_EMBD,),
    "mm.2.weight": (N_EMBD, N_EMBD), "mm.2.bias": (N_EMBD,),
}  # fmt: skip
_POST = {"v.post_ln.weight": (WIDTH,), "v.post_ln.bias": (WIDTH,)}

PROJECTORS = {
    "llava": Projector(
        "plain", "mlp",
        _layers() | _patches(32, extra=1) | _CLIP,
        32, {"use_gelu": True},
    ),
    "gemma3": Projector(
        "gemma3", "gemma3",
        _layers() | _patches(64) | _POST | {
            "v.patch_embd.bias": (WIDTH,), "mm.input_projection.weight": (WIDTH, N_EMBD),
            "mm.soft_emb_norm.weight": (WIDTH,),
        },
        64, {"use_gelu": True, "vision.projector.scale_factor": 2},
    ),
    "qwen": Projector(
        "mrope", "qwen2vl_merger",
        _layers() | _POST | {
            "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH), "v.patch_embd.weight.1": (WIDTH, 3, PATCH, PATCH),
            "mm.0.weight": (4 * WIDTH, 4 * WIDTH), "mm.0.bias": (4 * WIDTH,),
            "mm.2.weight": (N_EMBD, 4 * WIDTH), "mm.2.bias": (N_EMBD,),
        },
        64,
    ),
    "anyres": Projector(
        "plain", "mlp",
        _layers() | _patches(32, extra=1) | _CLIP,
        32, {"use_gelu": True, "vision.image_grid_pinpoints": [32, 64, 64, 32]},
    ),
    "idefics": Projector(
        "plain", "idefics3",
        _layers() | _patches(32) | _POST | {
            "v.patch_embd.bias": (WIDTH,), "mm.model.fc.weight": (N_EMBD, 4 * WIDTH),
        },
        32, {"use_gelu": True, "vision.projector.scale_factor": 2, "vision.preproc_image_size": 64},
    ),
}  # fmt: skip
TILED = ("anyres", "idefics")


def write_projector(kind: str | Projector, path: Path, *, seed: int = 11, n_embd: int = N_EMBD) -> None:
    """Write a projector; the same bytes every time. `n_embd`: of the model that it is for."""
    recipe, random = PROJECTORS[kind] if isinstance(kind, str) else kind, np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", recipe.kind)
    numbers = {
        "image_size": recipe.image_size, "patch_size": PATCH, "embedding_length": WIDTH, "feed_forward_length": N_FF,
        "block_count": N_LAYER + (recipe.kind == "mlp"), "projection_dim": n_embd, "attention.head_count": N_HEAD,
    }  # fmt: skip
    for key, number in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.48, 0.46, 0.41])
    writer.add_array("clip.vision.image_std", [0.27, 0.26, 0.28])
    for key, value in recipe.keys.items():
        if isinstance(value, bool):
            writer.add_bool(f"clip.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"clip.{key}", value)
        else:
            writer.add_uint32(f"clip.{key}", value)
    tensors = dict(recipe.tensors)
    if recipe.kind == "mlp":  # its last layer is never computed, but must be there
        tensors |= {
            tensor.replace("blk.0.", f"blk.{N_LAYER}."): shape
            for tensor, shape in recipe.tensors.items()
            if tensor.startswith("v.blk.0.")
        }
    for tensor, shape in tensors.items():
        shape = tuple(n_embd if size == N_EMBD else size for size in shape)
        writer.add_tensor(tensor, values(random, tensor, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# -- the models -------------------------------------------------------------------------------------------------------


def _byte_level() -> list[str]:
    """The letters that stand for the 256 bytes in byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(0x100 + index) for index in range(len(others))]


CONTROL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<start_of_image>",
    "<end_of_image>", "<fake_token_around_image>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
)  # fmt: skip
BLANK_LINE = "\u010a\u010a"
"""Two ends of lines in the letters of byte-level BPE."""
N_TOKENS = 256 + 1 + len(CONTROL)
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_seeing(name: str, folder: Path) -> tuple[Path, Path]:
    """A model with texts and a chat template, and the projector of kind `name` for it."""
    model, projector = folder / f"{name}.gguf", folder / f"mmproj-{name}.gguf"
    letters = [*_byte_level(), BLANK_LINE]
    tokens = [*letters, *CONTROL]
    vocabulary = Vocabulary(
        "gpt2", tokens, [1] * len(letters) + [3] * len(CONTROL), [0.0] * len(tokens), ["h e", "he l"],
        {"eos_token_id": tokens.index("<|im_end|>"), "bos_token_id": tokens.index("<|endoftext|>")}, TEMPLATE,
    )  # fmt: skip
    write(RECIPES[PROJECTORS[name].model], model, vocabulary)
    write_projector(name, projector)
    return model, projector


# -- images -----------------------------------------------------------------------------------------------------------


def png(seed: int, width: int = 48, height: int = 40) -> bytes:
    """A PNG file of a random image with some large shapes."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BILINEAR)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()

"""Makes projectors (mmproj) with random weights for the models of `tiny_gguf`, and images for them to look at; the
recordings are in `tests/recordings.py`.

llava    CLIP with a two-layer projection: 16 tokens, positions as of text
gemma3   SigLIP, pooled: 16 tokens, which all see each other
qwen     Qwen2-VL: as many tokens as the image needs, M-RoPE
speech   Ultravox, with Whisper's encoder: 30 tokens for each half minute; it sees nothing
both     the one of Qwen2-VL with that of Ultravox
omni     Qwen2.5-Omni: 750 tokens for each half minute
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
from tests.unit.engine.tiny_gguf import N_EMBD, RECIPES, Shapes, Vocabulary, finish, values, write

WIDTH, N_FF, N_LAYER, N_HEAD, PATCH = 32, 48, 2, 2, 8
N_MEL, STACK = 80, 50


@dataclass(frozen=True, slots=True)
class Projector:
    """One kind of projector, and the kind of model that it is for."""

    model: str
    kind: str
    tensors: Shapes
    image_size: int = 0
    """0: it sees nothing."""
    keys: Mapping[str, int | bool | list[int]] = field(default_factory=dict)
    ear: str = ""
    """The kind of what hears in it, where it is another one."""
    hears: bool = False
    stack: int = STACK
    """Frames of sound for each token."""


def _layers(eye: str = "v") -> Shapes:
    made: Shapes = {}
    for layer in range(N_LAYER):
        prefix = f"{eye}.blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            made |= {f"{prefix}{name}.weight": (WIDTH, WIDTH), f"{prefix}{name}.bias": (WIDTH,)}
        for name in ("ln1", "ln2"):
            made |= {f"{prefix}{name}.weight": (WIDTH,), f"{prefix}{name}.bias": (WIDTH,)}
        made |= {f"{prefix}ffn_up.weight": (N_FF, WIDTH), f"{prefix}ffn_up.bias": (N_FF,)}
        made |= {f"{prefix}ffn_down.weight": (WIDTH, N_FF), f"{prefix}ffn_down.bias": (WIDTH,)}
    return made


def _whisper() -> Shapes:
    layers = {name: shape for name, shape in _layers("a").items() if not name.endswith("attn_k.bias")}
    return layers | {
        "a.conv1d.1.weight": (WIDTH, N_MEL, 3), "a.conv1d.1.bias": (WIDTH, 1),
        "a.conv1d.2.weight": (WIDTH, WIDTH, 3), "a.conv1d.2.bias": (WIDTH, 1),
        "a.position_embd.weight": (1500, WIDTH), "a.post_ln.weight": (WIDTH,), "a.post_ln.bias": (WIDTH,),
    }  # fmt: skip


def _ultravox() -> Shapes:
    return _whisper() | {
        "mm.a.norm_pre.weight": (STACK * WIDTH,), "mm.a.mlp.1.weight": (2 * N_FF, STACK * WIDTH),
        "mm.a.norm_mid.weight": (N_FF,), "mm.a.mlp.2.weight": (N_EMBD, N_FF),
    }  # fmt: skip


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
"""Those of PROJECTORS that make several spans of an image."""
_QWEN_EYE = PROJECTORS["qwen"].tensors
HEARING = {
    "speech": Projector("plain", "ultravox", _ultravox(), hears=True),
    "both": Projector("mrope", "qwen2vl_merger", _QWEN_EYE | _ultravox(), 64, ear="ultravox", hears=True),
    "omni": Projector(
        "mrope", "qwen2.5o",
        _QWEN_EYE | _whisper() | {"mm.a.fc.weight": (N_EMBD, WIDTH), "mm.a.fc.bias": (N_EMBD,)},
        64, {"vision.n_wa_pattern": 2}, hears=True,
    ),
}  # fmt: skip


def write_projector(kind: str | Projector, path: Path, *, seed: int = 11, n_embd: int = N_EMBD) -> None:
    """Write a projector; the same bytes every time. `n_embd`: of the model that it is for."""
    recipe = (PROJECTORS | HEARING)[kind] if isinstance(kind, str) else kind
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "clip")
    if recipe.ear:
        writer.add_string("clip.vision.projector_type", recipe.kind)
        writer.add_string("clip.audio.projector_type", recipe.ear)
    else:
        writer.add_string("clip.projector_type", recipe.kind)
    numbers = {
        "embedding_length": WIDTH, "feed_forward_length": N_FF, "block_count": N_LAYER + (recipe.kind == "mlp"),
        "projection_dim": n_embd, "attention.head_count": N_HEAD,
    }  # fmt: skip
    senses: dict[str, dict[str, int]] = {}
    if recipe.image_size:
        senses["vision"] = numbers | {"image_size": recipe.image_size, "patch_size": PATCH}
        writer.add_array("clip.vision.image_mean", [0.48, 0.46, 0.41])
        writer.add_array("clip.vision.image_std", [0.27, 0.26, 0.28])
    if recipe.hears:
        senses["audio"] = numbers | {"num_mel_bins": N_MEL, "projector.stack_factor": recipe.stack}
    for sense, keys in senses.items():
        writer.add_bool(f"clip.has_{sense}_encoder", True)
        writer.add_float32(f"clip.{sense}.attention.layer_norm_epsilon", 1e-5)
        for key, number in keys.items():
            writer.add_uint32(f"clip.{sense}.{key}", number)
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
        is_kernel = "conv1d" in tensor and len(shape) == 3
        writer.add_tensor(tensor, values(random, tensor, shape).astype(np.float16 if is_kernel else np.float32))
    finish(writer)


# -- the models -------------------------------------------------------------------------------------------------------


def _byte_level() -> list[str]:
    """The letters that stand for the 256 bytes in byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(0x100 + index) for index in range(len(others))]


MARKS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<start_of_image>",
    "<end_of_image>",
)  # fmt: skip
TILES = (
    "<fake_token_around_image>", "<global-img>", *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
)  # fmt: skip
SOUND = ("<|audio_bos|>", "<|audio_eos|>")
BLANK_LINE = "\u010a\u010a"
"""Two ends of lines in the letters of byte-level BPE."""
N_SEEING, N_HEARING = 256 + 1 + len(MARKS + TILES), 256 + len(MARKS + SOUND)
"""Tokens of the vocabularies. There are two, since a random model is another one with other tokens."""
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_seeing(name: str, folder: Path) -> tuple[Path, Path]:
    """A model with texts and a chat template, and the projector of kind `name` for it."""
    model, projector = folder / f"{name}.gguf", folder / f"mmproj-{name}.gguf"
    hears = name in HEARING
    letters, control = [*_byte_level(), *([] if hears else [BLANK_LINE])], [*MARKS, *(SOUND if hears else TILES)]
    tokens = [*letters, *control]
    vocabulary = Vocabulary(
        "gpt2", tokens, [1] * len(letters) + [3] * len(control), [0.0] * len(tokens), ["h e", "he l"],
        {"eos_token_id": tokens.index("<|im_end|>"), "bos_token_id": tokens.index("<|endoftext|>")}, TEMPLATE,
    )  # fmt: skip
    write(RECIPES[(PROJECTORS | HEARING)[name].model], model, vocabulary)
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

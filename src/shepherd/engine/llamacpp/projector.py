"""A projector (mmproj): turns images into embeddings for one model, by the library's libmtmd.

    file ── read ──▶ tiles and their numbers of tokens     before anything is computed, any thread
         ── encode ▶ embeddings, kept for a moment         on the projector's own thread, beside the engine's
                          └── decode ──▶ cells             the engine thread

libmtmd may change at any release, so this file alone uses it. The pixels come decoded from `pixels.py`. Everything of
an image follows from its file and from the projector, so one is encoded again when its embeddings have been dropped.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import io
import logging
import os
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shepherd.core import EngineError, InvalidRequest
from shepherd.core.lru import LruCache
from shepherd.engine.base import Media, MediaReader
from shepherd.engine.llamacpp.library import C, reason_from, start_library
from shepherd.engine.llamacpp.pixels import rgb
from shepherd.engine.llamacpp.weights import Weights, digest_of

logger = logging.getLogger(__name__)

KEEP_BYTES = 256_000_000
"""Memory for embeddings of images that were encoded last: some dozens, so that a conversation that is computed again,
or asked twice, does not wait for them again."""
MOST_READ = 4096
"""Images of which it is known what they become in a prompt."""
_TEXT = 0
"""`MTMD_INPUT_CHUNK_TYPE_TEXT`."""


class _Encoded(NamedTuple):
    """One tile, ready to be decoded."""

    embeddings: Any
    """[tokens, width], float32."""
    chunk: bytes
    """What the library has noted of the tile: its size, its grid."""


class Projector:
    """A loaded projector; satisfies `MediaReader`. Any thread, but `close` last."""

    def __init__(self, handle: Any, path: Path, weights: Weights) -> None:
        self.path = path
        self._handle = handle
        self._width: int = C.llama_model_n_embd_inp(weights.handle)
        self._lock = threading.Lock()
        """Guards the library's one buffer of results."""
        self._worker = ThreadPoolExecutor(1, f"images-{path.stem}")
        self._encoding: dict[bytes, Future[_Encoded]] = {}
        self._encoded = LruCache[_Encoded](KEEP_BYTES)
        self._read: LruCache[tuple[array[int] | int, ...]] = LruCache(MOST_READ)
        mtmd = _mtmd()
        self.sees: bool = mtmd.mtmd_support_vision(handle)
        self.hears: bool = mtmd.mtmd_support_audio(handle)
        self.squeezes: bool = mtmd.mtmd_decode_use_mrope(handle)
        """Whether an image takes fewer positions than it has tokens (M-RoPE)."""
        self.at_once: bool = mtmd.mtmd_decode_use_non_causal(handle, None)
        """Whether all tokens of an image see each other: they must be computed in one piece."""

    @classmethod
    def load(cls, path: Path, weights: Weights, *, n_threads: int, use_gpu: bool = True) -> Projector:
        """Load a projector for these weights. Raises: `EngineError` if it is none, or belongs to another model."""
        log = start_library()
        log.errors.clear()
        mtmd = _mtmd()
        params = mtmd.mtmd_context_params_default()
        params.use_gpu, params.n_threads = use_gpu, n_threads
        params.print_timings = False  # its warm-up only allocates
        handle = mtmd.mtmd_init_from_file(os.fsencode(path), weights.handle, params)
        if not handle:
            reason = " ".join(reason_from(log).split())
            raise EngineError(
                f"{path.name} cannot be used as the projector of {weights.path.name}{reason and ' ' + reason}; set "
                "mmproj to the file that belongs to this model, or leave it out to use the model for text only"
            )
        return cls(handle, path, weights)

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of the file."""
        return digest_of([self.path]).encode()

    # -- before anything is computed -----------------------------------------------------------------------------------

    def read(self, data: bytes) -> tuple[array[int] | Media, ...]:
        """As `MediaReader.read`. An image is decoded when it is seen first: a damaged one is refused here."""
        name = hashlib.sha256(self.digest + data).digest()
        found = self._read.find(name)
        if found is None:
            with self._chunks(data) as chunks:
                found = tuple(map(_facts, chunks))
            self._read.keep(name, found)
        return tuple(
            each if isinstance(each, array) else Media(name + part.to_bytes(2, "little"), each, data, part)
            for part, each in enumerate(found)
        )

    # -- encoding ------------------------------------------------------------------------------------------------------

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        """As `Runtime.prepare`. An image that was encoded and is dropped already counts: `decode` encodes it again."""
        is_ready = True
        for each in {each.data: each for each in media if self._encoded.find(each.key) is None}.values():
            coming = self._encoding.get(each.key)
            if coming is None:
                coming = self._encoding[each.key] = self._worker.submit(self._encode, each)
                coming.add_done_callback(lambda _: on_ready())
                is_ready = False
            elif not coming.done():
                is_ready = False
            else:
                del self._encoding[each.key]
                coming.result()  # raises what the encoding has raised
        return is_ready

    def _encode(self, media: Media) -> _Encoded:
        """Encode all tiles of an image. Raises: `EngineError`."""
        try:
            return self._encode_all(media)
        except InvalidRequest as error:  # `read` has accepted it, so that no request is to blame
            raise EngineError(error.message) from error

    def _encode_all(self, media: Media) -> _Encoded:
        mtmd, found = _mtmd(), None
        log = start_library()
        with self._chunks(media.data) as chunks, self._lock:
            for part, chunk in enumerate(chunks):
                if mtmd.mtmd_input_chunk_get_type(chunk) == _TEXT:
                    continue
                if mtmd.mtmd_encode_chunk(self._handle, chunk) != 0:
                    raise EngineError(f"an image could not be encoded by {self.path.name}{reason_from(log)}")
                n_floats = self._width * int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
                embeddings = (ctypes.c_float * n_floats)()
                ctypes.memmove(embeddings, mtmd.mtmd_get_output_embd(self._handle), ctypes.sizeof(embeddings))
                encoded = _Encoded(embeddings, _saved(chunk))
                key = media.key[:-2] + part.to_bytes(2, "little")
                self._encoded.keep(key, encoded, ctypes.sizeof(embeddings))
                found = encoded if key == media.key else found
        if found is None or len(found.embeddings) != self._width * media.n_tokens:
            raise EngineError(f"{self.path.name} encodes an image to other tokens than it has counted")
        return found

    def look(self) -> None:
        """Encode a grey image: what may crash does so here. Raises: `EngineError`, `InvalidRequest`."""
        from PIL import Image  # noqa: PLC0415 - as in `pixels`

        file = io.BytesIO()
        Image.new("RGB", (64, 64), "grey").save(file, "PNG")
        for each in self.read(file.getvalue()):
            if isinstance(each, Media):
                self._encode(each)

    def decode(self, context: Any, media: Media, seq: int, position: int, n_batch: int) -> tuple[int, int]:
        """Compute the cells of an image; the library's code as of `llama_decode`, and the positions that it takes.

        Engine thread. After another code than 0, some of its cells may be there. Raises: `EngineError`.
        """
        mtmd = _mtmd()
        encoded = self._encoded.find(media.key) or self._encode(media)
        chunk = mtmd.mtmd_input_chunk_load(encoded.chunk, len(encoded.chunk))
        if not chunk:
            raise EngineError(f"{self.path.name} does not read back what it has noted of an image")
        try:
            end = ctypes.c_int32()
            code: int = mtmd.mtmd_helper_decode_image_chunk(
                self._handle, context, chunk, encoded.embeddings, position, seq, n_batch, ctypes.byref(end),
                mtmd.mtmd_helper_post_decode_callback(), None,
            )  # fmt: skip
            return code, int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        finally:
            mtmd.mtmd_input_chunk_free(chunk)

    def close(self) -> None:
        """Free the projector; no call may follow."""
        self._worker.shutdown(cancel_futures=True)
        if self._handle:
            _mtmd().mtmd_free(self._handle)
            self._handle = None

    @contextmanager
    def _chunks(self, data: bytes) -> Iterator[list[Any]]:
        """What the library makes of an image, valid within. Raises: `InvalidRequest`."""
        width, height, pixels = rgb(data)
        mtmd, log = _mtmd(), start_library()
        with ExitStack() as stack:
            buffer = ctypes.cast(ctypes.c_char_p(pixels), ctypes.POINTER(ctypes.c_uint8))
            bitmap = mtmd.mtmd_bitmap_init(width, height, buffer)
            stack.callback(mtmd.mtmd_bitmap_free, bitmap)
            chunks = mtmd.mtmd_input_chunks_init()
            stack.callback(mtmd.mtmd_input_chunks_free, chunks)
            marker: bytes = mtmd.mtmd_default_marker()
            text = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1) != 0:
                raise InvalidRequest(
                    f"an image of {width} x {height} pixels cannot be shown to {self.path.name}{reason_from(log)}"
                )
            yield [mtmd.mtmd_input_chunks_get(chunks, at) for at in range(mtmd.mtmd_input_chunks_size(chunks))]


def _facts(chunk: Any) -> array[int] | int:
    """The tokens of a text, or how many an image has. Raises: `EngineError` for a token that the model has not."""
    mtmd, size = _mtmd(), ctypes.c_size_t()
    if mtmd.mtmd_input_chunk_get_type(chunk) != _TEXT:
        return int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
    tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
    found = array("i", tokens[: size.value])
    if min(found, default=0) < 0:
        raise EngineError("the vocabulary of this model lacks a token that its projector puts around images")
    return found


def _saved(chunk: Any) -> bytes:
    mtmd, size = _mtmd(), ctypes.c_size_t()
    mtmd.mtmd_input_chunk_save(chunk, None, 0, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if mtmd.mtmd_input_chunk_save(chunk, buffer, size.value, ctypes.byref(size)) != 0:
        raise EngineError("the library could not note what it knows of an image")
    return buffer.raw


@functools.cache
def _mtmd() -> Any:
    """The bindings of libmtmd, with their log where the library's goes. Raises: `EngineError` if it is not there."""
    log = start_library()
    try:
        mtmd = importlib.import_module("llama_cpp.mtmd_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineError(f"this build of the native library reads no images: {error}") from error
    mtmd.mtmd_log_set(log.callback, None)
    mtmd.mtmd_helper_log_set(log.callback, None)
    return mtmd


_proof: type[MediaReader] = Projector  # it satisfies the seam

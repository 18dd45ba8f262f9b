"""A projector (mmproj): turns images, or recordings, into embeddings for one model, by the library's libmtmd.

    file ── read ──▶ parts and their numbers of tokens     before anything is computed, any thread
         ── encode ▶ embeddings, kept for a moment         on a thread of its own, beside the engine's
                          └── decode ──▶ cells             the engine thread

The library reads and encodes on threads that are watched (`watched.py`): if it does not return, what waits for it ends
with `EngineDown`, and so does what comes until it returns. libmtmd may change at any release, so this file and
`samples.py` alone use it. Files come decoded, images from `pixels.py` and recordings from `samples.py`. Everything of
an image or a recording follows from its file and from the projector, so one is encoded again when its embeddings have
been dropped.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import io
import logging
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shepherd.core import EngineError, InvalidRequest
from shepherd.core.lru import LruCache
from shepherd.engine.base import Media, MediaReader
from shepherd.engine.llamacpp import pixels, samples
from shepherd.engine.llamacpp.library import C, libmtmd, reason_from, start_library
from shepherd.engine.llamacpp.watched import WatchedThread
from shepherd.engine.llamacpp.weights import Weights, digest_of
from shepherd.engine.watchdog import STALL_S
from shepherd.media import sound
from shepherd.media.image import NotMedia

logger = logging.getLogger(__name__)

KEEP_BYTES = 256_000_000
"""Memory for embeddings of files that were encoded last: some dozens of images, so that a conversation that is computed
again, or asked twice, does not wait for them again."""
KEEP_DECODED = 32_000_000
"""Memory for pixels, and as much for samples, that were decoded last: what is read is encoded soon."""
MOST_READ = 4096
"""Files of which it is known what they become in a prompt."""
MOST_SECONDS = 3600
"""Of one recording: 64 kB of memory for each, several times over. An operator's limits come before."""
LOUDEST = 1000.0
"""Of samples, whose usual range is one to either side: files of floats may hold anything."""
FIRST_S = 2e-9
"""Seconds that the first encoding may take, for each of its tokens and each byte of the projector, if that is longer
than `FIRST_DECODE` allows. The dearest image of Qwen2-VL (4,096 tokens, 1.35 GB, 66 TFLOP) gets three hours; a slow
core of 10 GFLOP/s takes 1.8."""
_TEXT = 0
"""`MTMD_INPUT_CHUNK_TYPE_TEXT`."""


class _Encoded(NamedTuple):
    """One part, ready to be decoded."""

    embeddings: Any
    """[tokens, width], float32."""
    chunk: bytes
    """What the library has noted of it: its size, its grid."""


class _Decoded(NamedTuple):
    """A file, ready for the library."""

    bitmap: Callable[[], Any]
    """Makes the library's copy of it, which its caller frees. Raises: `InvalidRequest`."""
    name: str


class Projector:
    """A loaded projector; satisfies `MediaReader`. Any thread, but `close` last."""

    def __init__(self, handle: Any, path: Path, weights: Weights, stall_s: float = STALL_S) -> None:
        self.path = path
        self._handle = handle
        self._width: int = C.llama_model_n_embd_inp(weights.handle)
        self._first_s = FIRST_S * path.stat().st_size
        self._reader = WatchedThread(path.name, stall_s)
        self._encoder = WatchedThread(path.name, stall_s)
        """Alone has the library's one buffer of results."""
        self._encoding: dict[bytes, tuple[Future[_Encoded], set[Callable[[], None]]]] = {}
        """What is encoded, and who has asked: caches share a projector."""
        self._encoded = LruCache[_Encoded](KEEP_BYTES)
        self._pixels = LruCache[tuple[int, int, bytes]](KEEP_DECODED)
        self._samples = LruCache[bytes](KEEP_DECODED)
        self._read: LruCache[tuple[array[int] | int, ...]] = LruCache(MOST_READ)
        mtmd = libmtmd()
        self.takes_images: bool = mtmd.mtmd_support_vision(handle)
        self.takes_audio: bool = mtmd.mtmd_support_audio(handle)
        self.compresses: bool = mtmd.mtmd_decode_use_mrope(handle)
        """Whether an image takes fewer positions than it has tokens (M-RoPE)."""
        self.needs_one_batch: bool = mtmd.mtmd_decode_use_non_causal(handle, None)
        """Whether all tokens of an image see each other: they must be computed in one piece. Sound is read in order."""

    @classmethod
    def load(
        cls, path: Path, weights: Weights, *, n_threads: int, use_gpu: bool = True, stall_s: float = STALL_S
    ) -> Projector:
        """Load a projector for these weights. stall_s: as that of `EngineOptions`.

        Raises: `EngineError` if it is none, or belongs to another model.
        """
        log = start_library()
        log.errors.clear()
        mtmd = libmtmd()
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
        return cls(handle, path, weights, stall_s)

    @property
    def down(self) -> str | None:
        """As `Engine.down`."""
        return self._encoder.down or self._reader.down

    def waits(self) -> tuple[int, float]:
        """As `Runtime.waits`."""
        parts = self._reader.stats(), self._encoder.stats()
        return sum(each.stalls for each in parts), max(each.quiet_s for each in parts)

    @functools.cached_property
    def digest(self) -> bytes:
        return digest_of([self.path]).encode()

    # -- before anything is computed -----------------------------------------------------------------------------------

    def read(self, data: bytes, is_wanted: Callable[[], bool] = lambda: True) -> tuple[array[int] | Media, ...]:
        """As `MediaReader.read`. A file is decoded when it comes first: a damaged one is refused here."""
        return media_of(self.digest, data, self.parts(data, is_wanted))

    def parts(self, data: bytes, is_wanted: Callable[[], bool] = lambda: True) -> tuple[array[int] | int, ...]:
        """What `read` returns, with the number of tokens of each part. Raises: as `read`; `EngineDown`."""
        name = name_of(self.digest, data)
        found = self._read.find(name)
        if found is None:
            found = self._reader.call(partial(self._counted, self._decoded(data, is_wanted)))
            self._read.keep(name, found)
        return found

    def _counted(self, file: _Decoded) -> tuple[array[int] | int, ...]:
        self._reader.heartbeat.begin("reading an image or a recording", None)
        with self._chunks(file) as chunks:
            return tuple(map(_facts, chunks))

    def batch_size(self, media: Media) -> int:
        """How many of its tokens must be computed in one piece."""
        return media.n_tokens if self.needs_one_batch and sound.find_type(media.data) is None else 1

    # -- encoding ------------------------------------------------------------------------------------------------------

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        """As `Runtime.prepare`. One that was encoded and is dropped already counts: `decode` encodes it again."""
        is_ready = True
        for each in {each.data: each for each in media if self._encoded.find(each.key) is None}.values():
            known = self._encoding.get(each.key)
            if known is not None and known[0].done():
                self._encoding.pop(each.key, None)
                if not known[0].cancelled():
                    known[0].result()  # raises what the encoding has raised
                    continue
                known = None
            if known is None:
                known = self._encoding[each.key] = self._encoder.submit(partial(self._encode, each)), set()
            coming, asked = known
            if on_ready not in asked:
                asked.add(on_ready)
                coming.add_done_callback(lambda _: on_ready())
            is_ready = False
        return is_ready

    def release(self, media: Sequence[Media]) -> bool:
        """As `Runtime.release`. If another job waits for one that is not encoded now, it asks again."""
        files, all_open = {each.key[:-2] for each in media}, [*self._encoding.items()]
        at_work = next((coming for _, (coming, _) in all_open if not coming.done()), None)
        asked_for = {key: coming for key, (coming, _) in all_open if key[:-2] in files}
        for key, coming in asked_for.items():
            if coming is not at_work:
                self._encoding.pop(key, None)
                if not coming.cancel() and not coming.cancelled():
                    coming.result()  # raises what the encoding has raised
        return at_work in asked_for.values()

    def _encode(self, media: Media, *, alone: bool = False) -> _Encoded:
        """Encode all parts of a file, or this one alone. Raises: `EngineError`."""
        try:
            return self._encode_parts(media, alone=alone)
        except InvalidRequest as error:  # `read` has accepted it, so that no request is to blame
            raise EngineError(error.message) from error

    def _encode_parts(self, media: Media, *, alone: bool) -> _Encoded:
        import numpy as np  # noqa: PLC0415 - imports slowly, and most programs see and hear nothing

        mtmd, found = libmtmd(), None
        log, heartbeat = start_library(), self._encoder.heartbeat
        heartbeat.begin("decoding and reading an image or a recording", None)
        file = self._decoded(media.data)
        heartbeat.beat()
        with self._chunks(file) as chunks:
            heartbeat.beat()
            for part, chunk in enumerate(chunks):
                if mtmd.mtmd_input_chunk_get_type(chunk) == _TEXT or (alone and part != media.part):
                    continue
                n_tokens = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
                doing = f"encoding {n_tokens} tokens of an image or a recording"
                embeddings = (ctypes.c_float * (self._width * n_tokens))()
                with self._encoder.computing(doing, n_tokens, 1, first_s=self._first_s * n_tokens):
                    if mtmd.mtmd_encode_chunk(self._handle, chunk) != 0:
                        raise EngineError(f"a file could not be encoded by {self.path.name}{reason_from(log)}")
                    ctypes.memmove(embeddings, mtmd.mtmd_get_output_embd(self._handle), ctypes.sizeof(embeddings))
                if not np.isfinite(
                    np.frombuffer(memoryview(embeddings), np.float32)
                ).all():  # it would spread to the cells of others
                    raise EngineError(f"{self.path.name} makes numbers without a value of a file")
                encoded = _Encoded(embeddings, _saved(chunk))
                key = media.key[:-2] + part.to_bytes(2, "little")
                self._encoded.keep(key, encoded, ctypes.sizeof(embeddings))
                found = encoded if key == media.key else found
        if found is None or len(found.embeddings) != self._width * media.n_tokens:
            raise EngineError(f"{self.path.name} encodes a file to other tokens than it has counted")
        return found

    def try_out(self) -> None:
        """Encode a grey image, and a second of silence: what may crash does so here.

        Raises: `EngineError`, `InvalidRequest`.
        """
        from PIL import Image  # noqa: PLC0415 - as in `pixels`

        files: list[bytes] = []
        if self.takes_images:
            file = io.BytesIO()
            Image.new("RGB", (64, 64), "grey").save(file, "PNG")
            files.append(file.getvalue())
        if self.takes_audio:
            files.append(sound.wav(bytes(2 * 16_000), 16_000))
        for each in (each for file in files for each in self.read(file)):
            if isinstance(each, Media):
                self._encode(each)

    def decode(self, context: Any, media: Media, seq: int, position: int, n_batch: int) -> tuple[int, int]:
        """Compute the cells of a part; the library's code as of `llama_decode`, and the positions that it takes.

        Engine thread. After another code than 0, some of its cells may be there. Raises: `EngineError`.
        """
        mtmd = libmtmd()
        encoded = self._encoded.find(media.key)
        if encoded is None:  # the engine stands until then
            encoded = self._encoder.call(partial(self._encode, media, alone=True), is_urgent=True)
        chunk = mtmd.mtmd_input_chunk_load(encoded.chunk, len(encoded.chunk))
        if not chunk:
            raise EngineError(f"{self.path.name} does not read back what it has noted of a file")
        try:
            end = ctypes.c_int32()
            code: int = mtmd.mtmd_helper_decode_image_chunk(
                self._handle, context, chunk, encoded.embeddings, position, seq, n_batch, ctypes.byref(end),
                mtmd.mtmd_helper_post_decode_callback(), None,
            )  # fmt: skip
            return code, int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        finally:
            mtmd.mtmd_input_chunk_free(chunk)

    def close(self) -> bool:
        """False: a thread is stuck in the library, and uses it and the weights. Twice is allowed."""
        waiting = [coming for coming, _ in self._encoding.values() if not coming.done()]
        for coming in waiting[1:]:  # behind the one that is encoded
            coming.cancel()
        have_ended = [thread.close() for thread in (self._reader, self._encoder)]
        if all(have_ended) and self._handle:
            libmtmd().mtmd_free(self._handle)
            self._handle = None
        return all(have_ended)

    def _decoded(self, data: bytes, is_wanted: Callable[[], bool] = lambda: True) -> _Decoded:
        """Raises: `InvalidRequest`; `Cancelled`."""
        return self._picture(data, is_wanted) if sound.find_type(data) is None else self._sound(data, is_wanted)

    @contextmanager
    def _chunks(self, file: _Decoded) -> Iterator[list[Any]]:
        """What the library makes of a file, valid within. Raises: `InvalidRequest`."""
        mtmd, log = libmtmd(), start_library()
        with ExitStack() as stack:
            bitmap = file.bitmap()
            stack.callback(mtmd.mtmd_bitmap_free, bitmap)
            chunks = mtmd.mtmd_input_chunks_init()
            stack.callback(mtmd.mtmd_input_chunks_free, chunks)
            marker: bytes = mtmd.mtmd_default_marker()
            text = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1) != 0:
                raise InvalidRequest(f"{file.name} cannot be read by {self.path.name}{reason_from(log)}")
            yield [mtmd.mtmd_input_chunks_get(chunks, at) for at in range(mtmd.mtmd_input_chunks_size(chunks))]

    def _picture(self, data: bytes, is_wanted: Callable[[], bool]) -> _Decoded:
        """The pixels of an image. Raises: as `_decoded`."""
        if (found := self._pixels.find(data)) is None:
            found = pixels.decode(data, is_wanted)
            self._pixels.keep(data, found, len(data) + len(found[2]))
        width, height, content = found
        buffer = ctypes.cast(ctypes.c_char_p(content), ctypes.POINTER(ctypes.c_uint8))
        bitmap = partial(libmtmd().mtmd_bitmap_init, width, height, buffer)
        return _Decoded(bitmap, f"an image of {width} x {height} pixels")

    def _sound(self, data: bytes, is_wanted: Callable[[], bool]) -> _Decoded:
        """The samples of a recording. Raises: as `_picture`."""
        try:
            found = sound.read_header(data)
        except NotMedia as error:
            raise InvalidRequest(f"a recording of {len(data)} bytes {error}") from error
        if found.seconds > MOST_SECONDS:
            raise InvalidRequest(
                f"a recording lasts {found.seconds:,.0f} s, more than the {MOST_SECONDS} s that are decoded; send less"
            )
        if not self.takes_audio:  # the library would read nothing
            raise InvalidRequest(f"{self.path.name} hears no recordings")
        mtmd = libmtmd()
        rate: int = mtmd.mtmd_get_audio_sample_rate(self._handle)
        content, stream = self._samples.find(data), found.stream(data)

        def kept(made: bytes) -> bytes:
            _check_samples(made, rate)
            self._samples.keep(data, made, len(data) + len(made))
            return made

        if content is None and rate == samples.RATE:
            content = kept(samples.decode(stream, found.seconds, is_wanted))

        def bitmap() -> Any:  # where the library decodes, it is watched
            made = kept(samples.read_by(self._handle, stream)) if content is None else content
            buffer = ctypes.cast(ctypes.c_char_p(made), ctypes.POINTER(ctypes.c_float))
            return mtmd.mtmd_bitmap_init_from_audio(len(made) // 4, buffer)

        return _Decoded(bitmap, f"a recording of {found.seconds:.1f} s")


def _check_samples(content: bytes, rate: int) -> None:
    """Raises: `InvalidRequest` for samples of which no embeddings could be computed; some end the process."""
    import numpy as np  # noqa: PLC0415 - as above

    if len(content) < 4 * sound.LEAST_SECONDS * rate:
        raise InvalidRequest(f"a recording is decoded to less than {sound.LEAST_SECONDS} s of sound")
    if not np.abs(np.frombuffer(content, np.float32)).max() <= LOUDEST:  # nor is it where one is no number
        raise InvalidRequest("a recording has samples far out of range; send one with samples between -1 and 1")


def name_of(digest: bytes, data: bytes) -> bytes:
    """A hash of a file and of the projector that reads it."""
    return hashlib.sha256(digest + data).digest()


def media_of(digest: bytes, data: bytes, parts: Sequence[array[int] | int]) -> tuple[array[int] | Media, ...]:
    """The parts of a file in a prompt."""
    name = name_of(digest, data)
    return tuple(
        each if isinstance(each, array) else Media(name + part.to_bytes(2, "little"), each, data, part)
        for part, each in enumerate(parts)
    )


def _facts(chunk: Any) -> array[int] | int:
    """The tokens of a text, or how many a part of a file has. Raises: `EngineError` for one unknown to the model."""
    mtmd, size = libmtmd(), ctypes.c_size_t()
    if mtmd.mtmd_input_chunk_get_type(chunk) != _TEXT:
        return int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
    tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
    found = array("i", tokens[: size.value])
    if min(found, default=0) < 0:
        raise EngineError("the vocabulary of this model lacks a token that its projector puts around images")
    return found


def _saved(chunk: Any) -> bytes:
    mtmd, size = libmtmd(), ctypes.c_size_t()
    mtmd.mtmd_input_chunk_save(chunk, None, 0, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if mtmd.mtmd_input_chunk_save(chunk, buffer, size.value, ctypes.byref(size)) != 0:
        raise EngineError("the library could not note what it knows of a file")
    return buffer.raw


_proof: type[MediaReader] = Projector  # it satisfies the seam

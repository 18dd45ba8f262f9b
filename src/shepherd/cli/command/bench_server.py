"""The child of `shepherd bench --against`: the model that is measured, behind a server in a process of its own.

    standard input: {options, n_ctx, folder, cache_folder} ─▶ App, server ─▶ standard output: [address, key]

It ends as soon as its standard input does. The other server has a process of its own as well, so neither side shares
one with the client that measures.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from shepherd.app.app import App
from shepherd.cli import measuring, render
from shepherd.cli.command.replay import listening
from shepherd.core import EngineError, ShepherdError
from shepherd.measure.session import single_user
from shepherd.measure.subject import subject_of
from shepherd.process import child
from shepherd.server.http.listen import loop_factory

_STOP_S = 20.0


@asynccontextmanager
async def running(
    options: Mapping[str, Any], n_ctx: int, folder: Path, cache_folder: Path
) -> AsyncIterator[tuple[str, str]]:
    """The address and the key of the child for the length of the block. Raises: `EngineError` when it cannot start."""
    task = {"options": dict(options), "n_ctx": n_ctx, "folder": str(folder), "cache_folder": str(cache_folder)}
    with TemporaryFile() as errors:
        # A session of its own: Ctrl-C in the terminal goes to the command only, which then ends its child.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shepherd.cli.command.bench_server",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            line = await process.stdout.readline()
            if not line:
                errors.seek(0)
                *_, last = errors.read().decode("utf-8", "replace").strip().splitlines() or ["it wrote nothing"]
                raise EngineError(f"the server of this model did not start: {last.removeprefix('shepherd: ')}")
            url, key = json.loads(line)
            yield url, key
        finally:
            process.stdin.close()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


# -- the child --------------------------------------------------------------------------------------------------------


def _main() -> int:
    task = json.loads(sys.stdin.buffer.readline())
    child.end_with_parent()
    try:
        config, named = measuring.model_config(task["options"])
        subject = subject_of(config, named)
        made = single_user(config, subject, n_ctx=task["n_ctx"], folder=Path(task["folder"]))
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(made, Path(task["cache_folder"])))
    except ShepherdError as error:
        render.show_error(error.message)
        return 1
    return 0


async def _serve(config: Any, cache_folder: Path) -> None:
    app = App(config, env={}, cache_folder=cache_folder)
    try:
        await app.load(lambda loading: None)
        async with listening(app) as address:
            sys.stdout.write(json.dumps(address) + "\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
    finally:
        await app.aclose()


if __name__ == "__main__":
    sys.exit(_main())

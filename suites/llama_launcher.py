"""`llama-server`'s command line, answered by `shepherd serve`: its flags become a configuration file.

The suite's tests start the program that LLAMA_SERVER_BIN_PATH names, which runs this file. A flag that has no
counterpart is ignored, for a test that needs it is not run or fails.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

SWITCHES = frozenset((
    "--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full", "--slots",
    "--no-slots", "--verbose", "--context-shift", "--no-ui", "--no-models-autoload", "--jinja", "--no-jinja",
    "--no-mmproj", "--no-cache-idle-slots", "--ui-mcp-proxy", "--backend_sampling",
))  # fmt: skip
MODELS = {
    "ggml-org/test-model-stories260K": "chat.gguf",
    "ggml-org/test-model-stories260K-infill": "infill.gguf",
    "bert-bge-small/ggml-model-f16.gguf": "bert.gguf",
}
_TURN = "{% for m in messages %}"
TEMPLATES = {
    "chatml": _TURN
    + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": _TURN
    + "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    + "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": _TURN
    + "<|START_OF_TURN_TOKEN|><|{{ {'user': 'USER', 'assistant': 'CHATBOT', 'system': 'SYSTEM'}[m.role] }}_TOKEN|>"
    + "{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
    + "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}
"""llama.cpp's built-in ones, by name: those that the tests name."""


def read_flags(arguments: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for flag in rest:
        flags[flag] = "" if flag in SWITCHES else next(rest)
    return flags


def configuration(flags: dict[str, str], folder: Path) -> str:
    """The same in TOML. Raises: `KeyError` for a model that cannot be had."""
    models = Path(os.environ["SHEPHERD_SUITE_MODELS"])
    source = flags.get("--hf-file", flags.get("--hf-repo", ""))
    path = Path(flags["--model"]) if "--model" in flags else models / MODELS[source]
    name = sorted(flags.get("--alias", path.stem).split(","))[0]
    n_slots = int(flags.get("--parallel", "1"))
    n_ctx = int(flags.get("--ctx-size", "4096"))
    # Each of llama-server's slots has its share of the context; a conversation here may have all of the cache.
    n_ctx = n_ctx if "--kv-unified" in flags else n_ctx // n_slots
    lines = []
    if int(flags.get("--n-predict", "-1")) > 0:
        lines.append(f"max_tokens = {flags['--n-predict']}")
    if flags.get("--reasoning") in ("on", "off"):
        lines.append(f"thinking = {'true' if flags['--reasoning'] == 'on' else 'false'}")
    lines += [f"[models.{json.dumps(name)}]", f"path = {json.dumps(str(path))}", "n_threads = 1"]
    if flags.get("--pooling") in ("mean", "cls", "last"):
        lines.append(f'pooling = "{flags["--pooling"]}"')
    template = flags.get("--chat-template-file")
    if text := flags.get("--chat-template"):
        file = folder / "template.jinja"
        file.write_text(TEMPLATES.get(text, text))
        template = str(file)
    if template:
        lines.append(f"chat_template = {json.dumps(str(Path(template).resolve()))}")
    if "--embedding" not in flags:
        sampling = f"temperature = {flags.get('--temp', '0.8')}, seed = {flags.get('--seed', '42')}"
        lines.append(f"sampling = {{ {sampling} }}")
        lines += ["[caches.main]", f"model = {json.dumps(name)}", f"n_ctx = {n_ctx}", f"sequences = {n_slots}"]
        if "--context-shift" in flags:
            lines.append('overflow = "evict"')
    lines += ["[server]", f"host = {json.dumps(flags.get('--host', '127.0.0.1').split(',')[0])}"]
    lines.append(f"port = {flags['--port']}")
    if key := flags.get("--api-key"):
        lines.append(f"api_keys = {json.dumps(key.split(','))}")
    if "--cors-origins" in flags:
        origins = [origin for origin in flags["--cors-origins"].split(",") if origin != "localhost"]
        lines.append(f"origins = {json.dumps(origins)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=os.environ["SHEPHERD_SUITE_TMP"]))
    file = folder / "shepherd.toml"
    file.write_text(configuration(read_flags(sys.argv[1:]), folder))
    os.environ |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder.parent / "cache")}  # a model is tried out once
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, "-m", "shepherd", "serve", "--config", str(file)])


if __name__ == "__main__":
    main()

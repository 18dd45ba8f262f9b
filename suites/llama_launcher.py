"""`llama-server`'s command line with models of this machine: for the real program, or for `shepherd serve`.

    --hf-repo ggml-org/test-model-stories260K ... ─▶ llama-server --model chat.gguf ...
                                                  └▶ shepherd serve --config shepherd.toml

The suite's tests start the program that LLAMA_SERVER_BIN_PATH names. For llama-server it is this file; for Shepherd it
is a client of this file, which forks (`fork_server`). There flags become a configuration file; one that has no
counterpart is ignored, for a test that needs it fails.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from suites import fork_server

FOLDER = Path(__file__).parent

SWITCHES = frozenset((
    "--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full", "--slots",
    "--no-slots", "--verbose", "--context-shift", "--no-ui", "--no-models-autoload", "--jinja", "--no-jinja",
    "--no-mmproj", "--no-cache-idle-slots", "--ui-mcp-proxy", "--backend_sampling",
))  # fmt: skip
ADAPTER = "adapter.gguf"
"""A LoRA for `chat.gguf`, in place of every LoRA that a test downloads."""
SPLIT = "stories15M-q8_0-00001-of-00003.gguf"
MODELS = {
    "ggml-org/test-model-stories260K": "chat.gguf",
    "ggml-org/test-model-stories260K-infill": "infill.gguf",
    f"tinyllamas/split/{SPLIT}": SPLIT,
    "stories15M_MOE-F16.gguf": "chat.gguf",
    "bert-bge-small/ggml-model-f16.gguf": "bert.gguf",
    "jina-reranker-v1-tiny-en/ggml-model-f16.gguf": "rank.gguf",
}
"""By the file, or the repository, that a test names; all others are `large.gguf`."""
OWN_TEMPLATES = {
    "Meta-Llama-3.1": "meta-llama-Llama-3.1-8B-Instruct",
    "Llama-3.2": "meta-llama-Llama-3.2-3B-Instruct",
    "gemma-2-2b": "google-gemma-2-2b-it",
    "Phi-3.5": "microsoft-Phi-3.5-mini-instruct",
    "Qwen2.5": "Qwen-Qwen2.5-7B-Instruct",
    "Hermes-2": "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "Hermes-3": "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "functionary": "meetkai-functionary-medium-v3.2",
    "command-r7b": "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "DeepSeek-R1-Distill-Qwen": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "Mistral-Nemo": "mistralai-Mistral-Nemo-Instruct-2407",
}
"""The templates inside large models, by a part of their names, in llama.cpp's folder of templates."""
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


def read_flags(arguments: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for flag in rest:
        flags[flag] = "" if flag in SWITCHES else next(rest)
    return flags


def with_local_model(flags: dict[str, str], models: Path, templates: Path) -> dict[str, str]:
    """The same flags, with a file where Hugging Face was named, and the template that the named model has inside."""
    repo, file = flags.get("--hf-repo", ""), flags.get("--hf-file", "")
    kept = {flag: value for flag, value in flags.items() if flag not in ("--hf-repo", "--hf-file", "--offline")}
    if not repo and not file:
        return kept
    kept["--model"] = str(models / MODELS.get(file or repo, "large.gguf"))
    own = next((name for part, name in OWN_TEMPLATES.items() if part in repo), None)
    if own and "--chat-template" not in flags and "--chat-template-file" not in flags:
        kept["--chat-template-file"] = str(templates / f"{own}.jinja")
    return kept


def with_some_model(flags: dict[str, str], models: Path) -> dict[str, str]:
    """The same flags, with a model where llama-server would be a router: such a test may be about something else."""
    return {"--model": str(models / "chat.gguf"), **flags}


def configuration(flags: dict[str, str], folder: Path) -> str:
    """The same in TOML. Raises: `KeyError` without a model."""
    path = Path(flags["--model"])
    name, *others = sorted(flags.get("--alias", path.stem).split(","))
    n_slots = int(flags.get("--parallel", "1"))
    n_ctx = int(flags.get("--ctx-size", "4096"))
    # Each of llama-server's slots has its share of the context; a conversation here may have all of the cache.
    n_ctx = n_ctx if "--kv-unified" in flags else n_ctx // n_slots
    lines = []
    if int(flags.get("--n-predict", "-1")) > 0:
        lines.append(f"max_tokens = {flags['--n-predict']}")
    if flags.get("--reasoning") in ("on", "off"):
        lines.append(f"thinking = {'true' if flags['--reasoning'] == 'on' else 'false'}")
    lines += [f"[models.{json.dumps(name)}]", f"path = {json.dumps(str(path.resolve()))}", "n_threads = 1"]
    for flag, setting in (("--batch-size", "n_batch"), ("--sleep-idle-seconds", "keep_alive")):
        if flag in flags:
            lines.append(f"{setting} = {flags[flag]}")
    if tags := flags.get("--tags"):
        lines.append(f"tags = {json.dumps(tags.split(','))}")
    if flags.get("--pooling") in ("mean", "cls", "last", "none"):
        lines.append(f'pooling = "{flags["--pooling"]}"')
    template = flags.get("--chat-template-file", "")
    if "--embedding" not in flags and "--reranking" not in flags and not template:
        file = folder / "template.jinja"
        text = flags.get("--chat-template", "chatml")
        file.write_text(TEMPLATES.get(text, text))
        template = str(file)
    if template:
        lines.append(f"chat_template = {json.dumps(str(Path(template).resolve()))}")
    if "--embedding" not in flags and "--reranking" not in flags:
        sampling = f"temperature = {flags.get('--temp', '0.8')}, seed = {flags.get('--seed', '42')}"
        lines.append(f"sampling = {{ {sampling} }}")
        if adapter := flags.get("--lora"):
            lines += [f"[[models.{json.dumps(name)}.adapters]]", f"path = {json.dumps(str(Path(adapter).resolve()))}"]
        lines += ["[caches.main]", f"model = {json.dumps(name)}", f"n_ctx = {n_ctx}", f"sequences = {n_slots}"]
        if "--context-shift" in flags:
            lines.append('overflow = "evict"')
        for match in (*others, *(["*"] if others else [])):
            lines += ["[[routes]]", f"match = {json.dumps(match)}", 'cache = "main"']
    lines += ["[server]", f"host = {json.dumps(flags.get('--host', '127.0.0.1'))}"]
    lines.append(f"port = {flags['--port']}")
    off = [path for flag, path in (("--slots", "/slots"), ("--metrics", "/metrics")) if flag not in flags]
    lines.append(f"disabled = {json.dumps(off)}")
    if "--verbose" in flags:
        lines.append("debug = true")
    if key := flags.get("--api-key"):
        lines.append(f"api_keys = {json.dumps(key.split(','))}")
    if "--cors-origins" in flags:
        origins = [origin for origin in flags["--cors-origins"].split(",") if origin != "localhost"]
        lines.append(f"origins = {json.dumps(origins)}")
    return "\n".join(lines) + "\n"


def start_original(program: str, *arguments: str) -> None:
    """Become llama-server."""
    flags = _local_flags(arguments)
    given = [text for flag, value in flags.items() for text in ((flag,) if flag in SWITCHES else (flag, value))]
    os.execv(program, [program, *given, "--threads", "1"])


def start_shepherd(arguments: Sequence[str]) -> None:
    """Serve until the process ends."""
    from shepherd.cli.main import main

    folder = Path(tempfile.mkdtemp(dir=os.environ["SHEPHERD_SUITE_TMP"]))
    file = folder / "shepherd.toml"
    flags = with_some_model(_local_flags(arguments), Path(os.environ["SHEPHERD_SUITE_MODELS"]))
    file.write_text(configuration(flags, folder))
    os.environ |= {"HOME": str(folder)}
    os.chdir(folder)
    sys.argv = ["shepherd", "serve", "--config", str(file)]
    main()


def _local_flags(arguments: Sequence[str]) -> dict[str, str]:
    models, templates = (Path(os.environ[f"SHEPHERD_SUITE_{name}"]) for name in ("MODELS", "TEMPLATES"))
    return with_local_model(read_flags(arguments), models, templates)


def serve_shepherds(socket: str) -> None:
    """Start `shepherd serve` for each client of `fork_server`."""
    sys.path.remove(str(FOLDER))  # our `llama_cpp` is not the library
    os.environ["XDG_CACHE_HOME"] = os.environ["SHEPHERD_SUITE_TMP"]  # a model is tried out once
    for name in ("cli.main", "cli.command.serve", "app.app", "server.app", "engine.llamacpp.runtime"):
        importlib.import_module(f"shepherd.{name}")
    fork_server.serve(socket, start_shepherd)


if __name__ == "__main__":
    serve_shepherds(*sys.argv[2:]) if sys.argv[1] == "shepherd" else start_original(*sys.argv[1:])

"""What the name of a model's file says: its stem and its number format. Pure.

sub/Qwen3-8B-Q4_K_M-00001-of-00002.gguf ─▶ stem Qwen3-8B-Q4_K_M, quant Q4_K_M, labels {…, "q4_k_m", "sub"}
"""

from __future__ import annotations

import re
from pathlib import PurePath


def stem(file: PurePath) -> str:
    return re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", file.name, flags=re.IGNORECASE)


def quant(file: PurePath) -> str | None:
    """The number format in a file's name, such as `Q4_K_M`."""
    match = re.search(r"(?i)(?<![a-z0-9])((?:UD-)?(?:I?Q\d\w*|MXFP4\w*|BF16|F16|F32|TQ\d\w*))$", stem(file))
    return match[1].upper() if match else None


def labels(file: PurePath) -> tuple[str, ...]:
    """The labels, in lower case, by which a user can choose this file of a repository."""
    kind = (quant(file) or "").lower()
    return (stem(file).lower(), file.name.lower(), kind, kind.removeprefix("ud-"), file.parent.name.lower())

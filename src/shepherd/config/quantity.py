"""Durations and amounts of memory in words: `"1h30m"`, `"24 GiB"`, `"80%"`."""

from __future__ import annotations

import re
from typing import Any

NO_END = -1.0
"""A duration without end, in seconds."""
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kmgt])(?:i?b)?|b)", re.IGNORECASE)
_TOKENS = re.compile(r"(\d+(?:\.\d+)?) ?([km]?)", re.IGNORECASE)
_TIMES = re.compile(r"(\d+(?:\.\d+)?) ?[x×]", re.IGNORECASE)
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")


def seconds(value: Any) -> float:
    """A number of seconds, or a text such as `90s`, `5m`, `1h30m`; `NO_END` for any below 0. Raises: `ValueError`."""
    if isinstance(value, str):
        parts = _TIME.findall(value)
        is_time = bool(parts) and "".join(map("".join, parts)) == value
        value = sum(float(digits) * _SECONDS[unit] for digits, unit in parts) if is_time else float(value)
    if not is_number(value) or not value < 2**31:  # not: NaN is not
        raise ValueError(value)
    return float(value) if value >= 0 else NO_END


def memory(value: Any) -> int | float:
    """Bytes (`int`), or a share of what there is (`float`, above 0 to 1): `8589934592`, `"8 GiB"`, `0.8`, `"80%"`.

    A kilobyte is 1024 bytes here. Raises: `ValueError`.
    """
    if isinstance(value, str):
        if match := _SHARE.fullmatch(value):
            value = float(match[1]) / 100
        elif match := _AMOUNT.fullmatch(value):
            value = int(float(match[1]) * 1024 ** (" kmgt".index((match[2] or " ").lower())))
        else:
            value = int(value)
    # A number with a point is a share, one without is bytes; 1.5 is neither.
    if not is_number(value) or not (0 < value <= 1 if isinstance(value, float) else 1 <= value < 2**63):
        raise ValueError(value)
    return value  # type: ignore[no-any-return]  # an int or a float, as was just seen


def window(value: Any) -> int | float:
    """Tokens (`int`), or a multiple of the context (`float`): `"128k"`, `"8x"`; k is 1024. Raises: `ValueError`."""
    if isinstance(value, str):
        if match := _TIMES.fullmatch(value):
            value = float(match[1])
        elif match := _TOKENS.fullmatch(value):
            value = int(float(match[1]) * 1024 ** (" km".index(match[2].lower() or " ")))
        else:
            raise ValueError(value)
    if not is_number(value) or not (1 <= value <= 1000 if isinstance(value, float) else 1 <= value < 2**31):
        raise ValueError(value)
    return value  # type: ignore[no-any-return]  # an int or a float, as was just seen


def is_number(value: Any) -> bool:
    # bool is an int in Python, not in a configuration.
    return isinstance(value, (int, float)) and not isinstance(value, bool)

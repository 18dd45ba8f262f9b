"""One page of a list, as OpenAI's and Anthropic's clients ask for it in the query of a URL."""

from __future__ import annotations

from collections.abc import Mapping

from shepherd.core import InvalidRequest
from shepherd.wire.base import Json, field_error, shown


def encode_page(
    entries: list[Json], query: Mapping[str, str], *, what: str, max_limit: int, after: str, before: str = ""
) -> Json:
    """Some of the entries: `limit` of them, behind the id `after` or in front of the id `before` if `query` has one.

    `what` errors call an entry. Raises: `InvalidRequest`.
    """
    limit = query.get("limit", "20")
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:9]) <= max_limit:
        raise InvalidRequest(f"limit must be an integer from 1 to {max_limit}, not {shown(limit)}", field="limit")
    ids = [entry["id"] for entry in entries]
    start, stop = 0, len(ids)
    given = {field: query[field] for field in (after, before) if field and field in query}
    for field, id in given.items():
        if id not in ids:
            raise field_error(field, f"is {shown(id)}, which is not the id of {what}")
        if field == after:
            start = ids.index(id) + 1
        else:
            stop = ids.index(id)
            start = max(start, stop - int(limit))
    page = entries[start : min(stop, start + int(limit))]
    return {
        "data": page,
        "has_more": start > 0 if before in given else start + len(page) < stop,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }

"""How gateways write an answer of each protocol in their own way; it says the same as the plain one.

    records of `providers_scripted` ─ quirk ─▶ bytes          Said(..., quirk=QUIRKS[protocol][name])

Sources: public reports on OpenRouter, LocalAI, vLLM, SGLang, LM Studio, Ollama, LiteLLM, Groq, Moonshot, DashScope,
Azure, gateways in front of Gemini and Bedrock. Written from their facts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from shepherd.wire.signature import Protocol

Quirk = Callable[[bytes], bytes]
Record = dict[str, Any]
Change = Callable[[list[Any]], list[Any]]


def of_records(change: Change) -> Quirk:
    """A quirk of the records of a stream, whatever frames them. Half a character is written as an escape."""

    def quirk(data: bytes) -> bytes:
        is_lines = data.startswith(b"{")
        lines = [line.removeprefix("data: ") for line in data.decode().split("\n") if line[:1] in ("{", "d")]
        records = [json.loads(line) if line.startswith("{") else line for line in lines]
        made = [each if isinstance(each, str) else json.dumps(each) for each in change(copy.deepcopy(records))]
        return "".join(f"{each}\n" if is_lines else f"data: {each}\n\n" for each in made).encode()

    return quirk


def of_each(change: Callable[[Record], Any]) -> Quirk:
    """A quirk of each record by itself: `change` alters it, or returns what stands in its place."""

    def changed(records: list[Any]) -> list[Any]:
        made: list[Any] = []
        for record in records:
            found = change(record) if isinstance(record, dict) else None
            made += found if isinstance(found, list) else [record]
        return made

    return of_records(changed)


def halved(text: str) -> list[str]:
    """A text by UTF-16 units: an emoji falls apart."""
    units = text.encode("utf-16-le")
    return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]


def numbers_as(kind: Callable[[int], Any]) -> Quirk:
    def walked(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: each if name in ("args", "arguments") else walked(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [walked(each) for each in value]
        is_count = isinstance(value, int) and not isinstance(value, bool)
        return kind(value) if is_count and ("token" in key.lower() or "count" in key or key == "index") else value

    return of_records(lambda records: [walked(each) for each in records])


# -- chat completions --------------------------------------------------------------------------------------------------


def choice(record: Record) -> Record:
    found: Record = (record.get("choices") or [{}])[0]
    return found


def delta(record: Record) -> Record:
    found: Record = choice(record).get("delta", {})
    return found


def calls(record: Record) -> list[Record]:
    found: list[Record] = delta(record).get("tool_calls", [])
    return found


def in_pieces(record: Record, change: Callable[[Record, int], None] = lambda piece, at: None) -> list[Record]:
    """A record with a call as several, of which the first has its id and name; `change` alters each piece."""
    if not calls(record):
        return [record]
    (call,) = calls(record)
    text = call["function"]["arguments"]
    made = []
    for at, cut in enumerate(["", text[:2], text[2:5], text[5:]]):
        piece = copy.deepcopy(call)
        piece["function"]["arguments"] = cut
        if at:
            del piece["id"], piece["function"]["name"]
        change(piece, at)
        made.append(record | {"choices": [choice(record) | {"delta": {"tool_calls": [piece]}}]})
    return made


def with_names(piece: Record, id: str, name: str) -> None:
    piece["id"], piece["function"]["name"] = id, name


def headed(record: Record) -> list[Record]:
    if not calls(record):
        return [record]
    (call,) = calls(record)
    return in_pieces(record, lambda piece, at: with_names(piece, call["id"], call["function"]["name"]))


def growing(record: Record) -> list[Record]:
    """Each piece has all arguments so far (DashScope)."""
    if not calls(record):
        return [record]
    (call,) = calls(record)
    whole = call["function"]["arguments"]

    def change(piece: Record, at: int) -> None:
        with_names(piece, call["id"], call["function"]["name"])
        piece["function"]["arguments"] = whole[: (0, 2, 5, len(whole))[at]]

    return in_pieces(record, change)


def each_call(change: Callable[[Record], Any]) -> Quirk:
    def changed(record: Record) -> None:
        for call in calls(record):
            change(call)

    return of_each(changed)


def last_choice(records: list[Any]) -> Record:
    return next(each for each in records if isinstance(each, dict) and choice(each).get("finish_reason"))


def all_calls_again(records: list[Any], *without: str) -> list[Any]:
    again = [
        {key: value for key, value in call.items() if key not in without}
        for each in records[:-1]
        for call in calls(each)
    ]
    choice(last_choice(records))["delta"] = {"tool_calls": copy.deepcopy(again)}
    return records


def each_call_at_the_next_index(records: list[Any]) -> list[Any]:
    """LocalAI: a call stands at several indexes, first without its arguments."""
    made: list[Any] = []
    for record in records:
        if isinstance(record, dict) and calls(record):
            at, begun = calls(record)[0]["index"], copy.deepcopy(record)
            calls(begun)[0]["function"]["arguments"] = ""
            again = [copy.deepcopy(record), copy.deepcopy(record)]
            for n, each in enumerate((begun, *again)):
                calls(each)[0]["index"] = 3 * at + n
            made += [begun, *again]
        else:
            made.append(record)
    return made


def folded(records: list[Any]) -> Record:
    """The message of a stream."""
    parts = [delta(each) for each in records if isinstance(each, dict)]
    message = {
        "role": "assistant",
        "content": "".join(each.get("content") or "" for each in parts),
        "reasoning_content": "".join(each.get("reasoning_content") or "" for each in parts),
        "tool_calls": [call for each in parts for call in each.get("tool_calls", [])],
    }
    return copy.deepcopy(message)


def message_behind(records: list[Any], *, without_ids: bool = False) -> list[Any]:
    message, last = folded(records), choice(last_choice(records))
    for call in message["tool_calls"]:
        del call["index"]
        if without_ids:
            del call["id"]
    del last["delta"]
    last["message"] = message
    return records


def as_message(records: list[Any]) -> list[Any]:
    """One object, although a stream was asked for."""
    end = next(each for each in reversed(records) if isinstance(each, dict))
    reason = choice(last_choice(records))["finish_reason"]
    return [end | {"choices": [{"index": 0, "message": folded(records), "finish_reason": reason}]}]


def in_two_choices(records: list[Any]) -> list[Any]:
    """Copilot: the text and the calls of one answer are two choices."""
    (whole,) = as_message(records)
    message, reason = choice(whole)["message"], choice(whole)["finish_reason"]
    made = message.pop("tool_calls")
    second = (
        [{"index": 0, "message": {"role": "assistant", "tool_calls": made}, "finish_reason": reason}] if made else []
    )
    whole["choices"] = [*whole["choices"], *second]
    return [whole]


def thoughts_as(make: Callable[[str], Record]) -> Quirk:
    def change(record: Record) -> None:
        if (text := delta(record).pop("reasoning_content", None)) is not None:
            delta(record).update(make(text))

    return of_each(change)


def content_as(make: Callable[[str], Any]) -> Quirk:
    def change(record: Record) -> None:
        if text := delta(record).get("content"):
            delta(record)["content"] = make(text)

    return of_each(change)


def chat_halves(record: Record) -> list[Record]:
    made = []
    for key in ("content", "reasoning_content"):
        for text in halved(delta(record).get(key) or ""):
            made.append(record | {"choices": [choice(record) | {"delta": {key: text}}]})
    if calls(record):
        (call,) = calls(record)
        for at, text in enumerate(halved(json.dumps(json.loads(call["function"]["arguments"]), ensure_ascii=False))):
            piece = {"index": call["index"], "function": {"arguments": text}}
            if not at:
                piece = copy.deepcopy(call) | {"function": call["function"] | {"arguments": text}}
            made.append(record | {"choices": [choice(record) | {"delta": {"tool_calls": [piece]}}]})
    return made or [record]


def counts_everywhere(records: list[Any]) -> list[Any]:
    """In every record, as null or as zeros, and once as they are."""
    for at, record in enumerate(records):
        if isinstance(record, dict) and "usage" not in record:
            record["usage"] = None if at % 2 else {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return [*records[:-1], {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}, records[-1]]


def counts_in_the_choice(records: list[Any]) -> list[Any]:
    counts = next(each for each in records if isinstance(each, dict) and "usage" in each)
    choice(last_choice(records))["usage"] = counts["usage"]
    return [each for each in records if each is not counts]


def reasons(*words: Any) -> Quirk:
    """The last choice comes once with each of these reasons; `{}` stands for its own."""

    def change(records: list[Any]) -> list[Any]:
        last = last_choice(records)
        own, at = choice(last)["finish_reason"], records.index(last)
        filled = [word.replace("{}", own) if isinstance(word, str) else word(own) for word in words]
        again = [last | {"choices": [choice(last) | {"finish_reason": word}]} for word in filled]
        return [*records[:at], *again, *records[at + 1 :]]

    return of_records(change)


def shouted(records: list[Any]) -> list[Any]:
    last = choice(last_choice(records))
    last["finish_reason"] = last["finish_reason"].upper()
    return records


def set_all(**fields: Any) -> Quirk:
    def change(record: Record) -> None:
        if record.get("choices"):
            choice(record).update(fields)

    return of_each(change)


def completed(record: Record) -> None:
    if text := delta(record).get("content"):
        choice(record)["text"] = text
        del choice(record)["delta"]


def roles(record: Record) -> None:
    if record.get("choices"):
        delta(record)["role"] = "assistant"


CHAT: dict[str, Quirk] = {
    "an answer at index 1": set_all(index=1),
    "an answer without an index": set_all(index=None),
    "ids in the first piece of a call": of_each(in_pieces),
    "ids and names in every piece": of_each(headed),
    "pieces that grow": of_each(growing),
    "no ids": each_call(lambda call: call.pop("id")),
    "blank ids": each_call(lambda call: call.update(id=" ")),
    "one id for all calls": each_call(lambda call: call.update(id="same")),
    "no indexes": each_call(lambda call: call.pop("index")),
    "one index for all calls": each_call(lambda call: call.update(index=0)),
    "indexes from 1": each_call(lambda call: call.update(index=call["index"] + 1)),
    "no types": each_call(lambda call: call.update(type=None)),
    "arguments as objects": each_call(
        lambda call: call["function"].update(arguments=json.loads(call["function"]["arguments"]))
    ),
    "arguments encoded twice": each_call(
        lambda call: call["function"].update(arguments=json.dumps(call["function"]["arguments"]))
    ),
    "null, then arguments": of_each(
        lambda record: in_pieces(record, lambda piece, at: piece["function"].update(arguments=None) if not at else None)
    ),
    "a call at several indexes": of_records(each_call_at_the_next_index),
    "all calls again": of_records(all_calls_again),
    "all calls again without ids": of_records(lambda records: all_calls_again(records, "id")),
    "all calls again without indexes": of_records(lambda records: all_calls_again(records, "index")),
    "the message behind its pieces": of_records(message_behind),
    "the message behind its pieces, without ids": of_records(lambda records: message_behind(records, without_ids=True)),
    "an object in place of a stream": of_records(as_message),
    "text and calls in two choices": of_records(in_two_choices),
    "counts in every record": of_records(counts_everywhere),
    "counts in the choice": of_records(counts_in_the_choice),
    "reasoning": thoughts_as(lambda text: {"reasoning": text}),
    "reasoning_text": thoughts_as(lambda text: {"reasoning_text": text}),
    "thinking": thoughts_as(lambda text: {"thinking": text}),
    "thinking as an object": thoughts_as(lambda text: {"thinking": {"content": text}}),
    "reasoning_details": thoughts_as(
        lambda text: {"reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}
    ),
    "reasoning twice": thoughts_as(lambda text: {"reasoning": text, "reasoning_content": text}),
    "thoughts as parts": thoughts_as(lambda text: {"content": [{"type": "reasoning", "text": text}]}),
    "content as parts": content_as(lambda text: [{"type": "text", "text": text}]),
    "content as texts": content_as(lambda text: [text]),
    "content as an object": content_as(lambda text: {"type": "text", "text": text}),
    "pieces as completions have them": of_each(completed),
    "roles in every record": of_each(roles),
    "a reason in capitals": of_records(shouted),
    "a reason as an object": reasons(lambda own: {"type": own}),
    "a reason with the name of its type": reasons("FinishReason.{}"),
    "a reason twice": reasons("{}", "{}"),
    "a plain reason behind another": reasons("{}", "stop"),
    "halves of characters": of_each(chat_halves),
}


# -- the other protocols -----------------------------------------------------------------------------------------------


def anthropic_halves(record: Record) -> list[Record]:
    found = record.get("delta", {})
    key = next((each for each in ("text", "thinking", "partial_json") if each in found), None)
    if key is None:
        return [record]
    text = json.dumps(json.loads(found[key]), ensure_ascii=False) if key == "partial_json" else found[key]
    return [record | {"delta": found | {key: each}} for each in halved(text)]


def anthropic_calls_again(records: list[Any]) -> list[Any]:
    blocks: dict[int, list[Any]] = {}
    for record in records:
        if "index" in record:
            blocks.setdefault(record["index"], []).append(record)
    again = [each for some in blocks.values() if some[0]["content_block"]["type"] == "tool_use" for each in some]
    end = next(at for at, each in enumerate(records) if each["type"] == "message_delta")
    moved = [each | {"index": each["index"] + len(blocks)} for each in copy.deepcopy(again)]
    return [*records[:end], *moved, *records[end:]]


def anthropic_uses(change: Callable[[Record, list[Record]], list[Record]]) -> Quirk:
    """`change` gets the block of a call and its pieces, and returns the pieces."""

    def changed(records: list[Any]) -> list[Any]:
        made: list[Any] = []
        pieces: list[Record] = []
        use: Record | None = None
        for record in records:
            if record["type"] == "content_block_start" and record["content_block"]["type"] == "tool_use":
                use, pieces = record["content_block"], []
                made.append(record)
            elif use is not None and record["type"] == "content_block_delta":
                pieces.append(record)
            elif use is not None and record["type"] == "content_block_stop":
                made += [*change(use, pieces), record]
                use = None
            else:
                made.append(record)
        return made

    return of_records(changed)


def filled(use: Record, pieces: list[Record]) -> list[Record]:
    use["input"] = json.loads("".join(each["delta"]["partial_json"] for each in pieces))
    return pieces


def encoded_twice(use: Record, pieces: list[Record]) -> list[Record]:
    use["input"] = "".join(each["delta"]["partial_json"] for each in pieces)
    return []


def ending(word: Callable[[str], Any]) -> Quirk:
    def change(record: Record) -> None:
        if record["type"] == "message_delta":
            record["delta"]["stop_reason"] = word(record["delta"]["stop_reason"])

    return of_each(change)


def anthropic_id(id: str | None) -> Quirk:
    def change(record: Record) -> None:
        block = record.get("content_block", {})
        if block.get("type") == "tool_use":
            block["id"] = id

    return of_each(change)


CHATS_WORDS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
ANTHROPIC: dict[str, Quirk] = {
    "the mark of OpenAI's streams behind the end": of_records(lambda records: [*records, "[DONE]"]),
    "no message_stop": of_records(lambda records: records[:-1]),
    "a reason in capitals": ending(str.upper),
    "a reason of OpenAI": ending(lambda word: CHATS_WORDS[word]),
    "all calls again": of_records(anthropic_calls_again),
    "arguments with the beginning and in pieces": anthropic_uses(filled),
    "arguments with the beginning": anthropic_uses(lambda use, pieces: filled(use, pieces)[:0]),
    "arguments encoded twice": anthropic_uses(encoded_twice),
    "no ids": anthropic_id(None),
    "one id for all calls": anthropic_id("same"),
    "halves of characters": of_each(anthropic_halves),
}


def gemini_candidates(change: Callable[[Record], Any]) -> Quirk:
    def changed(record: Record) -> None:
        for candidate in record.get("candidates", ()):
            change(candidate)

    return of_each(changed)


def gemini_calls(change: Callable[[Record], Any]) -> Quirk:
    def changed(candidate: Record) -> None:
        for part in candidate["content"]["parts"]:
            if "functionCall" in part:
                change(part["functionCall"])

    return gemini_candidates(changed)


def gemini_calls_again(records: list[Any]) -> list[Any]:
    parts = [part for each in records for part in each["candidates"][0]["content"]["parts"] if "functionCall" in part]
    records[-1]["candidates"][0]["content"]["parts"] = [{"functionCall": part["functionCall"]} for part in parts]
    return records


def gemini_halves(record: Record) -> list[Record]:
    parts = record["candidates"][0]["content"]["parts"]
    if len(parts) != 1 or "text" not in parts[0]:
        return [record]
    made = []
    texts = halved(parts[0]["text"])
    for at, text in enumerate(texts):
        kept = {key: value for key, value in parts[0].items() if key != "thoughtSignature" or at == len(texts) - 1}
        again = copy.deepcopy(record)
        again["candidates"][0]["content"]["parts"] = [kept | {"text": text}]
        made.append(again)
    return made


def gemini_reason(word: Callable[[str], str]) -> Quirk:
    def change(candidate: Record) -> None:
        if "finishReason" in candidate:
            candidate["finishReason"] = word(candidate["finishReason"])

    return gemini_candidates(change)


GEMINI: dict[str, Quirk] = {
    "an answer at index 1": gemini_candidates(lambda candidate: candidate.update(index=1)),
    "the mark of OpenAI's streams behind the end": of_records(lambda records: [*records, "[DONE]"]),
    "all calls again": of_records(gemini_calls_again),
    "one id for all calls": gemini_calls(lambda call: call.update(id="same")),
    "arguments encoded twice": gemini_calls(lambda call: call.update(args=json.dumps(call["args"]))),
    "a reason of OpenAI": gemini_reason(lambda word: {"STOP": "stop", "MAX_TOKENS": "length"}[word]),
    "a reason with the name of its type": gemini_reason("FinishReason.{}".format),
    "halves of characters": of_each(gemini_halves),
}


def ollama_calls(change: Callable[[Record], Any]) -> Quirk:
    def changed(line: Record) -> None:
        for call in line["message"].get("tool_calls", ()):
            change(call)

    return of_each(changed)


def ollama_calls_again(records: list[Any]) -> list[Any]:
    again = [call for each in records for call in each["message"].get("tool_calls", ())]
    records[-1]["message"]["tool_calls"] = copy.deepcopy(again)
    return records


def ollama_halves(line: Record) -> list[Record]:
    for key in ("content", "thinking"):
        if text := line["message"].get(key):
            return [line | {"message": line["message"] | {key: each}} for each in halved(text)]
    return [line]


def ollama_thoughts(line: Record) -> None:
    if (text := line["message"].pop("thinking", None)) is not None:
        line["message"]["reasoning"] = text


def ollama_reason(word: Callable[[str], str]) -> Quirk:
    def change(line: Record) -> None:
        if "done_reason" in line:
            line["done_reason"] = word(line["done_reason"])

    return of_each(change)


OLLAMA: dict[str, Quirk] = {
    "all calls again": of_records(ollama_calls_again),
    "one id for all calls": ollama_calls(lambda call: call.update(id="same")),
    "arguments as texts": ollama_calls(
        lambda call: call["function"].update(arguments=json.dumps(call["function"]["arguments"]))
    ),
    "reasoning": of_each(ollama_thoughts),
    "content as parts": of_each(
        lambda line: line["message"].update(content=[{"type": "text", "text": line["message"]["content"]}])
    ),
    "a reason of Gemini": ollama_reason(lambda word: {"stop": "STOP", "length": "MAX_TOKENS"}[word]),
    "halves of characters": of_each(ollama_halves),
}


def responses_items(record: Record) -> Iterator[Record]:
    if "item" in record:
        yield record["item"]
    yield from record.get("response", {}).get("output", ())


def responses_each(change: Callable[[Record], Any]) -> Quirk:
    def changed(record: Record) -> None:
        for item in responses_items(record):
            change(item)

    return of_each(changed)


def responses_end(change: Callable[[list[Record]], list[Record]]) -> Quirk:
    def changed(records: list[Any]) -> list[Any]:
        response = records[-1]["response"]
        response["output"] = change(response["output"])
        return records

    return of_records(changed)


def responses_halves(record: Record) -> list[Record]:
    if not record["type"].endswith(".delta"):
        return [record]
    text = record["delta"]
    if "arguments" in record["type"]:
        text = json.dumps(json.loads(text), ensure_ascii=False)
    return [record | {"delta": each} for each in halved(text)]


def responses_calls_again(records: list[Any]) -> list[Any]:
    begun = [each for each in records if each.get("item", {}).get("type") == "function_call"]
    again = [each | {"output_index": each["output_index"] + 9} for each in copy.deepcopy(begun)]
    return [*records[:-1], *again, records[-1]]


RESPONSES: dict[str, Quirk] = {
    "the mark of OpenAI's streams behind the end": of_records(lambda records: [*records, "[DONE]"]),
    "no indexes": of_each(lambda record: record.pop("output_index", None) and None),
    "all calls again": of_records(responses_calls_again),
    "all items at other indexes at the end": responses_end(lambda items: items[::-1]),
    "only the message and the calls at the end": responses_end(
        lambda items: [each for each in items if each["type"] != "reasoning"]
    ),
    "other ids at the end": responses_end(
        lambda items: [each | ({"id": f"x{each['id']}"} if each["type"] != "reasoning" else {}) for each in items]
    ),
    "no items at the end": responses_end(lambda items: []),
    "no ids of calls": responses_each(lambda item: item.pop("call_id", None) and None),
    "arguments as objects": responses_each(
        lambda item: item.update(arguments=json.loads(item["arguments"])) if item.get("arguments") else None
    ),
    "halves of characters": of_each(responses_halves),
}


# -- frames, of every protocol -----------------------------------------------------------------------------------------


def comments(data: bytes) -> bytes:
    return data.replace(b"\n\n", b"\n\n: OPENROUTER PROCESSING\n\n")


EVERY: dict[str, Quirk] = {
    "counts as 7.0": numbers_as(float),
    "counts as texts": numbers_as(str),
}
FRAMES: dict[str, Quirk] = {
    "lines that end with CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "comments": comments,
    "no blank behind data:": lambda data: data.replace(b"data: ", b"data:"),
    "a mark in front": lambda data: b"\xef\xbb\xbf" + data,
}
QUIRKS: dict[Protocol, dict[str, Quirk]] = {
    "openai.chat": {**CHAT, **EVERY, **FRAMES},
    "openai.responses": {**RESPONSES, **EVERY, **FRAMES},
    "anthropic": {**ANTHROPIC, **EVERY, **FRAMES},
    "gemini": {**GEMINI, **EVERY, **FRAMES},
    "ollama": {**OLLAMA, **EVERY},
}

"""A provider that plays any conversation, in any of the protocols, and is as strict as the real ones.

    async with scripted("anthropic", lambda heard: Said("Hello.")) as provider:
        ... base_url=provider.url ...        # provider.faults: what a real one would have refused, and got a 400
    heard.pieces ◀─ read ─ body        Said ─ write ─▶ bytes of the protocol, with proofs of its own

It makes signatures and sealed items, and knows them again: one that is another's, or has changed, is refused, as is a
call without its result. It has a window. Written by hand from the facts, without our codecs: it must not share their
faults.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from tests.providers_replay import Answer, Received, ReplayServer, Way

from shepherd.wire.signature import Protocol

SSE, NDJSON, JSON = "text/event-stream", "application/x-ndjson", "application/json"
SENTINEL = "skip_thought_signature_validator"
"""What Gemini takes in the place of a signature that another model's call lacks."""


class Piece(NamedTuple):
    """A part of the conversation, as a provider has got it."""

    role: Literal["system", "user", "assistant"]
    kind: Literal["text", "thought", "call", "result", "other"]
    text: str
    """Of a call: its name and its arguments."""
    id: str = ""
    """Of a call or a result; where the protocol has none, the name of the tool."""
    proof: str = ""


@dataclass(frozen=True)
class Heard:
    """One request for an answer."""

    body: Any
    pieces: tuple[Piece, ...]
    number: int
    """Of the answers of this provider, from 1."""
    tools: tuple[str, ...]
    model: str

    @property
    def last(self) -> str:
        """What the user has said last."""
        return next((each.text for each in reversed(self.pieces) if (each.role, each.kind) == ("user", "text")), "")

    @property
    def results(self) -> list[str]:
        """Behind the last answer."""
        last = max((at for at, each in enumerate(self.pieces) if each.role == "assistant"), default=-1)
        return [each.text for each in self.pieces[last + 1 :] if each.kind == "result"]

    @property
    def proofs(self) -> list[str]:
        return [each.proof for each in self.pieces if each.proof]

    def texts(self, role: str) -> list[str]:
        return [each.text for each in self.pieces if (each.role, each.kind) == (role, "text")]


EVENLY = Way()


@dataclass(frozen=True)
class Said:
    """One answer."""

    text: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    way: Way = EVENLY
    hangs_behind: str = ""
    """Nothing more comes behind the record with this word, until the client goes, or `way.go_on` is set."""
    breaks_behind: str = ""
    """The connection is cut there."""
    is_cut: bool = False
    """Its limit of tokens has ended it."""
    quirk: Callable[[bytes], bytes] = bytes
    """How a gateway writes the answer (`providers_quirks.py`)."""


Script = Callable[[Heard], "Said | Answer"]
"""An `Answer` is sent as it is: a failure. Its path does not matter."""


@dataclass(frozen=True)
class Voice:
    """What writes an answer: the model, a word that no other answer has, the tokens of the prompt."""

    model: str
    word: str
    n_prompt: int

    def id(self, at: int) -> str:
        return f"call{self.word}{at}"

    @property
    def proof(self) -> str:
        return f"c2ln{self.word}+/=="


class ScriptedProvider(ReplayServer):
    """One model of one protocol; every path that its protocol has is there."""

    def __init__(self, protocol: Protocol, script: Script, *, n_ctx: int | None = None, name: str = "p") -> None:
        """`n_ctx`: a longer prompt is refused, in words that state it. `name`: proofs of two names differ."""
        super().__init__()
        self.protocol = protocol
        self.script = script
        self.n_ctx = n_ctx
        self.name = name
        self.heard: list[Heard] = []
        """Requests for an answer that were not refused."""
        self.n_refused = 0
        """Prompts that were too long."""
        self.rewritten: list[int] = []
        """Numbers of the requests that did not begin like the one before of their conversation."""
        self.issued: dict[str, str] = {}
        """The text that each proof is for."""
        self._before: dict[str, list[str]] = {}
        self._n = 0

    def _next(self, received: Received) -> tuple[Answer, str]:
        path = received.path
        if received.method == "GET":
            return self._json(path, {"object": "list", "data": [{"id": "m", "object": "model"}], "models": []}), ""
        body = received.json
        if path.endswith("/api/show"):
            return self._json(path, {"capabilities": ["completion", "tools", "thinking"], "model_info": {}}), ""
        if re.search(r"count_tokens|countTokens|input_tokens", path):
            return self._json(path, {"input_tokens": tokens_of(body), "totalTokens": tokens_of(body)}), ""
        answer = self._answer_to(path, body)
        return replace(answer, path=path), ""

    def _answer_to(self, path: str, body: Any) -> Answer:
        codec = CODECS[self.protocol]
        if not path.endswith(codec.path.partition("{")[0]) and "{" not in codec.path:
            return self._refusal(404, f"no such path: {path}")
        pieces = tuple(codec.read(body))
        if wrong := [*codec.faults(body), *self._faults(pieces, may_continue=codec.continues(body))]:
            self.faults += wrong
            return self._refusal(400, f"scripted: {wrong[0]}")
        n_prompt = tokens_of(body)
        if self.n_ctx is not None and n_prompt > self.n_ctx:
            self.n_refused += 1
            words = OVERFLOWS[self.protocol].format(needed=n_prompt, limit=self.n_ctx)
            return self._refusal(400, words, "context_length_exceeded")
        self._n += 1
        self._note_prefix(codec, body, pieces)
        model = str(body.get("model") or re.sub(r"^.*/models/([^:]+):.*$", r"\1", path))
        heard = Heard(body, pieces, self._n, tuple(codec.tools(body)), model)
        self.heard.append(heard)
        said = self.script(heard)
        if isinstance(said, Answer):
            return said
        voice = Voice(model, f"{self.name}{self._n:04}x", n_prompt)
        if codec.has_proofs:
            self.issued[voice.proof] = said.thoughts
        data = said.quirk(codec.write(said, voice))
        way = said.way
        if word := said.hangs_behind or said.breaks_behind:
            end = b"\n" if self.protocol == "ollama" else b"\n\n"
            at = data.index(end, data.index(word.encode())) + len(end)
            way = Way(hang_at=at, go_on=way.go_on) if said.hangs_behind else Way(break_at=at)
        return Answer("", data, 200, {"content-type": NDJSON if self.protocol == "ollama" else SSE}, way=way)

    def _json(self, path: str, body: Any) -> Answer:
        return Answer(path, json.dumps(body).encode(), 200, {"content-type": JSON})

    def _refusal(self, status: int, words: str, code: str = "") -> Answer:
        error: Any = {"message": words, "type": "invalid_request_error", **({"code": code} if code else {})}
        body: Any = {"type": "error", "error": error}
        if self.protocol == "gemini":
            body = {"error": {"code": status, "message": words, "status": "INVALID_ARGUMENT"}}
        elif self.protocol == "ollama":
            body = {"error": words}
        return Answer("", json.dumps(body).encode(), status, {"content-type": JSON})

    def _faults(self, pieces: tuple[Piece, ...], *, may_continue: bool) -> Iterator[str]:
        """What every provider refuses, or answers anew where it was to continue."""
        spoken = [each for each in pieces if each.role != "system"]
        if not spoken or (spoken[0].role, spoken[0].kind) != ("user", "text"):
            yield f"the conversation begins with {spoken[:1]}"
        if spoken and spoken[-1].role == "assistant" and not may_continue:
            yield f"the conversation ends with {spoken[-1]}"
        waiting: list[str] = []
        for piece in pieces:
            if piece.kind == "result":
                if piece.id not in waiting:
                    yield f"a result without its call: {piece}"
                else:
                    waiting.remove(piece.id)
                continue
            if waiting and piece.role != "assistant" and piece.kind != "other":  # an image beside a result
                yield f"calls without results: {waiting}"
                waiting = []
            if piece.kind == "call":
                waiting.append(piece.id)
            if piece.kind in ("text", "thought") and not piece.text and not piece.proof:
                yield f"an empty part: {piece}"
        if waiting:
            yield f"calls without results: {waiting}"
        for piece in pieces:
            if piece.proof and piece.proof != SENTINEL and piece.proof not in self.issued:
                yield f"a proof that is not mine: {piece}"
            elif piece.kind == "thought" and piece.proof and piece.text != self.issued[piece.proof]:
                yield f"a thought has changed: {piece}"

    def _note_prefix(self, codec: Codec, body: Any, pieces: tuple[Piece, ...]) -> None:
        first = next(each.text for each in pieces if each.role == "user")
        now = [json.dumps(each, sort_keys=True) for each in without_marks(body[codec.messages])]
        before = self._before.get(first, [])
        if now[: len(before)] != before:
            self.rewritten.append(self._n)
        self._before[first] = now


def tokens_of(body: Any) -> int:
    """Four characters are a token here."""
    return len(json.dumps(without_marks(body), ensure_ascii=False)) // 4


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(each) for key, each in value.items() if key != "cache_control"}
    return list(map(without_marks, value)) if isinstance(value, list) else value


OVERFLOWS: dict[str, str] = {
    "openai.chat": "This model's maximum context length is {limit} tokens. However, your messages resulted in {needed} "
    "tokens.",
    "openai.responses": "Your input exceeds the context window of this model. {needed} tokens > {limit} maximum",
    "anthropic": "prompt is too long: {needed} tokens > {limit} maximum",
    "gemini": "The input token count ({needed}) exceeds the maximum number of tokens allowed ({limit}).",
    "ollama": "prompt too long; exceeded max context length by {needed} tokens",
}


@contextlib.asynccontextmanager
async def scripted(
    protocol: Protocol, script: Script, *, n_ctx: int | None = None, name: str = "p"
) -> AsyncIterator[ScriptedProvider]:
    """A provider in this event loop."""
    provider = ScriptedProvider(protocol, script, n_ctx=n_ctx, name=name)
    server = await provider.serve()
    try:
        yield provider
    finally:
        server.close()
        await provider.aclose()
        await server.wait_closed()


# -- the protocols -----------------------------------------------------------------------------------------------------


def sse(*records: Any) -> bytes:
    made = []
    for each in records:
        name = f"event: {each['type']}\n" if isinstance(each, dict) and "type" in each else ""
        made.append(f"{name}data: {each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}\n\n")
    return "".join(made).encode()


def pieces_of(text: str) -> list[str]:
    """A text as it is streamed: by words."""
    return re.findall(r"\s*\S+\s*$|\s*\S+|\s+$", text)


def called(name: str, arguments: Any) -> str:
    """A call as the text of a `Piece`."""
    return f"{name} {json.dumps(json.loads(arguments) if isinstance(arguments, str) else arguments, sort_keys=True)}"


class Codec:
    """One protocol, from the provider's side."""

    path = ""
    messages = "messages"
    """The field that holds them."""
    has_proofs = False

    def read(self, body: Any) -> Iterator[Piece]:
        raise NotImplementedError

    def write(self, said: Said, voice: Voice) -> bytes:
        raise NotImplementedError

    def faults(self, body: Any) -> Iterator[str]:
        """What this protocol's providers refuse besides."""
        return iter(())

    def continues(self, body: Any) -> bool:
        """Whether an answer at the end is continued."""
        return False

    def tools(self, body: Any) -> Iterator[str]:
        for tool in body.get("tools") or ():
            yield tool["function"]["name"] if "function" in tool else tool["name"]


class Chat(Codec):
    path = "/chat/completions"

    def read(self, body: Any) -> Iterator[Piece]:
        for message in body["messages"]:
            role, content = message["role"], message.get("content")
            if role == "tool":
                yield Piece("user", "result", content, message["tool_call_id"])
                continue
            for field_ in ("reasoning_content", "reasoning"):
                if thought := message.get(field_):
                    yield Piece("assistant", "thought", thought)
            spoken: Any = "system" if role == "developer" else role
            parts: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            for part in parts:
                if part["type"] == "thinking":
                    yield Piece(spoken, "thought", "".join(each["text"] for each in part["thinking"]))
                else:
                    yield Piece(spoken, "text" if part["type"] == "text" else "other", part.get("text", ""))
            for call in message.get("tool_calls") or ():
                yield Piece(
                    "assistant", "call", called(call["function"]["name"], call["function"]["arguments"]), call["id"]
                )

    def continues(self, body: Any) -> bool:
        return body.get("continue_final_message") is True

    def faults(self, body: Any) -> Iterator[str]:
        for message in body["messages"]:
            if message.get("tool_calls") == []:
                yield "tool_calls is empty"
            if message["role"] == "assistant" and message.get("content") is None and not message.get("tool_calls"):
                yield "an answer has neither content nor calls"

    def write(self, said: Said, voice: Voice) -> bytes:
        def chunk(delta: Any, finish: str | None = None) -> Any:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return {"id": voice.word, "object": "chat.completion.chunk", "model": voice.model, "choices": [choice]}

        n = len(pieces_of(said.text))
        usage = {"prompt_tokens": voice.n_prompt, "completion_tokens": n, "total_tokens": voice.n_prompt + n}
        calls = [
            {"index": at, "id": voice.id(at), "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (name, arguments) in enumerate(said.calls)
        ]  # fmt: skip
        return sse(
            chunk({"role": "assistant", "content": ""}),
            *(chunk({"reasoning_content": each}) for each in pieces_of(said.thoughts)),
            *(chunk({"content": each}) for each in pieces_of(said.text)),
            *(chunk({"tool_calls": [call]}) for call in calls),
            chunk({}, "length" if said.is_cut else "tool_calls" if calls else "stop"),
            {"id": voice.word, "model": voice.model, "choices": [], "usage": usage},
            "[DONE]",
        )


class Responses(Codec):
    path = "/responses"
    messages = "input"
    has_proofs = True

    def read(self, body: Any) -> Iterator[Piece]:
        for item in body["input"]:
            match item["type"]:
                case "message":
                    role: Any = "system" if item["role"] == "developer" else item["role"]
                    content = item["content"]
                    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
                    for part in parts:
                        yield Piece(role, "text" if "text" in part else "other", part.get("text", ""))
                case "reasoning":
                    text = "".join(each["text"] for each in item["summary"])
                    yield Piece("assistant", "thought", text, proof=item["encrypted_content"])
                case "function_call":
                    yield Piece("assistant", "call", called(item["name"], item["arguments"]), item["call_id"])
                case "function_call_output":
                    yield Piece("user", "result", json.dumps(item["output"]), item["call_id"])
                case _:
                    yield Piece("assistant", "other", item["type"])

    def faults(self, body: Any) -> Iterator[str]:
        kinds = [(item["type"], item.get("role")) for item in body["input"]]
        for at, (kind, _) in enumerate(kinds):
            follower = kinds[at + 1] if at + 1 < len(kinds) else ("nothing", None)
            if kind == "reasoning" and follower not in (("message", "assistant"), ("function_call", None)):
                yield f"a reasoning item is followed by {follower}"

    def write(self, said: Said, voice: Voice) -> bytes:
        output: list[Any] = []
        if said.thoughts:
            summary = [{"type": "summary_text", "text": said.thoughts}]
            output.append(
                {"type": "reasoning", "id": f"rs_{voice.word}", "summary": summary, "encrypted_content": voice.proof}
            )
        if said.text:
            part = {"type": "output_text", "text": said.text, "annotations": []}
            output.append(
                {"type": "message", "id": f"msg_{voice.word}", "role": "assistant", "status": "completed",
                 "content": [part]}
            )  # fmt: skip
        output += [
            {"type": "function_call", "id": f"fc_{voice.word}{at}", "call_id": voice.id(at), "name": name,
             "arguments": json.dumps(arguments), "status": "completed"}
            for at, (name, arguments) in enumerate(said.calls)
        ]  # fmt: skip
        head = {"id": f"resp_{voice.word}", "object": "response", "model": voice.model, "output": []}
        records: list[Any] = [{"type": "response.created", "response": {**head, "status": "in_progress"}}]
        for at, item in enumerate(output):
            begun = {**item, "content": []} if item["type"] == "message" else item
            if item["type"] == "function_call":
                begun = {**item, "arguments": ""}
            if item["type"] == "reasoning":
                begun = {**item, "summary": []}
            records.append({"type": "response.output_item.added", "output_index": at, "item": begun})
            where = {"item_id": item["id"], "output_index": at}
            if item["type"] == "message":
                where |= {"content_index": 0}
                empty = {"type": "output_text", "text": "", "annotations": []}
                records.append({"type": "response.content_part.added", **where, "part": empty})
                for text in pieces_of(said.text):
                    records.append({"type": "response.output_text.delta", **where, "delta": text})
                records.append({"type": "response.output_text.done", **where, "text": said.text})
            elif item["type"] == "function_call":
                records.append({"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]})
                records.append(
                    {"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]}
                )
            else:
                where |= {"summary_index": 0}
                for text in pieces_of(said.thoughts):
                    records.append({"type": "response.reasoning_summary_text.delta", **where, "delta": text})
                records.append({"type": "response.reasoning_summary_text.done", **where, "text": said.thoughts})
            records.append({"type": "response.output_item.done", "output_index": at, "item": item})
        n = len(pieces_of(said.text))
        usage = {"input_tokens": voice.n_prompt, "output_tokens": n, "total_tokens": voice.n_prompt + n}
        status, details = ("incomplete", {"reason": "max_output_tokens"}) if said.is_cut else ("completed", None)
        whole = {**head, "status": status, "output": output, "usage": usage, "incomplete_details": details}
        return sse(*records, {"type": f"response.{status}", "response": whole})


class Anthropic(Codec):
    path = "/messages"
    has_proofs = True

    def read(self, body: Any) -> Iterator[Piece]:
        for block in body.get("system") or ():
            yield Piece("system", "text", block["text"])
        for message in body["messages"]:
            for block in message["content"]:
                match block["type"]:
                    case "text":
                        yield Piece(message["role"], "text", block["text"])
                    case "thinking":
                        yield Piece("assistant", "thought", block["thinking"], proof=block["signature"])
                    case "tool_use":
                        yield Piece("assistant", "call", called(block["name"], block["input"]), block["id"])
                    case "tool_result":
                        yield Piece("user", "result", json.dumps(block.get("content")), block["tool_use_id"])
                    case kind:
                        yield Piece(message["role"], "other", kind)

    def faults(self, body: Any) -> Iterator[str]:
        roles = [message["role"] for message in body["messages"]]
        if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
            yield f"roles do not alternate: {roles}"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            yield "max_tokens is missing"
        uses = Counter(
            block["id"] for each in body["messages"] for block in each["content"] if block["type"] == "tool_use"
        )
        if twice := [id for id, n in uses.items() if n > 1]:
            yield f"ids of calls come twice: {twice}"
        if json.dumps(body).count('"cache_control"') > 4:
            yield "more than four marks for the cache"
        for message in body["messages"]:
            if any(block["type"] == "text" and not block["text"].strip() for block in message["content"]):
                yield "a text is blank"
            kinds = [block["type"] for block in message["content"]]
            if "tool_result" in kinds and kinds != sorted(kinds, key=lambda kind: kind != "tool_result"):
                yield f"results do not stand first: {kinds}"
        if (thinking := body.get("thinking")) and thinking["type"] == "enabled":
            if thinking["budget_tokens"] >= body["max_tokens"]:
                yield "the budget of thoughts is no smaller than max_tokens"
            under_way = [message for message in body["messages"][-2:-1] if "tool_result" in str(body["messages"][-1])]
            if under_way and under_way[0]["content"][0]["type"] != "thinking":
                yield "a turn under way does not begin with its thought"

    def write(self, said: Said, voice: Voice) -> bytes:
        usage = {"input_tokens": voice.n_prompt, "output_tokens": 1}
        message: Any = {"id": f"msg_{voice.word}", "type": "message", "role": "assistant", "model": voice.model}
        message |= {"content": [], "stop_reason": None, "usage": usage}
        records: list[Any] = [{"type": "message_start", "message": message}, {"type": "ping"}]

        def block(start: Any, *deltas: Any) -> None:
            at = sum(each["type"] == "content_block_start" for each in records)
            records.append({"type": "content_block_start", "index": at, "content_block": start})
            records.extend({"type": "content_block_delta", "index": at, "delta": each} for each in deltas)
            records.append({"type": "content_block_stop", "index": at})

        if said.thoughts:
            block(
                {"type": "thinking", "thinking": "", "signature": ""},
                *({"type": "thinking_delta", "thinking": each} for each in pieces_of(said.thoughts)),
                {"type": "signature_delta", "signature": voice.proof},
            )
        if said.text:
            block(
                {"type": "text", "text": ""},
                *({"type": "text_delta", "text": each} for each in pieces_of(said.text)),
            )
        for at, (name, arguments) in enumerate(said.calls):
            use = {"type": "tool_use", "id": voice.id(at), "name": name, "input": {}}
            block(use, {"type": "input_json_delta", "partial_json": json.dumps(arguments)})
        reason = "max_tokens" if said.is_cut else "tool_use" if said.calls else "end_turn"
        n = len(pieces_of(said.text))
        records.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": n}})
        return sse(*records, {"type": "message_stop"})


class Gemini(Codec):
    path = "/models/{model}:streamGenerateContent"
    messages = "contents"
    has_proofs = True

    def read(self, body: Any) -> Iterator[Piece]:
        for part in body.get("systemInstruction", {}).get("parts", ()):
            yield Piece("system", "text", part["text"])
        for content in body["contents"]:
            role: Literal["user", "assistant"] = "assistant" if content["role"] == "model" else "user"
            for part in content["parts"]:
                proof = part.get("thoughtSignature", "")
                if call := part.get("functionCall"):
                    yield Piece(role, "call", called(call["name"], call["args"]), call.get("id", call["name"]), proof)
                elif result := part.get("functionResponse"):
                    yield Piece(role, "result", json.dumps(result["response"]), result.get("id", result["name"]))
                elif part.get("thought"):
                    yield Piece(role, "thought", part["text"], proof=proof)
                else:
                    yield Piece(role, "text" if "text" in part else "other", part.get("text", ""), proof=proof)

    def faults(self, body: Any) -> Iterator[str]:
        roles = [content["role"] for content in body["contents"]]
        if roles != ["user", "model"] * (len(roles) // 2) + ["user"]:
            yield f"roles do not alternate: {roles}"
        asked = max(
            (at for at, each in enumerate(body["contents"]) if each["role"] == "user" and "text" in str(each["parts"])),
            default=0,
        )
        for content in body["contents"][asked:]:
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and "thoughtSignature" not in calls[0]:
                yield "a call of the turn under way has no signature"

    def tools(self, body: Any) -> Iterator[str]:
        for tool in body.get("tools") or ():
            yield from (each["name"] for each in tool["functionDeclarations"])

    def write(self, said: Said, voice: Voice) -> bytes:
        n = len(pieces_of(said.text))
        usage = {"promptTokenCount": voice.n_prompt, "candidatesTokenCount": n, "totalTokenCount": voice.n_prompt + n}

        def record(parts: list[Any], **more: Any) -> Any:
            candidate = {"index": 0, "content": {"role": "model", "parts": parts}, **more}
            return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": voice.model}

        parts: list[Any] = [{"text": each, "thought": True} for each in pieces_of(said.thoughts)]
        parts += [{"text": each} for each in pieces_of(said.text)]
        parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in said.calls]
        signed = next((part for part in parts if "functionCall" in part), parts[-1] if parts else {"text": ""})
        signed["thoughtSignature"] = voice.proof
        return sse(
            *(record([part]) for part in parts), record([], finishReason="MAX_TOKENS" if said.is_cut else "STOP")
        )


class Ollama(Codec):
    path = "/api/chat"

    def read(self, body: Any) -> Iterator[Piece]:
        for message in body["messages"]:
            role = message["role"]
            if role == "tool":
                yield Piece("user", "result", message["content"], message["tool_call_id"])
                continue
            if thought := message.get("thinking"):
                yield Piece(role, "thought", thought)
            if (text := message.get("content")) is not None and not (text == "" and message.get("tool_calls")):
                yield Piece(role, "text", text)
            for call in message.get("tool_calls") or ():
                function = call["function"]
                yield Piece(role, "call", called(function["name"], function["arguments"]), call["id"])

    def continues(self, body: Any) -> bool:
        return True

    def faults(self, body: Any) -> Iterator[str]:
        window = body.get("options", {}).get("num_ctx")
        if window is None:
            yield "num_ctx is missing"
        elif tokens_of(body["messages"]) > window:
            yield f"{tokens_of(body['messages'])} tokens come into a window of {window}: the front would be lost"
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                if not isinstance(call["function"]["arguments"], dict):
                    yield "arguments are no object"
            if message["role"] == "tool" and not message.get("tool_name"):
                yield "a result has no tool_name"

    def write(self, said: Said, voice: Voice) -> bytes:
        def line(message: Any, **more: Any) -> Any:
            message = {"role": "assistant", "content": "", **message}
            return {
                "model": voice.model,
                "created_at": "2026-11-23T06:00:00Z",
                "message": message,
                "done": False,
            } | more

        calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in said.calls]
        lines = [
            *(line({"thinking": each}) for each in pieces_of(said.thoughts)),
            *(line({"content": each}) for each in pieces_of(said.text)),
            *(line({"tool_calls": [call]}) for call in calls),
            line({}, done=True, done_reason="length" if said.is_cut else "stop", prompt_eval_count=voice.n_prompt,
                 eval_count=len(pieces_of(said.text))),
        ]  # fmt: skip
        return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines).encode()


CODECS: dict[str, Codec] = {
    "openai.chat": Chat(),
    "openai.responses": Responses(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
    "ollama": Ollama(),
}

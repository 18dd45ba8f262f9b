"""A server that misbehaves as its argument says: `python scripted.py '{"fault": value, ...}'`.

Raw JSON-RPC over standard input and output, with nothing of an SDK: what it does wrong is wrong on the wire. What it
receives is written to the file `seen`, one message per line.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

FAULTS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
OUT = sys.stdout.buffer
LOCK = threading.Lock()


def put(data: bytes) -> None:
    with LOCK:
        OUT.write(data)
        OUT.flush()


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    if FAULTS.get("notify_first"):
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hello"}}
        line = json.dumps(note).encode() + b"\n" + line  # both in one write
    if FAULTS.get("garbage"):
        line = b'Server listening on stdio...\n\x00\xff\xfe\n{"half": \n[1, 2]\n\n' + line
    if FAULTS.get("twice"):
        line += line
    if FAULTS.get("crlf"):
        line = line.replace(b"\n", b"\r\n")
    if step := FAULTS.get("split"):
        for start in range(0, len(line), step):
            put(line[start : start + step])
    else:
        put(line)


def answer(message: dict[str, Any], result: Any) -> None:
    send({"id": message["id"], "result": result})


def fail(message: dict[str, Any], code: int, text: str) -> None:
    send({"id": message["id"], "error": {"code": code, "message": text}})


def page(message: dict[str, Any], what: str, items: list[Any]) -> dict[str, Any]:
    """One item a page, if the list is to be paginated; or pages without end."""
    cursor = (message.get("params") or {}).get("cursor")
    number = int(cursor or 0)
    if FAULTS.get("endless") == what:
        return {what: [{**items[0], "name": f"t{number}"}], "nextCursor": str(number + 1)}
    if FAULTS.get("circle") == what:
        return {what: items, "nextCursor": "0"}
    if not FAULTS.get("paginate"):
        return {what: items}
    more = {"nextCursor": str(number + 1)} if number + 1 < len(items) else {}
    return {what: items[number : number + 1], **more}


SCHEMA = {
    "type": "object",
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    "properties": {
        "at": {"$ref": "#/$defs/point"},
        "colour": {"enum": ["red", "green"]},
        "path": {"type": "array", "items": {"$ref": "#/$defs/point"}},
    },
}
ANYTHING = {"type": "object"}
COUNTED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Say it again.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "many", "description": "Several items.", "inputSchema": ANYTHING, "annotations": {"openWorldHint": True}},
    {"name": "wrong", "description": "Fails, with content.", "inputSchema": ANYTHING},
    {"name": "structured", "description": "Only structured.", "inputSchema": ANYTHING},
    {"name": "both", "description": "Structured, and the same as text.", "inputSchema": ANYTHING},
    {"name": "hang", "description": "Never answers.", "inputSchema": ANYTHING},
    {"name": "slow", "description": "Tells how far it is, then answers.", "inputSchema": ANYTHING},
    {"name": "crash", "description": "Ends the server.", "inputSchema": ANYTHING},
    {"name": "big", "description": "A long answer.", "inputSchema": ANYTHING},
    {"name": "refused", "description": "A JSON-RPC error.", "inputSchema": ANYTHING},
    {"name": "nonsense", "description": "An answer that is none.", "inputSchema": ANYTHING},
    {"name": "half", "description": "Half an emoji.", "inputSchema": ANYTHING},
    {"name": "flood", "description": "1 MB to standard error, then answers.", "inputSchema": ANYTHING},
    {"name": "ask_user", "description": "Elicitation.", "inputSchema": ANYTHING},
    {"name": "ask_model", "description": "Sampling.", "inputSchema": ANYTHING},
    {"name": "ask_roots", "description": "Roots.", "inputSchema": ANYTHING},
    {"name": "grow", "description": "One more tool, and says so.", "inputSchema": ANYTHING},
    {"name": "descriptors", "description": "What is open here.", "inputSchema": ANYTHING},
    {"name": "environment", "description": "Names of variables.", "inputSchema": ANYTHING},
    {"name": "freeze", "description": "DEPRECATED: do not use.", "inputSchema": ANYTHING},
    {"name": "old", "description": "DEPRECATED: use echo.", "inputSchema": ANYTHING},
]
TOOLS += [
    {"name": f"t{n}", "description": "One of many.", "inputSchema": ANYTHING} for n in range(FAULTS.get("many", 0))
]
if FAULTS.get("broken"):
    TOOLS += [{"name": "broken", "description": "Any result.", "inputSchema": ANYTHING, "outputSchema": COUNTED}]
if only := FAULTS.get("only"):
    TOOLS = [tool for tool in TOOLS if tool["name"] == only]
WAITING: dict[Any, Any] = {}
"""Our requests to the client, by their ids, and what to do with the answer."""


def ask(call: dict[str, Any], method: str, params: dict[str, Any]) -> None:
    number = f"ours-{len(WAITING)}"
    WAITING[number] = lambda reply: answer(call, {"content": [{"type": "text", "text": json.dumps(reply)}]})
    send({"id": number, "method": method, "params": params})


def call_tool(message: dict[str, Any]) -> None:
    params = message["params"]
    name, arguments = params["name"], params.get("arguments") or {}

    def say(text: str) -> None:
        answer(message, {"content": [{"type": "text", "text": text}]})

    match name:
        case "echo" if "withdraw" in arguments:
            (number,) = WAITING
            WAITING.clear()
            send({"method": "notifications/cancelled", "params": {"requestId": number}})
            say("withdrawn")
        case "echo" | "old":
            say(json.dumps(arguments, sort_keys=True))
        case "many":
            link = {"type": "resource_link", "uri": "note://1", "name": "note", "mimeType": "text/plain"}
            items = [
                {"type": "text", "text": "first"},
                {"type": "image", "data": FAULTS.get("image", "aGVsbG8="), "mimeType": "image/png"},
                {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "note://2", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "note://3", "blob": "aGVsbG8=", "mimeType": "a/b"}},
                link,
                {"type": "text", "text": "last"},
            ]
            answer(message, {"content": items})
        case "wrong":
            items = [{"type": "text", "text": "no such"}, {"type": "text", "text": "city"}]
            answer(message, {"content": items, "isError": True})
        case "structured":
            answer(message, {"content": [], "structuredContent": {"t": 1, "nested": {"a": [1, 2]}}})
        case "both":
            text = json.dumps({"t": 1}, indent=4)
            answer(message, {"content": [{"type": "text", "text": text}], "structuredContent": {"t": 1}})
        case "hang":
            pass
        case "slow":
            token = params["_meta"]["progressToken"]
            for step in (1, 2, 3):
                note = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
                send({"method": "notifications/progress", "params": note})
            say("done")
        case "crash":
            print("out of cheese", file=sys.stderr, flush=True)
            os._exit(arguments.get("status", 3))
        case "big":
            say("x" * arguments["n"])
        case "refused":
            fail(message, -32602, "there is no such city; give one of: Rome, Oslo")
        case "nonsense":
            send({"id": message["id"], "result": "a string"})
        case "broken":
            answer(message, arguments["result"])
        case "half":
            put(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\\ud83d b"}]}}\n'
                % message["id"]
            )
        case "flood":
            sys.stderr.write("blah " * 15 + "\n")
            for _ in range(1000):
                sys.stderr.write("x" * 1023 + "\n")
            sys.stderr.write("no end of line")
            sys.stderr.flush()
            say("flooded")
        case "ask_user":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            ask(message, "elicitation/create", {"message": "Who are you?", "requestedSchema": schema})
        case "ask_model":
            said = FAULTS.get("said", [{"role": "user", "content": {"type": "text", "text": "2+2?"}}])
            ask(message, "sampling/createMessage", {"messages": said, "maxTokens": 9, "systemPrompt": "Be brief."})
        case "ask_roots":
            ask(message, "roots/list", {})
        case "grow":
            TOOLS.append({"name": f"more{len(TOOLS)}", "description": "New.", "inputSchema": ANYTHING})
            send({"method": "notifications/tools/list_changed"})
            say("grown")
        case "descriptors":
            say(
                json.dumps(sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in ("0", "1", "2") if fd))
                + str(open_files())
            )
        case "freeze":
            while True:
                signal.pause()
        case "environment":
            say(json.dumps(sorted(os.environ)))
        case _:
            fail(message, -32602, f"unknown tool {name}")


def open_files() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))


RESOURCES = [
    {"uri": "note://1", "name": "one", "mimeType": "text/plain"},
    {"uri": "note://2", "name": "two", "mimeType": "application/octet-stream", "size": 5},
]
TEMPLATES = [{"uriTemplate": "city://{name}/weather", "name": "weather"}]
PROMPTS = [
    {"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}, {"name": "how"}]},
    {"name": "plain"},
]


def handle(message: dict[str, Any]) -> None:
    method = message.get("method")
    if method is None:
        done = WAITING.pop(message["id"], None)
        if done is not None:
            done(message.get("result", {"error": message.get("error")}))
        return
    if FAULTS.get("strict") and method == "server/discover":
        os._exit(5)
    if FAULTS.get("hang_at") == method:
        return
    if FAULTS.get("crash_at") == method:
        print("cannot go on", file=sys.stderr, flush=True)
        os._exit(4)
    match method:
        case "initialize":
            if FAULTS.get("modern") and not FAULTS.get("version"):
                data = {"supported": ["2026-07-28"], "requested": message["params"]["protocolVersion"]}
                send({"id": message["id"], "error": {"code": -32022, "message": "Unsupported", "data": data}})
                return
            capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
            version = FAULTS.get("version") or message["params"]["protocolVersion"]
            info = {"name": "scripted", "version": "1.0"}
            answer(message, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        case "server/discover" if FAULTS.get("modern"):
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            answer(message, {**found, "ttlMs": 0, "cacheScope": "private"})
        case "tools/list":
            if FAULTS.get("echo"):
                with open(FAULTS["echo"]) as file:
                    TOOLS[0] |= json.load(file)
            modern = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"} if FAULTS.get("modern") else {}
            answer(message, {**page(message, "tools", TOOLS), **modern})
            if FAULTS.get("restless"):
                send({"method": "notifications/tools/list_changed"})
        case "resources/list":
            answer(message, page(message, "resources", RESOURCES))
        case "resources/templates/list":
            answer(message, page(message, "resourceTemplates", TEMPLATES))
        case "resources/read":
            uri = message["params"]["uri"]
            if uri == "note://2":
                content = {"uri": uri, "blob": "aGVsbG8=", "mimeType": "application/octet-stream"}
            else:
                content = {"uri": uri, "text": f"the text of {uri}"}
            answer(message, {"contents": [content]})
        case "prompts/list":
            answer(message, page(message, "prompts", PROMPTS))
        case "prompts/get":
            arguments = message["params"].get("arguments") or {}
            said = {"role": "user", "content": {"type": "text", "text": f"Greet {arguments.get('who')}!"}}
            more = {"role": "assistant", "content": {"type": "text", "text": "Hello"}}
            answer(message, {"messages": [said, more]})
        case "tools/call":
            call_tool(message)
        case "ping":
            answer(message, {})
        case _:
            if "id" in message:
                fail(message, -32601, "Method not found")


def main() -> None:
    if FAULTS.get("deaf"):  # neither the end of its input nor SIGTERM ends it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child := FAULTS.get("child"):  # a grandchild that outlives its parent, in its group or in a session of its own
        started = subprocess.Popen(["sleep", "1000"], start_new_session=child == "session", stdin=subprocess.DEVNULL)
        with open(FAULTS["pids"], "a") as file:
            file.write(f"{started.pid}\n")
    if FAULTS.get("pids"):
        with open(FAULTS["pids"], "a") as file:
            file.write(f"{os.getpid()}\n")
    if FAULTS.get("noise"):
        sys.stderr.write("y" * FAULTS["noise"])
        sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if FAULTS.get("seen"):
            with open(FAULTS["seen"], "a") as file:
                file.write(line)
        handle(message)
    while FAULTS.get("deaf"):
        signal.pause()


main()

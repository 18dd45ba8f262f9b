"""Shepherd's MCP server, with the tools, prompts and resources that the conformance suite asks for.

    ours       `create_app`, `/mcp`, `make_server`: keys, hosts, bodies, connections, revisions, and `Offer`
               ─▶ what Shepherd's own tools can be: text, images, errors, progress; prompts; resources; completion
    `ask`      tools that ask the client's user or model, and contents that no tool of Shepherd has: the SDK's handlers,
               behind our path

`python -m suites.mcp_fixture`: the first line of its output is its address. It ends when its input does. Not here: the
scenarios (`mcp.py`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from tests.scripted_service import ScriptedService, saying

from shepherd.core import Image, Message, Text
from shepherd.server.app import create_app, serve
from shepherd.server.endpoints.handler import Limits
from shepherd.server.endpoints.mcp import add_mcp_path, make_server
from shepherd.tools.base import Result, ToolError
from shepherd.tools.mcp.values import Prompt, PromptArgument, Resource
from shepherd.tools.offer import Contents, Offer, UnknownResourceError
from shepherd.tools.permission import Permission
from shepherd.tools.tool import Tool, ToolContext
from shepherd.tools.toolbox import ConversationToolbox

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63fccff0bf1e0005050102fccfd2f40000000049454e44ae426082"
)
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
STEP_S = 0.15

RICH_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# -- what Shepherd has ------------------------------------------------------------------------------------------------


async def simple_text(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result("This is a simple text response for testing.")


async def image(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result(images=(Image("image/png", PIXEL),))


async def error(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    raise ToolError("This tool intentionally returns an error for testing")


async def progress(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    for percent in (0, 50, 100):
        context.tell(f"Completed step {percent} of 100")
        await asyncio.sleep(STEP_S)
    return Result("done")


async def report(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    context.tell("a line for the log")
    return Result("done")


async def schema(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result("json_schema_2020_12_tool")


async def region(context: ToolContext, arguments: Mapping[str, Any]) -> Result:
    return Result(f"region={arguments.get('region')}")


REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
TOOLS = tuple(
    Tool(name, f"For the suite: {name}.", parameters, run, effect="read")
    for name, parameters, run in (
        ("test_simple_text", NOTHING, simple_text),
        ("test_image_content", NOTHING, image),
        ("test_error_handling", NOTHING, error),
        ("test_tool_with_progress", NOTHING, progress),
        ("test_logging_tool", NOTHING, report),
        ("json_schema_2020_12_tool", RICH_SCHEMA, schema),
        ("test_x_mcp_header", REGION, region),
    )
)
RESOURCES = {
    "test://static-text": Contents("This is the content of the static text resource."),
    "test://static-binary": Contents(PIXEL, "image/png"),
}
TEMPLATE = Resource("", "test://template/{id}/data", "template", "application/json", is_template=True)
WORDS = (PromptArgument("arg1", required=True), PromptArgument("arg2", required=True))


@dataclass(frozen=True, slots=True)
class FixtureOffer(Offer):
    """The suite's prompts and resources instead of a memory's."""

    async def resources(self) -> Sequence[Resource]:
        listed = (Resource("", uri, uri, each.media_type) for uri, each in RESOURCES.items())
        return [*listed, TEMPLATE]

    async def read(self, uri: str) -> Contents:
        if uri in RESOURCES:
            return RESOURCES[uri]
        if not TEMPLATE.fits(uri):
            raise UnknownResourceError(f"there is no resource {uri}")
        name = uri.split("/")[3]
        body = {"id": name, "templateTest": True, "data": f"Data for ID: {name}"}
        return Contents(json.dumps(body), "application/json")

    async def prompts(self) -> Sequence[Prompt]:
        return [
            Prompt("", "test_simple_prompt", "Without arguments."),
            Prompt("", "test_prompt_with_arguments", "With arguments.", WORDS),
            Prompt("", "test_prompt_with_image", "With an image."),
        ]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Message]:
        match name:
            case "test_simple_prompt":
                return [Message.user("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                first, second = arguments["arg1"], arguments["arg2"]
                return [Message.user(f"Prompt with arguments: arg1='{first}', arg2='{second}'")]
            case "test_prompt_with_image":
                return [Message("user", (Image("image/png", PIXEL), Text("Please analyze the image above.")))]
        raise ToolError(f"there is no prompt {name}")

    async def complete(self, template: str, argument: str, begun: str) -> Sequence[str]:
        return []


async def offer(user: str | None) -> Offer:
    return FixtureOffer(
        ConversationToolbox(lambda: TOOLS, context=ToolContext(), permission=Permission(allow=("*",)), n_ctx=32_768)
    )


# -- what only the SDK has --------------------------------------------------------------------------------------------

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
COLOUR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
PERSON = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
LEVELS = [{"const": value, "title": f"{value.title()} Priority"} for value in ("low", "medium", "high")]
KINDS = [{"const": value, "title": title} for value, title in (("bug", "Bug Fix"), ("docs", "Documentation"))]
CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": LEVELS},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": KINDS}},
    },
}


def form(message: str, wanted: Mapping[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=dict(wanted)))


def question(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


def wanted(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def embedded(uri: str, kind: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=kind, text=text))


WITHOUT_ARGUMENTS = (
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
)
ASKING: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(WITHOUT_ARGUMENTS, NOTHING),
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
}
"""Tools of the SDK's handlers, and their arguments."""
ASKING_PROMPTS = {"test_prompt_with_embedded_resource": ("resourceUri",), "test_input_required_result_prompt": ()}
SDK = ServerRequestContext[Any, Any]


async def ask(context: SDK, params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
    given, answers, state = params.arguments or {}, params.input_responses or {}, params.request_state
    match params.name:
        case "test_audio_content":
            return said(types.AudioContent(data=SILENCE, mime_type="audio/wav"))
        case "test_embedded_resource":
            return said(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))
        case "test_multiple_content_types":
            picture = types.ImageContent(data=base64.b64encode(PIXEL).decode(), mime_type="image/png")
            document = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
            return said("Multiple content types test:", picture, document)
        case "test_tool_with_logging":
            for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                note = types.LoggingMessageNotificationParams(level="info", data=line)
                await context.session.send_notification(
                    types.LoggingMessageNotification(params=note), context.request_id
                )
                await asyncio.sleep(0.05)
            return said("done")
        case "test_sampling":
            related = ServerMessageMetadata(related_request_id=context.request_id)
            request = question(given["prompt"])
            said_there = await context.session.send_request(request, types.CreateMessageResult, metadata=related)
            return said(f"LLM response: {said_there.content}")
        case "test_elicitation":
            return await filled(context, given["message"], PERSON)
        case "test_elicitation_sep1034_defaults":
            return await filled(context, "Please provide user information", DEFAULTS)
        case "test_elicitation_sep1330_enums":
            return await filled(context, "Please select values", CHOICES)
        case "test_missing_capability":
            known = context.session.client_capabilities
            if known is None or known.sampling is None:
                needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
                raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", needed)
            return said("done")
        case "test_input_required_result_elicitation" | "test_streaming_elicitation":
            answer = answers.get("user_name")
            if isinstance(answer, types.ElicitResult):
                return said(f"Hello, {(answer.content or {}).get('name')}!")
            return wanted(user_name=form("What is your name?", NAME))
        case "test_input_required_result_sampling":
            answer = answers.get("capital_question")
            if isinstance(answer, types.CreateMessageResult):
                return said(f"Model said: {answer.content}")
            return wanted(capital_question=question("What is the capital of France?"))
        case "test_input_required_result_list_roots":
            answer = answers.get("client_roots")
            if isinstance(answer, types.ListRootsResult):
                return said(f"Client exposed {len(answer.roots)} root(s).")
            return wanted(client_roots=types.ListRootsRequest())
        case "test_input_required_result_request_state":
            if "confirm" in answers and state == "first":
                return said("state-ok: confirmation received")
            return wanted("first", confirm=form("Please confirm", OK))
        case "test_input_required_result_multiple_inputs":
            if {"user_name", "greeting", "client_roots"} <= answers.keys():
                return said("All inputs received.")
            return wanted(
                "several",
                user_name=form("What is your name?", NAME),
                greeting=question("Generate a greeting"),
                client_roots=types.ListRootsRequest(),
            )
        case "test_input_required_result_multi_round":
            if state == "first" and "step1" in answers:
                return wanted("second", step2=form("Step 2: What is your favorite color?", COLOUR))
            if state == "second" and "step2" in answers:
                return said("All steps done.")
            return wanted("first", step1=form("Step 1: What is your name?", NAME))
        case "test_input_required_result_tampered_state":
            return said(f"state-ok: {state}") if state else wanted("first", confirm=form("Please confirm", OK))
        case _:  # test_input_required_result_capabilities
            known = context.session.client_capabilities
            requests: dict[str, types.InputRequest] = {}
            if known is None or known.sampling is not None:
                requests["sample"] = question("Say hello")
            if known is None or known.elicitation is not None:
                requests["ask"] = form("What is your name?", NAME)
            return wanted("by capability", **requests)


async def ask_for_prompt(
    context: SDK, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    if params.name == "test_prompt_with_embedded_resource":
        uri = (params.arguments or {})["resourceUri"]
        parts: list[types.ContentBlock] = [embedded(uri, "text/plain", "Embedded resource content for testing."),
                 types.TextContent(text="Please process the embedded resource above.")]  # fmt: skip
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=part) for part in parts])
    answer = (params.input_responses or {}).get("user_context")
    if not isinstance(answer, types.ElicitResult):
        return wanted(user_context=form("What context should the prompt use?", CONTEXT))
    text = types.TextContent(text=f"Use the following context: {(answer.content or {}).get('context')}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


def said(*parts: Any) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=part) if isinstance(part, str) else part for part in parts]
    )


async def filled(context: SDK, message: str, schema: Mapping[str, Any]) -> types.CallToolResult:
    answer = await context.session.elicit_form(message, dict(schema), context.request_id)
    return said(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


def make_fixture() -> Server[Any]:
    """Our server, whose tools and prompts the SDK's ones stand beside."""
    server = make_server(offer)
    ours: dict[str, Callable[..., Awaitable[Any]]] = {}
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="suite"))
    for method in ("tools/list", "tools/call", "prompts/list", "prompts/get"):
        entry = server.get_request_handler(method)
        assert entry is not None
        ours[method] = entry.handler

    async def list_tools(context: SDK, params: types.PaginatedRequestParams) -> types.ListToolsResult:
        theirs = [types.Tool(name=name, description=f"For the suite: {name}.", input_schema=dict(schema))
                  for name, schema in ASKING.items()]  # fmt: skip
        return types.ListToolsResult(tools=[*(await ours["tools/list"](context, params)).tools, *theirs])

    async def call(context: SDK, params: types.CallToolRequestParams) -> Any:
        return await (ask if params.name in ASKING else ours["tools/call"])(context, params)

    async def list_prompts(context: SDK, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        theirs = [types.Prompt(name=name, description=f"For the suite: {name}.",
                               arguments=[types.PromptArgument(name=each, required=True) for each in arguments])
                  for name, arguments in ASKING_PROMPTS.items()]  # fmt: skip
        return types.ListPromptsResult(prompts=[*(await ours["prompts/list"](context, params)).prompts, *theirs])

    async def get_prompt(context: SDK, params: types.GetPromptRequestParams) -> Any:
        return await (ask_for_prompt if params.name in ASKING_PROMPTS else ours["prompts/get"])(context, params)

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call)
    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    return server


async def main() -> None:
    app = create_app(ScriptedService(saying("Hello.")))
    add_mcp_path(app, make_fixture, Limits())

    def is_ready(port: int) -> None:
        sys.stdout.write(f"http://127.0.0.1:{port}/mcp\n")
        sys.stdout.flush()

    serving = asyncio.create_task(serve(app, host="127.0.0.1", port=0, on_ready=is_ready))
    await asyncio.to_thread(sys.stdin.read)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    asyncio.run(main())

"""The vocabulary: messages, requests, the events of an answer, errors, and the status of a back end.

Standard library only, no I/O, no threads (but for the lock in `lru`). Every surface, provider, model family and engine
uses these types and no others, so that N surfaces, M providers and K families cost N + M + K pieces of code. Open
`events.py` first: it has the grammar of every answer. Three words: *message*, *request*, *event*.
"""

from shepherd.core.errors import (
    BackendError,
    BadReply,
    BudgetExceeded,
    ConfigError,
    ContextFull,
    ContextTooSmall,
    EngineDown,
    EngineError,
    InvalidRequest,
    MemoryFailure,
    NotAllowed,
    RateLimited,
    Refused,
    ShepherdError,
    TimedOut,
    Unavailable,
    UnknownModel,
    Unreachable,
    Unsupported,
)
from shepherd.core.events import (
    Assembler,
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    OpaqueBlock,
    Progress,
    ReadPrompt,
    ReasoningDelta,
    Recalled,
    Reply,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
    Traced,
    Usage,
    fold,
    replay,
)
from shepherd.core.messages import (
    Audio,
    BadCall,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from shepherd.core.request import (
    AnswerStart,
    Completion,
    Grammar,
    Native,
    OnFull,
    ReasoningLevel,
    Request,
    Sampling,
    TextOrTokens,
    ToolChoice,
)

__all__ = [
    "AnswerStart", "Assembler", "Audio", "BackendError", "BadCall", "BadReply", "BudgetExceeded", "CallDelta",
    "CallEnded", "CallStarted", "Completion", "ConfigError", "ContextFull", "ContextTooSmall", "Document",
    "EngineDown", "EngineError", "Event", "Evicted", "Finished", "Grammar", "Image", "InvalidRequest",
    "MemoryFailure", "Message", "Native", "NotAllowed", "OnFull", "Opaque", "OpaqueBlock", "Part", "Progress",
    "RateLimited", "ReadPrompt", "Reasoning", "ReasoningDelta", "ReasoningLevel", "Recalled", "Refused", "Reply",
    "Request", "Role", "Sampling", "ShepherdError", "Started", "StopReason", "Text", "TextDelta", "TextOrTokens",
    "TimedOut", "TokenScore", "ToolCall", "ToolChoice", "ToolResult", "ToolSpec", "Traced", "Unavailable",
    "UnknownModel", "Unreachable", "Unsupported", "Usage", "fold", "replay",
]  # fmt: skip

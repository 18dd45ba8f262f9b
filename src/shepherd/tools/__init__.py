"""The tools that a model can call and Shepherd carries out.

    @tool(effect="read")
    def roll(sides: int = 6) -> str:
        \"\"\"Roll a die.\"\"\"

in a file that `tools.files` names, or in a module that a package names as an entry point `shepherd.tools`. A class that
inherits from `Tool` is one, too (`user_tools.py`).
"""

from shepherd.tools.base import Result, ToolError
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.signature import tool
from shepherd.tools.tool import ToolContext
from shepherd.tools.user_tools import CustomTool as Tool

ToolResult = Result
"""The seeds' name of it."""

__all__ = ["Result", "Tool", "ToolContext", "ToolError", "ToolRegistry", "ToolResult", "tool"]

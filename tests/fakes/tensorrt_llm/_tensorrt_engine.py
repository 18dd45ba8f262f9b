"""The class for prebuilt engines; FAKE. The real package has it up to 1.3.0rc15."""

from .llmapi.llm import TrtLLM as LLM

__all__ = ["LLM"]

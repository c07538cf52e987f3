"""What a tool is, and who runs it. ``tools.hosted`` has those of the server, ``tools.local`` those of an agent."""

from .registry import Registry
from .spec import HostedTool, Outcome, Tool, ToolSpec

__all__ = ["HostedTool", "Outcome", "Registry", "Tool", "ToolSpec"]

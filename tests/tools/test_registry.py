"""A registry is a mapping that never changes and has no two tools of one name."""

from pathlib import Path

import pytest

from protocol.items import (
    ApplyPatchCall,
    CustomToolCall,
    FunctionCall,
    LocalShellAction,
    LocalShellCall,
    PatchOperation,
    ShellAction,
    ShellCall,
)
from tools import Registry, Tool
from tools.local import ListDir, ReadFile, Workspace, local_tools


def test_maps_names_to_tools_in_order(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    read, listing = ReadFile(place), ListDir(place)
    registry: Registry[Tool] = Registry([read, listing])
    assert dict(registry) == {"read_file": read, "list_dir": listing}
    assert registry.get("read_file") is read
    assert registry.get("rm") is None
    assert [spec.name for spec in registry.specs] == ["read_file", "list_dir"]
    assert "list_dir" in registry
    with pytest.raises(KeyError):
        registry["rm"]


def test_add_leaves_the_first_as_it_was(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    first: Registry[Tool] = Registry([ReadFile(place)])
    second = first.add(ListDir(place))
    assert list(first) == ["read_file"]
    assert list(second) == ["read_file", "list_dir"]


def test_refuses_two_of_one_name(tmp_path: Path) -> None:
    registry = local_tools(tmp_path)
    with pytest.raises(ValueError, match="two tools are called 'shell'"):
        registry.add(registry["shell"])


def test_finds_the_tool_of_each_kind_of_call(tmp_path: Path) -> None:
    registry = local_tools(tmp_path)
    shell, patch = registry["shell"], registry["apply_patch"]
    operation = PatchOperation(type="delete_file", path="a")
    assert registry.tool_for(FunctionCall(call_id="1", name="shell", arguments="{}")) is shell
    assert registry.tool_for(CustomToolCall(call_id="1", name="apply_patch", input="")) is patch
    assert registry.tool_for(ShellCall(call_id="1", action=ShellAction(commands=()))) is shell
    assert registry.tool_for(LocalShellCall(call_id="1", action=LocalShellAction(command=(), env={}))) is shell
    assert registry.tool_for(ApplyPatchCall(call_id="1", operation=operation)) is patch
    assert registry.tool_for(FunctionCall(call_id="1", name="rm", arguments="{}")) is None


def test_specs_are_function_definitions(tmp_path: Path) -> None:
    for spec in local_tools(tmp_path).specs:
        wire = spec.to_wire()
        assert wire["type"] == "function"
        assert wire["name"] == spec.name
        assert wire["description"]
        assert spec.parameters["type"] == "object"
        assert set(spec.parameters["required"]) <= set(spec.parameters["properties"])

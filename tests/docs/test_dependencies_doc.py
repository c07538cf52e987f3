"""``docs/dependencies.md`` has a line for each declared dependency, and none for others."""

import re
import tomllib

from .blocks import ROOT, read


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    lists = [project["project"]["dependencies"], *extras, project["build-system"]["requires"]]
    return {re.split(r"[\s<>=!~;\[]", one)[0].lower() for wanted in lists for one in wanted}


def test_each_dependency_has_its_line() -> None:
    named = re.findall(r"^- \*\*([\w-]+)\*\*: \w", read("dependencies.md"), re.MULTILINE)
    assert len(named) == len(set(named))
    assert {name.lower() for name in named} == declared()

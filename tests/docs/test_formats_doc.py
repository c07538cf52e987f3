"""``docs/formats.md``: its blocks do what they say, the format that it adds keeps the laws, and its table has all formats."""

from hypothesis import given
from hypothesis import strategies as st

from engine.models.formats import FORMATS
from engine.models.formats.template import Template
from engine.testing.profile import examples
from engine.testing.vocabulary import SmallVocabulary
from protocol.items import FunctionCall, Item, Message

from ..models.support_formats import body_of, items_of, parse
from ..test_readme import blocks_of
from .blocks import read, rows

TEXT = read("formats.md")
BLOCKS = [block.text for block in blocks_of(TEXT) if block.kind == "python"]
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]


def ada() -> type[Template]:
    """The class of the first block. The table of formats is left as it was."""
    names: dict[str, object] = {}
    exec(BLOCKS[0].replace('FORMATS["ada"] = Ada', ""), names)
    return names["Ada"]  # type: ignore[return-value]


def test_the_blocks_run(monkeypatch, capsys) -> None:
    monkeypatch.setitem(FORMATS, "ada", FORMATS["chatml"])  # taken away at the end
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, names)
    assert "CallBegin(name='add'" in capsys.readouterr().out


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
ITEMS = st.lists(
    TEXTS.map(lambda text: Message(role="assistant", content=text))
    | st.sampled_from(["{}", '{"path":"é"}']).map(lambda text: FunctionCall(call_id="c", name="read", arguments=text)),
    min_size=1,
    max_size=2,
).filter(lambda items: not (len(items) == 2 and isinstance(items[0], Message) and isinstance(items[1], Message)))


@examples(30)
@given(ITEMS, st.booleans())
def test_the_format_that_is_added_reads_what_it_writes(items: list[Item], special: bool) -> None:
    form = ada()(SmallVocabulary([*SPECIAL, *(["<call>", "</call>"] if special else [])]))
    ids = body_of(form, items)
    assert body_of(form, items_of(parse(form, ids, range(len(ids)))[0])) == ids


def test_the_table_has_all_formats() -> None:
    assert [row[0] for row in rows(TEXT)[2:]][: len(FORMATS)] == [f"`{name}`" for name in FORMATS]

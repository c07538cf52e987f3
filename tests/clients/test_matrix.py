"""The table of clients in the documentation is what the tests say that they show."""

from ..docs.blocks import check_block
from .matrix import SHAPES, Row, rows, table


def test_rows_are_read_from_the_tests() -> None:
    assert Row("openai-python", "http", "`create`") in rows()
    assert {row.shape for row in rows()} <= set(SHAPES)


def test_the_documentation_has_the_table() -> None:
    check_block("clients.md", "clients", table())

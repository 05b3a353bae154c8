"""Which entries of a tensor are copies of each other, by the op that makes them."""

import pytest

from tests.support.op_calls import op
from traceanalyzer.tensors.copies import Form


@pytest.mark.parametrize(
    ("name", "arguments", "pattern"),
    [
        pytest.param("repeat", ("[3, 1]",), (1, 3, 4), id="tiled"),
        pytest.param("repeat_interleave", ("3", "0", ""), (4, 3, 1), id="interleaved"),
    ],
)
def test_entries_and_their_copies_by_place(
    name: str, arguments: tuple[str, ...], pattern: tuple[int, int, int]
) -> None:
    """(outer entries, copies, inner entries): 0 1 2 3 0 1 2 3 ..., or 0 0 0 1 1 1 ..."""
    assert Form.of(op(name, [4, 8], *arguments)).pattern == pattern

"""Tests that one process runs one after the other, and when: of a run with xdist, in which groups keep together.

A group whose name begins with a blank comes before all that has no group, one that begins with ~ after all else; of
several processes each takes the largest group that is left.
"""

import pytest

with_torch = pytest.mark.xdist_group(" torch")  # imported by one process only: that takes seconds
with_the_truth = pytest.mark.xdist_group(" truth")  # measured once, and first, since it takes longest
last = pytest.mark.xdist_group("~ last")  # others have made the reports by then


def place_of(item: pytest.Item) -> str:
    """What items are sorted by: the name of their group, if any."""
    group = group_of(item)
    return "!" if group is None else group  # after the blank, before every letter


def group_of(item: pytest.Item) -> str | None:
    """The name of the test's group."""
    groups = [marker.args[0] for marker in item.iter_markers("xdist_group")]
    return str(groups[0]) if groups else None

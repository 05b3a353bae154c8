"""Sizes that a trace tells as JSON: shapes of inputs, grids, blocks. What else stands there is no size."""

import math
from typing import Any

import orjson

_MOST = 2**62  # of a product: more fits no column


def shapes_of(text: str) -> list[tuple[int, ...]]:
    """Shapes of all tensors in `[[4096, 768], [[8], [8]], []]`, those within lists of tensors included.

    Scalars, which are empty lists, and whatever is no list of sizes are left out.
    """
    return list(_shapes(_loaded(text)))


def product_of(text: str) -> int:
    """Product of the sizes in `[132, 1, 1]`; 0 where they are no sizes."""
    sizes = sizes_of(text)
    return elements_of(sizes) if sizes else 0


def sizes_of(text: str) -> tuple[int, ...]:
    """`[132, 1, 1]`; nothing where they are no sizes."""
    sizes = _loaded(text)
    return tuple(sizes) if _are_sizes(sizes) else ()


def elements_of(shape: tuple[int, ...]) -> int:
    return min(math.prod(shape), _MOST)


def _loaded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _are_sizes(value: Any) -> bool:
    return bool(isinstance(value, list) and value and all(type(size) is int and size >= 0 for size in value))


def _shapes(value: Any) -> Any:
    if _are_sizes(value):
        yield tuple(value)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, list):
                yield from _shapes(inner)

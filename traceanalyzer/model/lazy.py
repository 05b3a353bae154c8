"""pandas, imported when one of its names is first used: listing the rules needs none of it, and it takes 0.3 s.

from traceanalyzer.model.lazy import pd
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["pd"]


class _Later:
    """Stands for pandas; each name is fetched once and then an attribute of its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of any object, whatever it is
            raise AttributeError(name)
        import pandas

        value = getattr(pandas, name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = _Later()

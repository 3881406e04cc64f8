"""Select cases by an expression, as ``-k`` of pytest does."""

from __future__ import annotations

from collections.abc import Iterable

from _pytest.mark.expression import Expression

from tfbench.errors import UsageError


class Selection:
    """Cases whose names match.

    Args:
        text: Parts of names, joined by ``and``, ``or``, ``not`` and parentheses; empty for all cases.

    Raises:
        UsageError: It is no such expression.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._expression = Expression.compile(text)
        except Exception as error:  # of a type that depends on pytest's version
            raise UsageError(f"-k {text!r}: {error}; join names by and, or, not and parentheses") from None

    def of(self, names: Iterable[str]) -> list[str]:
        """Return the names that match, in their order.

        Raises:
            UsageError: None does.
        """
        found = [name for name in names if not self._text or self._matches(name.lower())]
        if not found:
            raise UsageError(f"no benchmark matches -k {self._text!r}" if self._text else "there is no benchmark")
        return found

    def _matches(self, name: str) -> bool:
        return self._expression.evaluate(lambda part, /, **_: part.lower() in name)

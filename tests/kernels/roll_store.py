"""A store for rolls of ranks."""

from __future__ import annotations

from collections.abc import Mapping


class Store:
    """The part of torch's store that a roll uses, in one process."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

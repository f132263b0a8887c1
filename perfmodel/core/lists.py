"""Lists in texts, as options and dimensions have them: "1/2/4", "50,95,99"."""

from __future__ import annotations

from perfmodel.errors import UsageError


def list_items(text: str, separator: str, *, place: str) -> list[str]:
    """Return the items of a list, without the spaces round them; a text without a separator is one item.

    Raises
    ------
    UsageError
        When an item of several is empty: a name may be missing there.

    >>> list_items("bf16/ fp8", "/", place="--weights"), list_items("", "/", place="--weights")
    (['bf16', 'fp8'], [''])
    """
    items = [item.strip() for item in text.split(separator)]
    if len(items) > 1 and not all(items):
        kept = separator.join(filter(None, items))
        remedy = f"Write {kept}, or add what is missing." if kept else "Add what is missing."
        raise UsageError(f"{text!r} has an empty item.", place=place, remedy=remedy)
    return items

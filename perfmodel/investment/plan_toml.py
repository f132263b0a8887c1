"""The candidates of a diagnosis as a plan file that `roi --plan` reads."""

from __future__ import annotations

import json

from perfmodel.diagnosis.result import Diagnosis


def plan_toml(made: Diagnosis) -> str:
    """Return the candidates as TOML, each with its reason as a comment; times with full precision.

    >>> from perfmodel.profile.candidate import Candidate
    >>> from perfmodel.profile.profile import Profile
    >>> from perfmodel.diagnosis.result import Advice
    >>> advice = Advice("fuse", "memory", "Fuse them.", 1.0, "6 become 2", Candidate("a", ("b",), new_time_s=0.5))
    >>> print(plan_toml(Diagnosis(Profile(()), None, None, (), Profile(()), (), (advice,))))
    # Candidates of perfmodel diagnose; days and risk are assumptions by kind of change.
    <BLANKLINE>
    [[candidates]]
    # Fuse them.
    # 6 become 2
    name = "a"
    targets = ["b"]
    new_time = "0.5 s"
    <BLANKLINE>
    """
    lines = ["# Candidates of perfmodel diagnose; days and risk are assumptions by kind of change.", ""]
    for one in made.advice:
        candidate = one.candidate
        lines += ["[[candidates]]", f"# {_comment(one.text)}", f"# {_comment(one.basis)}"]
        lines.append(f"name = {_text(candidate.name)}")
        lines.append(f"targets = [{', '.join(_text(target) for target in candidate.targets)}]")
        lines.append(f'new_time = "{candidate.new_time_s!r} s"')
        for key in ("kind", "risk"):
            if getattr(candidate, key):
                lines.append(f"{key} = {_text(getattr(candidate, key))}")
        if candidate.dev_days is not None:
            lines.append(f"dev_days = {candidate.dev_days!r}")
        lines.append("")
    return "\n".join(lines)


def _text(value: str) -> str:
    """Return a TOML basic string: JSON's escapes are among TOML's, but for DEL, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(value: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in value)

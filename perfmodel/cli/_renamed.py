"""Other spellings of the command line: those before version 0.2, and a scheduler that stands for its workers.

Version 0.2 accepts the old ones with a warning; 0.3 removes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.cli._output import status

#: (command, old option) -> option
_OPTIONS = {(command, "--all"): "--whole-trace" for command in ("diagnose", "roi", "whatif")}
#: (command, option, old value) -> value
_VALUES = {
    ("analyze", "--cache", "flushed"): "cold",
    ("bench", "--cache", "flushed"): "cold",
    ("validate", "--by", "all"): "none",
}


def with_new_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with old spellings replaced, and warn of each on stderr."""
    words = list(arguments)
    command = next((word for word in words if not word.startswith("-")), "")
    for at, word in enumerate(words):
        if word == "--":
            break
        option, assigned, value = word.partition("=")
        if new_option := _OPTIONS.get((command, option)):
            _warn(option, new_option)
            words[at] = new_option + assigned + value
        elif assigned and (new_value := _VALUES.get((command, option, value))):
            _warn(word, f"{option}={new_value}")
            words[at] = f"{option}={new_value}"
        elif not assigned and at + 1 < len(words) and (new_value := _VALUES.get((command, option, words[at + 1]))):
            _warn(f"{option} {words[at + 1]}", f"{option} {new_value}")
            words[at + 1] = new_value
    return words


def with_scheduler(arguments: Sequence[str]) -> list[str]:
    """Return a command line in which ``--workers tcp://HOST:PORT`` names the scheduler whose workers share the work."""
    words = list(arguments)
    for at, word in enumerate(words):
        if word == "--":
            break
        option, assigned, value = word.partition("=")
        if option == "--workers" and "://" in (value if assigned else "".join(words[at + 1 : at + 2])):
            words[at] = f"--scheduler{assigned}{value}"
    return words


def _warn(old: str, new: str) -> None:
    status(f"warning: {old} is now {new}; perfmodel 0.3 removes the old spelling.")

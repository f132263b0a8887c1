"""Which adapters (LoRA) a published training run trains, by the words of its cells."""

from __future__ import annotations

import re

from perfmodel.accuracy.run_table import Run
from perfmodel.training.plan import AdapterTargets

#: rank of adapters (LoRA) where a table does not say: that of NeMo's and torchtune's recipes is 8 to 32
_USUAL_RANK = 16


def adapter_rank(run: Run) -> int:
    """Return the rank of the adapters that a run trains, which its model, framework or notes name; 0 without."""
    text = " ".join(run.text(column) for column in ("model", "framework", "notes", "table")).replace("_", " ").lower()
    if not (re.search(r"\blora\b", text) or quantised_base(run)):
        return 0
    rank = re.search(r"\brank\D{0,3}(\d+)", text)
    return int(rank[1]) if rank else _USUAL_RANK


#: words of a run's notes -> which matrices have adapters
_TARGETS = (
    (r"\bon (qkv and output|the matrices of attention)", AdapterTargets.ATTENTION),
    (r"\bon (qkv|q, k and v)\b", AdapterTargets.QKV),
    (r"\bon q and v\b", AdapterTargets.QV),
)


def adapter_targets(run: Run) -> AdapterTargets:
    """Return which matrices have adapters, as the notes of a run name them; all where they do not."""
    notes = run.text("notes").lower()
    return next((targets for words, targets in _TARGETS if re.search(words, notes)), AdapterTargets.ALL)


def quantised_base(run: Run) -> bool:
    """Return whether the frozen weights are in 4 bits: the model, framework or notes say "QLoRA"."""
    return any(re.search(r"\bqlora\b", run.text(column).lower()) for column in ("model", "framework", "notes"))

"""What an audit found: the verdict on every head, with all its evidence."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.auditing.sentences import BECAUSE, READINGS, cost_in_words, look_in_words, name_of, named
from interp.auditing.verdicts import JUDGED, VERDICTS
from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class AuditResult(Result):
    """Verdict and evidence, head by head. Axes: `head` in the order of `heads`, `outcome` those judged by."""

    heads: tuple[tuple[int, int], ...]
    """(layer, head)."""
    verdict: tuple[str, ...]
    """faithful, misleading, hidden, idle, redundant or undecided."""
    because: tuple[str, ...]
    """Which rule gave it."""
    partners: tuple[tuple[tuple[int, int], ...], ...]
    """Heads that stand in for each, or undo it."""
    kinds: tuple[str, ...]
    """What heads were scored on."""
    label: tuple[str, ...]
    """What each looks like (`classify_heads`)."""
    kind: tuple[str, ...]
    """Its label, or where it has none the kind it scores highest on: what the scores are of."""
    score: Float[np.ndarray, " head"]
    """Attention on the keys of that kind: 0 at chance, 1 for all of it."""
    score_low: Float[np.ndarray, " head"]
    score_high: Float[np.ndarray, " head"]
    """Ends of its 95 % interval."""
    p_label: Float[np.ndarray, " head"]
    """p of the score, corrected for all heads and kinds."""
    value_weighted: Float[np.ndarray, " head"]
    """The score when keys count by the norm of what they write: what the head moves."""
    moved: Float[np.ndarray, " head"]
    """Mean norm of what a query is sent."""
    interventions: tuple[str, ...]
    """zero, mean, resample; the pattern uniform, random_rows, ideal, read_part."""
    outcomes: tuple[str, ...]
    """What the verdicts go by."""
    clean: Float[np.ndarray, " outcome"]
    """Accuracy of the whole model."""
    threshold: Float[np.ndarray, " outcome"]
    """A head is needed if taking it out costs more than this."""
    drop: Float[np.ndarray, "intervention head outcome"]
    """Accuracy lost, as a fraction; not a number for `ideal` and `read_part` of heads that look like nothing, and for
    `read_part` of heads that cost less than half a threshold: nothing depends on it there."""
    low: Float[np.ndarray, "intervention head outcome"]
    high: Float[np.ndarray, "intervention head outcome"]
    """Ends of its 95 % interval; exact, so wider than zero where nothing was lost."""
    p_matters: Float[np.ndarray, "judged head"]
    """For mean, uniform, ideal, read_part: p of "it costs no outcome more than the threshold", Holm."""
    p_harmless: Float[np.ndarray, "judged head"]
    """p of "it costs some outcome more than the threshold", Holm."""
    sets: tuple[tuple[tuple[int, int], ...], ...]
    """Heads that were taken out together: fatal so on the sequences of the search, or writing against each other."""
    set_drop: Float[np.ndarray, "set outcome"]
    set_low: Float[np.ndarray, "set outcome"]
    set_high: Float[np.ndarray, "set outcome"]
    warnings: tuple[str, ...]
    """What limits the verdicts."""
    alpha: float
    """Level of all verdicts together."""
    n: int
    """Sequences behind each figure."""
    twins_agree: Float[np.ndarray, " head"] | None = None
    """Share of the twins with a head of the same look and verdict in that layer."""
    n_twins: int = 0

    def of(self, verdict: str) -> tuple[tuple[int, int], ...]:
        """The heads with that verdict.

        Raises:
            ValueError: no such verdict (with those there are).
        """
        if verdict not in VERDICTS:
            raise ValueError(f"verdict is {verdict!r}; choose one of {', '.join(VERDICTS)}.")
        return tuple(head for head, given in zip(self.heads, self.verdict, strict=True) if given == verdict)

    def cost(self, intervention: str) -> tuple[Float[np.ndarray, "head 3"], tuple[str, ...]]:
        """Of each head on the outcome that suffers most, for its threshold: drop with its interval; and that outcome.

        Raises:
            ValueError: no such intervention (with those there are).
        """
        if intervention not in self.interventions:
            raise ValueError(f"intervention is {intervention!r}; choose one of {', '.join(self.interventions)}.")
        row = self.interventions.index(intervention)
        worst = np.nan_to_num(self.drop[row] / self.threshold, nan=-np.inf).argmax(-1)
        each = np.arange(len(self.heads))
        values = np.stack([part[row][each, worst] for part in (self.drop, self.low, self.high)], -1)
        return values, tuple(self.outcomes[index] for index in worst)

    def sentences(self) -> tuple[str, ...]:
        """One sentence per head in plain words: what it looks like, what it does."""
        costs: list[dict[str, str]] = [{} for _ in self.heads]
        for name in JUDGED:
            values, outcomes = self.cost(name)
            for said, outcome, value in zip(costs, outcomes, values, strict=True):
                said[name] = cost_in_words(outcome, *(float(end) for end in value))
        return tuple(self._sentence(index, said) for index, said in enumerate(costs))

    def _sentence(self, index: int, said: dict[str, str]) -> str:
        ideal = self.p_harmless[JUDGED.index("ideal"), index] <= self.alpha
        rest = BECAUSE[self.because[index]].format(
            partners=named(self.partners[index]) if self.partners[index] else "",
            but="but" if self.label[index] in self.kinds else "and",
            reading=READINGS["ideal" if ideal else "read_part"].format(**said),
            **said,
        )
        look = look_in_words(self.label[index], self.kind[index], float(self.score[index]))
        return f"{name_of(self.heads[index])} {look}{rest}."

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head: verdict, look, and the cost of every intervention on the outcome that suffers most."""
        import pandas as pd

        columns = {
            "layer": [layer for layer, _ in self.heads],
            "head": [head for _, head in self.heads],
            "verdict": self.verdict,
            "because": self.because,
            "partners": [" ".join(map(name_of, partners)) for partners in self.partners],
            "label": self.label,
            "kind": self.kind,
        }
        for name in ("score", "score_low", "score_high", "p_label", "value_weighted", "moved"):
            columns[name] = getattr(self, name)
        for name in self.interventions:
            values, outcomes = self.cost(name)
            columns |= {name: values[:, 0], f"{name}_low": values[:, 1], f"{name}_high": values[:, 2]}
            if name == "mean":
                columns["outcome"] = outcomes
        for row, name in enumerate(JUDGED):
            columns |= {f"{name}_p_matters": self.p_matters[row], f"{name}_p_harmless": self.p_harmless[row]}
        if self.twins_agree is not None:
            columns["twins_agree"] = self.twins_agree
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """Every head by what it looks like and what taking it out costs, and the map of verdicts."""
        from interp.view.verdicts import verdict_chart

        return verdict_chart(self.to_dataframe(), sentences=self.sentences(), n=self.n)

    def __str__(self) -> str:
        counts = Counter(self.verdict)
        rows = []
        for index, sentence in enumerate(self.sentences()):
            twins = (
                "" if self.twins_agree is None else f"  [{self.twins_agree[index]:.0%} of {self.n_twins} twins agree]"
            )
            rows.append(f"{self.verdict[index]:<11} {sentence}{twins}")
        counted = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
        judged = ", ".join(f"{name} {clean:.2f}" for name, clean in zip(self.outcomes, self.clean, strict=True))
        foot = [
            f"{counted}; {self.n} sequences, level {self.alpha:g} (Holm)",
            f"judged by accuracy on {judged}; needed means a loss of more than "
            f"{', '.join(dict.fromkeys(f'{value:.2f}' for value in self.threshold))}",
        ]
        return "\n".join([*rows, *foot, *self.warnings])

"""Truth about heads by brute force: accuracy without every subset of the heads of a known answer.

Losses are in units of the loss that counts, a fifth of the accuracy above chance, on each outcome. A head *shares its
work* with others if, once they are removed, and at least half of the accuracy above chance on an outcome is left, it
costs more than 1 there, and at least twice what it costs alone on any outcome. Else it is needed if it costs more than
2, not needed if it costs less than 0.25, and marginal in between. No loss may be within 15 % of these bounds.
"""

from itertools import combinations

import torch

from hooks.interventions.ablation_engine import AblationEngine
from interp.core.sample import Sample
from interp.heads.interventions import BUILT_IN, References

SHARE = 0.2
"""Loss that counts, as a fraction of the accuracy above chance."""
HALF = 0.5 / SHARE
"""Half of the accuracy above chance."""
NOT_NEEDED, NEEDED = 0.25, 2.0
MARGIN = 0.15
MOST_HEADS = 6
"""Up to this number of heads, all subsets of all heads are removed."""


class Losses:
    """Losses of one model without every subset of its heads, by mean ablation.

    With more than `MOST_HEADS` heads, those of which the truth is idle are removed alone, and all together with every
    subset of the others.
    """

    def __init__(self, answer, *, n=2000, seed=0):
        self.answer, self.n, self.seed = answer, n, seed
        model, task = answer.model.eval(), answer.task
        self.batch = task.sample(n, generator=torch.Generator().manual_seed(1000 + seed), split="test")
        engine = AblationEngine(model, self.batch.tokens, read_at=self.batch.target_positions)
        self.clean = self.accuracy(engine.logits)
        self.threshold = SHARE * (self.clean - torch.tensor(task.chances))
        idle = [head for head, truth in answer.heads.items() if truth.truth == "idle"]
        self.idle = idle if len(answer.heads) > MOST_HEADS else []
        self.working = [head for head in answer.heads if head not in self.idle]
        sets = {frozenset([head]) for head in self.idle}
        for size in range(len(self.working) + 1):
            for heads in combinations(self.working, size):
                sets |= {frozenset(heads), frozenset([*heads, *self.idle])}
        mean = BUILT_IN["mean"].replacement(References(model, Sample(task, self.batch, seed)), slice(0, n), 0)
        self.of = {}
        for heads, logits in engine.each_set([tuple(heads) for heads in sets], mean):
            self.of[frozenset(heads)] = self.loss(logits)

    def accuracy(self, logits):
        score = self.answer.task.score(logits, self.batch)
        return score.right.sum(0).double() / score.total.sum(0)

    def loss(self, logits):
        return (self.clean - self.accuracy(logits)) / self.threshold

    def with_hook(self, place, replace_pattern, rows=slice(None)):
        """Loss with the patterns of one head replaced by a function of the patterns of all sequences."""
        layer, head = place

        def edit(pattern, hook):
            pattern = pattern.clone()
            pattern[:, head] = replace_pattern(pattern[:, head])
            return pattern

        with torch.no_grad():
            logits = self.answer.model.run_with_hooks(
                self.batch.tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_pattern", edit)]
            )
        positions = self.batch.target_positions[..., None].expand(-1, -1, logits.shape[-1])
        return self.loss(logits.gather(1, positions))

    def alone(self, head):
        """Largest loss without a head, over outcomes."""
        return float(self.of[frozenset([head])].max())

    def shared(self, head, heads):
        """How clearly a head shares its work with others: more than 1 if it does."""
        before, after = self.of[frozenset(heads)], self.of[frozenset([head, *heads])]
        added = (after - before)[before <= HALF]
        best = float(added.max()) if len(added) else 0.0
        return min(best, best / max(2 * self.alone(head), 1e-9))

    def partners(self, head):
        """Heads of the smallest sets with which a head shares its work, and how clearly it does with any set."""
        others = [other for other in self.working if other != head]
        minimal, clearest = [], 0.0
        for size in range(1, len(others) + 1):
            for heads in map(frozenset, combinations(others, size)):
                clearness = self.shared(head, heads)
                clearest = max(clearest, clearness)
                if clearness > 1 and not any(smaller < heads for smaller in minimal):
                    minimal.append(heads)
        return frozenset().union(*minimal), clearest


def check_by_brute_force(losses):
    """Check the truth about every head; returns nothing."""
    answer = losses.answer
    assert (losses.clean == 1).all(), (answer.name, losses.clean)
    for head, truth in answer.heads.items():
        place = (answer.name, head, truth)
        alone = losses.alone(head)
        partners, clearness = losses.partners(head) if head in losses.working else (frozenset(), 0.0)
        assert abs(clearness - 1) > MARGIN, (*place, clearness)
        assert (truth.truth == "redundant") == (clearness > 1), (*place, clearness, alone)
        if truth.truth == "redundant":
            assert partners == set(truth.partners), (*place, partners)
            _check_partners(answer, head)
            continue
        assert not truth.partners, place
        for bound in (NOT_NEEDED, NEEDED):
            assert abs(alone - bound) > MARGIN * bound, (*place, alone)
        if truth.truth in ("faithful", "hidden"):
            assert alone > NEEDED, (*place, alone)
            assert (truth.truth == "hidden") == (truth.looks is None and truth.acts_like is None), place
        elif truth.truth == "marginal":
            assert NOT_NEEDED < alone < NEEDED, (*place, alone)
        elif truth.truth == "idle":
            assert alone < NOT_NEEDED, (*place, alone)
            assert truth.looks is None, place
        else:
            assert truth.looks, place
            assert alone < NOT_NEEDED or alone > NEEDED, (*place, alone)
    _check_idle(losses)


def _check_partners(answer, head):
    """A partner is redundant too and names the head, or is needed alone."""
    for partner in answer.heads[head].partners:
        truth = answer.heads[partner]
        is_mutual = truth.truth == "redundant" and head in truth.partners
        assert is_mutual or truth.truth in ("faithful", "hidden"), (answer.name, head, partner)


def _check_idle(losses):
    """Without all idle heads too every set costs the same."""
    for heads, loss in losses.of.items():
        if not heads & set(losses.idle):
            # Where all answers are nearly equal, rounding may decide
            difference = (loss - losses.of[heads | set(losses.idle)]).abs().max()
            assert difference < MARGIN, (losses.answer.name, heads, difference)

"""Brute-force check of what a known answer says about its heads, with plain hooks and nothing of the audit.

Accuracy is exact on one batch. Removing a set *costs* accuracy if on some outcome accuracy falls by more than a fifth
of the accuracy above chance, and is *harmless* if on every outcome it falls by less; both with a margin, so that a
truth does not depend on the sequences.
"""

from itertools import combinations

import torch

from hooks.model.attention import visible_keys
from interp.heads.kinds import known_kinds, relations_of
from interp.tasks.base import logits_at_targets

SHARE = 0.2
"""Loss that costs, as a fraction of the accuracy above chance."""
MARGIN = 0.25
"""Distance of every loss from that threshold, as a fraction of it."""
REMOVALS = ("zero", "mean", "resample")
READABLE, UNREADABLE = 0.5, 0.3
"""Least score of a head that looks like a kind, and largest score of one that looks like none."""


class Removals:
    """Exact losses of one model on one batch.

    Args:
        known: The known answer.
        n: Number of sequences, and of reference sequences.
        seed: Determines both, and the random keys.
    """

    def __init__(self, known, *, n=96, seed=0):
        self.model, self.task = known.model.eval(), known.task
        self.generator = torch.Generator().manual_seed(seed)
        reference = self.task.sample(n, generator=self.generator, split="validation")
        self.batch = self.task.sample(n, generator=self.generator, split="test")
        assert reference.attention_mask is None, "the means below are over whole sequences"
        self.output = "attn.hook_result" if self.model.cfg.vo_identity else "attn.hook_z"
        layers = range(self.model.cfg.n_layers)
        names = [f"blocks.{layer}.{self.output}" for layer in layers]
        found = self._cache(reference, names)
        self.others = {"zero": [torch.zeros_like(one) for one in found], "resample": found}
        self.others["mean"] = [one.mean(0, keepdim=True) for one in found]
        self.patterns = self._cache(self.batch, [f"blocks.{layer}.attn.hook_pattern" for layer in layers])
        score = self._score(())
        total = score.total.sum(0)
        self.right = score.right.sum(0) / total.clamp_min(1)
        above = self.right - torch.tensor(self.task.chances)
        self.counts = (total > 0) & (above > 0.5 * (1 - torch.tensor(self.task.chances)))
        assert self.counts.any(), "it solves an outcome"
        self.threshold = SHARE * above[self.counts]
        self.tried = {}

    @torch.no_grad()
    def _cache(self, batch, names):
        _, cache = self.model.run_with_cache(batch.tokens, **batch.model_inputs(), names_filter=names)
        return [cache[name] for name in names]

    @torch.no_grad()
    def _score(self, hooks):
        logits = self.model.run_with_hooks(self.batch.tokens, **self.batch.model_inputs(), fwd_hooks=list(hooks))
        return self.task.score(logits_at_targets(logits, self.batch), self.batch)

    def _lost(self, hooks):
        """Loss of accuracy on each outcome, in thresholds."""
        score = self._score(hooks)
        return (self.right - score.right.sum(0) / score.total.sum(0).clamp_min(1))[self.counts] / self.threshold

    def lost(self, heads, method="mean"):
        """Loss without these heads, on each outcome, in thresholds."""
        key = (frozenset(heads), method)
        if key not in self.tried:

            def edit(layer, chosen):
                def put(output, hook):
                    output = output.clone()
                    output[:, :, chosen] = self.others[method][layer][:, :, chosen].to(output)
                    return output

                return (f"blocks.{layer}.{self.output}", put)

            layers = sorted({layer for layer, _ in heads})
            self.tried[key] = self._lost([edit(at, [head for layer, head in heads if layer == at]) for at in layers])
        return self.tried[key]

    def costs(self, heads, method="mean"):
        """Whether removing these heads together costs accuracy."""
        return decided(self.lost(heads, method), (heads, method))

    def costs_beyond(self, heads):
        """Whether removing these heads costs more than all of them alone."""
        return decided(self.lost(heads) - sum(self.lost([head]) for head in heads), ("beyond", heads))

    def related(self, kind):
        """Visible keys that are related to each query."""
        return relations_of(self.task, self.batch, [kind])[kind] & self.visible

    @property
    def visible(self):
        """Visible keys of each query."""
        return visible_keys(self.model.cfg, self.batch.tokens, None)

    def costs_as(self, head, name, kind):
        """Whether a head costs accuracy with another pattern in the rows that have related keys.

        `uniform`, `ideal` (even over related keys), `read_part` (related keys as they are, the rest even over others),
        or `wrong_key` (one random unrelated key, if possible one that is related to another query).
        """
        related, visible = self.related(kind), self.visible
        clean = self.patterns[head[0]][:, head[1]]
        others = visible & ~related
        new = {"uniform": visible, "ideal": related, "wrong_key": self._one_of(others, related)}.get(name)
        if new is None:
            kept = clean * related
            rows = kept + (1 - kept.sum(-1, keepdim=True)) * others / others.sum(-1, keepdim=True).clamp_min(1)
            changed = others.any(-1, keepdim=True)
        else:
            rows = new / new.sum(-1, keepdim=True).clamp_min(1).to(clean)
            changed = new.any(-1, keepdim=True)
        rows = torch.where(changed & related.any(-1, keepdim=True), rows.to(clean), clean)

        def put(pattern, hook):
            pattern = pattern.clone()
            pattern[:, head[1]] = rows
            return pattern

        return decided(self._lost([(f"blocks.{head[0]}.attn.hook_pattern", put)]), (head, name))

    def _one_of(self, others, related):
        """One random key of each row: among those related to some query of the sequence, or else any."""
        elsewhere = others & related.any(1, keepdim=True)
        pool = torch.where(elsewhere.any(-1, keepdim=True), elsewhere, others)
        drawn = torch.rand(pool.shape, generator=self.generator).masked_fill(~pool, -1)
        return torch.nn.functional.one_hot(drawn.argmax(-1), pool.shape[-1]).bool() & pool

    def scores(self):
        """Attention mass of every head on each kind, scaled to 0 at chance and 1 if all of it is on related keys."""
        found = {}
        for kind in known_kinds():
            try:
                related = self.related(kind)
            except ValueError:  # the task has no such relation
                continue
            chance = related.sum(-1) / self.visible.sum(-1)
            rows = (related.any(-1) & (chance < 1)).double()
            room = (rows * (1 - chance)).sum(-1)
            if not room.any():  # no query has both related and unrelated keys
                continue
            for layer, patterns in enumerate(self.patterns):
                mass = ((patterns * related[:, None]).sum(-1) - chance[:, None]) * rows[:, None]
                each = (mass.sum(-1) / room[:, None])[room > 0].mean(0)
                for head, score in enumerate(each.tolist()):
                    found.setdefault((layer, head), {})[kind] = score
        return found


def decided(lost, what):
    """Whether a loss in thresholds costs; it must not be close to 1."""
    worst = float(lost.max())
    assert abs(worst - 1) > MARGIN, f"{what}: a loss of {worst:.2f} thresholds is too close to the threshold"
    return worst > 1


def check_truth(known, *, n=96, seed=0):
    """Check the truth about every head of a known answer, and its partners, by removing heads and replacing patterns.

    Args:
        known: The known answer.
        n: Number of sequences.
        seed: Determines the sequences.

    Returns:
        The `Removals`, with which to check more.
    """
    removed = Removals(known, n=n, seed=seed)
    scores = removed.scores()
    assert set(known.heads) == set(scores), "every head has a truth"
    alone = {head: removed.costs([head]) for head in known.heads}
    for head, said in known.heads.items():
        at = (known.name, head, said)
        _check_looks(scores[head], said.looks, at)
        for method, wanted in (said.needed or {}).items():
            assert removed.costs([head], method) == wanted, (*at, method)
        assert all(head in known.heads[other].partners for other in said.partners), at
        _CHECKS[said.truth](removed, known, head, alone, at)
    _check_spare(removed, known, alone)
    return removed


def _check_looks(scores, looks, at):
    best = max(scores, key=scores.get)
    if looks is None:
        assert scores[best] < UNREADABLE, (*at, best, scores[best])
    else:
        assert scores[looks] > max(READABLE, scores[best] - 0.02), (*at, best, scores)


def _faithful(removed, known, head, alone, at):
    said = known.heads[head]
    assert said.looks, at
    _hidden(removed, known, head, alone, at)
    assert removed.costs([head], "resample"), at
    assert removed.costs_as(head, "uniform", said.looks), at
    assert removed.costs_as(head, "wrong_key", said.looks), at
    assert not (removed.costs_as(head, "ideal", said.looks) and removed.costs_as(head, "read_part", said.looks)), at


def _hidden(removed, known, head, alone, at):
    said = known.heads[head]
    assert not said.partners, at
    assert (said.truth == "hidden") == (said.looks is None), at
    assert alone[head], at
    free = [other for other, truth in known.heads.items() if truth.truth in ("idle", "misleading") and not alone[other]]
    assert removed.costs({head, *free}), (*at, "and all that are not needed")


def _unneeded(removed, known, head, alone, at):
    """Misleading or idle: harmless, cancelled, or (misleading only) not through the pattern."""
    said = known.heads[head]
    assert (said.truth == "idle") == (said.looks is None), at
    if not alone[head]:
        assert not said.partners, at
    elif said.partners:
        assert not removed.costs([head, *said.partners]), at
        for size in range(len(said.partners)):
            for some in combinations(said.partners, size):
                assert removed.costs([head, *some]), (*at, some)
    else:
        assert said.looks, at
        elsewhere = not removed.costs([head], "resample")
        elsewhere |= any(not removed.costs_as(head, name, said.looks) for name in ("uniform", "wrong_key"))
        elsewhere |= all(removed.costs_as(head, name, said.looks) for name in ("ideal", "read_part"))
        assert elsewhere, at


def _redundant(removed, known, head, alone, at):
    partners = known.heads[head].partners
    assert partners, at
    assert not alone[head], at
    assert not any(alone[other] for other in partners), at
    assert removed.costs_beyond([head, *partners]), at
    for size in range(1, len(partners)):
        for some in combinations((head, *partners), size + 1):
            assert not (removed.costs(some) and removed.costs_beyond(some)), (*at, some)


def _check_spare(removed, known, alone):
    """No two heads of a layer back each other up, and none cancel, unless they are said to be partners."""
    for pair in combinations(known.heads, 2):
        if pair[0][0] != pair[1][0]:
            continue
        one, other = (known.heads[head] for head in pair)
        partners = pair[1] in one.partners and pair[0] in other.partners
        if not alone[pair[0]] and not alone[pair[1]] and not (partners and one.truth == "redundant"):
            assert not (removed.costs(pair) and removed.costs_beyond(pair)), (known.name, pair, "back each other up")
        if (alone[pair[0]] or alone[pair[1]]) and not partners:
            assert removed.costs(pair), (known.name, pair, "cancel")


_CHECKS = {
    "faithful": _faithful,
    "hidden": _hidden,
    "misleading": _unneeded,
    "idle": _unneeded,
    "redundant": _redundant,
}

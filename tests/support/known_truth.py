"""Brute-force check of what a known answer says about its heads, with plain hooks and nothing of the audit.

Accuracy is exact on one batch. Removing a set *costs* accuracy if on some outcome accuracy falls by more than a fifth
of the accuracy above chance, and is *harmless* if on every outcome it falls by less; both with a margin, so that a
truth does not depend on the sequences.
"""

from itertools import combinations

import torch

import interp
from hooks.model.attention import visible_keys
from interp.heads.kinds import known_kinds, relations_of
from interp.heads.queries import read_queries
from interp.tasks.base import logits_at_targets

COSTS = 0.1
"""Smallest loss of accuracy that counts where `interp.ablate_heads` removes heads."""
SHARE = 0.2
"""Loss that costs, as a fraction of the accuracy above chance."""
MARGIN = 0.25
"""Distance of every loss from that threshold, as a fraction of it."""
REMOVALS = ("zero", "mean", "resample")
READABLE, UNREADABLE = 0.5, 0.3
"""Least score of a head that looks like a kind, and largest score of one that looks like none."""


def names_of(answers, *functions):
    """Names of the answers that one of the functions builds, perhaps with options."""
    return [name for name, build in answers.items() if getattr(build, "func", build) in functions]


def lost(answer, sets, method, *, n=96):
    """Largest loss of accuracy on any outcome, for each set of heads, by `interp.ablate_heads`."""
    heads_by_name = {str(index): list(heads) for index, heads in enumerate(sets)}
    result = interp.ablate_heads(answer.model, answer.task, heads=heads_by_name, method=method, n=n)
    assert (result.clean[:2] == 1).all(), "it solves its task"
    return dict(zip(sets, result.drop.value[:, :2].max(-1).tolist(), strict=True))


def check_labels(answer, *, n=48):
    """Check the kinds of patterns against `interp.classify_heads`."""
    labels = interp.classify_heads(answer.model, answer.task, n=n).label
    for (layer, head), truth in answer.heads.items():
        label = labels[layer][head]
        assert (None if label in ("uniform", "unclassified") else label) == truth.looks, (answer.name, layer, head)


class Removals:
    """Exact losses of one model on one batch.

    Args:
        known: The known answer.
        n: Number of sequences, and of reference sequences.
        seed: Determines both, and the random keys.
    """

    def __init__(self, answer, *, n=96, seed=0):
        self.model, self.task = answer.model.eval(), answer.task
        self.generator = torch.Generator().manual_seed(seed)
        reference = self.task.sample(n, generator=self.generator, split="validation")
        self.batch = self.task.sample(n, generator=self.generator, split="test")
        assert reference.attention_mask is None, "the means below are over whole sequences"
        self.output = "attn.hook_result" if self.model.cfg.vo_identity else "attn.hook_z"
        layers = range(self.model.cfg.n_layers)
        names = [f"blocks.{layer}.{self.output}" for layer in layers]
        resampled = self._cache(reference, names)
        self.replacements = {
            "zero": [torch.zeros_like(output) for output in resampled],
            "mean": [output.mean(0, keepdim=True) for output in resampled],
            "resample": resampled,
        }
        self.patterns = self._cache(self.batch, [f"blocks.{layer}.attn.hook_pattern" for layer in layers])
        score = self._score(())
        total = score.total.sum(0)
        self.right = score.right.sum(0) / total.clamp_min(1)
        above = self.right - torch.tensor(self.task.chances)
        self.counts = (total > 0) & (above > 0.5 * (1 - torch.tensor(self.task.chances)))
        assert self.counts.any(), "it solves an outcome"
        self.threshold = SHARE * above[self.counts]
        self.known_losses = {}

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
        if key not in self.known_losses:

            def edit(layer, chosen):
                def replace_output(output, hook):
                    output = output.clone()
                    output[:, :, chosen] = self.replacements[method][layer][:, :, chosen].to(output)
                    return output

                return (f"blocks.{layer}.{self.output}", replace_output)

            heads_by_layer = {}
            for layer, head in sorted(heads):
                heads_by_layer.setdefault(layer, []).append(head)
            self.known_losses[key] = self._lost([edit(*in_layer) for in_layer in heads_by_layer.items()])
        return self.known_losses[key]

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

        `uniform`, `ideal` (even over related keys), `label_only` (related keys as they are, the rest even over others),
        or `wrong_key` (one random unrelated key, if possible one that is related to another query).
        """
        related, visible = self.related(kind), self.visible
        clean = self.patterns[head[0]][:, head[1]]
        unrelated = visible & ~related
        new = {"uniform": visible, "ideal": related, "wrong_key": self._random_key(unrelated, related)}.get(name)
        if new is None:
            on_related = clean * related
            remainder = 1 - on_related.sum(-1, keepdim=True)
            rows = on_related + remainder * unrelated / unrelated.sum(-1, keepdim=True).clamp_min(1)
            changed = unrelated.any(-1, keepdim=True)
        else:
            rows = new / new.sum(-1, keepdim=True).clamp_min(1).to(clean)
            changed = new.any(-1, keepdim=True)
        rows = torch.where(changed & related.any(-1, keepdim=True), rows.to(clean), clean)

        def replace_output(pattern, hook):
            pattern = pattern.clone()
            pattern[:, head[1]] = rows
            return pattern

        return decided(self._lost([(f"blocks.{head[0]}.attn.hook_pattern", replace_output)]), (head, name))

    def _random_key(self, unrelated, related):
        """One random key of each row: among those related to some query of the sequence, or else any."""
        of_other_queries = unrelated & related.any(1, keepdim=True)
        pool = torch.where(of_other_queries.any(-1, keepdim=True), of_other_queries, unrelated)
        priority = torch.rand(pool.shape, generator=self.generator).masked_fill(~pool, -1)
        return torch.nn.functional.one_hot(priority.argmax(-1), pool.shape[-1]).bool() & pool

    def scores(self):
        """Attention mass of every head on each kind, scaled to 0 at chance and 1 if all of it is on related keys.

        At the queries that are read.
        """
        scores = {}
        read = read_queries(self.model, self.batch)
        for kind in known_kinds():
            try:
                related = self.related(kind)
            except ValueError:  # the task has no such relation
                continue
            chance = related.sum(-1) / self.visible.sum(-1)
            for layer, patterns in enumerate(self.patterns):
                rows = (related.any(-1) & (chance < 1) & read[:, layer]).double()
                room = (rows * (1 - chance)).sum(-1)
                if not room.any():  # no query that is read has both related and unrelated keys
                    continue
                mass = ((patterns * related[:, None]).sum(-1) - chance[:, None]) * rows[:, None]
                score_by_head = (mass.sum(-1) / room[:, None])[room > 0].mean(0)
                for head, score in enumerate(score_by_head.tolist()):
                    scores.setdefault((layer, head), {})[kind] = score
        return scores


def decided(lost, case):
    """Whether a loss in thresholds costs; it must not be close to 1."""
    worst = float(lost.max())
    assert abs(worst - 1) > MARGIN, f"{case}: a loss of {worst:.2f} thresholds is too close to the threshold"
    return worst > 1


def check_truth(answer, *, n=96, seed=0):
    """Check the truth about every head of a known answer, and its partners, by removing heads and replacing patterns.

    Args:
        known: The known answer.
        n: Number of sequences.
        seed: Determines the sequences.

    Returns:
        The `Removals`, with which to check more.
    """
    removed = Removals(answer, n=n, seed=seed)
    scores = removed.scores()
    assert set(answer.heads) == set(scores), "every head has a truth"
    costs_alone = {head: removed.costs([head]) for head in answer.heads}
    for head, truth in answer.heads.items():
        place = (answer.name, head, truth)
        _check_looks(scores[head], truth.looks, place)
        for method, needed in (truth.needed or {}).items():
            assert removed.costs([head], method) == needed, (*place, method)
        assert all(head in answer.heads[partner].partners for partner in truth.partners), place
        _CHECKS[truth.truth](removed, answer, head, costs_alone, place)
    _check_spare(removed, answer, costs_alone)
    _check_harmless(removed, answer, costs_alone)
    return removed


def _check_looks(scores, looks, place):
    best = max(scores, key=scores.get)
    if looks is None:
        assert scores[best] < UNREADABLE, (*place, best, scores[best])
    else:
        assert scores[looks] > max(READABLE, scores[best] - 0.02), (*place, best, scores)


def _faithful(removed, answer, head, costs_alone, place):
    truth = answer.heads[head]
    kind, reading = (truth.looks, "ideal") if truth.looks else (truth.acts_like, "label_only")
    assert kind, place
    _hidden(removed, answer, head, costs_alone, place)
    assert removed.costs([head], "resample"), place
    assert removed.costs_as(head, "uniform", kind), place
    assert removed.costs_as(head, "wrong_key", kind), place
    assert not removed.costs_as(head, reading, kind), place


def _hidden(removed, answer, head, costs_alone, place):
    truth = answer.heads[head]
    assert not truth.partners, place
    assert (truth.truth == "hidden") == (truth.looks is None and truth.acts_like is None), place
    assert costs_alone[head], place
    assert removed.costs({head, *_harmless(answer, costs_alone)}), (*place, "and all that are not needed")


def _unneeded(removed, answer, head, costs_alone, place):
    """Misleading or idle: harmless, cancelled, or (misleading only) not through the pattern."""
    truth = answer.heads[head]
    assert (truth.truth == "idle") == (truth.looks is None), place
    if not costs_alone[head]:
        assert not truth.partners, place
    elif truth.partners:
        assert not removed.costs([head, *truth.partners]), place
        for size in range(len(truth.partners)):
            for partners in combinations(truth.partners, size):
                assert removed.costs([head, *partners]), (*place, partners)
    else:
        assert truth.looks, place
        through_pattern = (
            removed.costs([head], "resample")
            and all(removed.costs_as(head, name, truth.looks) for name in ("uniform", "wrong_key"))
            and not all(removed.costs_as(head, name, truth.looks) for name in ("ideal", "label_only"))
        )
        assert not through_pattern, place


def _redundant(removed, answer, head, costs_alone, place):
    partners = answer.heads[head].partners
    assert partners, place
    assert not costs_alone[head], place
    assert not any(costs_alone[partner] for partner in partners), place
    assert removed.costs_beyond([head, *partners]), place
    for size in range(1, len(partners)):
        for heads in combinations((head, *partners), size + 1):
            assert not (removed.costs(heads) and removed.costs_beyond(heads)), (*place, heads)


def _check_spare(removed, answer, costs_alone):
    """No two heads of a layer back each other up, and none cancel, unless they are said to be partners."""
    for first, second in combinations(answer.heads, 2):
        if first[0] != second[0]:
            continue
        partners = second in answer.heads[first].partners and first in answer.heads[second].partners
        redundant = partners and answer.heads[first].truth == "redundant"
        if not costs_alone[first] and not costs_alone[second] and not redundant:
            backs_up = removed.costs([first, second]) and removed.costs_beyond([first, second])
            assert not backs_up, (answer.name, first, second, "back each other up")
        if (costs_alone[first] or costs_alone[second]) and not partners:
            assert removed.costs([first, second]), (answer.name, first, second, "cancel")


def _harmless(answer, costs_alone):
    """Idle and misleading heads that can be removed alone or, if they cancel, with their partners."""
    return [
        head
        for head, truth in answer.heads.items()
        if truth.truth in ("idle", "misleading") and (truth.partners or not costs_alone[head])
    ]


def _check_harmless(removed, answer, costs_alone):
    """All heads that are not needed can be removed together, and nothing at all is lost."""
    heads = _harmless(answer, costs_alone)
    # another sequence's harm is not undone by heads that back each other up
    masked = "masked" in answer.name
    for method in ("mean",) if masked else ("mean", "resample"):
        assert not heads or removed.lost(heads, method).max() == 0, (answer.name, heads, method)


_CHECKS = {
    "faithful": _faithful,
    "hidden": _hidden,
    "misleading": _unneeded,
    "idle": _unneeded,
    "redundant": _redundant,
}

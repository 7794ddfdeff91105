"""Which hook points a model has, and which edits it would ignore: both are checked before anything runs."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any


def check_hook_name(model: Any, name: str) -> None:
    """Refuse a hook name that the model does not have.

    Raises:
        ValueError: with the nearest names.
    """
    if name in model.hook_dict:
        return
    nearest = get_close_matches(name, model.hook_dict, n=3, cutoff=0.4)
    hint = f" Nearest: {', '.join(nearest)}." if nearest else " See model.hook_dict for all of them."
    raise ValueError(f"hook name {name!r} does not exist in this model.{hint}")


def check_hook(model: Any, name: str | Callable[[str], bool], hook: Callable) -> None:
    """Refuse a hook that would never fire, or whose edit the model would ignore.

    Raises:
        ValueError: an unknown name, a condition that no name meets, or an edit of the query or key of a
            head whose pattern is hard-coded.
    """
    head = getattr(hook, "head", None)
    for known in _names_met(model, name):
        if head is not None and known.endswith(("attn.hook_q", "attn.hook_k")):
            patterns = model.cfg.patterns_of(int(known.split(".")[1]))
            if head in range(len(patterns)) and not patterns[head].learned:
                raise ValueError(
                    f"an edit of {known} for head {head} would do nothing: that head's pattern is hard-coded "
                    f"({patterns[head].kind}). Edit hook_pattern, hook_v or hook_z instead."
                )


def check_names_filter(model: Any, names_filter: Any) -> None:
    """Refuse a cache filter that names a hook point which does not exist, or lets none through.

    Raises:
        ValueError: with the nearest names, or a condition that no name meets.
    """
    if names_filter is not None:
        for name in names_filter if isinstance(names_filter, list | tuple) else [names_filter]:
            _names_met(model, name)


def _names_met(model: Any, name: str | Callable[[str], bool]) -> list[str]:
    if isinstance(name, str):
        check_hook_name(model, name)
        return [name]
    names = [known for known in model.hook_dict if name(known)]
    if not names:
        raise ValueError("no hook name of this model meets the condition given; see model.hook_dict for them.")
    return names

"""A study whose models train long enough to be killed meanwhile."""

from dataclasses import replace

from toys import STUDY as TOY
from toys import specs

STEPS = 150


def groups(size: str) -> dict:
    return {"few": specs(2, steps=STEPS), "more": specs(3, steps=STEPS), "large": specs(1, batch_size=16)}


STUDY = replace(TOY, groups=groups)

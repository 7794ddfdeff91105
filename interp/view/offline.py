"""Charts that are displayed and saved without a network.

Altair's default renderer and `save("x.html")` load JavaScript from a server. Charts of results show an SVG image in a
notebook and save HTML with its JavaScript inside. Another renderer that is enabled (`altair.renderers.enable`) is used.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import altair as alt

from hooks.files import user_path
from interp.view.charts import chart_svg, drawable


class Offline:
    """Display and saving without a network, for each kind of chart."""

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> Any:
        if alt.renderers.active != "default":
            return super()._repr_mimebundle_(*args, **options)  # pyright: ignore[reportAttributeAccessIssue]
        return {"image/svg+xml": chart_svg(self), "text/plain": f"{type(self).__name__}(...)"}

    def to_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """As in Altair, but without characters that cannot be drawn."""
        return drawable(super().to_dict(*args, **options))  # pyright: ignore[reportAttributeAccessIssue]

    def save(self, fp: Any, format: Any = None, *args: Any, **options: Any) -> None:
        """As in Altair, but HTML contains its JavaScript unless inline is False."""
        if isinstance(fp, str | Path):
            fp = str(user_path(fp))
        if format == "html" or (format is None and str(fp).endswith(".html")):
            options = {"inline": True} | options
        super().save(fp, format, *args, **options)  # pyright: ignore[reportAttributeAccessIssue]

    def to_html(self, *args: Any, inline: bool = True, **options: Any) -> str:
        """As in Altair, but with its JavaScript unless inline is False."""
        return super().to_html(*args, inline=inline, **options)  # pyright: ignore[reportAttributeAccessIssue]


def _offline_method(name: str) -> Callable[..., Any]:
    """Altair's method of this name, whose result is displayed and saved without a network too."""

    @wraps(getattr(alt.TopLevelMixin, name, None) or getattr(alt.Chart, name))
    def compose(self: Any, *args: Any, **options: Any) -> Any:
        return offline(getattr(super(Offline, self), name)(*args, **options))

    return compose


for _name in ("__add__", "__and__", "__or__", "facet", "repeat"):
    setattr(Offline, _name, _offline_method(_name))


class _Chart(Offline, alt.Chart): ...


class _LayerChart(Offline, alt.LayerChart): ...


class _FacetChart(Offline, alt.FacetChart): ...


class _RepeatChart(Offline, alt.RepeatChart): ...


class _ConcatChart(Offline, alt.ConcatChart): ...


class _HConcatChart(Offline, alt.HConcatChart): ...


class _VConcatChart(Offline, alt.VConcatChart): ...


_OFFLINE: dict[type, type] = {
    alt.Chart: _Chart,
    alt.LayerChart: _LayerChart,
    alt.FacetChart: _FacetChart,
    alt.RepeatChart: _RepeatChart,
    alt.ConcatChart: _ConcatChart,
    alt.HConcatChart: _HConcatChart,
    alt.VConcatChart: _VConcatChart,
}
"""The offline class of each class of Altair."""


def offline(chart: Any) -> Any:
    """The same chart, displayed and saved without a network; so are charts composed from it with +, | and &."""
    kind = _OFFLINE.get(type(chart))
    if kind is not None:
        object.__setattr__(chart, "__class__", kind)
    return chart

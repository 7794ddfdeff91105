"""Small pictures of the table of analyses: a chart of each. `python docs/figures/analysis_pictures.py`.

The results are those of docs/notebooks/all_analyses.py, which this runs; about half a minute.
"""

import re
import runpy
from pathlib import Path
from typing import Any

from hooks.files import write_text
from interp.view.charts import chart_svg

DOCS = Path(__file__).parent.parent
FOLDER = DOCS / "images" / "analyses"


def panel_of(spec: dict[str, Any], index: int) -> dict[str, Any]:
    """One of charts side by side, with their data; a single chart as it is."""
    for arrangement in ("hconcat", "vconcat", "concat"):
        if arrangement in spec:
            panel = spec[arrangement][index]
            shared = {name: spec[name] for name in ("data", "datasets", "config") if name in spec and name not in panel}
            return panel_of({**shared, **panel}, index)
    return spec


def without_words(svg: str) -> str:
    """The marks of a chart, without titles, legends and labels, which cannot be read at this size."""
    return re.sub(r"<text[^>]*>.*?</text>", "", svg, flags=re.DOTALL)


def main() -> None:
    """Draw a picture of each result of the notebook."""
    results = runpy.run_path(str(DOCS / "notebooks" / "all_analyses.py"))
    charts = {
        "probe": results["probes"].plot(),
        "logit_lens": results["lens"].plot(),
        "logit_attribution": results["added"].plot(),
        "classify_heads": results["kinds"].plot(),
        "ablate_heads": results["ablation"].plot(),
        "patch": results["patched"].plot(),
        "edges": results["edges"].plot(),
        "explain_attention": results["why"].plot(),
        "audit": results["audited"].plot(),
        "show_attention": results["patterns"].plot("1.0"),
        "attention_variation": results["variation"].plot(),
        "balance_violation": results["balance"].plot(),
        "pruning_curve": results["curve"].plot(),
        "implements": results["tested"].plot(),
    }
    for name, chart in charts.items():
        # the last panel of ablations, whose variable needs every layer, and of the audit, whose colours are verdicts
        panel = panel_of(chart.to_dict(), -1 if name in ("ablate_heads", "audit") else 0)
        svg = without_words(chart_svg(panel))
        write_text(FOLDER / f"{name}.svg", svg)
        print(f"{name}: {len(svg) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

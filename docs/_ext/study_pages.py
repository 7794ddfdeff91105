"""The page of every study, drawn from its shipped results: `interp reproduce STUDY --page`."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

STUDIES = ("lego", "dyck", "template", "language", "audit", "compiled", "approximations", "development")
LOG = logging.getLogger(__name__)


def draw_pages(app: Sphinx, config: object) -> None:
    """Write `_build/studies/studies/STUDY/report.html` and pages of claims, if results or code have changed."""
    root = Path(app.srcdir).parent
    out = Path(app.srcdir) / "_build/studies/studies"
    out.mkdir(parents=True, exist_ok=True)
    sources = [path for folder in ("interp/view", "case_studies/frame") for path in (root / folder).rglob("*.*")]
    missing = []
    for study in STUDIES:
        made = [*sources, *(root / "case_studies" / study / "results").glob("*.*")]
        page = out / study / "report.html"
        if not page.exists() or page.stat().st_mtime < max(path.stat().st_mtime for path in made):
            missing.append(study)
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(missing), 2):  # two at a time, for two cores
            pair = missing[first : first + 2]
            LOG.info("drawing the pages of the studies: %s", ", ".join(pair))
            running = [subprocess.Popen(_command(study, folder), stdout=subprocess.DEVNULL) for study in pair]
            for study, process in zip(pair, running, strict=True):
                if process.wait():
                    raise RuntimeError(f"interp reproduce {study} --page failed; run it to see why.")
                (page,) = Path(folder, study).rglob("report.html")
                shutil.rmtree(out / study, ignore_errors=True)
                shutil.copytree(page.parent, out / study)


def _command(study: str, folder: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "from interp.cli.main import main; main()",
        "reproduce",
        study,
        "--page",
        "--out",
        folder,
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", draw_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

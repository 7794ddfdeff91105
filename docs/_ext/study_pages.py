"""The page of every study, drawn from its shipped results: `interp reproduce STUDY --page`."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import warm_start
from sphinx.application import Sphinx
from sphinx.util import logging

from interp.cli.installed_studies import check_study, study_entry_points, study_folder

STUDIES = ("lego", "dyck", "template", "language", "audit", "compiled", "approximations", "development")
"""Studies that pages link, of this package and of `examples/unmyopic-studies`."""
LOG = logging.getLogger(__name__)


def start(app: Sphinx, config: object) -> None:
    """Start the process that draws pages and runs notebooks; it ends with the build."""
    folder = Path(tempfile.mkdtemp())
    process = warm_start.start(folder)

    def end(app: Sphinx, exception: Exception | None) -> None:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    app.connect("build-finished", end)


def draw_pages(app: Sphinx, config: object) -> None:
    """Write `_build/studies/studies/STUDY/report.html` and pages of claims, if results or code have changed."""
    root = Path(app.srcdir).parent
    out = Path(app.srcdir) / "_build/studies/studies"
    out.mkdir(parents=True, exist_ok=True)
    sources = [path for folder in ("interp/view", "case_studies/frame") for path in (root / folder).rglob("*.*")]
    entry_points = study_entry_points()
    missing = []
    for study in STUDIES:
        check_study(study, entry_points)
        folder = study_folder(entry_points[study])
        made = [*sources, *folder.glob("*.py"), *(folder / "results").glob("*.*")]
        page = out / study / "report.html"
        if not page.exists() or page.stat().st_mtime < max(path.stat().st_mtime for path in made):
            missing.append(study)
    if not missing:
        return
    LOG.info("drawing the pages of the studies: %s", ", ".join(missing))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:  # two at a time, for two cores
        options = ("--page", "--out", folder)
        codes = pool.map(lambda study: warm_start.run("interp.cli.main:main", "reproduce", study, *options), missing)
        for study, code in zip(missing, codes, strict=True):
            if code:
                raise RuntimeError(f"interp reproduce {study} --page failed; run it to see why.")
            (page,) = Path(folder, study).rglob("report.html")
            shutil.rmtree(out / study, ignore_errors=True)
            shutil.copytree(page.parent, out / study)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", start)
    app.connect("config-inited", draw_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

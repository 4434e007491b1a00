"""How Sphinx builds the documentation."""

project = "ballista_py"
author = "The ballista_py developers"
copyright = "2026, " + author  # noqa: A001 - the name that Sphinx reads
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "ballista_py"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False
suppress_warnings = ["myst.xref_missing", "ref.python"]  # fields called `bytes` beside the type

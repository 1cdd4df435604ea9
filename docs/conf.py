"""How Sphinx builds the site from this folder: `make docs`. Decision 22 says why it is built like this."""

from __future__ import annotations

import inspect
from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

import relaqs

project = "ReLAQS"
author = "The ReLAQS developers"
copyright = author
version = release = installed_version("relaqs")

extensions = [
    "myst_parser",  # pages are Markdown
    "sphinx.ext.autodoc",  # the reference comes from docstrings
    "sphinx.ext.napoleon",  # "Args:" and "Raises:" in docstrings become lists
    "sphinx_click",  # the command line's reference comes from its own help
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["decisions/archive/**"]  # read in the repository alone
myst_heading_anchors = 3  # so that a page can link to another page's headings
myst_enable_extensions = ["deflist"]  # the glossary
default_role = "code"  # docstrings write `name` for code

autodoc_member_order = "groupwise"
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}
autodoc_typehints_format = "short"
maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"ReLAQS {release}"
html_copy_source = False


def _is_described_elsewhere(
    app: Sphinx, what: str, name: str, member: object, skip: bool, options: object
) -> bool | None:
    """Whether a class is left out of this page, because `relaqs` exports it too and its page describes it."""
    if app.env.docname == "reference/relaqs" or name not in relaqs.__all__ or not inspect.isclass(member):
        return None
    return getattr(relaqs, name).__module__ == member.__module__ or None


def _without_first_words(
    app: Sphinx, what: str, name: str, member: object, options: object, lines: list[str]
) -> None:
    """Drop what a package says of itself where it would stand in the middle of a page."""
    if what == "module" and app.env.docname == "reference/relaqs":
        lines.clear()


def _left_out_of_search(app: Sphinx, doctree: object) -> None:
    """Let the search find guides and reference: what was measured and decided is read from its own index."""
    if app.env.docname.partition("/")[0] in ("lab", "decisions"):
        app.env.metadata[app.env.docname]["nosearch"] = "true"


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", _left_out_of_search)
    app.connect("autodoc-skip-member", _is_described_elsewhere)
    app.connect("autodoc-process-docstring", _without_first_words)

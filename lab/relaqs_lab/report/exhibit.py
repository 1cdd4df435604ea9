"""What the page is made of: figures, tables of policies, and what was not measured; each with its command.

How figures look: one drawing, in colours that the page chooses for light and dark.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relaqs_engine.errors import RelaqsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# role → in light, in dark; all in light differ. Series are told apart by lightness, too, and by line styles.
COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#656d76", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "page": ("#ffffff", "#0d1117"),
    "one": ("#0b62c4", "#58a6ff"),
    "two": ("#bc4c00", "#f0883e"),
    "three": ("#1a7f37", "#56d364"),
    "four": ("#8250df", "#bc8cff"),
    "five": ("#9a6700", "#e3b341"),
    "six": ("#bf3989", "#ff7bac"),
    "seven": ("#0f766e", "#39c5cf"),
    "eight": ("#57606a", "#c9d1d9"),
    "nine": ("#a40e26", "#ff8182"),
}
SERIES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PALETTE = {role: light for role, (light, _) in COLOURS.items()}

INCHES = (7.2, 3.6)
DOTS_PER_INCH = 160

Palette = dict[str, str]
Draw = Callable[["list[Axes]", Palette], None]
"""(axes, colours by role) → draws on them."""


class MissingMatplotlibError(RelaqsError, ImportError):
    """matplotlib is not installed. It is an ImportError too."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure.

    Attributes:
        svg: with colours as CSS variables, to stand in a page.
        png: light, with a background.
    """

    svg: str
    png: bytes

    @property
    def standalone_svg(self) -> str:
        """The SVG with its colours, which follow the reader's choice of light or dark."""
        end = self.svg.index(">") + 1
        return f"{self.svg[:end]}<style>{css_variables('svg')}</style>{self.svg[end:]}"


def css_variables(selector: str) -> str:
    """Return the colours as CSS variables of whatever the selector names."""
    light, dark = ("".join(f"--{role}:{pair[index]};" for role, pair in COLOURS.items()) for index in (0, 1))
    return f"{selector}{{{light}}}@media(prefers-color-scheme:dark){{{selector}{{{dark}}}}}"


def picture(name: str, draw: Draw, *, columns: int = 1) -> Picture:
    """Return a figure of so many panels side by side. name: makes the SVG's ids its own.

    Raises MissingMatplotlibError.
    """
    svg, png = _drawn(name, draw, columns)
    svg = svg[svg.index("<svg") :]
    for role, light in PALETTE.items():
        svg = svg.replace(light, f"var(--{role})")
    return Picture(svg, png)


def _drawn(name: str, draw: Draw, columns: int) -> tuple[str, bytes]:
    """Return one drawing as SVG and as PNG, in the light colours. Each colour has one role."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingMatplotlibError(
            "matplotlib is not installed; install it with: pip install 'relaqs[tpch]'"
        ) from error
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_settings(name)):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False)[0]
        draw(list(axes), PALETTE)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # places are found: finding them takes longer than drawing
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=DOTS_PER_INCH, facecolor=PALETTE["page"])
    return svg.getvalue().decode("utf-8"), png.getvalue()


def _settings(name: str) -> dict[Any, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "text.color": PALETTE["ink"],
        "axes.labelcolor": PALETTE["ink"],
        "axes.titlecolor": PALETTE["ink"],
        "axes.edgecolor": PALETTE["muted"],
        "xtick.color": PALETTE["muted"],
        "ytick.color": PALETTE["muted"],
        "grid.color": PALETTE["grid"],
        "axes.facecolor": "none",
        "figure.facecolor": "none",
    }


def legend_below(axes: Axes) -> None:
    """Put the legend under one panel, where it hides nothing."""
    handles = axes.get_legend_handles_labels()[0]
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=min(len(handles), 4), fontsize=8.5)


def shared_legend(axes: Axes) -> None:
    """Put one legend under all panels of a figure. axes: the panel whose lines it names."""
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=min(len(handles), 4), fontsize=8.5)


def plain_numbers(axis: Axis) -> None:
    """Write 1, 2, 5, 10 along a logarithmic axis instead of powers, and little ticks without numbers."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def whole_numbers(axis: Axis) -> None:
    """Write no fractions along an axis that counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))


NOT_GIVEN = "not given"  # a number of a paper that this project does not know


@dataclass(frozen=True, slots=True)
class Finding:
    """One number: of the paper, and of the records."""

    what: str
    paper: str
    ours: str


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A figure, what the papers say of it, and what was measured.

    Attributes:
        name: of its files.
        source: which figure of which paper it follows.
        commands: that made the records.
    """

    name: str
    title: str
    source: str
    caption: str
    picture: Picture
    findings: tuple[Finding, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """An exhibit without records. command: what makes them, but for where they go."""

    title: str
    source: str
    command: str


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """Policies in one setting.

    Attributes:
        title: the setting.
        rows: under `headings` of the exhibit, lines by "\n".
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyTables:
    """An exhibit without a figure: policies side by side in each setting of the records."""

    name: str
    title: str
    source: str
    caption: str
    headings: tuple[str, ...]
    tables: tuple[PolicyTable, ...]


Part = Exhibit | PolicyTables | Missing


def in_percent(share: float, digits: int = 0) -> str:
    """Return a share as the page writes it: "7.0 %", a dash where it is unknown."""
    return f"{share * 100:.{digits}f} %" if math.isfinite(share) else "–"


def commands_of(circumstances: Sequence[Any]) -> tuple[str, ...]:
    """Return the commands of records, each once, in the order they were first used."""
    return tuple(dict.fromkeys(str(each.get("command", "?")) for each in circumstances))

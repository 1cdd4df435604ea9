"""A moving picture of an answer that sharpens on a terminal, for the README: an SVG of several frames.

Each frame is what rich draws of a snapshot. The question reads the flights that `relaqs sample` makes, in a
second or less; the picture is slower, so that it can be read.

    python -m benchmarks.terminal_picture docs/terminal.svg
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import relaqs
from relaqs import Snapshot
from relaqs.cli import data as flights
from relaqs.rendering.terminal import SnapshotOnScreen

SQL = (
    "SELECT carrier, avg(dep_delay) AS late, count(*) AS flights FROM flights "
    "GROUP BY ALL ORDER BY flights DESC LIMIT 7"
)
COLUMNS, ROWS = 92, 16
TARGETS = (0.9, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.025)
FRAME_SECONDS, LAST_SECONDS = 1.2, 4.0
# As rich's own, without fonts from another host: a picture fetches nothing.
FORMAT = """<svg class="{unique_id}" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, monospace }}
.{unique_id}-title {{ font: bold 18px sans-serif }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>"""


@contextmanager
def snapshots() -> Iterator[list[Snapshot]]:
    """Give the snapshots to show, from the first to the exact one."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        flights.lay_out(warehouse)
        with relaqs.connect(warehouse) as db:
            db.sql(SQL)  # what is read and planned a second time is as soon as in a session at work
            known = [
                db.submit(SQL, relaqs.QueryOptions(batches=64, target=target)).result() for target in TARGETS
            ]
            yield [*unlike(known), db.online_sql(SQL).result()]


def unlike(answers: Sequence[Snapshot]) -> list[Snapshot]:
    """Return the answers that read more than the one before."""
    kept: list[Snapshot] = []
    for answer in answers:
        if not answer.is_exact and (not kept or answer.fraction > kept[-1].fraction):
            kept.append(answer)
    return kept


def frame(snapshot: Snapshot, at: int) -> str:
    """Return what a terminal shows of a snapshot, as SVG."""
    console = Console(
        width=COLUMNS, height=ROWS, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print("[bold]$[/] relaqs shell --data warehouse")
    console.print(f"[dim]relaqs>[/] {SQL};", width=COLUMNS)
    console.print()
    console.print(SnapshotOnScreen(snapshot))
    lines = ROWS - console.export_text(clear=False).count("\n")
    console.print("\n" * max(0, lines - 1))
    return console.export_svg(title="relaqs", theme=MONOKAI, code_format=FORMAT, unique_id=f"f{at}")


def moving(frames: Sequence[str]) -> str:
    """Return one SVG that shows the frames in turn, and begins again; the last alone without motion."""
    seconds = FRAME_SECONDS * (len(frames) - 1) + LAST_SECONDS
    sizes = [re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', each) for each in frames]
    width, height = (max(float(size[part]) for size in sizes if size) for part in (1, 2))
    rules = []
    for at in range(len(frames)):
        begin = 100 * FRAME_SECONDS * at / seconds
        end = 100.0 if at == len(frames) - 1 else 100 * FRAME_SECONDS * (at + 1) / seconds
        shown = f"{begin:.3f}%,{end - 0.001:.3f}%{{visibility:visible}}"
        around = f"0%,{max(0.0, begin - 0.001):.3f}%{{visibility:hidden}}" if at else ""
        after = f"{end:.3f}%,100%{{visibility:hidden}}" if end < 100 else ""
        rules.append(f"@keyframes k{at}{{{around}{shown}{after}}}")
        rules.append(f"svg.f{at}{{animation:k{at} {seconds}s step-end infinite;visibility:hidden}}")
    still = "@media (prefers-reduced-motion: reduce){svg svg{animation:none!important}"
    rules.append(f"{still}svg.f{len(frames) - 1}{{visibility:visible}}}}")
    label = "A query on a terminal: the first estimates, narrower intervals, and the exact answer"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{label}"><style>{"".join(rules)}</style>{"".join(frames)}</svg>\n'
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.terminal_picture", description=__doc__.split("\n")[0]
    )
    parser.add_argument("picture", type=Path, help="the file to write, an SVG")
    options = parser.parse_args(words)
    with snapshots() as shown:
        text = moving([frame(snapshot, at) for at, snapshot in enumerate(shown)])
    options.picture.write_text(text, encoding="utf-8")
    print(f"{options.picture}: {len(shown)} frames, {len(text) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

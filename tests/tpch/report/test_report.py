"""`relaqs tpch report`: a page from records, whole in itself, that claims nothing without its command."""

from __future__ import annotations

import errno
import json
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from relaqs_engine.layouts.checksums import SEAL, seal
from relaqs_lab.cli.studies import HEADINGS, cells
from relaqs_lab.records import QueryRun, RecordFile, ScheduleRun
from relaqs_lab.records.comparison import compare, settings
from relaqs_lab.records.simulated_runs import GangRun, relative
from relaqs_lab.report.alone import rank_correlation
from relaqs_lab.report.exhibit import COLOURS, NOT_GIVEN, Exhibit, Finding, Part, PolicyTables, picture
from relaqs_lab.report.exhibits_of_training import gangs
from relaqs_lab.report.predicted import LOSSES, errors_ahead, measured_alike, predicted
from relaqs_lab.report.shared import in_order, shared, styles
from relaqs_lab.simulation import Options
from relaqs_lab.simulation.study import Case, JobMix, run_case

from tests.tpch.command_line import run

pytestmark = pytest.mark.slow  # every figure is drawn

SIMULATED = ("--jobs", "6", "--core-seconds", "3000", "--seeds", "2", "--processes", "1", "--epoch", "5")
NAMES = ("equal_slots", "tiresias")
ELASTIC = ("--gangs", "table2", "--policies", "tiresias,equal_slots", "--processes", "1")


@pytest.fixture(scope="module")
def reported(runs: Path, schedules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records of every kind, and their report."""
    out = tmp_path_factory.mktemp("reported")
    shutil.copy(runs / "run.jsonl", out)
    shutil.copy(schedules / "schedule.jsonl", out)
    for words in (
        ("simulate", "--arrival", "10,120", *SIMULATED, "--out", str(out)),
        ("simulate", "--arrival", "20", "--training", "100%", *SIMULATED, "--out", str(out)),
        ("simulate", *ELASTIC, "--seeds", "2", "--out", str(out)),
        ("simulate", *ELASTIC, "--seeds", "1", "--failures", "5", "--out", str(out)),
        ("tpch", "report", "--out", str(out)),
    ):
        code, output = run(*words)
        assert code == 0, output
    return out


EXPECTED = {
    "thesis-4-1", "thesis-4-2", "thesis-4-5", "thesis-4-6-live", "thesis-4-6-simulated", "thesis-4-7-live",
    "thesis-4-7-simulated", "thesis-4-8-live", "thesis-4-8-simulated", "thesis-4-9", "slaq-3-1",
    "slaq-changes", "slaq-prediction", "slaq-shares-live", "slaq-shares-simulated", "slaq-losses",
    "slaq-decisions", "ones-completion", "ones-slots",
}  # fmt: skip


def test_every_figure_is_there_as_svg_and_png(reported: Path) -> None:
    figures = reported / "figures"
    assert {path.stem for path in figures.glob("*.svg")} == EXPECTED
    assert {path.stem for path in figures.glob("*.png")} == EXPECTED
    for path in figures.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_page_has_each_figure_with_its_numbers_and_its_command(reported: Path) -> None:
    html = (reported / "report.html").read_text()
    articles = re.findall(r'<article id="((?:thesis|slaq|ones)-[\w-]+)">(.*?)</article>', html, re.DOTALL)
    assert {name for name, _ in articles} == EXPECTED
    for name, article in articles:
        assert '<svg role="img" aria-label="' in article, name
        assert re.search(r"<pre><code>relaqs (tpch|simulate) .+?</code></pre>", article, re.DOTALL), name
    assert "<th>paper</th><th>here</th>" in html
    assert "On TPC-H scale 0.01, " in dict(articles)["thesis-4-1"]
    words = re.sub(r"<(svg|h3).*?</(svg|h3)>", "", dict(articles)["thesis-4-8-live"], flags=re.DOTALL)
    assert "−90\N{NO-BREAK SPACE}%" in words
    assert "−90 %" not in words
    assert "no figure here is comparable to official TPC-H results" in html
    assert "Not measured yet" not in html


@pytest.mark.parametrize("source", ["live", "simulated"])
def test_the_page_has_the_table_of_policies_as_it_is_printed(reported: Path, source: str) -> None:
    """Of every setting, with all of its cells and the command that made its records."""
    html = (reported / "report.html").read_text()
    [article] = re.findall(rf'<article id="policies-{source}">(.*?)</article>', html, re.DOTALL)
    file = RecordFile(reported / f"{'schedule' if source == 'live' else 'simulate'}.jsonl")
    every = settings(in_order(list(file.read(ScheduleRun.kind_of_record, ScheduleRun.of_record))))
    assert len(every) == {"live": 2, "simulated": 3}[source]
    found = [
        [[plain(cell) for cell in re.findall(r"<t[dh]>(.*?)</t[dh]>", row, re.DOTALL)] for row in rows]
        for table in re.findall(r"<table.*?</table>", article, re.DOTALL)
        for rows in [re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]
    ]
    assert found == [[list(HEADINGS), *(list(cells(row)) for row in compare(group))] for group in every]
    commands = [unescape(re.sub("</?span>", "", each)) for each in re.findall(r"<code>(.*?)</code>", article)]
    assert commands == [group[0].circumstances["command"] for group in every]


def test_times_of_elastic_jobs_stand_beside_those_of_the_paper(reported: Path) -> None:
    file = RecordFile(reported / "simulate.jsonl")
    runs = list(file.read(GangRun.kind_of_record, GangRun.of_record))
    completion, slots, table = gangs(runs)
    assert isinstance(completion, Exhibit)
    assert isinstance(slots, Exhibit)
    assert isinstance(table, PolicyTables)
    papers = {finding.what: finding.paper for finding in completion.findings}
    assert papers["tiresias: mean time from arrival to end"] == "450 s"
    assert papers["equal_slots: mean time from arrival to end"] == NOT_GIVEN
    ours = {finding.what: finding.ours for finding in completion.findings}
    change = relative(
        *([run for run in runs if run.policy == name and run.lost_share == 0] for name in NAMES)
    )
    assert ours["equal_slots: mean relative to tiresias"].startswith(f"−{100 * (1 - change.mean):.1f} ± ")
    assert "1 more setting." in completion.caption
    assert len(table.tables) == 2
    other = gangs([replace(run, workload="others") for run in runs])[0]
    assert isinstance(other, Exhibit)
    assert {finding.paper for finding in other.findings} == {NOT_GIVEN}


def plain(html: str) -> str:
    return unescape(html).replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_needs_nothing_else_and_is_well_formed(reported: Path) -> None:
    html = (reported / "report.html").read_text()
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.search(r'(src|href)="(?!#)', without_names)
    assert "@import" not in html
    parser = Balanced()
    parser.feed(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    assert parser.open == []


class Balanced(HTMLParser):
    """Keeps the tags that are open; fails where one is closed that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_colours_follow_light_and_dark(reported: Path) -> None:
    html = (reported / "report.html").read_text()
    used = set(re.findall(r"var\(--(\w+)\)", html))
    assert used <= set(COLOURS)
    assert {"ink", "muted", "grid", "one"} <= used
    assert html.count("prefers-color-scheme:dark") == 1
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert not [light for light, _ in COLOURS.values() if light in drawn]  # the page chooses every colour
    alone = (reported / "figures" / "thesis-4-2.svg").read_text()
    assert "prefers-color-scheme:dark" in alone
    assert alone.startswith("<svg")


@pytest.mark.parametrize("index", [0, 1], ids=["light", "dark"])
def test_colours_can_be_read_on_the_page(index: int) -> None:
    """Text 4.5 and lines 3 times as light as the page or as dark (WCAG 2.2, 1.4.3 and 1.4.11)."""
    page = luminance(COLOURS["page"][index])
    for role, pair in COLOURS.items():
        if role in ("page", "grid"):
            continue
        darker, lighter = sorted((luminance(pair[index]), page))
        assert (lighter + 0.05) / (darker + 0.05) >= (4.5 if role in ("ink", "muted") else 3.0), role


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_records_are_there_as_tables(reported: Path) -> None:
    steps = pyarrow.parquet.read_table(reported / "steps.parquet")
    jobs = pyarrow.parquet.read_table(reported / "jobs.parquet")
    assert set(steps["name"].to_pylist()) == {"Q1", "Q2", "Q6", "K-Means", "linear regression"}
    assert set(jobs["source"].to_pylist()) == {"live", "simulated"}


def test_what_was_not_measured_is_said_with_the_command_that_adds_it(tmp_path: Path) -> None:
    assert run("simulate", "--arrival", "10", *SIMULATED, "--out", str(tmp_path))[0] == 0
    code, _ = run("tpch", "report", "--out", str(tmp_path))
    assert code == 0
    html = (tmp_path / "report.html").read_text()
    assert html.count("Not measured yet") >= 5
    assert f"relaqs tpch run --data DIR --out {tmp_path}<" in re.sub("</?span>", "", html)
    assert f"relaqs simulate --training 100% --out {tmp_path}<" in re.sub("</?span>", "", html)


@pytest.mark.parametrize("name", [".", "not-there"])
def test_a_folder_without_records_is_refused(tmp_path: Path, name: str) -> None:
    code, output = run("tpch", "report", "--out", str(tmp_path / name))
    assert code == 1
    assert f"{tmp_path / name} has no records; make some with `relaqs tpch run" in output
    assert not (tmp_path / name / "report.html").exists()


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "simulate.jsonl").write_text("{}\n")
    code, output = run("tpch", "report", "--out", str(tmp_path))
    assert code == 1
    assert "simulate.jsonl, line 1" in output


def test_a_run_whose_steps_go_back_is_named(runs: Path, tmp_path: Path) -> None:
    [line, *_] = (runs / "run.jsonl").read_text().splitlines()
    record = json.loads(line)
    record["steps"]["work_done"][1] = 0.0
    del record[SEAL]
    (tmp_path / "run.jsonl").write_bytes(seal(json.dumps(record)) + b"\n")
    code, output = run("tpch", "report", "--out", str(tmp_path))
    assert code == 1
    assert "run.jsonl, line 1: not a record" in output
    assert "does not rise" in output


def test_a_full_disk_is_said(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(runs / "run.jsonl", tmp_path)

    def full(path: Path, *content: object, **options: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    code, output = run("tpch", "report", "--out", str(tmp_path))
    assert code == 1
    assert "there is no room on the disk" in output


def test_the_same_drawing_is_the_same_file() -> None:
    first, again = (picture("a", lambda axes, palette: axes[0].plot([1, 2])) for _ in range(2))
    assert first.svg == again.svg


def test_rank_correlation() -> None:
    assert rank_correlation(np.array([1.0, 5.0, 9.0]), np.array([0.1, 0.2, 7.0])) == pytest.approx(1.0)
    falling = rank_correlation(np.array([1.0, 5.0, 9.0, np.inf]), np.array([3.0, 2.0, 1.0, 0.0]))
    assert falling == pytest.approx(-1.0)
    assert np.isnan(rank_correlation(np.array([1.0, np.nan]), np.array([1.0, 2.0])))


def test_errors_ahead_are_those_of_each_step_that_has_enough_behind_and_ahead() -> None:
    x = np.arange(1.0, 11.0)
    stays = errors_ahead(x, 2.0 * x, 5, LOSSES["last value"], least=3)
    assert stays == pytest.approx([10.0] * 3)  # from the steps 3, 4 and 5 on
    assert len(errors_ahead(x[:4], x[:4], 5, LOSSES["last value"])) == 0


def test_prediction_errors_are_those_of_one_set_of_settings(runs: Path) -> None:
    every = list(RecordFile(runs / "run.jsonl").read(QueryRun.kind_of_record, QueryRun.of_record))
    one, _, six, *_ = every
    other = [replace(one, threads=one.threads + 7), replace(six, data="laid out otherwise")]
    chosen, over = measured_alike([*other, one, six])
    assert chosen == [one, six]
    assert f"Over 2 runs, 1 seed, of Q1, Q6; data: {one.data}." in over
    assert over.endswith("Left out: 2 more runs, on other data or threads.")
    alone, mixed = predicted(every)[0], predicted([other[0], *every])[0]
    assert isinstance(alone, Exhibit)
    assert isinstance(mixed, Exhibit)
    assert mixed.findings == alone.findings
    assert "Left out" not in alone.caption


def test_a_policy_has_one_colour_in_every_figure() -> None:
    few, more = styles(["fair", "index"]), styles(["fifo", "fair", "max_sum", "index", "mine"])
    assert few["index"] == more["index"]
    assert set(few) == {"fair", "index"}
    roles = [role for role, _, _ in more.values()]
    assert len(set(roles)) == len(roles)


def test_policies_keep_their_colours_and_places_whatever_was_finished_first(reported: Path) -> None:
    file = RecordFile(reported / "simulate.jsonl")
    runs = list(file.read(ScheduleRun.kind_of_record, ScheduleRun.of_record))
    one, other = shared(runs, "simulated"), shared(runs[::-1], "simulated")
    assert [drawn(each) for each in one] == [drawn(each) for each in other]


@pytest.mark.parametrize(("jobs", "paper"), [(12, "−47 %"), (11, NOT_GIVEN)])
def test_the_thesis_number_stands_beside_its_own_setting_alone(jobs: int, paper: str) -> None:
    mix, cores = JobMix(core_seconds=3000.0), 256.0
    runs = [
        run_case(Case(policy, 0, jobs, arrival, mix, cores, Options(5.0)), {}, lambda: 0.0)
        for policy in ("fair", "fifo")
        for arrival in (120.0, 10.0, 20.0, 30.0)
    ]
    _, levels, *_ = shared(runs, "simulated")
    assert isinstance(levels, Exhibit)
    found = {finding.what: finding.paper for finding in levels.findings}
    assert found["a job every 10 s, fifo: time to −70 %"] == NOT_GIVEN
    assert found["a job every 120 s, fifo: time to −70 %"] == paper
    at_120 = [each for each in runs if each.arrival_seconds == 120.0]
    _, levels, *_ = shared(at_120, "simulated")
    assert isinstance(levels, Exhibit)
    assert levels.findings[0] == Finding(
        "a job every 120 s, fifo: time to −70 %", paper, levels.findings[0].ours
    )
    assert "Not drawn" not in levels.caption


def test_the_thesis_arrivals_are_drawn_first_and_what_is_not_is_said() -> None:
    mix, few, many = JobMix(core_seconds=300.0), 16.0, 32.0
    runs = [
        run_case(Case("fair", 0, 3, arrival, mix, cores, Options(5.0)), {}, lambda: 0.0)
        for cores, arrivals in ((few, (5.0, 10.0, 20.0, 40.0, 120.0)), (many, (10.0,)))
        for arrival in arrivals
    ]
    _, levels, by_arrival, *_ = shared(runs, "simulated")
    assert isinstance(levels, Exhibit)
    assert isinstance(by_arrival, Exhibit)
    assert "3 jobs, one every 10, 40 or 120 s, 16 cores" in levels.caption
    assert levels.caption.endswith("below: a job every 5 or 20 s; 1 setting of other jobs or cores.")
    assert "3 jobs, one every 5, 10, 20, 40 or 120 s, 16 cores" in by_arrival.caption
    assert by_arrival.caption.endswith("below: 1 setting of other jobs or cores.")
    assert [finding.what.partition(",")[0] for finding in by_arrival.findings] == [
        f"a job every {at} s" for at in (5, 10, 20, 40, 120)
    ]


def drawn(exhibit: Part) -> tuple[object, ...]:
    if isinstance(exhibit, PolicyTables):
        return exhibit.tables
    assert isinstance(exhibit, Exhibit)
    return exhibit.caption, exhibit.findings, exhibit.picture.svg

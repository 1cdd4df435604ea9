"""The benchmark of costly functions counts what a killed program asks, and what a target takes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import costly_beside
from benchmarks.costly import BATCH, CONCURRENCY, asked_after_kills, calls_to_target, looks_at, truth_of


@pytest.mark.slow
def test_a_killed_program_asks_nothing_twice_that_it_kept() -> None:
    found = asked_after_kills(rows=200, kills=2, seed=1)
    assert found["right"]
    assert 0 <= found["twice"] <= found["under way at most"] <= 2 * BATCH * CONCURRENCY


@pytest.mark.slow
def test_a_random_sample_takes_what_theory_gives_and_a_proxy_saves_half() -> None:
    found = calls_to_target(orders=1)
    # The estimated share is within 2 %, what it asks for within 2.5 %, and a step is 2 % larger or longer.
    assert abs(found["random"] / found["theory"] - 1) < 0.065
    assert found["proxy"] < 0.5 * found["theory"]


def test_a_look_without_a_proxy_is_as_wide_as_a_random_sample() -> None:
    rng = np.random.default_rng(1)
    negative = rng.random(5_000) < 0.3
    texts = pa.table(
        {
            "text": [f"text {i}" for i in range(5_000)],
            "place": ["here"] * 5_000,
            "letters": np.ones(5_000, dtype=np.int64),
            "score": np.where(negative, -2.0, 1.0),
            "negative": negative,
            "rare": rng.random(5_000) < 0.01,
        }
    )
    truth = truth_of("count", texts)
    assert truth.value == [negative.sum()]
    needed = (1.959964 / 0.1) ** 2 * (5_000 / negative.sum() - 1)
    assert truth.calls(0.1) == pytest.approx(needed / (1 + needed / 5_000), abs=1.5)
    looks = looks_at("count", "none", texts, [{"target": 0.1}, {"budget": 600}])
    assert looks["budget"].calls == [600]
    assert looks["budget"].figures()["width"] == pytest.approx(1.0, abs=0.1)
    assert looks["target"].figures()["certified %"] == 100.0


def test_ways_of_asking_a_model_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = pa.table(
        {
            "text": [f"text {number}" for number in range(300)],
            "negative": [number % 3 == 0 for number in range(300)],
            "trained": [0.8 if number % 3 == 0 else 0.2 for number in range(300)],
        }
    )
    pq.write_table(texts, tmp_path / "texts.parquet")
    monkeypatch.setattr("sys.argv", ["costly_beside", str(tmp_path), "--texts", "300", "--target", "0.3"])
    costly_beside.main()
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    found = {name.strip(): [each.strip() for each in rest] for _, name, *rest, _ in rows}
    assert found["relaqs to the exact end"][0] == "300"
    assert found["relaqs to the exact end"][3:] == ["100", "0.0%"]
    assert int(found["relaqs to the target"][0]) < 300
    assert int(found["relaqs to the target, proxy"][0]) <= int(found["relaqs to the target"][0])
    assert int(found["df.sample(n).apply()"][0]) == 67  # n / (1 + n / 300), n = (1.96 / 0.3)² · 2

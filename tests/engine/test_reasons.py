"""Why cells are not certified: the reason that is true of each, in words, and what would help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from relaqs_engine.execution.estimate import Estimate, Reason, text_of
from relaqs_engine.layouts import append, shuffle
from relaqs_engine.layouts.build import add_static

from tests.conftest import Oracle
from tests.engine.world import World

ROWS = 12_000


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Sales of four shops, one of which has six, beside labels of shops that have several each."""
    folder = tmp_path_factory.mktemp("reasons")
    draw = np.random.default_rng(5)
    shop = draw.integers(0, 3, ROWS)
    shop[:6] = 3
    table = pa.table(
        {
            "shop": shop,
            "buyer": np.arange(ROWS) % 500,
            "paid": draw.normal(60.0, 20.0, ROWS).clip(0.0, 120.0),
            "gain": draw.normal(0.0, 10.0, ROWS),
            "five": np.full(ROWS, 5.0),
            "heavy": draw.lognormal(0.0, 3.0, ROWS),
            "odd": np.where(np.arange(ROWS) % 1000 == 9, np.nan, 1.0),
            "gaps": np.where(np.arange(ROWS) % 5 == 1, np.nan, 1.0),
            "word": [f"w{i % 900}" for i in range(ROWS)],
        }
    )
    labels = pa.table({"shop": [0, 0, 1, 2, 3], "label": ["a", "b", "a", "a", "b"]})
    for name, each in (("sales", table), ("labels", labels)):
        pq.write_table(each, folder / f"{name}.parquet")
    shuffle(table, folder / "warehouse" / "sales", partitions=40)
    shuffle(table, folder / "warehouse" / "by_buyer", partitions=40, cluster_by=("buyer",))
    shuffle(table, folder / "warehouse" / "appended", partitions=40, cluster_by=("buyer",))
    append(table.slice(0, 100), folder / "warehouse" / "appended")
    add_static(labels, folder / "warehouse" / "labels")
    with closing(Oracle(folder)) as oracle:
        yield World.open(folder / "warehouse", oracle)


def first(world: World, sql: str) -> Estimate:
    return next(iter(world.estimates(world.plan(sql), batches=8)))


def said(estimate: Estimate, column: int = -1) -> set[str]:
    """Return the reasons of a column's cells."""
    texts, which = estimate.reasons()
    return {texts[i - 1] for i in which[:, column] if i}


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT shop, avg(paid) FROM sales WHERE shop = 3 GROUP BY shop", Reason.FEW_ROWS),
        (
            "SELECT shop, sum(paid) / sum(sum(paid)) OVER () FROM sales WHERE buyer % 40 = 0 GROUP BY shop",
            Reason.FEW_ROWS_OF_SHARE,
        ),
        ("SELECT avg(five) FROM by_buyer", Reason.ALIKE),
        ("SELECT word, avg(paid) FROM sales GROUP BY word ORDER BY 2 DESC LIMIT 2", Reason.FEW_ROWS),
        (
            "SELECT shop, avg(paid) FROM sales WHERE shop < 3 GROUP BY shop ORDER BY 2 LIMIT 1",
            Reason.MAY_LEAVE,
        ),
        ("SELECT shop, mode(word) FROM sales GROUP BY shop", Reason.SO_FAR),
        ("SELECT shop, rank() OVER (ORDER BY sum(paid)) FROM sales GROUP BY shop", Reason.SO_FAR),
        ("SELECT quantile_cont(paid, 0.999) FROM sales", Reason.FAR_OUT),
        ("SELECT exp(avg(gain)) FROM sales WHERE buyer < 60", Reason.TOO_WIDE),
        ("SELECT sum(odd) FROM sales", Reason.NO_NUMBER),
        ("SELECT avg(heavy * paid) FROM by_buyer", Reason.LARGE_UNIT),
        ("SELECT avg(heavy * paid) FROM appended", Reason.LARGE_UNIT_APPENDED),
        ("SELECT sum(heavy * paid) FROM sales WHERE gain > 15", Reason.LARGE_ROW),
        ("SELECT count(DISTINCT upper(word)) FROM by_buyer WHERE shop = 3", Reason.FEW_UNITS),
        ("SELECT word, median(paid) FROM sales GROUP BY word", Reason.FEW_ROWS),
        ("SELECT CASE WHEN sum(gain) > 0 THEN sum(paid) ELSE 0 END FROM sales", Reason.UNDECIDED),
        ("SELECT CASE WHEN sum(gain) > 0 THEN 'gain' ELSE 'loss' END FROM sales", Reason.UNDECIDED),
        (
            "SELECT avg(s) FROM (SELECT shop, sum(paid) AS s FROM sales GROUP BY shop)",
            Reason.GROUPS_MISSING,
        ),
        (
            "SELECT shop, sum(paid) / lag(sum(paid)) OVER (ORDER BY shop) - 1 FROM sales GROUP BY shop",
            Reason.GROUPS_MISSING,
        ),
    ],
)
def test_a_cell_has_the_reason_that_is_true_of_it(sales: World, sql: str, code: Reason) -> None:
    assert text_of(code) in said(first(sales, sql))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT sum(length(word)) FROM sales", "nothing bounds LENGTH(word), which it adds up"),
        (
            "SELECT avg(n) FROM (SELECT buyer, sum(length(word)) AS n FROM by_buyer GROUP BY 1)",
            "nothing bounds",
        ),
        ("SELECT sum(gaps) FROM sales", "gaps has NaN, infinity or no values"),
        ("SELECT sum(paid) FROM sales JOIN labels USING (shop)", "a row may meet several rows of labels"),
        ("SELECT sum(paid) / sum(gain) FROM sales", "it divides by what may come near zero"),
        ("SELECT even(avg(paid)) + 1 FROM sales", "even() may jump"),
        ("SELECT hash(sum(paid)) % 7 FROM sales", "hash() may jump"),
        (
            "SELECT shop, sum(paid) - count(DISTINCT buyer) AS spent FROM sales GROUP BY shop",
            "what is computed from COUNT(DISTINCT) has an interval only where it is multiplied",
        ),
        ("SELECT greatest(sum(gain), avg(paid)) FROM sales", "it chooses by an estimate"),
        ("SELECT round(sum(paid) / 7) * 7.5 FROM sales", "it rounds inside of an expression"),
        (
            "SELECT shop, sum(gain) / lag(sum(gain)) OVER (ORDER BY shop) - 1 FROM sales GROUP BY shop",
            "what may come near zero",
        ),
        (
            "SELECT shop, sum(paid) / sum(sum(gain)) OVER () FROM sales GROUP BY shop",
            "what may come near zero",
        ),
    ],
)
def test_a_column_that_never_is_certified_says_why(sales: World, sql: str, why: str) -> None:
    plan, estimate = sales.plan(sql), first(sales, sql)
    assert why in plan.outputs[-1].never_certified
    (text,) = said(estimate)
    assert text == f"not certified before the end, because {plan.outputs[-1].never_certified}"
    assert f"{plan.outputs[-1].name}: {text}" in estimate.warnings
    assert re.search(r"\b(_\d+|[bkvd]\d+|stream_\w+)\b", text) is None


def test_certified_cells_and_bounds_have_no_reason(sales: World) -> None:
    estimate = first(sales, "SELECT shop, max(paid), avg(paid) FROM sales WHERE shop < 3 GROUP BY shop")
    assert estimate.reasons()[0] == ()
    exact = list(sales.estimates(sales.plan("SELECT sum(length(word)) FROM sales"), batches=8))[-1]
    assert exact.reasons()[0] == exact.warnings == ()

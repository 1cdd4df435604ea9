"""Answers as files: every row, with its interval."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from relaqs_dashboards.answers import exported, with_unique_names

from tests.dashboards.conftest import Serve, panel
from tests.dashboards.test_live import FLAGS
from tests.relaqs.examples import snapshot
from tests.turnstile import Turnstile

COLUMNS = [
    "flag", "quantity", "tax", "quantity_low", "quantity_high", "quantity_certified",
    "tax_low", "tax_high", "tax_certified",
]  # fmt: skip


def test_an_answer_so_far_is_exported_with_its_intervals(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS))
    cookie = served.cookie()
    with served.page() as page:
        page.until_panel("p1", state="waiting")
        assert served.get("/export/test/p1.csv", Cookie=cookie).status == 409
        turnstile.let(3)
        page.until_panel("p1", state="refining")
        as_csv = served.get("/export/test/p1.csv", Cookie=cookie)
        as_parquet = served.get("/export/test/p1.parquet", Cookie=cookie)
        turnstile.let()
    assert as_csv.headers["content-disposition"] == (
        "attachment; filename=\"test-p1.csv\"; filename*=UTF-8''A%20panel.csv"
    )
    table = pq.read_table(io.BytesIO(as_parquet.body))
    assert table.column_names == COLUMNS
    assert csv.read_csv(io.BytesIO(as_csv.body)).column_names == COLUMNS
    for low, value, high in zip(
        *(table[name] for name in ("quantity_low", "quantity", "quantity_high")), strict=True
    ):
        assert low.as_py() < value.as_py() < high.as_py()


def test_columns_of_one_name_are_told_apart() -> None:
    table = pa.table([[1], [2], [3]], names=["n", "n", "n_2"])
    assert with_unique_names(table).column_names == ["n", "n_2", "n_2_2"]


def test_what_csv_has_no_form_for_is_text() -> None:
    answer = snapshot({"xs": [[1, 2], None], "n": [1, 2]})
    assert exported(answer, "csv").decode().splitlines() == ['"xs","n"', '"[1, 2]",1', ",2"]

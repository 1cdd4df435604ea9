"""Units: the rows that a costly query may ask about, in strata, and what those that were asked say of all.

Rows that are the same to the query, their arguments included, are one *unit*: it is asked once, and counts as
often as there are rows.

    unit    c0       a0             rows    guessed    stratum    rank
    0       'pen'    'it broke'     1       0.9        2          0
    1       'pen'    'very nice'    3       0.1        1          0

Strata tell apart what is likely to differ: units that add much to a sum from those that add little, groups
where there are few, and what a proxy guesses. Units that would decide alone have a stratum of their own. It
is small and soon asked whole. In a stratum the order is random, by a hash of unit and seed. So what was
asked is a random sample, and the same one in each process.

How many are asked next in each stratum follows from the answers so far (`_weigh`, and
`relaqs_bootstrap.regression`). That is sequential: where the sample says that answers vary, more is asked. An
estimate is of the sizes that the strata have in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import MIN_ROWS
from relaqs_bootstrap.intervals import Level, student_interval
from relaqs_bootstrap.regression import (
    SampledSums,
    Strata,
    Totals,
    degrees_of_freedom,
    estimated_totals,
    shares_of_calls,
    with_unmet_units,
)
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import CellIntervals, Estimate, Reason, present_estimate
from relaqs_engine.plans.costly import FRAME, ROWS, SUMS, CostlyCall, CostlyPlan, CostlyQuery
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_engine.rewrite.costly_calls import names_one, of_counted, with_answers

from relaqs.costly.functions import CostlyFunction, Registered

FIRST_UNITS = 128
"""Units that are asked first, where there are few strata."""
_FIRST_OF_EACH = 4  # units of each stratum, at least
_MOST_GROUPS = 16  # that have strata of their own
_MOST_DECIDING = 64  # units that would decide alone
_SIZES = (0.9, 0.99)  # of units by what they may add, where a stratum begins
_GUESSES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)  # of units by what is guessed of them
_FEW_GUESSES = (0.5, 0.9, 0.99)  # where there are other strata too
_MOST_GUESSED = 6  # calls of a condition of which it is guessed whether they hold together
_UNEVEN = 1.2  # root mean square by mean of what units may add, from which on sizes have strata
_Moves = tuple[IntArray, IntArray, FloatArray]  # of R pairs: group, stratum, what a unit adds (NaN: unknown)
_ARROW = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


class _Questions:
    """The calls of a plan, the functions by their names, and a cursor of a database of the query's own."""

    def __init__(self, plan: CostlyPlan, functions: Mapping[str, Registered], cursor: Cursor) -> None:
        self._plan = plan
        self._query = plan.query
        self._functions = [functions[call.function].function for call in plan.query.calls]
        self._cursor = cursor


class Units(_Questions):
    """The units of one query, those of them that were asked, and what these say of all.

    Args beside those of `_Questions`:
        frame: the rows that may count.
        seed: of the order in which units are asked.
    """

    def __init__(
        self,
        plan: CostlyPlan,
        functions: Mapping[str, Registered],
        cursor: Cursor,
        frame: pa.Table,
        seed: int,
    ) -> None:
        super().__init__(plan, functions, cursor)
        self._width = max(1, len(plan.query.sums))  # sums
        self._new = np.zeros(0, dtype=np.int64)
        with cursor.registered(given=frame):
            cursor.run(f"CREATE TEMP TABLE {FRAME} AS SELECT * FROM given")
        self._make_units(seed)
        sizes = self._by_stratum("CAST(count(*) AS DOUBLE)")[:, 0]
        self._strata = Strata(sizes, np.zeros(len(sizes)))
        self._most = self._by_stratum(*(f"max(d{i})" for i in range(self._width)))
        if not self._query.asks_for_keys:
            self._make_groups()
        self._importance = np.sqrt(self._strata.units)

    @property
    def count(self) -> int:
        return int(self._strata.units.sum())

    @property
    def asked(self) -> int:
        return int(self._strata.asked.sum())

    @property
    def is_complete(self) -> bool:
        """Whether the exact answer is known."""
        return self.asked == self.count

    @property
    def first_count(self) -> int:
        """How many are asked in the first step."""
        return max(FIRST_UNITS, 2 * _FIRST_OF_EACH * len(self._strata.units))

    def _by_stratum(self, *columns: str) -> FloatArray:
        """Return aggregates of each stratum, shape (H, columns)."""
        found = self._cursor.table(f"SELECT {', '.join(columns)} FROM units GROUP BY h ORDER BY h")
        return np.stack([doubles(column) for column in found.columns], axis=1)

    # Units are made once.

    def _make_units(self, seed: int) -> None:
        """Make the table of units: with guesses, what they may add, their strata, and their order there."""
        run, query = self._cursor.run, self._query
        columns = [*query.columns, *dict.fromkeys(a for call in query.calls for a in call.arguments)]
        run(
            f"CREATE TEMP TABLE alike AS SELECT {', '.join(columns)}, count(*) AS m FROM {FRAME} GROUP BY ALL"
        )
        make_guesses(self._cursor, query, self._functions, "alike")
        each = range(self._width)
        added = "".join(f", {self._most_added(i)} AS d{i}, {self._expected(i)} AS p{i}" for i in each)
        finite = [f"CASE WHEN isfinite(d{i}) THEN d{i} ELSE 0.0 END" for i in each]
        shares = ", ".join(f"coalesce({d} / nullif(sum({d}) OVER (), 0), 0)" for d in finite)
        run(
            f"CREATE TEMP TABLE sized AS SELECT *, greatest(0, {shares}) AS share "
            f"FROM (SELECT *{added} FROM guessed)"
        )
        # Mixed once more: else another seed would only turn bits of the same order.
        order = f"hash(xor(hash({', '.join([*columns, 'm'])}), hash({int(seed)})))"
        run(
            "CREATE TEMP TABLE units AS "
            f"SELECT *, row_number() OVER (PARTITION BY h ORDER BY {order}) - 1 AS r "
            f"FROM (SELECT *, dense_rank() OVER (ORDER BY {self._stratum()}) - 1 AS h FROM sized)"
        )
        for name in ("alike", "guessed", "sized"):
            run(f"DROP TABLE {name}")
        answers = "".join(f", NULL::{each.type} AS f{i}" for i, each in enumerate(self._functions))
        run(f"CREATE TEMP TABLE labelled AS SELECT *{answers} FROM units LIMIT 0")

    def _added(self, i: int, answers: Mapping[str, str]) -> str:
        """Return SQL for what a unit adds to a sum with these answers."""
        if not self._query.sums:
            return "0.0"
        value = f"m * ({with_answers(self._query.sums[i], answers)})"
        condition = with_answers(self._query.condition, answers)
        return value if condition == "TRUE" else f"CASE WHEN {condition} THEN {value} ELSE 0.0 END"

    def _expected(self, i: int) -> str:
        """Return SQL for what a unit is expected to add to a sum, 0 where nothing is expected."""
        if self._query.asks_for_keys or any(function.returns is str for function in self._functions):
            return "0.0"
        return _expected(dict(enumerate(self._functions)), lambda answers: self._added(i, answers))

    def _most_added(self, i: int) -> str:
        """Return SQL for the most that the answers of a unit may change a sum, NULL where it is not known."""
        query = self._query
        names = {f"f{j}": function for j, function in enumerate(self._functions)}
        # All answers of a bool are tried. Of others the ends are, where what is between lies between.
        others = {name for name, function in names.items() if function.returns is not bool}
        own, is_open = (query.sums[i] if query.sums else "0.0"), query.asks_for_keys
        is_open = is_open or names_one(query.condition, others) or names_one(own, others)
        if is_open:
            counted = of_counted(own, others)
            open_ends = {name for name in others if names[name].ends is None}
            if counted is None or names_one(counted, open_ends):
                return "NULL::DOUBLE"
            own = counted
        tried = [
            [(name, value) for value in (*(function.ends or ()), "NULL")] for name, function in names.items()
        ]
        if is_open:
            added = [
                f"abs(coalesce(m * ({with_answers(own, dict(chosen))}), 0.0))" for chosen in product(*tried)
            ]
            return f"greatest({', '.join(added)})"
        added = [f"coalesce({self._added(i, dict(chosen))}, 0.0)" for chosen in product(*tried)]
        return f"greatest({', '.join(added)}) - least({', '.join(added)})"

    def _stratum(self) -> str:
        """Return SQL for the name of a unit's stratum, over what is known of it before it is asked."""
        rows, query = self._cursor.rows, self._query
        deciding = rows(
            f"SELECT min(share) FROM (SELECT share FROM sized WHERE share > {2.0 / FIRST_UNITS} "
            f"ORDER BY share DESC LIMIT {_MOST_DECIDING})"
        )[0][0]
        rest = "sized" if deciding is None else f"(SELECT * FROM sized WHERE share < {deciding!r})"
        parts = []
        uneven = rows(f"SELECT sqrt(avg(share * share)) > {_UNEVEN} * avg(share) FROM {rest}")[0][0]
        if uneven:
            parts.append(self._class_of("share", _SIZES, rest))
        if query.keys and not query.asks_for_keys:
            keys = ", ".join(query.keys)
            groups = rows(
                f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM sized LIMIT {_MOST_GROUPS + 1})"
            )
            if 1 < groups[0][0] <= _MOST_GROUPS:
                parts += [f"coalesce(CAST(({key}) AS VARCHAR), '')" for key in query.keys]
        guessed = [i for i, function in enumerate(self._functions) if function.proxy is not None]
        if guessed:
            parts.append(self._class_of(f"g{guessed[0]}", _FEW_GUESSES if parts else _GUESSES, rest))
        name = f"concat_ws('|', {', '.join(parts)})" if parts else "''"
        return name if deciding is None else f"CASE WHEN share >= {deciding!r} THEN ' ' ELSE {name} END"

    def _class_of(self, column: str, shares: Sequence[float], table: str) -> str:
        """Return SQL for the number of a column's quantiles that a unit is above."""
        listed = ", ".join(map(str, shares))
        ends = self._cursor.rows(f"SELECT quantile_disc({column}, [{listed}]) FROM {table}")[0][0] or []
        return " + ".join(f"({column} > {float(end)!r})::INT" for end in dict.fromkeys(ends)) or "0"

    def _make_groups(self) -> None:
        """Make the table of groups, with what is expected of each, and of what its units may add."""
        keys, each = self._keys(), range(self._width)
        by = f"GROUP BY {', '.join(self._query.keys)}" if self._query.keys else ""
        expected = ", ".join(f"sum(p{i}) AS p{i}" for i in each)
        self._cursor.run(
            f"CREATE TEMP TABLE groups AS SELECT *, {self._number()} AS gid "
            f"FROM (SELECT {keys}{expected} FROM units {by})"
        )
        most = ", ".join(f"max(d{i}) AS d{i}" for i in each)
        self._cursor.run(f"CREATE TEMP TABLE moves AS SELECT {keys}h, {most} FROM units GROUP BY ALL")

    def _keys(self) -> str:
        return "".join(f"{key} AS k{i}, " for i, key in enumerate(self._query.keys))

    def _number(self) -> str:
        names = ", ".join(self._key_names)
        return f"row_number() OVER (ORDER BY {names}) - 1" if names else "0"

    @property
    def _key_names(self) -> list[str]:
        return [f"k{i}" for i in range(len(self._query.keys))]

    # Then they are asked.

    def next_questions(self, count: int) -> list[pa.Table]:
        """Return the arguments of each call, for so many units or all that are left."""
        units = self._strata.units
        few = np.minimum(units, _FIRST_OF_EACH) if not self.asked else np.zeros_like(units)
        few = few if few.sum() <= count else np.zeros_like(units)
        counted = Strata(units, self._strata.asked + few)
        self._new = few.astype(np.int64) + shares_of_calls(self._importance, counted, count - int(few.sum()))
        return [
            self._cursor.table(f"SELECT {', '.join(call.arguments)} FROM ({self._new_units()}) ORDER BY h, r")
            for call in self._query.calls
        ]

    def _new_units(self) -> str:
        ranges = [
            f"(h = {h} AND r >= {int(before)} AND r < {int(before) + int(more)})"
            for h, (before, more) in enumerate(zip(self._strata.asked, self._new, strict=True))
            if more
        ]
        return f"SELECT * FROM units WHERE {' OR '.join(ranges) or 'FALSE'}"

    def take(self, answers: Sequence[Sequence[object]]) -> None:
        """Take the answers to the newest questions, one list a call."""
        columns = {
            f"f{i}": pa.array(list(values), _ARROW[function.returns])
            for i, (values, function) in enumerate(zip(answers, self._functions, strict=True))
        }
        given = pa.table({"i": pa.array(range(len(answers[0])), pa.int64()), **columns})
        names = ", ".join(f"given.{name}" for name in columns)
        with self._cursor.registered(given=given):
            self._cursor.run(
                f"INSERT INTO labelled SELECT new.* EXCLUDE (i), {names} FROM "
                f"(SELECT *, row_number() OVER (ORDER BY h, r) - 1 AS i FROM ({self._new_units()})) AS new "
                "JOIN given USING (i)"
            )
        self._strata = Strata(self._strata.units, self._strata.asked + self._new)

    def exact(self) -> pa.Table:
        """Return the query's answer, once all units were asked."""
        joins = []
        for i, call in enumerate(self._query.calls):
            names = ", ".join(call.arguments)
            self._cursor.run(
                f"CREATE OR REPLACE TEMP TABLE answers{i} AS "
                f"SELECT {names}, any_value(f{i}) AS f{i} FROM labelled GROUP BY {names}"
            )
            joins.append(f"JOIN answers{i} ON {_same(FRAME, f'answers{i}', call.arguments)}")
        answers = ", ".join(f"answers{i}.f{i}" for i in range(len(joins)))
        self._cursor.run(
            f"CREATE OR REPLACE TEMP VIEW {ROWS} AS "
            f"SELECT {FRAME}.*, {answers} FROM {FRAME} {' '.join(joins)}"
        )
        return self._cursor.table(self._query.answer_sql)

    # And what was answered says something of all.

    def estimate(self, request: IntervalRequest) -> Estimate:
        """Return the answer so far."""
        groups, sample, expected = self._sums()
        totals = estimated_totals(sample, self._strata, expected)
        moves = self._moves_of(len(expected))
        self._weigh(totals, sample, moves)
        most = self._most_moves(moves, len(expected))
        widened = with_unmet_units(totals, most)
        values, gradient, is_settled = self._evaluated(groups, widened)
        rows = np.zeros(len(values))
        np.add.at(rows, sample.group, sample.counts)
        point, shown = self._shown(groups, totals.values, rows)
        cells = self._cells(values, gradient, totals, widened, sample, rows, most, request, shown)
        return present_estimate(
            self._plan,
            point,
            cells,
            {},
            fraction=self._strata.fraction,
            unseen_groups=None if self._query.asks_for_keys else 0,
            certain_rows=is_settled[shown],
            rows_are_settled=bool(is_settled.all()),
            warnings=(),
            group_rows=rows[shown],
        )

    def _sums(self) -> tuple[pa.Table, SampledSums, FloatArray]:
        """Return the groups, sums over the units that were asked, and what is expected."""
        query, run, width = self._query, self._cursor.run, self._width
        whole = {f"f{i}": f"f{i}" for i in range(len(self._functions))}
        values = [self._added(i, whole) for i in range(width)] + [f"p{i}" for i in range(width)]
        named = ", ".join(f"{each} AS z{i}" for i, each in enumerate(values))
        run(
            f"CREATE OR REPLACE TEMP TABLE seen AS SELECT {self._keys()}h, {named}, "
            f"coalesce(({query.condition}), FALSE) AS counted FROM labelled"
        )
        if query.asks_for_keys:
            zeros = ", ".join(f"0.0 AS p{i}" for i in range(width))
            run(
                f"CREATE OR REPLACE TEMP TABLE groups AS SELECT *, {self._number()} AS gid "
                f"FROM (SELECT DISTINCT {', '.join(self._key_names)}, {zeros} FROM seen WHERE counted)"
            )
        pairs = [(i, j) for i in range(2 * width) for j in range(i, 2 * width)]
        sums = [f"sum(z{i})" for i in range(2 * width)] + [f"sum(z{i} * z{j})" for i, j in pairs]
        same = _same("seen", "groups", self._key_names)
        found = self._cursor.table(
            f"SELECT gid, h, count_if(counted), {', '.join(sums)} FROM seen JOIN groups ON {same} "
            "GROUP BY gid, h ORDER BY gid, h"
        )
        columns = [doubles(column) for column in found.columns]
        products = np.zeros((found.num_rows, 2 * width, 2 * width))
        for (i, j), column in zip(pairs, columns[3 + 2 * width :], strict=True):
            products[:, i, j] = products[:, j, i] = column
        group, stratum = (column.astype(np.int64) for column in columns[:2])
        own = np.stack(columns[3 : 3 + 2 * width], axis=1)
        groups = self._cursor.table("SELECT * FROM groups ORDER BY gid")
        expected = np.stack([doubles(groups.column(f"p{i}")) for i in range(width)], axis=1)
        sample = SampledSums(group, stratum, own, products, columns[2])
        return groups, sample, expected

    def _moves_of(self, groups: int) -> _Moves:
        """Return what one unit may add to the sums of a group, in each stratum that it has units in."""
        if self._query.asks_for_keys:  # any unit may be of any group
            group, stratum = np.divmod(np.arange(groups * len(self._most)), len(self._most))
            return group, stratum, self._most[stratum]
        names = ", ".join(f"d{i}" for i in range(self._width))
        same = _same("moves", "groups", self._key_names)
        found = self._cursor.table(f"SELECT gid, h, {names} FROM moves JOIN groups ON {same}")
        gid, h, *added = (doubles(column) for column in found.columns)
        return gid.astype(np.int64), h.astype(np.int64), np.stack(added, axis=1)

    def _most_moves(self, moves: _Moves, groups: int) -> FloatArray:
        """Return how far one unit that was not asked may move each total, shape (G, sums). NaN: not known."""
        group, stratum, added = moves
        is_open = self._strata.asked < self._strata.units
        weights = np.where(is_open, np.where(self._strata.asked > 0, self._strata.weights, np.inf), 0.0)
        most = np.zeros((groups, self._width))
        with np.errstate(invalid="ignore"):  # NaN is not known, and stays
            np.maximum.at(most, group, _times(weights[stratum, None], added))
        return most

    def _weigh(self, totals: Totals, sample: SampledSums, moves: _Moves) -> None:
        """Note what it is worth to ask in each stratum: Neyman's units times standard deviation.

        Deviations are relative to the totals they are of, so that small groups count as much as large ones.
        In each stratum a group has the deviation as if one more unit had been met, as in `with_unmet_units`.
        """
        strata, size = self._strata, np.abs(totals.values)
        size = np.where(size > 0.0, size, size.max(axis=0, initial=0.0))
        square = np.divide(1.0, size**2, out=np.zeros_like(size), where=size > 0.0)
        asked, units = strata.asked[sample.stratum], strata.units[sample.stratum]
        of_total = np.diagonal(totals.by_stratum, axis1=1, axis2=2) * square[sample.group]
        of_unit = of_total.sum(axis=1) * asked / np.maximum(1.0 - asked / units, 1e-9)
        worth = np.zeros(len(strata.units))
        np.add.at(worth, sample.stratum, np.nan_to_num(of_unit, posinf=0.0))
        group, stratum, added = moves
        unmet = np.nan_to_num(added**2 * square[group], posinf=0.0).sum(axis=1)
        np.add.at(worth, stratum, (strata.units**2 / (strata.asked + 1.0))[stratum] * unmet)
        self._importance = np.sqrt(worth)

    def _evaluated(self, groups: pa.Table, totals: Totals) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return the estimated outputs of all groups, their gradient by the sums, and what is settled.

        Derivatives are differences over a standard error. A group is settled where HAVING says the same of it
        two standard errors away, and no LIMIT leaves groups out.
        """
        count = len(totals.values)
        step = np.sqrt(np.maximum(np.diagonal(totals.covariance, axis1=1, axis2=2), 0.0))
        step = np.where(np.isfinite(step), step, np.abs(totals.values) + 1.0)
        variants = [totals.values]
        for k in range(self._width):
            for side in (0.5, -0.5, 2.0, -2.0):
                moved = totals.values.copy()
                moved[:, k] += side * step[:, k]
                variants.append(moved)
        outputs = [f"TRY_CAST(({each.sql}) AS DOUBLE)" for each in self._query.outputs if not each.is_key]
        keys = groups.select(self._key_names)
        tables = [_with_sums(keys, each, i * count) for i, each in enumerate(variants)]
        with self._cursor.registered(**{SUMS: pa.concat_tables(tables)}):
            found = self._cursor.table(
                f"SELECT coalesce(({self._query.having}), FALSE)::INT AS shown, {', '.join(outputs)} "
                f"FROM {SUMS} ORDER BY gid"
            )
        having, *columns = (doubles(column).reshape(len(variants), count) for column in found.columns)
        numbers = np.stack(columns, axis=2) if columns else np.empty((len(variants), count, 0))
        rise = numbers[1::4] - numbers[2::4]  # (sums, groups, outputs)
        run = step.T[:, :, None]
        gradient = np.divide(rise, run, out=np.zeros_like(rise), where=run > 0.0).transpose(1, 2, 0)
        is_settled = (having == having[0]).all(axis=0) & (not self._query.cuts)
        return numbers[0], gradient, is_settled

    def _shown(self, groups: pa.Table, values: FloatArray, rows: FloatArray) -> tuple[pa.Table, IntArray]:
        """Return the query's own columns of the groups that are shown, in its order, and these groups."""
        query = self._query
        table = _with_sums(groups.select(self._key_names), values)
        table = table.append_column("met", pa.array(rows > 0.0))
        columns = ", ".join(
            f"CAST({_rounded(each.sql, each.type)} AS {each.type}) AS o{i}"
            for i, each in enumerate(query.outputs)
        )
        is_met = "met AND " if query.is_grouped else ""
        with self._cursor.registered(**{SUMS: table}):
            found = self._cursor.table(
                f"SELECT {columns}, gid FROM {SUMS} WHERE {is_met}({query.having}) {query.order}"
            )
        return found.drop_columns(["gid"]), doubles(found.column("gid")).astype(np.int64)

    def _cells(
        self,
        values: FloatArray,
        gradient: FloatArray,
        totals: Totals,
        widened: Totals,
        sample: SampledSums,
        rows: FloatArray,
        most: FloatArray,
        request: IntervalRequest,
        shown: IntArray,
    ) -> CellIntervals:
        """Return Student's intervals of the groups that are shown, by the gradient of each output."""
        variance = np.einsum("gck,gkl,gcl->gc", gradient, widened.covariance, gradient)
        freedom = np.maximum(degrees_of_freedom(gradient, totals, sample, self._strata), 1.0)
        moved = _times(np.abs(gradient), most[:, None, :]).sum(axis=2)
        fraction = self._strata.fraction
        each = request.of_each(len(shown) * values.shape[1])
        level = Level.of(each.confidence, anytime=each.anytime, fraction=fraction)
        low, high = student_interval(values, variance, freedom, level)
        doubt = np.full(values.shape, int(Reason.NONE))
        doubt[np.isnan(moved)] = Reason.UNBOUNDED
        doubt[~(np.isfinite(values) & np.isfinite(variance))] = Reason.NO_NUMBER
        doubt[rows < MIN_ROWS] = Reason.FEW_ROWS
        is_known = (moved == 0.0) & (variance == 0.0) & np.isfinite(values)
        cells = CellIntervals(values, low, high, doubt, np.sqrt(variance)).or_known(is_known)
        shown_cells = CellIntervals(
            cells.value[shown],
            cells.low[shown],
            cells.high[shown],
            cells.doubt[shown],
            cells.standard_error[shown],
        )
        self._cut_at_what_was_seen(shown_cells, sample, shown, len(values))
        return shown_cells

    def _cut_at_what_was_seen(
        self, cells: CellIntervals, sample: SampledSums, shown: IntArray, groups: int
    ) -> None:
        """Let no interval of a count begin below what was counted already."""
        estimated = [each for each in self._query.outputs if not each.is_key]
        for column, output in enumerate(estimated):
            if output.total is not None:
                seen = np.zeros(groups)
                np.add.at(seen, sample.group, sample.sums[:, output.total])
                cells.within(column, seen[shown], np.full(len(shown), np.inf))


class ListedRows(_Questions):
    """The rows that a query may list, and those that were asked.

    Rows are asked in the order of the answer. Where any order is right, those come first that are most likely
    listed by what is guessed of them. So the first rows that are found are the answer, and the others need no
    call. Where answers decide about the order, all rows are asked.

        SELECT id, topic(text) FROM reviews WHERE complains(text) ORDER BY paid DESC LIMIT 20

    It asks `complains` of the rows from the highest payment on until 20 hold, and `topic` of these 20.

    Args beside those of `_Questions`:
        frame: the rows that may be listed, in any order.
        seed: of the order of rows that are equally likely, or equal in ORDER BY.
    """

    def __init__(
        self,
        plan: CostlyPlan,
        functions: Mapping[str, Registered],
        cursor: Cursor,
        frame: pa.Table,
        seed: int,
    ) -> None:
        assert plan.query.rows is not None
        super().__init__(plan, functions, cursor)
        self._rows = plan.query.rows
        self._batch = min(function.batch for function in self._functions)
        self.first_count, self.count, self.asked = FIRST_UNITS, int(frame.num_rows), 0
        self._is_deciding = [call.answer in self._rows.deciding for call in plan.query.calls]
        self._first_other = f"answers{[*self._is_deciding, False].index(False)}"  # of SELECT alone
        with cursor.registered(given=frame):
            cursor.run("CREATE TEMP TABLE given_rows AS SELECT * FROM given")
        make_guesses(cursor, self._query, self._functions, "given_rows")
        order = self._order(frame.column_names, seed)
        cursor.run(
            f"CREATE TEMP TABLE {FRAME} AS SELECT *, row_number() OVER (ORDER BY {order}) - 1 AS r "
            "FROM guessed"
        )
        for i, function in enumerate(self._functions):
            cursor.run(f"CREATE TEMP TABLE answers{i} (r BIGINT, f{i} {function.type})")
        self._find()

    def _order(self, columns: Sequence[str], seed: int) -> str:
        """Return SQL for the order in which rows are asked."""
        mixed = f"hash(xor(hash({', '.join(columns)}), hash({int(seed)})))"
        if self._rows.order and not self._rows.is_ordered_by_answers:
            return f"{self._rows.order}, {mixed}"
        condition = self._query.condition
        named = {i: f for i, f in enumerate(self._functions) if names_one(condition, [f"f{i}"])}
        if not named or len(named) > _MOST_GUESSED or any(each.returns is str for each in named.values()):
            return mixed
        likely = _expected(
            named, lambda answers: f"CASE WHEN {with_answers(condition, answers)} THEN 1.0 ELSE 0.0 END"
        )
        return f"{likely} DESC, {mixed}"

    @property
    def _is_decided(self) -> bool:
        """Whether no more rows need to be asked to know which are listed."""
        most = self._rows.most
        if self.asked == self.count or not any(self._is_deciding):
            return True
        return most is not None and not self._rows.is_ordered_by_answers and self._found >= most

    @property
    def is_complete(self) -> bool:
        """Whether the exact answer is known."""
        return self._is_decided and not self._unanswered

    def _find(self) -> None:
        """Find the rows that are listed by the answers so far, and how many of them lack one of SELECT."""
        self._unanswered = self._answered = 0
        order = self._rows.order if self._rows.is_ordered_by_answers else "r"
        limit = "" if self._rows.most is None else f"LIMIT {self._rows.most}"
        known = f"SELECT {FRAME}.*{self._answers(deciding=True)}"
        self._cursor.run(
            f"CREATE OR REPLACE TEMP TABLE found AS SELECT r FROM ({known}) "
            f"WHERE {self._query.condition} ORDER BY {order} {limit}"
        )
        self._found = int(self._cursor.rows("SELECT count(*) FROM found")[0][0])
        if not all(self._is_deciding) and (self._is_decided or not self._rows.is_ordered_by_answers):
            (answered,) = self._cursor.rows(f"SELECT count(*) FROM found JOIN {self._first_other} USING (r)")[
                0
            ]
            self._answered = int(answered)
            self._unanswered = self._found - self._answered

    @property
    def _fraction(self) -> float:
        """The share of the answers that was asked for, if no row more is found."""
        total = self.count * any(self._is_deciding) + self._found * (not all(self._is_deciding))
        return (self.asked + self._answered) / max(total, 1)

    def _answers(self, *, deciding: bool) -> str:
        """Return SQL for the answers, and the rows that have them: those that decide, or all."""
        chosen = [i for i, decides in enumerate(self._is_deciding) if decides or not deciding]
        names = "".join(f", answers{i}.f{i}" for i in chosen)
        return f"{names} FROM {FRAME} " + " ".join(f"JOIN answers{i} USING (r)" for i in chosen)

    def next_questions(self, count: int) -> list[pa.Table]:
        """Return the arguments of each call: for so many rows more, and for those that are listed."""
        more = 0 if self._is_decided else min(count, self.count - self.asked, self._likely_enough)
        others = "SELECT r FROM found LIMIT 0"
        if self._unanswered:
            others = f"SELECT r FROM found ANTI JOIN {self._first_other} USING (r) ORDER BY r LIMIT {count}"
        numbers = f"SELECT r FROM range({self.asked}, {self.asked + more}) AS numbers (r)"
        for name, rows in (("deciding", numbers), ("others", others)):
            self._cursor.run(f"CREATE OR REPLACE TEMP TABLE {name} AS {rows}")
        self.asked += more
        return [
            self._cursor.table(
                f"SELECT {', '.join(call.arguments)} FROM {FRAME} JOIN {self._next(i)} USING (r) ORDER BY r"
            )
            for i, call in enumerate(self._query.calls)
        ]

    @property
    def _likely_enough(self) -> int:
        """How many rows more are likely enough, as many as were found of those asked: whole batches."""
        if self._rows.most is None or self._rows.is_ordered_by_answers:
            return self.count
        missing = self._rows.most - self._found
        rows = missing * (self.asked + 1) / (self._found + 1) if self.asked else missing
        return int(self._batch * math.ceil(rows / self._batch))

    def _next(self, i: int) -> str:
        return "deciding" if self._is_deciding[i] else "others"

    def take(self, answers: Sequence[Sequence[object]]) -> None:
        """Take the answers to the newest questions, one list a call."""
        for i, (values, function) in enumerate(zip(answers, self._functions, strict=True)):
            numbers = self._cursor.table(f"SELECT r FROM {self._next(i)} ORDER BY r")
            given = numbers.append_column(f"f{i}", pa.array(list(values), _ARROW[function.returns]))
            with self._cursor.registered(given=given):
                self._cursor.run(f"INSERT INTO answers{i} SELECT * FROM given")
        self._find()

    def exact(self) -> pa.Table:
        """Return the query's answer over the rows that were found and have all answers."""
        self._cursor.run(
            f"CREATE OR REPLACE TEMP VIEW {ROWS} AS SELECT {FRAME}.*{self._answers(deciding=False)} "
            f"SEMI JOIN found USING (r)"
        )
        return self._cursor.table(self._query.answer_sql)

    def estimate(self, request: IntervalRequest) -> Estimate:
        """Return the rows found so far. They are certain unless an answer that is not known may move them."""
        del request
        found = self.exact()
        is_certain = not self._rows.is_ordered_by_answers and " OFFSET " not in self._query.answer_sql
        nothing = np.empty((found.num_rows, 0))
        return present_estimate(
            self._plan,
            found,
            CellIntervals(nothing, nothing, nothing, nothing.astype(np.int64), nothing),
            {},
            fraction=self._fraction,
            unseen_groups=None,
            certain_rows=np.full(found.num_rows, is_certain),
            rows_are_settled=False,
            warnings=(),
        )


def make_guesses(cursor: Cursor, query: CostlyQuery, functions: Sequence[CostlyFunction], table: str) -> None:
    """Make the table `guessed` of another one, with a column for what is guessed of each answer."""
    guesses = [_guess(cursor, functions[i], call, i, table) for i, call in enumerate(query.calls)]
    guessed = "".join(f", {sql} AS g{i}" for i, (sql, _) in enumerate(guesses))
    joins = " ".join(join for _, join in guesses)
    cursor.run(f"CREATE TEMP TABLE guessed AS SELECT {table}.*{guessed} FROM {table} {joins}")


def _guess(cursor: Cursor, function: CostlyFunction, call: CostlyCall, i: int, table: str) -> tuple[str, str]:
    """Return SQL for what is guessed of an answer, and the join that it needs.

    Without a proxy a yes is as likely as a no, and a number is 1. What is expected of a sum is then in
    proportion to what a unit adds to it, and the slope λ makes that a ratio.
    """
    proxy, join = function.proxy, ""
    if proxy is None:
        return ("0.5" if function.returns is bool else "1.0"), ""
    if isinstance(proxy, str):
        given = [f"{table}.{argument}" for argument in call.arguments]
        names = dict(zip(function.parameters, given, strict=False))
        sql = with_answers(proxy, names)
    else:
        rows = cursor.table(f"SELECT DISTINCT {', '.join(call.arguments)} FROM {table}")
        guesses = proxy(*(column.combine_chunks() for column in rows.columns))
        guessed = rows.append_column(f"guess{i}", pa.array([float(g) for g in guesses], pa.float64()))
        with cursor.registered(given=guessed):
            cursor.run(f"CREATE TEMP TABLE proxy{i} AS SELECT * FROM given")
        sql, join = f"guess{i}", f"JOIN proxy{i} ON {_same(table, f'proxy{i}', call.arguments)}"
    sql = f"CAST(({sql}) AS DOUBLE)"
    sql = f"CASE WHEN isfinite({sql}) THEN {sql} ELSE 0.0 END"
    return (f"greatest(0.0, least(1.0, {sql}))" if function.returns is bool else sql), join


def _expected(functions: Mapping[int, CostlyFunction], value: Callable[[Mapping[str, str]], str]) -> str:
    """Return SQL for what a value is expected to be by the guesses of the answers that it is made of."""
    choices = [
        [(f"f{j}", "TRUE", f"g{j}"), (f"f{j}", "FALSE", f"(1.0 - g{j})")]
        if function.returns is bool
        else [(f"f{j}", f"g{j}", "1.0")]
        for j, function in functions.items()
    ]
    return " + ".join(
        f"({' * '.join(chance for *_, chance in chosen)})"
        f" * ({value({name: value for name, value, _ in chosen})})"
        for chosen in product(*choices)
    )


def _same(left: str, right: str, names: Sequence[str]) -> str:
    """Return SQL that joins by columns of these names, NULL like NULL."""
    return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in names) or "TRUE"


def _rounded(sql: str, type_: str) -> str:
    is_whole = type_.endswith(("INT", "INTEGER", ",0)"))
    return f"round({sql})" if is_whole and "b" in sql else f"({sql})"


def _with_sums(keys: pa.Table, values: FloatArray, first: int = 0) -> pa.Table:
    """Return groups with keys and sums as SQL over sums names them, numbered from `first` on."""
    columns = {"gid": pa.array(range(first, first + len(values)), pa.int64())}
    columns |= dict(zip(keys.column_names, keys.columns, strict=True))
    columns |= {f"b{k}": pa.array(values[:, k]) for k in range(values.shape[1])}
    return pa.table(columns)


def _times(weights: FloatArray, most: FloatArray) -> FloatArray:
    """Return the products, 0 where either is 0, NaN where one is not known."""
    with np.errstate(invalid="ignore"):
        return np.where((weights == 0.0) | (most == 0.0), 0.0, weights * most)

"""The SELECT of a case, in parts that can be left out one by one.

Everything is drawn from the case's own random numbers, so that a case is the same in every run. What DuckDB
refuses is refused by both, which costs a case: the shapes below are those that it mostly answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.grid.dimensions import Case
from benchmarks.grid.worlds import NOT_KEPT, RARE, odd_values, usual_value

SUMMED = (
    *("tinyint", "integer", "bigint", "hugeint", "ubigint", "decimal", "decimal38", "float", "double"),
    *("utinyint", "smallint", "uinteger", "uhugeint"),
)
DAYS = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamp_s", "timestamp_ms")


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT.

    Attributes:
        before: what stands in WITH, in front of it.
        is_recursive: whether WITH is RECURSIVE.
        distinct: DISTINCT, DISTINCT ON (…) or "".
        keys: columns of the answer that are grouped by.
        items: its other columns.
        source: the first of FROM.
        joins: what follows it.
        where: conditions.
        group: what follows GROUP BY, {} stands for the keys.
        having: conditions.
        qualify: a condition.
        order: what follows ORDER BY.
        limit: LIMIT and OFFSET.
        other: the second operand of a set operation.
        operation: its word: UNION, EXCEPT ALL.
        around: SQL around the statement, which is {}.
        params: values of its parameters, by their names.
        is_loose: whether an aggregate takes any row, in no order: only keys and counts of rows are compared.
    """

    source: str
    keys: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    is_recursive: bool = False
    distinct: str = ""
    joins: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    group: str = ""
    having: tuple[str, ...] = ()
    qualify: str = ""
    order: str = ""
    limit: str = ""
    operation: str = ""
    other: Statement | None = None
    around: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    is_loose: bool = False

    @property
    def sql(self) -> str:
        names = [f"{sql} AS k{place}" for place, sql in enumerate(self.keys)]
        columns = [
            *names,
            *(f"{sql} AS v{place}" if not sql.endswith("*") else sql for place, sql in enumerate(self.items)),
        ]
        text = f"SELECT {self.distinct} {', '.join(columns) or '1 AS one'} FROM {self.source}"
        text += "".join(f" {join}" for join in self.joins)
        if self.where:
            text += f" WHERE {' AND '.join(self.where)}"
        if self.group and self.keys:
            text += f" GROUP BY {self.group.replace('{}', ', '.join(self.keys))}"
        if self.having:
            text += f" HAVING {' AND '.join(self.having)}"
        if self.qualify:
            text += f" QUALIFY {self.qualify}"
        if self.order:
            text += f" ORDER BY {self.order}"
        text += f" {self.limit}"
        if self.other is not None:
            text = f"({text.strip()}) {self.operation} ({self.other.sql})"
        text = self.around.replace("{}", text.strip()) if self.around else text
        if self.before:
            text = f"WITH {'RECURSIVE ' * self.is_recursive}{', '.join(self.before)} {text}"
        return " ".join(text.split(" ")).replace("SELECT  ", "SELECT ").strip()

    @property
    def compares_rows(self) -> bool:
        """Whether rows that were computed apart are compared, floats to the last digit."""
        return self.other is not None and self.operation != "UNION ALL"

    @property
    def is_ordered(self) -> bool:
        """Whether its answer has an order."""
        return bool(self.order) and not self.around and self.other is None

    def smaller(self) -> Iterator[Statement]:
        """Yield statements with one part less, large parts first."""
        if self.other is not None:
            yield replace(self, other=None)
            yield replace(self.other, before=self.before, params=self.params, is_loose=self.is_loose)
            for other in self.other.smaller():
                yield replace(self, other=other)
        for name in ("around", "limit", "order", "qualify", "distinct"):
            if getattr(self, name):
                yield _with(self, {name: ""})
        if self.group not in ("", "{}"):
            yield replace(self, group="{}")
        for name in ("before", "joins", "having", "where", "items", "keys"):
            parts = getattr(self, name)
            if len(parts) > 1:
                yield _with(self, {name: ()})
            for place in range(len(parts)):
                yield _with(self, {name: (*parts[:place], *parts[place + 1 :])})
        for place, item in enumerate(self.items):
            for simpler in _simpler(item):
                yield replace(self, items=(*self.items[:place], simpler, *self.items[place + 1 :]))

    def names(self) -> set[str]:
        """Return the tables that it reads, and "d" if it may."""
        import re

        return set(re.findall(r"\b[tu]_[a-z]+\b", self.sql)) | set(re.findall(r"\bd\b", self.sql))

    def types(self) -> tuple[str, ...]:
        import re

        return tuple(sorted(set(re.findall(r"\bx_(\w+)", self.sql))))


def _simpler(item: str) -> Iterator[str]:
    for ending in (" FILTER (WHERE", " OVER ("):
        if ending in item:
            yield item[: item.index(ending)]
    if "DISTINCT " in item:
        yield item.replace("DISTINCT ", "")
    if item.startswith("(SELECT"):
        yield "1"


class Writer:
    """Writes the statement of one case. rows: of the main table, for values that occur."""

    def __init__(self, case: Case, seed: int, number: int, second: str = "") -> None:
        self.case = case
        self.random = random.Random(f"{seed}:{number}")
        self.t, self.u = f"t_{case['table']}", f"u_{second or case['second']}"
        self.kind = case["type"] if case["type"] != "rare" else self.random.choice(RARE)
        self.is_loose = False
        self.params: dict[str, Any] = {}

    def written(self) -> Statement:
        base = self._joined()
        base = replace(base, where=(*base.where, *self._predicates()))
        base = self._grouped(base)
        base = self._with_subquery(base)
        base = self._tail(base)
        base = self._around(base)
        return replace(base, params=self.params, is_loose=self.is_loose)

    # Columns

    def _pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def value_of(self, alias: str, table: str) -> str:
        """Return the column of the case's type, or an expression of that type where the table has none."""
        if self.kind in NOT_KEPT.get(table.split("_", 1)[1], ()):
            return usual_value(self.kind, f"{alias}.n")
        return f"{alias}.x_{self.kind}"

    def _literal(self) -> str:
        odd = odd_values(self.kind, self.case["odd"]) if self.random.random() < 0.3 else ()
        return self.random.choice(odd) if odd else usual_value(self.kind, str(self.random.randrange(40)))

    def _number(self) -> str:
        """Return a numeric expression of the value."""
        x = self.x
        if self.kind in SUMMED:
            return x
        if self.kind in ("text", "blob", "list", "bit"):
            return f"octet_length({x})" if self.kind in ("blob", "bit") else f"length({x})"
        if self.kind == "bool":
            return f"CAST({x} AS INTEGER)"
        if self.kind == "struct":
            return f"{x}.a"
        if self.kind == "map":
            return f"{x}['k']"
        if self.kind == "array":
            return f"{x}[1]"
        if self.kind in DAYS:
            return f"day(CAST({x} AS TIMESTAMP))"
        if self.kind == "interval":
            return f"epoch({x})"
        return f"CASE WHEN {x} IS NOT NULL THEN a.n END"

    # FROM

    def _joined(self) -> Statement:
        t, u, join = self.t, self.u, self.case["join"]
        self.a, self.b, self.x = "a", "", self.value_of("a", t)
        on = self._pick(
            "a.k = b.k", "a.k = b.k", "a.k = b.k AND a.h = b.h", f"{self.x} = {self.value_of('b', u)}"
        )
        if self.kind in ("bool", "enum") or self.case["odd"] == "ends":
            on = "a.k = b.k"  # few values would make many pairs
        two = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
        if join in two:
            self._sees_b()
            return Statement(f"{t} AS a", joins=(f"{two[join]} {u} AS b ON {on}",))
        if join in ("semi", "anti"):
            return Statement(f"{t} AS a", joins=(f"{join.upper()} JOIN {u} AS b ON {on}",))
        if join == "cross":
            return Statement(f"{t} AS a", joins=("CROSS JOIN d",))
        if join == "asof":
            self._sees_b()
            kind = self._pick("ASOF JOIN", "ASOF LEFT JOIN")
            return Statement(f"{t} AS a", joins=(f"{kind} {u} AS b ON a.g = b.g AND a.id >= b.id",))
        if join == "natural":
            side = self._pick("", "LEFT ", "FULL ")
            return Statement(f"{t} AS a", joins=(f"NATURAL {side}JOIN (SELECT k, n + 1 AS m FROM {u}) AS b",))
        if join == "using":
            side = self._pick("", "LEFT ", "RIGHT ", "FULL ")
            self._sees_b()
            return Statement(f"{t} AS a", joins=(f"{side}JOIN {u} AS b USING ({self._pick('k', 'k, h')})",))
        if join == "brackets":
            side, inner = self._pick("", "LEFT ", "RIGHT ", "FULL "), self._pick("", "LEFT ", "RIGHT ")
            third = self._pick("d AS c ON b.g = c.g", f"{t} AS c ON b.id = c.id")
            self._sees_b()
            return Statement(f"{t} AS a", joins=(f"{side}JOIN ({u} AS b {inner}JOIN {third}) ON a.k = b.k",))
        if join == "self":
            side = self._pick("", "LEFT ", "SEMI ", "FULL ")
            return Statement(
                f"{t} AS a",
                joins=(f"{side}JOIN {t} AS b ON {self._pick('a.id = b.id', 'a.k = b.k', 'a.id = b.n')}",),
            )
        if join == "comma":
            self._sees_b()
            return Statement(f"{t} AS a, {u} AS b", where=("a.k = b.k",))
        if join == "derived":
            return Statement(f"(SELECT * FROM {t} WHERE n > {self.random.randrange(5)}) AS a")
        if join == "cte":
            hint = self._pick("", "MATERIALIZED ", "NOT MATERIALIZED ")
            return Statement("c AS a", before=(f"c AS {hint}(SELECT * FROM {t})",))
        if join == "lateral":
            inner = self._pick("b.k = a.k", "b.g = a.g AND b.n < 3", "b.id = a.id")
            what = self._pick("max(b.n) AS m", "count(*) AS m", "sum(b.r) AS m")
            side = self._pick("CROSS JOIN LATERAL", "LEFT JOIN LATERAL")
            ending = " ON true" if side.startswith("LEFT") else ""
            return Statement(
                f"{t} AS a", joins=(f"{side} (SELECT {what} FROM {u} AS b WHERE {inner}) AS b{ending}",)
            )
        if join == "three":
            self._sees_b()
            sides = self._pick("", "LEFT "), self._pick("", "LEFT ", "FULL ")
            return Statement(
                f"{t} AS a", joins=(f"{sides[0]}JOIN {u} AS b ON a.k = b.k", f"{sides[1]}JOIN d ON a.g = d.g")
            )
        return Statement(f"{t} AS a")

    def _sees_b(self) -> None:
        self.b = "b"
        if self.random.random() < 0.25:
            self.x = self.value_of("b", self.u)

    # WHERE

    def _predicates(self) -> tuple[str, ...]:
        x, predicate = self.x, self.case["predicate"]
        sign = self._pick("<", "<=", ">", ">=", "=", "<>")
        among = ", ".join({self._literal() for _ in range(4)})
        low = self.random.randrange(20)
        first, last = usual_value(self.kind, str(low)), usual_value(self.kind, str(low + 15))
        if predicate == "parameter":
            self.params = {"least": low, "most": low + 15}
            return (self._pick("a.n BETWEEN $least AND $most", "a.n >= $least AND a.n <= $most"),)
        made = {
            "compare": f"{x} {sign} {self._literal()}",
            "null": self._pick(f"{x} IS NULL", f"{x} IS NOT NULL", f"{x} IS DISTINCT FROM {self._literal()}"),
            "among": f"{x} {self._pick('', 'NOT ')}IN ({among})",
            "between": f"{x} BETWEEN {first} AND {last}",
            "either": f"({x} {sign} {self._literal()} OR a.g = 1 OR NOT ({x} = {self._literal()}))",
            "false": self._pick("a.id < 0", "false", "a.n > 1000"),
            "number": self._pick(
                f"a.n % 3 <> {low % 3}", "a.r > 20", "a.k IS NOT NULL", "a.day < DATE '2024-03-10'"
            ),
        }
        return (made[predicate],) if predicate in made else ()

    # GROUP BY and the columns

    def _grouped(self, base: Statement) -> Statement:
        grouping = self.case["grouping"]
        value, expression = (
            self.x,
            self._pick(
                "a.n % 3",
                "a.g + 1",
                "upper(a.h)",
                "a.r > 60",
                "date_trunc('month', a.day)",
                f"{self.x} IS NULL",
            ),
        )
        keys = {
            "none": (),
            "key": (self._pick("a.g", "a.h", "a.k"),),
            "two_keys": ("a.g", "a.h"),
            "expression": (expression,),
            "value": (value,),
            "rollup": ("a.g", "a.h"),
            "cube": (self._pick("a.g", value), "a.h"),
            "sets": ("a.g", "a.h"),
            "rollup_expression": (expression,),
            "all": ("a.g",),
            "distinct": ("a.g", self._pick("a.h", value)),
            "distinct_on": ("a.g",),
        }[grouping]
        groups = {
            "rollup": "ROLLUP ({})",
            "cube": "CUBE ({})",
            "rollup_expression": "ROLLUP ({})",
            "all": "ALL",
        }
        sets = self._pick(
            "GROUPING SETS ((a.g, a.h), (a.g), ())",
            "GROUPING SETS ((a.g), (a.h))",
            "GROUPING SETS ((a.g, a.h), ROLLUP (a.h))",
        )
        group = groups.get(grouping, sets if grouping == "sets" else "{}" if keys else "")
        if grouping == "distinct_on":
            order = self._pick(f"a.g, {self._row}", f"a.g DESC, a.id DESC{', b.id' * bool(self.b)}")
            return replace(base, distinct="DISTINCT ON (a.g)", keys=keys, items=("a.id", value), order=order)
        if self.case["aggregate"] == "none":
            if grouping in ("none", "distinct"):
                self.has_rows = True
                items: tuple[str, ...] = ("a.id", value, "a.n") if grouping == "none" else (value,)
                return replace(base, keys=keys, items=items, distinct="DISTINCT" if keys else "")
            return replace(base, keys=keys, group=group)
        items = self._aggregates()
        if grouping in ("rollup", "cube", "sets") and self.random.random() < 0.5:
            items = (*items, f"grouping({keys[0]})")
        return replace(
            base, keys=keys, items=items, group=group, distinct="DISTINCT" if grouping == "distinct" else ""
        )

    def _aggregates(self) -> tuple[str, ...]:
        name = self.case["aggregate"]
        if name != "several":
            return (self._inside(self._aggregate(name)),)
        names = self.random.sample([*_FAMILIES], self.random.randrange(2, 5))
        return tuple(self._inside(self._aggregate(each)) for each in names)

    def _aggregate(self, family: str) -> str:
        name = self.random.choice(_FAMILIES[family])
        x, n = self.x, self._number()
        if any(
            word in name for word in ("any_value", "arbitrary", "first(", "last(", "reservoir", "approx_q")
        ):
            self.is_loose = True
        if family in ("lists", "arg", "sketch") or name.startswith("mode"):
            self.is_loose = self.is_loose or self.case["inside"] != "order" or family != "lists"
        return name.replace("{x}", x).replace("{n}", n)

    def _inside(self, call: str) -> str:
        """Return a call with what the case has inside: DISTINCT, ORDER BY, FILTER."""
        inside = self.case["inside"]
        name, _, rest = call.partition("(")
        if "distinct" in inside and rest not in ("*)", ")"):
            call = f"{name}(DISTINCT {rest}"
        if inside == "order" and rest not in ("*)", ")"):
            call = f"{call[:-1]} ORDER BY {self._pick('a.id', 'a.id DESC', 'a.r, a.id')})"
        if "filter" in inside:
            kept = self._pick("a.n > 10", "a.g IS NOT NULL", "a.n > 1000", f"{self.x} IS NOT NULL")
            call += f" FILTER (WHERE {kept})"
        return call

    # Subqueries

    def _with_subquery(self, base: Statement) -> Statement:
        kind, place, u = self.case["subquery"], self.case["place"], self.u
        if kind == "none":
            return base
        is_grouped = bool(base.group) or self.case["aggregate"] != "none"
        within = place in ("select", "having", "group_by") and is_grouped
        # What the outer side may name: a key where rows are grouped, else any column.
        outer = (base.keys[0] if base.keys else "max(a.n)") if within and place != "group_by" else "a.g"
        number = "count(*)" if within and place != "group_by" else "a.n"
        least = self._pick("avg(n)", "max(n)", "count(*)", "median(n)", "min(r)", "sum(n)")
        column = {"a.g": "g", "a.h": "h", "a.k": "k"}.get(outer, "n")
        if outer not in ("a.g", "a.h", "a.k", "max(a.n)"):
            outer, column = ("max(a.n)", "n") if place in ("select", "having") else ("a.g", "g")
        few = self._pick("n > 20", "r < 30", "g = 1", "true")
        scalar = f"(SELECT {least} FROM {u})"
        other, of = self._pick("max(n)", "count(*)"), self._pick(u, self.t)
        no_null = self._pick("", f" AND {column} IS NOT NULL")
        sql = {
            "scalar": scalar,
            "unnamed": f"(SELECT {other} FROM {of} WHERE {few})",
            "exists": f"EXISTS (SELECT 1 FROM {u} AS s WHERE s.{column} = {outer} AND s.{few})".replace(
                "s.true", "true"
            ),
            "not_exists": f"NOT EXISTS (SELECT 1 FROM {u} AS s WHERE s.{column} = {outer} AND s.n > 20)",
            "in": f"{outer} IN (SELECT {column} FROM {u} WHERE {few})",
            "not_in": f"{outer} NOT IN (SELECT {column} FROM {u} WHERE {few}{no_null})",
            "correlated": f"(SELECT {least} FROM {u} AS s WHERE s.{column} = {outer})",
            "correlated_in": f"{number} IN (SELECT s.n FROM {u} AS s WHERE s.{column} = {outer})",
            "any": f"{number} {self._pick('> ALL', '= ANY', '< ANY')} (SELECT n FROM {u} WHERE n > 15)",
        }[kind]
        is_condition = kind not in ("scalar", "unnamed", "correlated")
        condition = sql if is_condition else f"{number} {self._pick('>', '<=', '<>')} {sql}"
        if place == "where":
            return replace(base, where=(*base.where, condition))
        if place == "select" or (place == "having" and not is_grouped):
            return replace(base, items=(*base.items, sql))
        if place == "having":
            return replace(base, having=(condition,))
        key = condition if is_condition or self.random.random() < 0.7 else sql
        group = base.group or "{}"
        if self.case["aggregate"] == "none" and not base.group:
            return replace(base, items=(*base.items, key))
        return replace(base, keys=(*base.keys, key), group=group)

    @property
    def _row(self) -> str:
        """Return what tells joined rows apart."""
        return "a.id, b.id" if self.b else "a.id"

    # Tails, and what is around

    def _tail(self, base: Statement) -> Statement:
        tail = self.case["tail"]
        is_grouped = bool(base.group) or self.case["aggregate"] != "none"
        places = range(1, 1 + len(base.keys) + len(base.items))
        every = (
            base.order
            or ", ".join(f"{place}{self._pick('', ' DESC', ' NULLS FIRST')}" for place in places)
            or "1"
        )
        if tail == "having":
            if not is_grouped:
                return replace(base, order=base.order or every)
            more = self._pick("count(*) > 2", "sum(a.n) > 20", "avg(a.r) > 40", "max(a.id) > 5")
            return replace(base, having=(*base.having, more))
        if tail == "order":
            return replace(base, order=every)
        if tail == "limit":
            return replace(base, order=every, limit=f"LIMIT {self.random.randrange(1, 6)}")
        if tail == "top":
            by = "count(*) DESC, " if is_grouped else ""
            if base.distinct:
                by = ""
            return replace(base, order=f"{by}{every}", limit="LIMIT 3")
        if tail == "offset":
            return replace(
                base,
                order=every,
                limit=f"LIMIT {self.random.randrange(1, 9)} OFFSET {self.random.randrange(4)}",
            )
        return base

    def _around(self, base: Statement) -> Statement:
        around, t, u = self.case["around"], self.t, self.u
        is_grouped = bool(base.group) or self.case["aggregate"] != "none"
        key = base.keys[0] if base.keys else "a.id" if not is_grouped else "count(*)"
        by = "count(*)" if is_grouped else "a.n"
        # What tells rows apart in a window: those that are alike in it may change places.
        row = ", ".join((*base.keys, by)) if is_grouped else self._row
        window = self._pick(
            f"rank() OVER (ORDER BY {by})",
            f"row_number() OVER (ORDER BY {by}, {row})",
            f"sum({by}) OVER (PARTITION BY {key})",
            f"lag({by}) OVER (ORDER BY {by}, {row})",
            f"sum({by}) OVER (ORDER BY {row} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            "count(*) OVER ()",
        )
        if around == "window":
            return replace(base, items=(*base.items, window))
        if around == "window_over":
            over = self._pick(
                "sum(q.v0) OVER ()", "rank() OVER (ORDER BY q.v0)", "count(*) OVER (PARTITION BY q.v0)"
            )
            return replace(base, around=f"SELECT q.*, {over} AS o FROM ({{}}) AS q")
        if around == "qualify":
            return replace(base, qualify=f"{window} {self._pick('<= 2', '> 1', 'IS NOT NULL')}")
        if around in ("union", "union_all", "except", "intersect"):
            return replace(base, operation=around.replace("_", " ").upper(), other=self._other(base))
        if around == "pivot":
            last = f"v{len(base.items) - 1}" if base.items else "k0"
            rows = f"SELECT {last} AS p, 1 AS one FROM ({{}}) AS q"
            return replace(base, around=f"SELECT * FROM (PIVOT ({rows}) ON p IN (1, 2) USING count(*))")
        if around == "unpivot":
            names = [f"CAST(k{i} AS VARCHAR) AS c{i}" for i in range(len(base.keys))]
            names += [f"CAST(v{i} AS VARCHAR) AS c{len(base.keys) + i}" for i in range(len(base.items))]
            columns = ", ".join(f"c{i}" for i in range(len(names)))
            if any(item.endswith("*") for item in base.items) or not names:
                return base
            rows = f"(SELECT {', '.join(names)} FROM ({{}}) AS q)"
            return replace(base, around=f"SELECT * FROM {rows} UNPIVOT (val FOR name IN ({columns}))")
        if around == "recursive":
            least = self._pick("4", f"(SELECT count(*) FROM {u} WHERE id < 4)")
            step = f"s AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM s WHERE i < {least})"
            return replace(
                base,
                before=(*base.before, step),
                is_recursive=True,
                where=(*base.where, "a.n IN (SELECT i FROM s)"),
            )
        if around == "nested":
            call = self._pick("count(*)", "max(q.{})", "count(DISTINCT q.{})", "min(q.{})").replace(
                "{}", "v0" if base.items else "k0"
            )
            return replace(base, around=f"SELECT {call} AS o FROM ({{}}) AS q")
        if around == "with":
            join = self._pick(
                "",
                f" JOIN d ON q.{'k0' if base.keys else 'v0'} = d.g",
                f" CROSS JOIN (SELECT count(*) AS all_rows FROM {t}) AS f",
            )
            return (
                replace(base, around=f"WITH q AS ({{}}) SELECT * FROM q{join}")
                if not base.before
                else replace(base, around=f"SELECT * FROM ({{}}) AS q{join}")
            )
        return base

    def _other(self, base: Statement) -> Statement:
        """Return a SELECT with as many columns, of types that mostly fit."""
        more = self._pick("a.n < 12", "a.n >= 12", "a.id % 2 = 0")
        order = base.order if " ON " in f"{base.distinct} " else ""  # which tells what row each has
        return replace(base, order=order, limit="", having=(), where=(*base.where, more), before=())


_FAMILIES: dict[str, tuple[str, ...]] = {
    "count": ("count(*)", "count({x})", "count()"),
    "sum": (
        "sum({n})", "sum({n})", "fsum({n})", "kahan_sum({n})", "product(a.r)", "sum({n} * 2)",
        "sum(a.w)", "count_if({n} > 3)",
    ),
    "average": ("avg({n})", "mean({n})", "favg({n})", "avg(a.w)", "avg({x})"),
    "extremes": ("min({x})", "max({x})", "max(a.w)"),
    "extremes_n": ("min({x}, 2)", "max({x}, 3)"),
    "arg": (
        "arg_min({x}, a.id)", "arg_max({x}, a.id)", "max_by(a.h, {x})", "min_by(a.n, {x})",
        "arg_max({x}, a.id, 2)", "arg_min_null({x}, a.id)", "arg_max_null({x}, a.id)",
    ),
    "spread": (
        "var_pop({n})", "var_samp({n})", "stddev({n})", "stddev_pop({n})", "sem({n})", "variance(a.w)",
    ),
    "moments": ("skewness({n})", "kurtosis({n})", "kurtosis_pop({n})", "entropy({x})", "mad({n})"),
    "regression": (
        "corr({n}, a.r)", "covar_pop({n}, a.r)", "covar_samp(a.r, {n})", "regr_slope({n}, a.r)",
        "regr_intercept({n}, a.r)", "regr_r2({n}, a.r)", "regr_count({n}, a.r)", "regr_avgx({n}, a.r)",
        "regr_avgy({n}, a.r)", "regr_sxx({n}, a.r)", "regr_sxy({n}, a.r)", "regr_syy({n}, a.r)",
    ),
    "quantile": (
        "median({n})", "median({x})", "quantile_cont({n}, 0.25)", "quantile_disc({x}, 0.7)",
        "quantile_cont({n}, [0.1, 0.9])", "quantile_disc({x}, [0.5, 0.2])", "quantile({x}, 0.4)",
    ),
    "sketch": (
        "approx_count_distinct({x})", "approx_quantile({n}, 0.5)", "reservoir_quantile({n}, 0.5)",
        "approx_top_k({x}, 2)",
    ),
    "bits": (
        "bit_and(a.n)", "bit_or(a.n)", "bit_xor(a.n)", "bitstring_agg(a.n, 0, 40)", "bit_xor({n})",
    ),
    "truth": ("bool_and({x} IS NULL)", "bool_or({n} > 5)", "bool_and(a.n < 25)", "countif(a.n > 3)"),
    "lists": (
        "list({x})", "array_agg({x})", "string_agg(a.h, ',')", "group_concat(CAST({x} AS VARCHAR), '|')",
        "listagg(a.h, '-')",
    ),
    "first": ("first({x})", "last({x})", "any_value({x})", "arbitrary({x})"),
    "histogram": ("histogram({x})", "mode({x})", "histogram(a.n)", "mode(a.n)"),
}  # fmt: skip


def _with(statement: Statement, parts: dict[str, Any]) -> Statement:
    return replace(statement, **parts)

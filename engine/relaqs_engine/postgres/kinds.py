"""Which kind of type an expression has in Postgres, as far as its meaning depends on it.

Clients of Postgres ask for the types of parameters before they give values: `parameter_types` tells them from
where parameters stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.postgres.formats import written_moment
from relaqs_engine.postgres.wording import without_postgres_words
from relaqs_engine.sql.binder import Constant
from relaqs_engine.sql.dialect import DIALECT
from relaqs_engine.sql.read import Effort, read_statements

Kind: TypeAlias = str
"""int4 (of 16 bits too), int8, numeric, float4, float8, text, bool, json, other, or one of dates and times.

That of an array is the kind of its elements, and []."""

TableColumns: TypeAlias = Mapping[str, Mapping[str, str]]
_Outputs: TypeAlias = dict[str, "Kind | None"]

INTEGERS = frozenset({"int4", "int8"})
FLOATS = frozenset({"float4", "float8"})
NUMBERS = INTEGERS | FLOATS | {"numeric"}
MOMENTS = frozenset({"date", "timestamp", "timestamptz"})
_WIDER = ("int4", "int8", "numeric", "float4", "float8")
NESTED = "nested"  # lists in a list, and how deep they are
_MOST_SCOPES = 100  # that are looked through for one column

_OF_DUCKDB = {
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "INT", "UTINYINT", "USMALLINT", "INT2", "INT4"), "int4"
    ),
    **dict.fromkeys(("BIGINT", "UINTEGER", "INT8"), "int8"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL", "NUMERIC"), "numeric"),
    "FLOAT": "float4",
    **dict.fromkeys(("FLOAT4", "REAL"), "float4"),
    **dict.fromkeys(("FLOAT8", "DOUBLE", "DOUBLE PRECISION"), "float8"),
    **dict.fromkeys(("BOOL", "BOOLEAN"), "bool"),
    **dict.fromkeys(("VARCHAR", "TEXT", "CHAR", "NAME", "UUID", "BPCHAR", "STRING"), "text"),
    **dict.fromkeys(("JSON", "JSONB"), "json"),
    "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "TIMESTAMPTZ": "timestamptz",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "timestamp"),
    "INTERVAL": "interval",
}

_OF_PYTHON: tuple[tuple[type, Kind], ...] = (
    *((bool, "bool"), (float, "float8"), (Decimal, "numeric"), (datetime, "timestamp"), (date, "date")),
    *((timedelta, "interval"), (bytes, "other")),
)


_ARGUMENT = "the kind of its first argument"
_RESULTS = {
    name: kind
    for kind, names in (
        ("int8", "count row_number rank dense_rank count_if count_star regr_count approx_count_distinct"),
        ("int4", "length char_length character_length octet_length bit_length strlen strpos position instr"),
        ("int4", "ascii array_length cardinality ntile grouping json_array_length array_position scale"),
        ("int4", "array_upper array_lower array_ndims num_nulls num_nonnulls year month day hour minute"),
        ("int4", "quarter week dayofweek dayofyear datediff date_diff width_bucket regexp_count"),
        ("numeric", "extract div"),
        ("float8", "percent_rank cume_dist percentile_cont corr covar_pop covar_samp regr_slope regr_r2"),
        ("float8", "regr_intercept regr_avgx regr_avgy regr_sxx regr_syy regr_sxy date_part random pi"),
        ("float8", "sin cos tan asin acos atan atan2 degrees radians cbrt median quantile_cont"),
        ("float8", "approx_quantile epoch"),
        ("text", "lower upper substring substr replace concat concat_ws trim ltrim rtrim btrim left right"),
        ("text", "lpad rpad repeat reverse initcap translate split_part md5 to_char string_agg listagg chr"),
        ("text", "format regexp_replace quote_literal overlay to_hex array_to_string dayname monthname"),
        ("text", "strftime json_extract_string typeof version current_user regexp_substr"),
        ("bool", "bool_and bool_or every starts_with regexp_matches regexp_like isnan isfinite"),
        ("date", "current_date make_date to_date last_day"),
        ("timestamp", "make_timestamp strptime date_bin time_bucket localtimestamp"),
        ("timestamptz", "now current_timestamp to_timestamp clock_timestamp statement_timestamp"),
        ("timestamptz", "transaction_timestamp"),
        ("interval", "age make_interval justify_days justify_hours justify_interval"),
        ("text[]", "string_to_array regexp_split_to_array string_split regexp_match"),
        ("json", "to_json row_to_json json_agg jsonb_agg json_object json_array json_build_object to_jsonb"),
        ("json", "jsonb_build_object json_build_array jsonb_build_array json_object_agg jsonb_object_agg"),
        ("other", "decode unhex from_base64 from_hex from_binary unbin"),  # bytes
        (_ARGUMENT, "min max any_value first last lag lead first_value last_value nth_value array_append"),
        (_ARGUMENT, "array_cat array_remove array_replace list_concat list_append abs nullif mode distinct"),
        (_ARGUMENT, "generate_series percentile_disc arg_min arg_max min_by max_by quantile_disc"),
    )
    for name in names.split()
}
_ARRAYS_OF = {"array_agg", "list"}
_AS_ALL_ARGUMENTS = {"coalesce", "greatest", "least", "ifnull", "mod", "gcd", "lcm"}
_AVERAGES = {"avg", "mean", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"}
_ROUNDED = {"round", "ceil", "ceiling", "floor", "trunc", "sign"}
_NOT_WHOLE = {"sqrt", "ln", "exp", "log", "power", "pow", "log10"}
_WRAPPERS = (exp.Paren, exp.Filter, exp.Window, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Order)
_COMPARISONS = (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean)


def name_of(call: exp.Expr) -> str:
    """Return the name that a function is called by, in lower case; "" for an operator."""
    if isinstance(call, exp.Anonymous):
        return str(call.this).lower()
    if isinstance(call, exp.Trim):
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(call.text("position").upper(), "btrim")
    if (called := call.meta.get("called")) is not None:
        return str(called)
    if isinstance(call, exp.Binary | exp.Connector) or not isinstance(call, exp.Func):
        return ""
    return str(call.sql_name()).lower()


def arguments_of(call: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of a call in their order."""
    if isinstance(call, exp.Anonymous):
        return list(call.expressions)
    found: list[exp.Expr] = []
    for name in call.arg_types:
        given = call.args.get(name)
        found += [
            each for each in (given if isinstance(given, list) else [given]) if isinstance(each, exp.Expr)
        ]
    return found


def argument_of(call: exp.Expr, place: int) -> exp.Expr | None:
    """Return an argument of a call, counted from 0; None where there are fewer."""
    given = arguments_of(call)
    return given[place] if place < len(given) else None


def kind_of_type(duckdb_type: str) -> Kind:
    """Return the kind of a type."""
    name = duckdb_type.upper()
    element = re.sub(r"(\[\d*\])+$", "", name)
    kind = _OF_DUCKDB.get(re.sub(r"\(.*\)$", "", element).strip(), "other")
    return kind if kind == "other" else kind + "[]" * name[len(element) :].count("[")


def is_array(kind: Kind) -> bool:
    return kind.endswith("[]")


def kind_of_value(value: Any) -> Kind | None:
    """Return the kind of a parameter's value; None for a text, which has the type of what is beside it."""
    if isinstance(value, Constant):
        return kind_of_type(value.type)
    if isinstance(value, int) and not isinstance(value, bool):
        return "int4" if abs(value) < 1 << 31 else "int8"
    if isinstance(value, list) and any(isinstance(each, list) for each in value):
        depth, inner = 1, value
        while (inner := next((each for each in inner if isinstance(each, list)), [])) != []:
            depth += 1
        return f"{NESTED}{depth}"
    if isinstance(value, list):
        kinds = {kind_of_value(each) or "text" for each in value if each is not None} or {"other"}
        return f"{max(kinds)}[]" if kinds <= INTEGERS or len(kinds) == 1 else "other"
    return next((kind for type_, kind in _OF_PYTHON if isinstance(value, type_)), None)


class Kinds:
    """The kinds of the expressions of one statement.

    Args:
        columns: the tables' columns and their types in DuckDB, names in lower case.
        parameters: the kinds of `$1` and those after it.
        values: those of the parameters that are texts, None for others.
        is_estimated: whether the statement is asked of a part of the rows first.
    """

    def __init__(
        self,
        columns: TableColumns,
        parameters: Sequence[Kind | None] = (),
        values: Sequence[str | None] = (),
        *,
        is_estimated: bool = False,
    ) -> None:
        self.is_estimated = is_estimated
        self._values = values
        self._columns = columns
        self._parameters = parameters
        self._known: dict[int, Kind | None] = {}
        self._kept: list[exp.Expr] = []  # so that no other expression gets the same id
        self._open: set[int] = set()
        self._known_outputs: dict[int, _Outputs] = {}
        self._known_sources: dict[int, dict[str, _Outputs]] = {}

    def remember(self, tree: exp.Expr) -> None:
        """Learn the kinds of a statement before a rule changes it."""
        for node in reversed(list(tree.walk(bfs=True))):
            if isinstance(node, exp.Condition | exp.Subquery):
                self.of(node)

    def take_place(self, before: exp.Expr, after: exp.Expr) -> None:
        """Let an expression have the kind of the one that it stands for."""
        self._known[id(after)] = self.of(before)
        self._kept += [before, after]

    def of(self, node: exp.Expr) -> Kind | None:
        """Return the kind of an expression; None where it is not known, or open as that of a text."""
        if id(node) not in self._known:
            self._known[id(node)] = None  # where it refers to itself
            self._known[id(node)] = self._kind(node)
            self._kept.append(node)
        return self._known[id(node)]

    def value_of(self, node: exp.Expr) -> str | None:
        """Return the text that a parameter has; None for all else."""
        place = _place_of(node) if isinstance(node, exp.Parameter | exp.Placeholder) else ""
        return self._values[int(place) - 1] if place.isdecimal() and int(place) <= len(self._values) else None

    def is_decimal(self, node: exp.Expr) -> bool:
        """Return whether a NUMERIC of Postgres has all its digits in DuckDB too, and is no DOUBLE."""
        if self.of(node) in INTEGERS:
            return True
        match node:
            case exp.Column() | exp.Literal():
                return self.of(node) == "numeric" and "e" not in node.name.lower()
            case exp.Cast():
                return kind_of_type(node.args["to"].sql(DIALECT)) == "numeric"
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
                return self.is_decimal(node.this) and self.is_decimal(node.expression)
            case exp.Neg() | exp.Paren() | exp.Abs() | exp.Sum() | exp.Min() | exp.Max():
                return self.is_decimal(node.this)
            case exp.Coalesce() | exp.Nullif():
                return all(map(self.is_decimal, arguments_of(node)))
        return False

    def projected(self, key: exp.Expr) -> exp.Expr:
        """Return the expression that a key of ORDER BY stands for: an output, by its name or place."""
        select = key.find_ancestor(exp.Select)
        if select is None:
            return key
        if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(select.expressions):
            return _bare(select.expressions[int(key.name) - 1])
        if isinstance(key, exp.Column) and not key.table:
            for item in select.expressions:
                if isinstance(item, exp.Alias) and item.alias.lower() == key.name.lower():
                    return _bare(item)
        return key

    def row_of(self, node: exp.Expr) -> _Outputs:
        """Return the columns of a row that an expression names, as q in row_to_json(q); none for all else."""
        select = node.find_ancestor(exp.Select)
        is_name = isinstance(node, exp.Column) and not node.table and self.of(node) is None
        return self.sources(select).get(node.name.lower(), {}) if is_name and select is not None else {}

    def _kind(self, node: exp.Expr) -> Kind | None:
        match node:
            case exp.Column():
                return self._of_column(node)
            case exp.Literal():
                return None if node.is_string else _of_number(node.name)
            case exp.Cast():
                kind = kind_of_type(node.args["to"].sql(DIALECT))
                braces = re.match(r"[\s{]*", node.this.name) if is_array(kind) else None
                return (
                    kind.rstrip("[]") + "[]" * (braces[0].count("{") or kind.count("[")) if braces else kind
                )
            case exp.Alias() | exp.Neg() | exp.Ordered() | exp.Distinct():
                inner = node.this if node.this is not None else (node.expressions or [None])[0]
                return self.of(inner) if isinstance(inner, exp.Expr) else None
            case exp.Subquery() if isinstance(node.this, exp.Query):
                return next(iter(self.outputs(node.this).values()), None)
            case exp.Interval():
                return "interval"
            case exp.Parameter() | exp.Placeholder():
                place = _place_of(node)
                is_known = place.isdigit() and int(place) <= len(self._parameters)
                return (self._parameters[int(place) - 1] or None) if is_known else None
            case exp.Case():
                branches = [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
                return self._widest([each for each in branches if each is not None])
            case exp.If():
                branches = [node.args.get("true"), node.args.get("false")]
                return self._widest([each for each in branches if each is not None])
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod() | exp.IntDiv():
                return self._arithmetic(node)
            case exp.Pow():
                return "numeric" if "numeric" in (self.of(node.this), self.of(node.expression)) else "float8"
            case exp.DPipe():
                sides = (self.of(node.this), self.of(node.expression))
                if "json" in sides and set(sides) <= {"json", None}:
                    return "json"
                return next((side for side in sides if side is not None and is_array(side)), "text")
            case exp.AtTimeZone():
                return "timestamp" if self.of(node.this) == "timestamptz" else "timestamptz"
            case exp.Array():
                element = self._widest(node.expressions) if node.expressions else None
                return element and f"{element}[]"
            case exp.Bracket():
                return self._of_bracket(node)
            case exp.JSONExtract() | exp.JSONBExtract():
                return "json"
            case exp.JSONExtractScalar() | exp.JSONBExtractScalar():
                return "text"
            case exp.GenerateSeries() if self.of(node.args["start"]) == "date":
                return "timestamptz" if self.of(node.args["end"]) in ("date", None) else "timestamp"
            case exp.Null():
                return None
        if isinstance(node, _WRAPPERS):
            return self.of(node.this)
        if isinstance(node, _COMPARISONS):
            return "bool"
        return self._of_call(node) if isinstance(node, exp.Func) else None

    def _of_bracket(self, node: exp.Expr) -> Kind | None:
        """Return the kind of an element of an array, or of a part of one."""
        kind = self.of(node.this)
        if kind is None or not is_array(kind):
            return kind if kind == "json" else None
        return kind if any(isinstance(each, exp.Slice) for each in node.expressions) else kind[:-2]

    def _arithmetic(self, node: exp.Expr) -> Kind | None:
        left, right = self.of(node.this), self.of(node.expression)
        if left in NUMBERS and right in NUMBERS:
            return _wider(str(left), str(right))
        if isinstance(node, exp.Sub) and left == right and left in ("date", "timestamp", "timestamptz"):
            return "int4" if left == "date" else "interval"
        if {left, right} == {"date", "interval"}:
            return "timestamp"
        for moment, other in ((left, right), (right, left)):
            if moment in ("date", "timestamp", "timestamptz", "interval"):
                return moment if other in (*NUMBERS, "interval", None) else None
        if left is None and right is None:
            return None
        known = left if right is None else right
        open_side = node.expression if right is None else node.this
        is_open = isinstance(open_side.unnest(), exp.Literal | exp.Parameter | exp.Placeholder)
        return known if is_open or known == "float8" else None

    def _widest(self, nodes: Sequence[exp.Expr]) -> Kind | None:
        nodes = [each for each in nodes if not isinstance(each, exp.Null)]
        kinds = set(map(self.of, nodes))
        strings = [each for each in nodes if isinstance(each, exp.Literal) and each.is_string]
        if len(strings) == len(nodes) and nodes:
            return "text"
        if strings:
            kinds.discard(None)
        if len(kinds) == 1:
            return next(iter(kinds))
        if kinds and kinds <= NUMBERS:
            return max((str(each) for each in kinds), key=_WIDER.index)
        return None

    def _of_call(self, call: exp.Expr) -> Kind | None:
        name = name_of(call)
        if (found := _RESULTS.get(name, _ARGUMENT)) != _ARGUMENT:
            return found
        given = arguments_of(call)
        if name in _AS_ALL_ARGUMENTS:
            return self._widest(given)
        if name in ("date_trunc", "timezone") and len(given) > 1:
            kind = self.of(given[1])
            return "timestamptz" if kind == "date" else kind
        if name == "array" and given and isinstance(given[0], exp.Query):
            inner = next(iter(self.outputs(given[0]).values()), None)
            return inner and f"{inner}[]"
        if not given:
            return None
        first = self.of(given[0])
        if name == "sha256":
            is_written = isinstance(given[0].unnest(), exp.Literal)
            return "other" if first == "other" or is_written else "text" if first == "text" else None
        if name in _ARRAYS_OF:
            return first and f"{first}[]"
        if name == "unnest":
            return first.rstrip("[]") if first is not None and is_array(first) else None
        if name == "array_prepend":
            return self.of(given[-1])
        if name in _RESULTS:
            return first
        if name == "sum":
            return {"int4": "int8", "int8": "numeric"}.get(first or "", first)
        if name in _AVERAGES:
            return "numeric" if first in INTEGERS | {"numeric"} else "float8" if first in FLOATS else first
        if name in _ROUNDED:
            has_digits = len([each for each in given if not isinstance(each, exp.Var)]) > 1
            return "numeric" if first == "numeric" or has_digits else "float8" if first in NUMBERS else first
        if name in _NOT_WHOLE:
            return "numeric" if "numeric" in map(self.of, given) else "float8"
        return None

    def _of_column(self, column: exp.Expr) -> Kind | None:
        name, table = column.name.lower(), column.text("table").lower()
        select = column.find_ancestor(exp.Select)
        for _ in range(_MOST_SCOPES):
            if select is None:
                return None
            sources = self.sources(select)
            for alias, outputs in sources.items():
                if table in ("", alias) and name in outputs:
                    return outputs[name]
            if not table:
                for item in select.expressions:
                    if (
                        isinstance(item, exp.Alias)
                        and item.alias.lower() == name
                        and column.find_ancestor(exp.Alias) is not item
                    ):
                        return self.of(item.this)
            select = select.find_ancestor(exp.Select)
        return None

    def sources(self, select: exp.Expr) -> dict[str, _Outputs]:
        """Return the columns of what a SELECT reads, by names. Each SELECT is looked at once."""
        if id(select) in self._known_sources:
            return self._known_sources[id(select)]
        found: dict[str, _Outputs] = {}
        begin = select.args.get("from_") or select.args.get("from")
        items = [begin.this] if begin is not None else []
        items += [join.this for join in select.args.get("joins") or ()]
        for item in items:
            for each in [item, *(join.this for join in item.args.get("joins") or ())]:
                found[each.alias_or_name.lower()] = self._of_source(each)
        self._kept.append(select)
        self._known_sources[id(select)] = found
        return found

    def _of_source(self, source: exp.Expr) -> _Outputs:
        alias = source.args.get("alias")
        renamed = [each.name.lower() for each in alias.args.get("columns") or ()] if alias is not None else []
        if isinstance(source, exp.Subquery | exp.Lateral):
            inner = source.this
            while isinstance(inner, exp.Subquery):
                inner = inner.this
            outputs = self.outputs(inner)
        elif isinstance(source, exp.Table) and isinstance(source.this, exp.Func):
            kind = self.of(source.this)
            name = source.alias_or_name.lower() or name_of(source.this)
            outputs = {name: kind, name_of(source.this): kind}
            return {renamed[0]: kind} if renamed else outputs
        elif isinstance(source, exp.Table):
            outputs = self._of_table(source)
        elif isinstance(source, exp.Values):
            rows = [each.expressions for each in source.expressions]
            outputs = {
                f"column{place}": self._widest(each) for place, each in enumerate(zip(*rows, strict=False), 1)
            }
        else:
            return {}
        return {**outputs, **dict(zip(renamed, outputs.values(), strict=False))} if renamed else outputs

    def _of_table(self, table: exp.Expr) -> _Outputs:
        name = table.name.lower()
        node: exp.Expr | None = table
        while node is not None:
            with_ = node.args.get("with_") or node.args.get("with")
            for cte in with_.expressions if isinstance(with_, exp.With) else ():
                if cte.alias.lower() == name:
                    outputs = self.outputs(cte.this)
                    names = [each.name.lower() for each in cte.args["alias"].args.get("columns") or ()]
                    return dict(zip(names, outputs.values(), strict=False)) if names else outputs
            node = node.parent
        return {column: kind_of_type(type_) for column, type_ in self._columns.get(name, {}).items()}

    def outputs(self, query: exp.Expr) -> _Outputs:
        """Return the kinds of the columns of a query, by their names."""
        if id(query) in self._known_outputs:
            return self._known_outputs[id(query)]
        if id(query) in self._open:  # a recursive query has the types of what it begins with
            return self.outputs(query.this) if isinstance(query, exp.SetOperation) else {}
        self._open.add(id(query))
        try:
            found = self._known_outputs[id(query)] = self._outputs(query)
            self._kept.append(query)
            return found
        finally:
            self._open.discard(id(query))

    def _outputs(self, query: exp.Expr) -> _Outputs:
        if isinstance(query, exp.Subquery):
            return self.outputs(query.this)
        if isinstance(query, exp.SetOperation):
            left, right = self.outputs(query.this), list(self.outputs(query.expression).values())
            kinds = [_of_both(one, other) for one, other in zip(left.values(), right, strict=False)]
            return dict(zip(left, kinds, strict=False))
        if not isinstance(query, exp.Select):
            return {}
        found: _Outputs = {}
        for item in query.expressions:
            if isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            ):
                table = item.text("table").lower()
                for alias, outputs in self.sources(query).items():
                    if table in ("", alias):
                        found |= {name: kind for name, kind in outputs.items() if name not in found}
                continue
            name = (item.alias_or_name or name_of(item) or f"?{len(found)}").lower()
            found[name] = self.of(item)
        return found


def _bare(item: exp.Expr) -> exp.Expr:
    inner = item.this if isinstance(item, exp.Alias) else item
    return inner if isinstance(inner, exp.Expr) else item


def _of_number(text: str) -> Kind:
    if not text.isdigit():
        return "numeric"
    return "int4" if int(text) < 1 << 31 else "int8" if int(text) < 1 << 63 else "numeric"


def _wider(left: Kind, right: Kind) -> Kind:
    kind = max(left, right, key=_WIDER.index)
    return "float8" if kind == "float4" and left != right else kind


def _of_both(left: Kind | None, right: Kind | None) -> Kind | None:
    if left == right or left is None or right is None:
        return left if left == right else None
    return _wider(left, right) if {left, right} <= NUMBERS else None


def column_name(item: exp.Expr) -> str | None:
    """Return what Postgres calls a column without a name; None where it has one."""
    if isinstance(item, exp.Alias | exp.Column | exp.Star | exp.Aliases):
        return None
    return _figured(item)[0] or "?column?"


def _figured(item: exp.Expr) -> tuple[str | None, bool]:
    """Return a name, and whether it is a strong one, which a cast keeps."""
    match item:
        case exp.Column():
            return item.name, True
        case exp.Paren() | exp.Collate() | exp.Filter() | exp.Window() | exp.WithinGroup() | exp.Bracket():
            return _figured(item.this)
        case exp.Cast():
            name, is_strong = _figured(item.this)
            return (name, True) if is_strong and name else (_type_name(item.args["to"]), False)
        case exp.Case():
            name, is_strong = _figured(item.args["default"]) if item.args.get("default") else (None, False)
            return (name, True) if is_strong and name else ("case", False)
        case exp.Subquery():
            select = item.this
            if isinstance(select, exp.Select) and select.expressions:
                inner = select.expressions[0]
                return (inner.alias, True) if isinstance(inner, exp.Alias) else _figured(inner)
            return None, False
        case exp.Exists():
            return "exists", True
        case exp.Tuple():
            return "row", True
        case exp.Array():
            return "array", True
        case exp.Dot():
            return item.expression.name, True
        case exp.Interval():
            return "interval", False
        case exp.Overlaps():
            return "overlaps", True
        case exp.AtTimeZone():
            return "timezone", True
        case exp.Func() | exp.Mod():
            name = name_of(item)
            return (name, True) if name else (None, False)
    return None, False


_TYPE_NAMES = {
    **dict.fromkeys(("INT", "INTEGER"), "int4"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DOUBLE PRECISION"), "float8"),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"), "timestamptz"),
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "REAL": "float4",
    "DECIMAL": "numeric",
    "BOOLEAN": "bool",
    "BLOB": "bytea",
}


def _type_name(to: exp.Expr) -> str:
    if to.this in (exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.BPCHAR, exp.DType.NCHAR):
        return "varchar" if to.this is exp.DType.VARCHAR else "bpchar"
    written = to.sql(DIALECT).upper().partition("[")[0].partition("(")[0].strip()
    return _TYPE_NAMES.get(written, written.lower())


_AROUND_PARAMETERS = (exp.Paren, exp.Any, exp.All, exp.Tuple)


_OF_ONE_TYPE = (
    *(exp.Binary, exp.Between, exp.In, exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif, exp.GenerateSeries),
)
_COUNTING = (exp.Round, exp.Trunc, exp.Left, exp.Right, exp.Repeat, exp.Substring)
"""Functions that take numbers of characters or digits behind what they change."""

_ColumnTypes: TypeAlias = Mapping[tuple[str, str], str]
"""Types by a table's name or alias and the column's name, both in lower case. "" stands for any table."""


def parameter_types(sql: str, tables: Mapping[str, Mapping[str, str]]) -> dict[int, str]:
    """Return DuckDB's types of parameters `$1`, by place, as far as the text tells them.

    A parameter has the type that it is cast to, or that of the column it is compared with. Beside LIMIT and
    OFFSET it is a whole number.

    Args:
        sql: one statement. Of one that does not parse nothing is known.
        tables: names → columns → types, names in lower case. A column's name that stands for two types in the
            tables that the statement reads tells nothing.
    """
    try:
        trees = read_statements(without_postgres_words(sql), Effort())
    except SqlError:
        return {}
    found: dict[int, str] = {}
    for tree in trees:
        columns = _column_types_of(tree, tables)
        for node, place in _parameters(tree):
            type_ = _type_of_place(node, columns)
            if type_ is not None:
                found.setdefault(place, type_)
    return dict(sorted(found.items()))


def _column_types_of(tree: exp.Expr, tables: Mapping[str, Mapping[str, str]]) -> _ColumnTypes:
    """Return the columns of the tables that a statement reads; of all tables where it reads a view."""
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    read = [each for each in tree.find_all(exp.Table) if each.name.lower() not in named]
    sources = {(each.alias_or_name.lower(), each.name.lower()) for each in read}
    if not all(name in tables for _, name in sources):
        sources |= {(name, name) for name in tables}
    found: dict[tuple[str, str], set[str]] = {}
    for each in read:
        if isinstance(each.this, exp.GenerateSeries) and (
            type_ := _type_of_value(each.this.args["start"], {})
        ):
            found["", (each.alias_column_names or [each.alias_or_name])[0].lower()] = {type_}
    for alias, name in sources:
        for column, type_ in tables.get(name, {}).items():
            found.setdefault((alias, column), set()).add(type_)
            found.setdefault(("", column), set()).add(type_)
    return {key: next(iter(types)) for key, types in found.items() if len(types) == 1}


def _parameters(tree: exp.Expr) -> Iterator[tuple[exp.Expr, int]]:
    for node in tree.find_all(exp.Parameter, exp.Placeholder):
        if (name := _place_of(node)).isdecimal():
            yield node, int(name)


def _place_of(parameter: exp.Expr) -> str:
    """Return the number of a parameter, or its name."""
    return parameter.name or (parameter.this.name if isinstance(parameter.this, exp.Expr) else "")


def _type_of_place(node: exp.Expr, columns: _ColumnTypes) -> str | None:
    child, parent = node, node.parent
    is_list = False
    while isinstance(parent, _AROUND_PARAMETERS):
        is_list = is_list or isinstance(parent, exp.Any | exp.All)
        child, parent = parent, parent.parent
    if isinstance(parent, exp.Cast):
        return parent.to.sql(DIALECT)
    if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
        return "BIGINT"
    if isinstance(parent, exp.Like | exp.ILike):
        return "VARCHAR"
    if isinstance(parent, exp.JSONBExtract | exp.JSONBExtractScalar):
        return "VARCHAR[]" if child is parent.expression else "JSON"
    if isinstance(parent, _COUNTING) and child is not parent.this:
        return "INTEGER"
    if isinstance(parent, _OF_ONE_TYPE):
        others = [each for each in parent.iter_expressions() if each is not child]
        known = next(filter(None, (_type_of_value(each, columns) for each in others)), None)
        if isinstance(parent, exp.Add) and known is not None and known.startswith("TIMESTAMP"):
            return "INTERVAL"
        return f"{known or 'VARCHAR'}[]" if is_list else known
    return None


def _type_of_value(node: exp.Expr, columns: _ColumnTypes) -> str | None:
    match node:
        case exp.Paren():
            return _type_of_value(node.this, columns)
        case exp.Column():
            name = node.name.lower()
            return columns.get((node.table.lower(), name)) or columns.get(("", name))
        case exp.Cast():
            return node.to.sql(DIALECT)
        case exp.Literal():
            return "VARCHAR" if node.is_string else "BIGINT" if node.is_int else "DOUBLE"
        case exp.Count() | exp.ApproxDistinct():
            return "BIGINT"
        case exp.Sum() | exp.Avg():
            return "DOUBLE"
        case exp.Min() | exp.Max():
            return _type_of_value(node.this, columns)
        case exp.Lower() | exp.Upper() | exp.Substring() | exp.Concat():
            return "VARCHAR"
        case exp.Binary() if not isinstance(node, exp.Predicate):
            return _type_of_value(node.this, columns) or _type_of_value(node.expression, columns)
    return None


def is_shown(node: exp.Expr, *within: type[exp.Expr]) -> bool:
    """Return whether an expression is a column of the answer, or a value of these in one, as x in max(x)."""
    while (above := node.parent) and isinstance(above, (exp.Alias, exp.Cast, exp.Paren, *within)):
        if isinstance(above, exp.Case | exp.If) and node.arg_key == "this":  # it is compared there
            return False
        node = above
    query = node.parent
    while isinstance(query, exp.Query) and isinstance(query.parent, exp.SetOperation):
        query = query.parent
    return query is node.root()


def is_condition(node: exp.Expr) -> bool:
    """Whether a NULL is as false is: rows are left out by both."""
    while isinstance(node.parent, exp.And | exp.Or | exp.Paren):
        node = node.parent
    return isinstance(node.parent, exp.Where | exp.Having)


def read_moments(sides: Iterable[exp.Expr | None], kinds: Kinds) -> None:
    """Read texts that are written out beside moments as moments, as '2024-01-31 10:00 PM'. In place."""
    bare = [each.unnest() for each in sides if each is not None]
    found = MOMENTS & {*map(kinds.of, bare)}
    for each in bare if found else ():
        if each.is_string and (moment := written_moment(each.name, is_day=found == {"date"})) is not None:
            each.set("this", moment)

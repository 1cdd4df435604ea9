"""A query that calls costly functions, cut in two: what a database does at once, and what calls decide.

A *costly function* is the user's own, and each call takes time or money: a language model, a person. The
database alone can do all the rest, so that the cut is at the calls:

    SELECT product, avg(complains(text)::INT) AS share FROM reviews WHERE stars < 3 GROUP BY product

    frame    SELECT product AS c0, text AS a0 FROM reviews WHERE stars < 3
    calls    f0 = complains(a0), for some rows of the frame, chosen at random
    sums     b0 = sum(CAST(CAST(f0 AS INT) AS DOUBLE)), b1 = count of those that are not NULL, by c0
    output   c0 AS product, b0 / b1 AS share

Conditions without a call are in the frame, so that no call is spent on a row that does not count. Those
with one are in the sums. Each aggregate is a smooth function of sums over rows, and only sums are estimated
(`relaqs_bootstrap.regression`):

    count(*), count(x)    a sum
    sum(x), count_if(x)   a sum, NULL where no x is known
    avg(x)                a sum by a sum

A query that groups and sums nothing lists rows. Then the calls of WHERE and ORDER BY decide which rows
are listed (`CostlyRows`), and those of SELECT are for these rows alone.

What a sum would be for a given answer of each call is SQL as well (`CostlyQuery.sums` names answers). So
predictions take the place of answers, and say what is to be expected of rows that are not asked.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.plans.costly import ROWS, CostlyCall, CostlyOutput, CostlyQuery, CostlyRows
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, conjuncts_of, with_children
from relaqs_engine.rewrite.normalize import flatten
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.dialect import DIALECT, find_all, find_first
from relaqs_engine.sql.functions import check_functions
from relaqs_engine.sql.parse import parse_query
from relaqs_engine.sql.read import Effort, read_statements

_MARK = "costly"


def calls_in(sql: str, functions: Mapping[str, str]) -> bool:
    """Whether a statement may call one of the functions. It is read only where names are in its text."""
    text = sql.lower()
    if not any(name in text for name in functions):
        return False
    return any(
        call.name.lower() in functions
        for tree in read_statements(sql, Effort())
        for call in find_all(tree, exp.Anonymous)
    )


def split(sql: str, functions: Mapping[str, str], catalog: Catalog, binder: Binder) -> CostlyQuery:
    """Return a query with costly calls, cut at the calls.

    Args:
        sql: one SELECT.
        functions: DuckDB's type of the answers of each function.

    Raises:
        SqlError: the SQL is wrong.
        UnsupportedError: it cannot be estimated from some of the calls.
    """
    typed = _typed(sql, functions)
    parsed = parse_query(typed, catalog.tables, binder.effort, catalog.left_out)
    schema = tuple(binder.describe(typed))
    try:
        tree = flatten(Draft(typed, catalog, binder, parsed.tree, schema)).select
    except NotOnlineError as error:
        raise UnsupportedError(f"{error}, which is not estimated where costly functions are called") from None
    return _Cut(tree, schema, functions).query()


def _typed(sql: str, functions: Mapping[str, str]) -> str:
    """Return the SELECT with an expression of the right type in the place of each call."""
    trees = read_statements(sql, Effort())
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlError("only one SELECT at a time may call costly functions")
    tree = trees[0]
    if any(each.args.get("with_ties") for each in find_all(tree, exp.LimitOptions)):
        raise UnsupportedError("WITH TIES is not taken beside costly calls; write WHERE or a larger LIMIT")
    for select in find_all(tree, exp.Select):
        named = [
            item if isinstance(item, exp.Alias | exp.Column | exp.Star) else _named_as_written(item)
            for item in select.expressions
        ]
        select.set("expressions", named)
    for call in list(find_all(tree, exp.Anonymous)):
        if call.name.lower() in functions:
            call.replace(_placeholder(call, functions[call.name.lower()]))
    return tree.sql(DIALECT)


def _named_as_written(item: exp.Expr) -> exp.Expr:
    return exp.alias_(item, item.sql(DIALECT).lower(), quoted=True)


def _placeholder(call: exp.Anonymous, type_: str) -> exp.Case:
    """Return an expression that keeps the arguments of a call, and has the type of its answers."""
    if not call.expressions:
        raise SqlError(f"{call.name.lower()}() needs an argument: each call is for a row")
    fields = [exp.PropertyEQ(this=exp.to_identifier(_MARK), expression=exp.Literal.string(call.name.lower()))]
    fields += [
        exp.PropertyEQ(this=exp.to_identifier(f"x{i}"), expression=argument.copy())
        for i, argument in enumerate(call.expressions)
    ]
    is_null = exp.Is(this=exp.Struct(expressions=fields), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=is_null, true=exp.cast(exp.Null(), type_, dialect=DIALECT))])


def _marked(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the name of the function and its arguments where the node stands for a call."""
    ifs = node.args.get("ifs") if isinstance(node, exp.Case) else None
    condition = ifs[0].this if ifs else None
    struct = condition.this if isinstance(condition, exp.Is) else None
    if not isinstance(struct, exp.Struct) or not struct.expressions:
        return None
    first = struct.expressions[0]
    if not isinstance(first, exp.PropertyEQ) or first.this.name != _MARK:
        return None
    return [each.expression for each in struct.expressions]


class _Cut:
    """Cuts one flat SELECT. Columns and arguments are numbered as they are met."""

    def __init__(
        self, tree: exp.Select, schema: Sequence[tuple[str, str]], functions: Mapping[str, str]
    ) -> None:
        self._tree = tree
        self._schema = schema
        self._functions = functions
        self._columns: dict[str, str] = {}  # SQL → name in the frame
        self._arguments: dict[str, str] = {}
        self._calls: dict[tuple[str, tuple[str, ...]], CostlyCall] = {}
        self._sums: dict[str, int] = {}

    def query(self) -> CostlyQuery:
        tree = self._tree
        self._check(tree)
        where = tree.args.get("where")
        conditions = conjuncts_of(where.this if where else None)
        asked = [each for each in conditions if self._has_call(each)]
        cheap = [each for each in conditions if not self._has_call(each)]
        group = tree.args.get("group")
        keys = list(group.expressions) if group else []
        names = {item.alias: item.unalias() for item in tree.expressions}
        having = tree.args.get("having")
        order = tree.args.get("order")
        ordered = [self._ordered(each, names) for each in (order.expressions if order else [])]
        condition = " AND ".join(f"({self._over_rows(each)})" for each in asked) or "TRUE"
        if not group and not any(map(_aggregates, tree.expressions)):
            return self._listing(cheap, asked, condition, ordered)
        key_sqls = tuple(self._over_rows(key) for key in keys)
        outputs = tuple(
            self._output(item.unalias(), name, type_, keys)
            for item, (name, type_) in zip(tree.expressions, self._schema, strict=True)
        )
        shown = self._over_sums(having.this, keys) if having else "TRUE"
        sort = ", ".join(self._sorted(each, keys) for each in ordered)
        limits = [tree.args[part].sql(DIALECT).strip() for part in ("limit", "offset") if tree.args.get(part)]
        return CostlyQuery(
            frame_sql=self._frame(cheap),
            columns=tuple(self._columns.values()),
            calls=tuple(self._calls.values()),
            condition=condition,
            keys=key_sqls,
            sums=tuple(self._sums),
            is_grouped=group is not None,
            outputs=outputs,
            having=shown,
            order=" ".join(([f"ORDER BY {sort}"] if sort else []) + limits),
            answer_sql=self._answer(asked, keys, ordered),
        )

    def _listing(
        self,
        cheap: Sequence[exp.Expr],
        asked: Sequence[exp.Expr],
        condition: str,
        ordered: Sequence[exp.Expr],
    ) -> CostlyQuery:
        """Return the query where it lists rows."""
        order = ", ".join(map(self._over_rows, ordered))
        deciding = tuple(call.answer for call in self._calls.values())
        answer = self._answer(asked, (), ordered)  # it adds columns
        return CostlyQuery(
            frame_sql=self._frame(cheap),
            columns=tuple(self._columns.values()),
            calls=tuple(self._calls.values()),
            condition=condition,
            outputs=tuple(CostlyOutput(name, type_, "", is_key=True) for name, type_ in self._schema),
            order=f"ORDER BY {order}" if order else "",
            answer_sql=answer,
            rows=CostlyRows(deciding, order, self._most_rows()),
        )

    def _most_rows(self) -> int | None:
        """Return how many rows LIMIT and OFFSET ask for together, None where that is not a number."""
        limit, offset = self._tree.args.get("limit"), self._tree.args.get("offset")
        numbers = [node.expression for node in (limit, offset) if node]
        options = limit.args.get("limit_options") if limit else None
        is_share = limit is None or (options and options.args.get("percent"))
        if is_share or not all(isinstance(each, exp.Literal) and each.is_int for each in numbers):
            return None
        return sum(int(each.name) for each in numbers)

    def _check(self, tree: exp.Select) -> None:
        """Refuse what is not estimated from calls, with what to write instead."""
        group = tree.args.get("group")
        sets = group and any(group.args.get(each) for each in ("rollup", "cube", "grouping_sets", "totals"))
        if sets:
            raise UnsupportedError(
                "ROLLUP, CUBE and GROUPING SETS cannot call costly functions; ask for each"
            )
        for part in ("qualify", "windows", "distinct", "sample"):
            if tree.args.get(part):
                raise UnsupportedError(f"{part.upper()} cannot be estimated from costly calls; leave it out")
        for subquery in find_all(tree, exp.Query):
            if subquery is not tree and any(_marked(node) for node in find_all(subquery, exp.Case)):
                raise UnsupportedError(
                    "a costly function is called in a subquery that groups, limits or joins rows; "
                    "call it in the outermost SELECT"
                )
        if any(True for item in tree.expressions for _ in find_all(item, exp.Window)):
            raise UnsupportedError("window functions cannot be estimated from costly calls; leave them out")
        joins = tree.args.get("joins") or []
        if any(_marked(node) for join in joins for node in find_all(join, exp.Case)):
            raise UnsupportedError("a costly function decides about a join; call it in WHERE")

    def _has_call(self, node: exp.Expr) -> bool:
        return any(_marked(each) for each in find_all(node, exp.Case))

    def _over_rows(self, node: exp.Expr) -> str:
        """Return an expression over columns of the frame and answers."""
        return self._replaced(node).sql(DIALECT)

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        if (parts := _marked(node)) is not None:
            return exp.column(self._call(parts).answer)
        if isinstance(node, exp.Column):
            return exp.column(self._column(node))
        if isinstance(node, exp.Query):
            raise UnsupportedError("a subquery beside costly calls must be in a condition of its own")
        return with_children(node.copy(), self._replaced)  # one by one: a call hides the columns below it

    def _column(self, column: exp.Column) -> str:
        return self._columns.setdefault(column.sql(DIALECT), f"c{len(self._columns)}")

    def _call(self, parts: Sequence[exp.Expr]) -> CostlyCall:
        function = parts[0].name
        arguments = []
        for each in parts[1:]:
            if self._has_call(each):
                raise UnsupportedError(f"{function} is given the answer of another costly function")
            arguments.append(self._arguments.setdefault(each.sql(DIALECT), f"a{len(self._arguments)}"))
        key = function, tuple(arguments)
        return self._calls.setdefault(key, CostlyCall(function, key[1], f"f{len(self._calls)}"))

    def _frame(self, conditions: Sequence[exp.Expr]) -> str:
        frame = self._tree.copy()
        for part in ("group", "having", "order", "limit", "offset"):
            frame.set(part, None)
        named = [*self._columns.items(), *self._arguments.items()]
        items = [f"{sql} AS {name}" for sql, name in named] or ["1 AS c0"]
        frame.set("expressions", [exp.maybe_parse(item, dialect=DIALECT) for item in items])
        frame.set("where", exp.Where(this=exp.and_(*conditions)) if conditions else None)
        return frame.sql(DIALECT)

    def _ordered(self, each: exp.Expr, names: Mapping[str, exp.Expr]) -> exp.Expr:
        ordered = each.copy()
        value = each.this
        if isinstance(value, exp.Column) and not value.table and value.name in names:
            ordered.set("this", names[value.name].copy())
        return ordered

    def _sorted(self, each: exp.Expr, keys: Sequence[exp.Expr]) -> str:
        return str(each.sql(DIALECT)).replace(
            each.this.sql(DIALECT), f"({self._over_sums(each.this, keys)})", 1
        )

    def _output(self, value: exp.Expr, name: str, type_: str, keys: Sequence[exp.Expr]) -> CostlyOutput:
        is_key = find_first(value, exp.AggFunc) is None
        sql = self._over_sums(value, keys)
        is_total = isinstance(value.unnest(), exp.Count | exp.Filter)
        total = next((i for i in range(len(self._sums)) if sql == f"b{i}"), None) if is_total else None
        return CostlyOutput(name, type_, sql, is_key, total)

    def _over_sums(self, node: exp.Expr, keys: Sequence[exp.Expr]) -> str:
        """Return an expression over keys and sums."""
        return self._aggregated(node, keys).sql(DIALECT)

    def _aggregated(self, node: exp.Expr, keys: Sequence[exp.Expr]) -> exp.Expr:
        for i, key in enumerate(keys):
            if node == key:
                return exp.column(f"k{i}")
        if isinstance(node, exp.Filter):
            return self._aggregate(node.this, self._over_rows(node.expression.this))
        if isinstance(node, exp.AggFunc):
            return self._aggregate(node, None)
        if isinstance(node, exp.Column) or _marked(node):
            raise UnsupportedError(f"{_said(node)} is neither a key nor in an aggregate")
        return with_children(node.copy(), lambda each: self._aggregated(each, keys))

    def _aggregate(self, call: exp.Expr, filter_: str | None) -> exp.Expr:
        value = call.this
        if isinstance(value, exp.Distinct) or call.args.get("order"):
            raise _no_estimate(call)
        of_all = isinstance(value, exp.Star) or value is None
        if isinstance(call, exp.Count):
            counted = "1.0" if of_all else f"CAST(({self._over_rows(value)}) IS NOT NULL AS DOUBLE)"
            return self._sum(counted, filter_)
        row = f"CAST(({self._over_rows(value)}) AS DOUBLE)" if not of_all else "1.0"
        known = self._sum(f"CAST({row} IS NOT NULL AS DOUBLE)", filter_)
        total = self._sum(f"coalesce({row}, 0.0)", filter_)
        if isinstance(call, exp.Sum):
            return exp.maybe_parse(f"(CASE WHEN {known.name} > 0 THEN {total.name} END)", dialect=DIALECT)
        if isinstance(call, exp.Avg):
            return exp.maybe_parse(f"({total.name} / nullif({known.name}, 0))", dialect=DIALECT)
        raise _no_estimate(call)

    def _sum(self, row: str, filter_: str | None) -> exp.Column:
        sql = row if filter_ is None else f"CASE WHEN ({filter_}) THEN {row} ELSE 0.0 END"
        return exp.column(f"b{self._sums.setdefault(sql, len(self._sums))}")

    def _answer(
        self, asked: Sequence[exp.Expr], keys: Sequence[exp.Expr], ordered: Sequence[exp.Expr]
    ) -> str:
        """Return the query over the rows with their answers."""
        tree = self._tree
        items = [
            exp.alias_(self._replaced(item.unalias()), name, quoted=True)
            for item, (name, _) in zip(tree.expressions, self._schema, strict=True)
        ]
        answer = exp.select(*items).from_(ROWS)
        if asked:
            answer = answer.where(*(self._replaced(each) for each in asked))
        if keys:
            answer.set("group", exp.Group(expressions=[self._replaced(key) for key in keys]))
        if having := tree.args.get("having"):
            answer.set("having", exp.Having(this=self._replaced(having.this)))
        if ordered:
            answer.set("order", exp.Order(expressions=[self._replaced(each) for each in ordered]))
        for part in ("limit", "offset"):
            if tree.args.get(part):
                answer.set(part, tree.args[part].copy())
        return answer.sql(DIALECT)


def _aggregates(item: exp.Expr) -> bool:
    """Whether an output is made of aggregates of its own SELECT, and not of a subquery's."""
    inside = {id(node) for query in find_all(item, exp.Query) for node in find_all(query, exp.AggFunc)}
    return any(id(node) not in inside for node in find_all(item, exp.AggFunc))


def _said(node: exp.Expr) -> str:
    """Return an expression as SQL for people, with the calls as they were written."""

    def written(each: exp.Expr) -> exp.Expr:
        parts = _marked(each)
        return each if parts is None else exp.Anonymous(this=parts[0].name, expressions=parts[1:])

    return str(node.copy().transform(written).sql(DIALECT))


def _no_estimate(call: exp.Expr) -> UnsupportedError:
    return UnsupportedError(
        f"{_said(call)} cannot be estimated from costly calls; "
        "count, count_if, sum and avg can, with FILTER, and arithmetic of them"
    )


def _is_monotone(node: exp.Expr, answers: Container[str]) -> bool:
    """Whether answers are only added, multiplied by what is no answer, and cast: the ends are at theirs."""
    if not _names_one(node, answers) or isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Paren | exp.Neg | exp.Cast):
        return _is_monotone(node.this, answers)
    if isinstance(node, exp.Coalesce):
        return _is_monotone(node.this, answers) and all(isinstance(e, exp.Literal) for e in node.expressions)
    if isinstance(node, exp.Add | exp.Sub):
        return _is_monotone(node.this, answers) and _is_monotone(node.expression, answers)
    if isinstance(node, exp.Mul):
        sides = node.this, node.expression
        return any(not _names_one(a, answers) and _is_monotone(b, answers) for a, b in (sides, sides[::-1]))
    return False


def _names_one(node: exp.Expr, answers: Container[str]) -> bool:
    return any(column.name in answers for column in find_all(node, exp.Column))


def of_counted(sql: str, answers: Container[str]) -> str | None:
    """Return what a row adds to a sum where its answers let it count; None where nothing bounds that.

    A FILTER or an IS NOT NULL over numeric or textual answers is taken to hold.
    """
    node: exp.Expr = exp.maybe_parse(sql, dialect=DIALECT)
    if isinstance(node, exp.Case) and len(node.args["ifs"]) == 1 and not node.this:
        default = node.args.get("default")
        if isinstance(default, exp.Literal) and float(default.name) == 0.0:
            node = node.args["ifs"][0].args["true"]
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Not) and isinstance(node.this.this, exp.Is):
        return "1.0"
    return str(node.sql(DIALECT)) if _is_monotone(node, answers) else None


def names_one(sql: str, answers: Container[str]) -> bool:
    """Whether an expression names one of the answers."""
    return _names_one(exp.maybe_parse(sql, dialect=DIALECT), answers)


def columns_of(expression: str) -> tuple[str, ...]:
    """Return the names of the columns in an expression, each once. Raises SqlError where it is none.

    >>> columns_of("text LIKE '%late%' OR length(text) > most")
    ('text', 'most')
    """
    (tree,) = read_statements(f"SELECT {expression}", Effort())
    check_functions(tree)
    return tuple(dict.fromkeys(column.name for column in find_all(tree, exp.Column)))


def with_answers(sql: str, answers: Mapping[str, str]) -> str:
    """Return an expression of a `CostlyQuery` with SQL in the place of answers.

    >>> with_answers("CASE WHEN (f0) THEN 1.0 ELSE 0.0 END", {"f0": "TRUE"})
    'CASE WHEN (TRUE) THEN 1.0 ELSE 0.0 END'
    """

    def given(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name in answers:
            return exp.maybe_parse(answers[node.name], dialect=DIALECT)
        return node

    return str(exp.maybe_parse(sql, dialect=DIALECT).transform(given).sql(DIALECT))

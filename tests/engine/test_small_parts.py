"""What parts of the engine and of the doors return: examples, with the names of their modules."""

from __future__ import annotations

import doctest
from importlib import import_module

import numpy as np
import pytest
import sqlglot

from tests.engine import example

GIVEN: dict[str, object] = {
    "sqlglot": sqlglot,
    "np": np,
    "CATALOG": example.CATALOG,
    **{
        each.__name__: each
        for each in (example.after, example.refusal, example.planned, example.explained, example.shown)
    },
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXAMPLES = (
    (
        "relaqs.serve.statements",
        "steered",
        """
    >>> found = steered("SELECT avg(x), relaqs.low(avg(x)), relaqs.error() AS e FROM t", is_exact=False)
    >>> found.sql
    'SELECT avg(x), (avg(x)), CAST(NULL AS DOUBLE) AS e FROM t'
    >>> found.asked, found.names
    ({1: 'low', 2: 'error'}, {1: 'low'})
    """,
    ),
    (
        "relaqs.serve.statements",
        "requests",
        """
    >>> requests("BEGIN; SET relaqs.target TO '5%'")
    (Transaction(tag='BEGIN', modes=()),
     Set(name='relaqs.target', value='5%', is_local=False, tag='SET'))
    """,
    ),
    (
        "relaqs.serve.values",
        "written_value",
        """
    >>> written_value("-12", 23), written_value("'it''s'", 25), written_value("date '2024-01-01'", 1082)
    (-12, "it's", datetime.date(2024, 1, 1))
    """,
    ),
    (
        "relaqs.serve.values",
        "parameter_value",
        """
    >>> parameter_value(b"12", 23, 0), parameter_value(b"\\0\\0\\0\\x0c", 23, 1)
    (12, 12)
    """,
    ),
    (
        "relaqs.serve.settings",
        "hinted",
        """
    >>> settings = Settings({})
    >>> settings.hinted(["+ relaqs target=5% within=2s "]).options(1.0).timeout
    2.0
    >>> settings.hinted(["+ other", "a comment"]) is settings
    True
    """,
    ),
    (
        "relaqs.serve.settings",
        "Settings",
        """
    >>> settings = Settings({})
    >>> settings.set("relaqs.target", "5%")
    >>> settings.show("relaqs.target"), settings.options(1.0).target
    ('5%', 0.05)
    """,
    ),
    (
        "relaqs.serve.column_types",
        "type_oid",
        """
    >>> type_oid("int"), type_oid("timestamp with time zone"), type_oid("text[]"), type_oid("money")
    (23, 1184, 1009, 0)
    """,
    ),
    (
        "relaqs.serve.column_types",
        "parameter_oid",
        """
    >>> parameter_oid("INTEGER"), parameter_oid("INTEGER[]"), parameter_oid("oid[]"), parameter_oid(None)
    (23, 1007, 1028, 25)
    """,
    ),
    (
        "relaqs.serve.column_types",
        "column_type",
        """
    >>> [column_type(each).name for each in ("BIGINT", "STRUCT(a INTEGER)[]", "BIT", "DATE[]", "DOUBLE[3][]")]
    ['int8', 'json', 'text', '_date', '_float8']
    """,
    ),
    (
        "relaqs.serve.failures",
        "error_fields",
        """
    >>> fields = error_fields(SqlError("there is no column faer", (1, 8), ("fare",)), "SELECT faer")
    >>> fields["C"], fields["M"], fields["H"], fields["P"]
    ('42703', 'column "faer" does not exist', "did you mean 'fare'?", '8')
    """,
    ),
    (
        "relaqs.serve.copy_out",
        "copied",
        """
    >>> copied("COPY trips (zone, fare) TO STDOUT (FORMAT csv, HEADER)")[0]
    'SELECT zone, fare FROM trips'
    """,
    ),
    (
        "relaqs.serve.entry",
        "network",
        """
    >>> network("192.0.2.7"), network("::ffff:192.0.2.7"), network("2001:db8::1:2:3:4")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """,
    ),
    (
        "relaqs_engine.postgres.kinds",
        "parameter_types",
        """
    >>> parameter_types("SELECT $1::DATE FROM t WHERE fare < $2 AND zone = ANY($3) LIMIT $4",
    ...     {"t": {"fare": "DOUBLE", "zone": "INTEGER"}, "u": {"fare": "DATE"}})
    {1: 'DATE', 2: 'DOUBLE', 3: 'INTEGER[]', 4: 'BIGINT'}
    """,
    ),
    (
        "relaqs_engine.postgres.kinds",
        "column_name",
        """
    >>> from sqlglot import parse_one
    >>> items = parse_one("SELECT count(*), a + 1, a, CAST(a AS TEXT)", dialect="relaqs").selects
    >>> [column_name(item) for item in items]
    ['count', '?column?', None, 'a']
    """,
    ),
    (
        "relaqs_engine.postgres.kinds",
        "kind_of_type",
        """
    >>> [kind_of_type(each) for each in ("DECIMAL(9, 2)", "UBIGINT", "BLOB", "DATE[]")]
    ['numeric', 'numeric', 'other', 'date[]']
    """,
    ),
    (
        "relaqs_engine.postgres.meaning",
        "meaning_of",
        """
    >>> columns = {"t": {"a": "INTEGER", "x": "DOUBLE"}}
    >>> found = meaning_of("SELECT sum(a) / 2, round(x::numeric, 2) FROM t ORDER BY max(x) DESC", columns)
    >>> print(found.sql)
    SELECT SUM(a) // 2, ROUND(CAST(x AS DECIMAL(38, 8)), 2) FROM t ORDER BY MAX(x) DESC NULLS FIRST
    >>> found.named(["(sum(a) // 2)", "round(…)"])
    ('?column?', 'round')
    """,
    ),
    (
        "relaqs_engine.postgres.wording",
        "without_postgres_words",
        """
    >>> without_postgres_words("SELECT oid::pg_catalog.text FROM pg_class WHERE a OPERATOR(pg_catalog.~) 'x'")
    "SELECT oid::text FROM pg_class WHERE a ~ 'x'"
    """,
    ),
    (
        "relaqs_engine.postgres.wording",
        "names_used",
        """
    >>> found = names_used(tokens_or_none("SELECT s.low(x) AS low FROM t HAVING low > t.low"))
    >>> found["low"], found["x"]
    (2, 1)
    """,
    ),
    (
        "relaqs_engine.postgres.wording",
        "schema_calls",
        """
    >>> calls = schema_calls(tokens_or_none("SELECT a, s.f(b) AS c FROM t ORDER BY s.g()"), "s")
    >>> [(call.name, call.place, call.alias) for call in calls]
    [('f', 1, 'c'), ('g', None, '')]
    """,
    ),
    (
        "relaqs_engine.postgres.wording",
        "between_commas",
        """
    >>> between_commas("(1, 'a,b', f(2, 3))")
    ('1', "'a,b'", 'f(2, 3)')
    """,
    ),
    (
        "relaqs_engine.postgres.wording",
        "without_schema",
        """
    >>> without_schema('SELECT "public"."trips".fare FROM relaqs.public.trips', ["trips"])
    'SELECT "trips".fare FROM trips'
    """,
    ),
    (
        "relaqs_engine.postgres.formats",
        "array_items",
        """
    >>> array_items('{1,NULL,"a b"}'), array_items("{{1},{2}}")
    (['1', None, 'a b'], [['1'], ['2']])
    """,
    ),
    (
        "relaqs_engine.postgres.formats",
        "read_moment",
        """
    >>> from sqlglot import parse_one
    >>> print(read_moment(parse_one("d"), "DD/MM/YYYY").sql("relaqs"))
    (STRPTIME(d, '%d/%m/%Y'))
    """,
    ),
    (
        "relaqs_engine.postgres.formats",
        "formatted_moment",
        """
    >>> from sqlglot import parse_one
    >>> print(formatted_moment(parse_one("d"), "YYYY-MM").sql("relaqs"))
    (STRFTIME(d, '%Y-%m'))
    """,
    ),
    (
        "relaqs_engine.sql.functions",
        "volatile_function",
        """
    >>> volatile_function(sqlglot.parse_one("SELECT fare * random() FROM trips", dialect="duckdb"))
    'random()'
    """,
    ),
    (
        "relaqs_engine.sql.functions",
        "of_a_file",
        """
    >>> of_a_file("data/trips.parquet", ["trips"])
    "a query reads tables, not files; write FROM trips in the place of 'data/trips.parquet'"
    >>> of_a_file("trips")
    ''
    """,
    ),
    (
        "relaqs_engine.sql.dialect",
        "find_own",
        """
    >>> [column.sql() for column in find_own(exp.maybe_parse("f(a) + b * (SELECT c)"), exp.Column)]
    ['a', 'b']
    """,
    ),
    (
        "relaqs_engine.sql.dialect",
        "find_all",
        """
    >>> [column.sql() for column in find_all(exp.maybe_parse("f(a) + b * (SELECT c)"), exp.Column)]
    ['a', 'b', 'c']
    """,
    ),
    (
        "relaqs_engine.sql.parse",
        "with_tables_of_paths",
        """
    >>> opened = {"trips.parquet": "trips", ("old", "trips"): "old_trips"}.get
    >>> sql = "SELECT max(old.trips.fare) FROM 'trips.parquet' AS t, old.trips, read_csv('zones.csv') AS z"
    >>> print(with_tables_of_paths(WrittenSql(sql), opened, Effort()).sql)
    SELECT max("trips".fare) FROM "trips" AS t, "old_trips" AS "trips", read_csv('zones.csv') AS z
    """,
    ),
    (
        "relaqs_engine.sql.parse",
        "_listed",
        """
    >>> _listed(["part_1", "part_2"])
    "part_1, part_2; to read files as one table, give a pattern, as in 'data/*.parquet'"
    >>> _listed(["trips", "zones"])
    'trips, zones'
    """,
    ),
    (
        "relaqs_engine.sql.aggregate_laws",
        "call_of",
        """
    >>> sql = "list(DISTINCT x ORDER BY x DESC) FILTER (WHERE y)"
    >>> call = call_of(sqlglot.parse_one(sql, dialect="duckdb"))
    >>> call.law.name, call.arguments[0].sql(), call.is_distinct, call.order[0].sql(), call.condition.sql()
    ('list', 'x', True, 'x DESC', 'WHERE y')
    """,
    ),
    (
        "relaqs_engine.sql.aggregate_laws",
        "merge",
        """
    >>> def merge(sql):
    ...     return call_of(sqlglot.parse_one(sql, dialect="duckdb")).merge.name
    >>> merge("sum(x) FILTER (WHERE y)"), merge("sum(DISTINCT x)"), merge("bit_xor(DISTINCT x)")
    ('TOTAL', 'DISTINCT', 'ROWS')
    >>> merge("max(x ORDER BY y)"), merge("max(x, 3)"), merge("arg_max(x, y ORDER BY z)")
    ('MAX', 'ROWS', 'ROWS')
    """,
    ),
    (
        "relaqs_engine.sql.statements",
        "with_tables_shown",
        """
    >>> with_tables_shown({"few": "SELECT count(*) FROM (SHOW TABLES)"}, ["trips"])["few"]
    "SELECT count(*) FROM (SELECT * FROM (VALUES ('few'), ('trips')) AS shown(name))"
    """,
    ),
    (
        "relaqs_engine.sql.binder",
        "Binder",
        """
    >>> Binder(CATALOG).describe("SELECT zone, avg(fare) AS mean FROM trips GROUP BY zone")
    [('zone', 'INTEGER'), ('mean', 'DOUBLE')]

    Attributes:
        civil_time: of the statements that it is asked about.
    """,
    ),
    (
        "relaqs_engine.sql.binder",
        "TypesByName",
        """
    >>> TypesByName(CATALOG).schema().column_names("Zones")
    ['zone', 'city']
    """,
    ),
    (
        "relaqs_engine.sql.binder",
        "named_as_before",
        """
    >>> print(named_as_before(WrittenSql("SELECT max(x + 5) FROM t"), "SELECT max(x + $1) FROM t").sql)
    SELECT max((x + 5)) AS "max((x + $1))" FROM t
    """,
    ),
    (
        "relaqs_engine.sql.binder",
        "parameter_count",
        """
    >>> parameter_count("SELECT $2, '$3'"), parameter_count("SELECT ? + ?"), parameter_count("SELECT 1")
    (2, 2, 0)
    """,
    ),
    (
        "relaqs_engine.sql.columns",
        "measures",
        """
    >>> visits = "SELECT user, count(*) AS n FROM visits GROUP BY user"
    >>> sql = f"SELECT n, count(*) AS users FROM ({visits}) GROUP BY n"
    >>> measures(sqlglot.parse_one(sql, dialect="duckdb"), ["n", "users"])
    (False, True)
    """,
    ),
    (
        "relaqs_engine.sql.columns",
        "whole_row",
        """
    >>> whole_row(sqlglot.parse_one("SELECT to_json(trips) FROM trips"), {"fare"})
    'trips'
    >>> whole_row(sqlglot.parse_one("SELECT trips.fare FROM trips"), {"fare"}) is None
    True
    """,
    ),
    (
        "relaqs_engine.sql.columns",
        "find_greatest_floats_in_rows",
        """
    >>> tree = sqlglot.parse_one("SELECT max(fare), max(zone), min(fare) FROM trips", dialect="duckdb")
    >>> find_greatest_floats_in_rows(tree, [CATALOG.table("trips")])
    >>> tree.sql("duckdb")
    'SELECT MAX(fare) FILTER(WHERE TRUE), MAX(zone), MIN(fare) FROM trips'
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "widest_certified",
        """
    >>> [widest_certified(sqlglot.parse_one(sql, dialect="duckdb")) for sql in ("exp(x / n)", "1 + exp(x)")]
    [0.6, inf]
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "bends",
        """
    >>> def of_signs(sql):
    ...     tree = sqlglot.parse_one(sql, dialect="duckdb")
    ...     signs = lambda column: Sign.EITHER if column.name == "gain" else Sign.POSITIVE
    ...     return bends(tree, Vanishing(signs, lambda column: False))
    >>> of_signs("gain / nullif(paid, 0)"), of_signs("paid / gain"), of_signs("gain * gain")
    (False, True, True)
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "cast_step",
        """
    >>> [cast_step(sqlglot.parse_one(f"CAST(x AS {to})")) for to in ("DECIMAL(10, 2)", "BIGINT", "DATE")]
    [0.005, 0.5, None]
    >>> cast_step(sqlglot.parse_one("CAST(x AS DECIMAL(10, 2))"), from_type="DECIMAL(38,2)")
    0.0
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "terms_of",
        """
    >>> [(term.value.sql(), term.factor) for term in terms_of(sqlglot.parse_one("a - b"))]
    [('a', 1.0), ('b', -1.0)]
    >>> terms_of(sqlglot.parse_one("a * b")) is None
    True
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "conditions_in",
        """
    >>> sql = "CASE a WHEN 1 THEN IF(b > 2, 3, 4) END"
    >>> [condition.sql() for condition in conditions_in(sqlglot.parse_one(sql, dialect="duckdb"))]
    ['a = 1', 'b > 2']
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "alternatives",
        """
    >>> case = sqlglot.parse_one("CASE WHEN a THEN b WHEN c THEN NULL ELSE d END")
    >>> [each.sql() for each in alternatives(case)]
    ['b', 'd']
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "Vanishing",
        """
    >>> def of_column(column):
    ...     return Sign.EITHER if column.name == "gain" else Sign.POSITIVE
    >>> vanishes = Vanishing(of_column, lambda column: column.name == "n")
    >>> [vanishes(sqlglot.parse_one(sql, dialect="duckdb")) for sql in ("nullif(sum(paid), 0)", "n - 1")]
    [False, False]
    >>> [vanishes(sqlglot.parse_one(sql, dialect="duckdb")) for sql in ("sum(gain)", "paid - 1")]
    [True, True]
    """,
    ),
    (
        "relaqs_engine.sql.expressions",
        "KeptSigns",
        """
    >>> kept = KeptSigns(lambda column: Sign.EITHER if column.name == "gain" else Sign.POSITIVE)
    >>> [kept(sqlglot.parse_one(sql)).name for sql in ("abs(gain)", "sqrt(abs(gain - paid))", "sqrt(paid)")]
    ['EITHER', 'EITHER', 'POSITIVE']
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "is_finished",
        """
    >>> is_finished("SELECT 1"), is_finished("SELECT 1;"), is_finished("SELECT ';")
    (False, True, False)
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "statements_of",
        """
    >>> for each in statements_of("-- how many\\nSELECT ';' AS mark; /* then */ SELECT 2"):
    ...     print(each.line, each.sql, each.is_ended)
    2 SELECT ';' AS mark True
    2 SELECT 2 False
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "tree_of",
        """
    >>> tree_of("SELECT corr(DISTINCT x, y) FROM t").sql(Relaqs)
    'SELECT CORR(DISTINCT x, y) FROM t'
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "Effort",
        """
    >>> Effort(most_steps=100).spend(101)
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: planning the query would take more than 100 steps; ...
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "offset_of",
        """
    >>> offset_of("SELECT 1,\\n  x", (2, 3)), offset_of("SELECT 1,\\n  x", (1, 11))
    (12, None)
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "position_of",
        """
    >>> position_of("SELECT 1,\\n  x", 12)
    (2, 3)
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "WrittenSql",
        """
    >>> written = WrittenSql("SELECT $a, fair").edited([Edit(7, 9, "'some text'")])
    >>> written.sql
    "SELECT 'some text', fair"
    >>> print(written.placed(SqlError("there is no fair", (1, 21))))
    there is no fair; at line 1, column 12
    """,
    ),
    (
        "relaqs_engine.sql.read",
        "may_be_written_out",
        """
    >>> [may_be_written_out(sql) for sql in ("FROM trips", "DESCRIBE trips", "FROM (SHOW TABLES)")]
    [False, True, True]
    """,
    ),
    (
        "relaqs_engine.execution.certain_rows",
        "fits",
        """
    >>> room = Room(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), np.array([False] * 3))
    >>> room.fits(50, sets=1, fraction=0.125, confidence=0.95).tolist()
    [True, True, False]
    """,
    ),
    (
        "relaqs_engine.execution.estimate",
        "ApproximateColumn",
        """
    >>> ApproximateColumn("total", "total_low", "total_high", "total_certified", position=1).low
    'total_low'
    """,
    ),
    (
        "relaqs_engine.execution.estimate",
        "text_of",
        """
    >>> text_of(Reason.FEW_ROWS)
    'fewer than 10 of its rows were read so far; reading on helps'
    """,
    ),
    (
        "relaqs_engine.execution.refined",
        "coarser",
        """
    >>> coarser(np.array([1, 2, 3, 4, 10, 20]), stored=4, block_count=2).tolist()
    [4, 6, 10, 20]
    """,
    ),
    (
        "relaqs_engine.execution.state",
        "last_before_soon",
        """
    >>> fractions = (0.01, 0.02, 0.04, 0.08, 1.0)
    >>> [EstimateCosts(seconds).last_before_soon(fractions) for seconds in (0.25, 1.0, 2.5)]
    [0, 2, None]
    """,
    ),
    (
        "relaqs_engine.execution.state",
        "counted_together",
        """
    >>> both = counted_together([CATALOG.table("items"), CATALOG.table("orders")])
    >>> both.row_count, both.max_unit_rows, both.partitions[0].row_count
    (1280000, 18, 640000)
    """,
    ),
    (
        "relaqs_engine.planning.exact",
        "is_summary",
        """
    >>> sql = "SELECT * FROM (SUMMARIZE SELECT * FROM t)"
    >>> is_summary(sqlglot.parse_one(sql, dialect="duckdb"))
    True
    >>> is_summary(sqlglot.parse_one(f"{sql} WHERE min < max", dialect="duckdb"))
    False
    """,
    ),
    (
        "relaqs_engine.planning.exact",
        "why_as_it_lies",
        """
    >>> why_as_it_lies(["trips", "zones"], CATALOG)
    ''
    """,
    ),
    (
        "relaqs_engine.planning.aggregate_plan",
        "share_to_read",
        """
    >>> [round(share_to_read(*each), 4) for each in [(6_000_000, 1), (2_500, 1), (2_500, 5)]]
    [0.0005, 0.5514, 0.8601]
    """,
    ),
    (
        "relaqs_engine.planning.aggregate_plan",
        "core_seconds",
        """
    >>> round(TimeToEstimate(0.5, 1.0, share=0.1, batches=5, kept_rows=1e6).core_seconds, 3)
    0.745
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "spread_order",
        """
    >>> spread_order(90, (3, 8), seed=0)
    (11, 42, 57, 3, 32, 55, 68, 80)
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "spread_draws",
        """
    >>> spread_draws(100, 5, np.random.default_rng(0)).tolist()
    [[5, 20, 58, 74, 98]]
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "partition_order",
        """
    >>> partition_order(6, seed=0)
    (3, 2, 5, 4, 0, 1)
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "OnlinePlan",
        """
    >>> plan = planned("SELECT zone, avg(fare) AS mean FROM trips GROUP BY zone")
    >>> plan.mode.value, [(output.name, output.kind.value) for output in plan.outputs]
    ('mergeable', [('zone', 'key'), ('mean', 'estimate')])
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "of_each",
        """
    >>> IntervalRequest(0.95).of_each(20).confidence
    0.95
    >>> each = IntervalRequest(0.95, for_table=True).of_each(20)
    >>> round(each.confidence, 4), each.for_table, round(each.row_weight, 2)
    (0.9975, False, 2.38)
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "time_sql",
        """
    >>> time_sql("DATE", "x")
    "CAST('1970-01-01' AS TIMESTAMP) + to_microseconds(x)"
    """,
    ),
    (
        "relaqs_engine.plans.plan",
        "microseconds_sql",
        """
    >>> microseconds_sql("DATE", "day"), microseconds_sql("TIME", "at")
    ('epoch_us(CAST(day AS TIMESTAMP))', 'epoch_us(at)')
    """,
    ),
    (
        "relaqs_engine.plans.aggregate",
        "times",
        """
    >>> UnitSum(2.0, 5.0, 3.0, 10.0).times(-2.0)
    UnitSum(middle=-4.0, above=6.0, below=10.0, squares=40.0)
    """,
    ),
    (
        "relaqs_engine.plans.composite",
        "what_is_missed",
        """
    >>> what_is_missed(10, 200)
    'not seen: a row group unlike all others, in 95% of cases, if its footer does not tell'
    """,
    ),
    (
        "relaqs_engine.plans.composite",
        "growing_sizes",
        """
    >>> growing_sizes(9), growing_sizes(52)
    ((9,), (8, 24, 52))
    """,
    ),
    (
        "relaqs_engine.plans.composite",
        "Range",
        """
    >>> Range(2.0, 4.0).within(Range(3.0, 9.0))
    Range(low=3.0, high=4.0)
    """,
    ),
    (
        "relaqs.rendering.rounding",
        "seconds_of",
        """
    >>> seconds_of(datetime.time(0, 1)), seconds_of(datetime.date(1, 1, 2))
    (60.0, 86400.0)
    """,
    ),
    (
        "relaqs.rendering.rounding",
        "microseconds_between",
        """
    >>> microseconds_between(datetime.date(2020, 1, 1), datetime.date(2020, 1, 3)) / 86_400e6
    2.0
    """,
    ),
    (
        "relaqs.rendering.rounding",
        "show_duration",
        """
    >>> show_duration(14, 49, 43_200_500_000_000)
    '1 year 2 months 49 days 12:00:00.5'
    >>> show_duration(0, -1, -90_000_000_000), show_duration(0, 0, 0)
    ('-1 day -00:01:30', '00:00:00')
    """,
    ),
    (
        "relaqs.rendering.rounding",
        "show_measured",
        """
    >>> show_measured(15.10795435218885), show_measured(1230113636.4105), show_measured(0.00012345678)
    ('15.108', '1,230,113,636', '0.000123457')
    >>> show_measured(Decimal("205.10")), show_measured(Decimal("12345.6789"))
    ('205.10', '12,345.68')
    """,
    ),
    (
        "relaqs.rendering.rounding",
        "show_bytes",
        """
    >>> print(show_bytes(b"ab'c\\\\\\xaa\\n"))
    ab\\x27c\\x5C\\xAA\\x0A
    """,
    ),
    (
        "relaqs.rendering.rounding",
        "show_value",
        """
    >>> print(show_value(None), show_value("NULL"), show_value(""), show_value(" a"), show_value("a b"))
    NULL 'NULL' '' ' a' a b
    """,
    ),
    (
        "relaqs.rendering.view_model",
        "_rounded_up",
        """
    >>> _rounded_up(0.2617), _rounded_up(0.26), _rounded_up(0.0)
    (0.27, 0.26, 0.0)
    """,
    ),
    (
        "relaqs.rendering.view_model",
        "not_judged_text",
        """
    >>> not_judged_text(["max(x)", "avg(n)", "a", "b", "c"])
    'max(x), avg(n), a and 2 more not judged'
    """,
    ),
    (
        "relaqs.cli.output",
        "format_by_name",
        """
    >>> format_by_name("late.parquet"), format_by_name("late.txt")
    ('parquet', 'table')
    """,
    ),
    (
        "relaqs.cli.reading",
        "_rounded",
        """
    >>> [_rounded(seconds) for seconds in (0.3, 4.4, 38.0, 200.0)]
    ['1 s', '4 s', '38 s', '3 min']
    """,
    ),
)


@pytest.mark.parametrize(
    ("module", "name", "text"), EXAMPLES, ids=[f"{each[0]}.{each[1]}" for each in EXAMPLES]
)
def test_a_part_returns_what_its_example_shows(module: str, name: str, text: str) -> None:
    names = {**GIVEN, **vars(import_module(module))}
    example_of = doctest.DocTestParser().get_doctest(text, names, name, module, 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(example_of, out=said.append)
    assert not said, "".join(said)

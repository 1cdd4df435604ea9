"""Statements of somebody who means harm, drawn from families by a seed: bombs, broken texts, odd characters.

Each is over the tables of `benchmarks.hostile_server`: t(i, g, x, d, s, l) and u(i, name). A number gives the
same statement on any machine: it seeds the draw.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Draw = Callable[[random.Random], str]

GOOD = (
    "SELECT g, count(*) AS n, sum(x) AS total, avg(d) AS mean FROM t GROUP BY g ORDER BY n DESC LIMIT 5",
    "SELECT count(DISTINCT s) AS n FROM t WHERE x BETWEEN 1 AND 50 AND s LIKE '%a%'",
    "WITH a AS (SELECT g, sum(x) AS v FROM t GROUP BY g) SELECT max(v) - min(v) AS spread FROM a",
    "SELECT name, sum(CASE WHEN x > 5 THEN x ELSE 0 END) AS v FROM t JOIN u ON t.g = u.i GROUP BY name",
    "SELECT g, quantile_cont(x, 0.5) AS m, stddev(d) AS s FROM t GROUP BY g HAVING count(*) > 3",
    "SELECT g, sum(x) OVER (PARTITION BY g ORDER BY i) AS w FROM t WHERE i < 100",
    "SELECT count(*) AS n FROM t WHERE x > (SELECT avg(x) FROM t AS o WHERE o.g = t.g)",
    "SELECT g, count(*) AS n FROM t GROUP BY ROLLUP (g) UNION ALL SELECT i, 1 FROM u",
)
_SCALARS = ("i", "g", "x", "d", "1", "0", "NULL", "-1", "length(s)", "9223372036854775807", "1e308", "x / 0")
_TEXTS = ("s", "s || s", "''", "'x'", "upper(s)", "CAST(x AS VARCHAR)", "repeat(s, 20)", "NULL")
_SIZES = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 400, 1000, 3000, 10_000, 40_000)
_LENGTHS = (0, 7, 255, 1000, 4096, 5000, 100_000, 2_000_000_000, 10**12, 10**30)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a run. number: draws it alone again."""

    number: int
    family: str
    sql: str


def statement(seed: int, number: int) -> Statement:
    """Return a statement; families take turns."""
    names = tuple(FAMILIES)
    family = names[number % len(names)]
    return Statement(number, family, FAMILIES[family](random.Random(f"{seed}-{number}")))


def _size(rng: random.Random) -> int:
    return rng.choice(_SIZES)


def _scalar(rng: random.Random) -> str:
    return rng.choice(_SCALARS)


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS)


def _wrapped(rng: random.Random, expression: str) -> str:
    """Return a SELECT that evaluates an expression of one row, somewhere."""
    return rng.choice(
        (
            f"SELECT count({expression}) AS n FROM t",
            f"SELECT {expression} AS v FROM t",
            f"SELECT g, max({expression}) AS v FROM t GROUP BY g",
            f"SELECT count(*) AS n FROM t WHERE ({expression}) IS NOT NULL",
            f"SELECT {expression} AS v, count(*) AS n FROM t GROUP BY 1",
            f"SELECT count(v) AS n FROM (SELECT {expression} AS v FROM t) AS q",
        )
    )


def _nested(rng: random.Random) -> str:
    before, core, after = rng.choice(
        (
            ("(", "x", ")"),
            ("abs(", "x", ")"),
            ("CASE WHEN x > 1 THEN ", "x", " END"),
            ("[", "x", "]"),
            ("{'a': ", "x", "}"),
            ("NOT ", "true", ""),
            ("- ", "x", ""),
            ("CAST(", "x", " AS DOUBLE)"),
            ("list_transform([1], lambda y: ", "y", ")"),
            ("(SELECT max(x) FROM t WHERE x > ", "1", ")"),
            ("EXISTS (SELECT 1 FROM t WHERE ", "true", ")"),
            ("i IN (SELECT i FROM u WHERE ", "true", ")"),
            ("coalesce(NULL, ", "x", ")"),
        )
    )
    depth = _size(rng)
    closed = depth if rng.random() < 0.8 else rng.randrange(depth + 1)
    return _wrapped(rng, before * depth + core + after * closed)


def _subqueries(rng: random.Random) -> str:
    depth = _size(rng)
    return "SELECT count(*) FROM " + "(SELECT * FROM " * depth + "t" + ") AS q" * depth


def _chained(rng: random.Random) -> str:
    part = rng.choice(
        ("x+", "x||", "x AND ", "x = 1 OR ", "a.", "x::INT::", "x[1]", "x->'a'", "x, ", "f(", "x IN (1) = ")
    )
    return _wrapped(rng, part * _size(rng) + "x")


def _doubled(rng: random.Random) -> str:
    part = rng.choice(("x + x", "x || x", "list_concat(x, x)", "[x, x]", "replace(x, 'a', 'aa')", "x * x"))
    first = rng.choice(("s", "[i]", "i", "d"))
    ctes = [f"c0 AS (SELECT {first} AS x FROM t)"]
    ctes += [f"c{k} AS (SELECT {part} AS x FROM c{k - 1})" for k in range(1, _size(rng) % 200)]
    return f"WITH {', '.join(ctes)} SELECT count(x) AS n FROM c{len(ctes) - 1}"


def _doubled_tables(rng: random.Random) -> str:
    joined = rng.choice(("c{0} AS a, c{0} AS b", "c{0} AS a JOIN c{0} AS b USING (i)", "c{0} AS a"))
    ctes = ["c0 AS (SELECT * FROM t)"]
    ctes += [f"c{k} AS (SELECT a.* FROM {joined.format(k - 1)})" for k in range(1, _size(rng) % 150)]
    return f"WITH {', '.join(ctes)} SELECT count(*) AS n FROM c{len(ctes) - 1}"


def _aliases(rng: random.Random) -> str:
    parts = [f"{rng.choice(('sum(x)', 'x', 'count(*)'))} AS x0"]
    parts += [f"x{k - 1} + x{k - 1} AS x{k}" for k in range(1, _size(rng) % 300)]
    return f"SELECT {', '.join(parts)} FROM t"


def _columns(rng: random.Random) -> str:
    value = rng.choice(
        (
            "sum(x + {})",
            "stddev(d * {})",
            "x + {}",
            "quantile_cont(x, 0.{})",
            "count(DISTINCT x + {})",
            "*",
            "t.*",
        )
    )
    count = _size(rng)
    items = ", ".join(value.format(k) for k in range(count))
    return f"SELECT {items} FROM t" + rng.choice(("", " GROUP BY ALL", " ORDER BY ALL", " GROUP BY g"))


def _conditions(rng: random.Random) -> str:
    count, joint = _size(rng), rng.choice((" AND ", " OR "))
    part = rng.choice(("x <> {}", "(x = {} OR i = {})", "s LIKE '%{}%'", "x IN ({}, 1)", "NOT (x > {})"))
    where = joint.join(part.format(k, k) for k in range(count))
    if rng.random() < 0.5:
        return f"SELECT g, count(*) AS n FROM t WHERE {where} GROUP BY g"
    having = joint.join(f"sum(x + {k}) > {k}" for k in range(count))
    return f"SELECT g, count(*) AS n FROM t GROUP BY g HAVING {having}"


def _lists(rng: random.Random) -> str:
    values = ", ".join(rng.choice(("{}", "'{}'", "{}.5")).format(k) for k in range(_size(rng)))
    return rng.choice(
        (
            f"SELECT count(*) AS n FROM t WHERE x IN ({values})",
            f"SELECT len([{values}]) AS n FROM t",
            f"SELECT count(*) AS n FROM t, (VALUES ({values.replace(', ', '), (')})) AS v(y)",
            f"SELECT greatest({values}) AS v FROM t",
        )
    )


def _joins(rng: random.Random) -> str:
    join = rng.choice(
        (", u AS u{}", " JOIN u AS u{0} ON u{0}.i = t.g", " LEFT JOIN t AS u{0} ON u{0}.i = t.i")
    )
    return "SELECT count(*) AS n FROM t" + "".join(join.format(k) for k in range(_size(rng) % 300))


def _unions(rng: random.Random) -> str:
    joint = rng.choice((" UNION ALL ", " UNION ", " EXCEPT ", " INTERSECT "))
    part = rng.choice(
        ("SELECT x FROM t", "SELECT sum(x) FROM t", "(SELECT 1)", "SELECT 1 FROM t WHERE false")
    )
    return joint.join([part] * (_size(rng) % 1000 + 1))


def _endless(rng: random.Random) -> str:
    return rng.choice(
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
            "WITH RECURSIVE r AS (SELECT 'ab' AS n UNION ALL SELECT n || n FROM r) SELECT count(n) FROM r",
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT a.n FROM r AS a, r) SELECT count(*) FROM r",
            "SELECT sum(a.x * b.x * c.x) FROM t AS a, t AS b, t AS c",
            "SELECT a.i, count(*) OVER () FROM t AS a, t AS b, t AS c",
            f"SELECT count(*) FROM range({rng.choice(_LENGTHS)}) AS r(n)",
            f"SELECT sum(n) FROM t, generate_series(1, {rng.choice(_LENGTHS)}) AS r(n)",
            "SELECT list(a.s || b.s || c.s) FROM t AS a, t AS b, t AS c",
            "SELECT string_agg(a.s, b.s) FROM t AS a, t AS b, t AS c",
            "SELECT count(DISTINCT a.s || b.s || c.s) FROM t AS a, t AS b, t AS c",
            "SELECT a.s, b.s, c.s FROM t AS a, t AS b, t AS c ORDER BY 1, 2, 3",
            "SELECT unnest(range(x * 1000000000)) AS v FROM t",
        )
    )


def _made(rng: random.Random) -> str:
    length = rng.choice(
        (str(rng.choice(_LENGTHS)), f"({rng.choice(_LENGTHS)} + i)", "i * i", "x", "length(s)")
    )
    call = rng.choice(
        (
            "lpad({t}, CAST({n} AS INT), 'y')",
            "lpad({t}, {n}, 'y')",
            "rpad({t}, {n}, '')",
            "repeat({t}, {n})",
            "repeat([i], {n})",
            "bitstring('1', CAST({n} AS INT))",
            "range({n})",
            "list_sort(range(CAST({n} AS BIGINT)))",
            "list_distinct(generate_series(1, i, {n}))",
            "list_resize([i], CAST({n} AS BIGINT))",
            "format('{{:{n}d}}', i)",
            "format('{{:{{}}d}}', i, {n})",
            "printf('%{n}d', i)",
            "printf('%*d', {n}, i)",
            "format({t}, {n})",
            "bar(i, 0, 10, {n})",
            "to_base(i, 2, {n})",
            "factorial(CAST({n} AS INT))",
            "substring({t}, {n}, {n})",
            "CAST({n} AS VARCHAR)",
            "array_to_string(range({n}), {t})",
            "list_transform(range({n}), lambda y: repeat({t}, {n}))",
        )
    )
    return _wrapped(rng, call.format(t=_text(rng), n=length))


def _compared(rng: random.Random) -> str:
    many = rng.choice(_LENGTHS[:6])
    left, right = f"repeat('ab', {many}) || {_text(rng)}", f"repeat(s, {many})"
    call = rng.choice(
        (
            "damerau_levenshtein({}, {})",
            "levenshtein({}, {})",
            "jaro_similarity({}, {})",
            "jaccard({}, {})",
            "hamming({}, {})",
            "regexp_matches({}, {})",
            "regexp_replace({}, 'a', {}, 'g')",
            "replace({}, 'a', {})",
            "translate({}, {}, s)",
            "string_split({}, {})",
            "regexp_extract_all({}, {})",
            "{} LIKE {}",
            "nfc_normalize({}) || {}",
            "strip_accents({}) || {}",
        )
    )
    return _wrapped(rng, call.format(left, right))


def _patterns(rng: random.Random) -> str:
    count = rng.choice((3, 30, 299, 1000, 100_000))
    pattern = rng.choice(
        (
            "(a?){{{}}}b",
            "((a{{1,{0}}}){{1,{0}}})b",
            ".{{{}}}",
            "(a|a)*b{{{}}}",
            "[a-z]{{0,{}}}x",
            "(?i)(a+)+{}$",
        )
    )
    call = rng.choice(("regexp_matches({}, '{}')", "regexp_replace({}, '{}', 'y')", "{} SIMILAR TO '{}'"))
    return _wrapped(
        rng, call.format(rng.choice(("s", "repeat('a', 4000)", "repeat(s, 100)")), pattern.format(count))
    )


def _reductions(rng: random.Random) -> str:
    values = rng.choice(("[s, s, s]", "range(i)", "list_transform(range(2000), lambda q: s)", "l"))
    body = rng.choice(
        ("a || a", "a || b", "list_concat(a, a)", "a + b", "[a, a]", "a * a", "replace(a, 'a', a)")
    )
    return _wrapped(rng, f"list_reduce({values}, lambda a, b: {body})")


def _casts(rng: random.Random) -> str:
    kind = rng.choice(
        (
            "INT[100000]",
            "INT" + "[]" * (_size(rng) % 500),
            "STRUCT(a " * 20 + "INT" + ")" * 20,
            "DECIMAL(38, 37)",
            "DECIMAL(99, 1)",
            "BIT",
            "UUID",
            "HUGEINT",
            "BIGNUM",
            "MAP(INT, INT)",
            "ENUM('a', 'b')",
            "VARCHAR(10)",
            "TIMESTAMP_NS",
            "JSON",
            "UNION(a INT)",
            "no_such_type",
            "INTERVAL",
            "VARIANT",
            "TIMETZ",
            "GEOMETRY",
        )
    )
    return _wrapped(rng, f"CAST({rng.choice((_scalar(rng), _text(rng), 'l'))} AS {kind})")


def _literals(rng: random.Random) -> str:
    size = _size(rng)
    return _wrapped(
        rng,
        rng.choice(
            (
                "'" + "x" * size + "'",
                "9" * size,
                f"1e{size}",
                "0." + "1" * size,
                f"INTERVAL '{'9' * size}' DAY",
                "x'" + "f" * size + "'",
                f"DATE '{size}-01-01'",
                '"' + "n" * size + '"',
                "$$" + "y" * size + "$$",
                "TIMESTAMP '294247-01-10'",
                f"{size}_000",
            )
        ),
    )


_ODD = "\0\ud800\udfff\u202e\u200b\ufeff\U0001f4a9ß\u0130'\"`\\;$?:@#%&|~^{}[]()<>\r\n\t"


def _unicode(rng: random.Random) -> str:
    sql = list(rng.choice(GOOD))
    for _ in range(rng.randrange(1, 6)):
        sql.insert(rng.randrange(len(sql) + 1), rng.choice(_ODD))
    return "".join(sql)


def _cut(rng: random.Random) -> str:
    sql = rng.choice(GOOD)
    return sql[: rng.randrange(len(sql))]


_WORDS = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT WITH RECURSIVE AS JOIN ON USING UNION ALL VALUES CASE WHEN THEN
END OVER PARTITION ROWS BETWEEN AND OR NOT IN EXISTS LATERAL UNNEST PIVOT UNPIVOT FILTER QUALIFY WINDOW SAMPLE
EXCLUDE REPLACE COLUMNS INTERVAL CAST TRY t u x g s i l ( ) [ ] { } , . ; : :: -> = < > + - * / % || ? $1 @ 1
0 'a' "b" 1e9 /* */ -- lambda
"""
_TOKENS = tuple(_WORDS.split())


def _soup(rng: random.Random) -> str:
    return rng.choice(("", "SELECT ")) + " ".join(rng.choices(_TOKENS, k=rng.randrange(1, 60)))


def _mutated(rng: random.Random) -> str:
    words = rng.choice(GOOD).split()
    for _ in range(rng.randrange(1, 3)):
        place = rng.randrange(len(words))
        words[place] = rng.choice(
            (rng.choice(_TOKENS), "", f"{words[place]} {words[place]}", rng.choice(words))
        )
    return " ".join(words)


def _forbidden(rng: random.Random) -> str:
    call = rng.choice(
        (
            "read_text('/etc/passwd')",
            "getenv('HOME')",
            "read_csv('/etc/passwd')",
            "glob('/*')",
            "current_setting('threads')",
            "query('SELECT 1')",
            "pg_sleep(9)",
            "sleep_ms(9999)",
        )
    )
    return rng.choice(
        (
            f"SELECT {call} FROM t",
            f"SELECT count(*) FROM t WHERE s IN (SELECT * FROM {call})",
            f"WITH a AS (FROM {call}) SELECT count(*) FROM a, t",
            f"SELECT 1 FROM t ORDER BY {call}",
            f"SELECT 1 FROM t; SELECT * FROM {call}",
            f"SELECT list_transform(l, lambda y: {call}) FROM t",
            "SELECT 1 FROM t UNION ALL FROM '/etc/passwd'",
            "COPY t TO '/tmp/x'",
            "ATTACH 'x.db'",
            "SET threads = 99",
            "EXPLAIN ANALYZE SELECT 1",
        )
    )


def _groupings(rng: random.Random) -> str:
    count = _size(rng) % 200 + 1
    keys = ", ".join(f"x + {k}" for k in range(count))
    by = rng.choice(
        (f"CUBE ({keys})", f"ROLLUP ({keys})", ", ".join(["ROLLUP (g, i)"] * (count % 9 + 1)), keys)
    )
    return f"SELECT count(*) AS n FROM t GROUP BY {by}"


def _windows(rng: random.Random) -> str:
    frame = rng.choice(("", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW"))
    call = rng.choice(("sum(x)", "list(s)", "median(x)", "count(DISTINCT s)", "string_agg(s)", "rank()"))
    items = ", ".join(f"{call} OVER (ORDER BY x + {k}{frame}) AS w{k}" for k in range(_size(rng) % 50 + 1))
    return f"SELECT {items} FROM t" + rng.choice(("", " LIMIT 5", " QUALIFY row_number() OVER () < 3"))


def _combined(rng: random.Random) -> str:
    """Return two of the others, one inside the other."""
    inner, outer = rng.choice(_BOMBS)(rng), rng.choice(_BOMBS)(rng)
    return rng.choice(
        (
            f"WITH z AS ({inner}) {outer}",
            f"SELECT count(*) AS n FROM ({inner}) AS a, ({outer}) AS b",
            f"{inner} UNION ALL {outer}",
            f"SELECT ({inner}) AS a FROM t WHERE EXISTS ({outer})",
        )
    )


def _good(rng: random.Random) -> str:
    return rng.choice(GOOD)


_BOMBS: tuple[Draw, ...] = (
    _nested,
    _chained,
    _doubled,
    _columns,
    _made,
    _compared,
    _patterns,
    _endless,
    _windows,
)

FAMILIES: dict[str, Draw] = {
    "valid": _good,
    "nested expressions": _nested,
    "nested subqueries": _subqueries,
    "chains": _chained,
    "doubling columns": _doubled,
    "doubling tables": _doubled_tables,
    "aliases of aliases": _aliases,
    "many columns": _columns,
    "many conditions": _conditions,
    "long lists": _lists,
    "many joins": _joins,
    "many unions": _unions,
    "endless": _endless,
    "long texts and lists": _made,
    "long comparisons": _compared,
    "patterns": _patterns,
    "reductions": _reductions,
    "odd types": _casts,
    "huge literals": _literals,
    "odd characters": _unicode,
    "cut off": _cut,
    "token soup": _soup,
    "one token changed": _mutated,
    "forbidden": _forbidden,
    "groupings": _groupings,
    "windows": _windows,
    "combined": _combined,
}

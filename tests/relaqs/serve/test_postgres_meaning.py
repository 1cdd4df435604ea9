"""Statements mean in `relaqs serve` what they mean in Postgres, beside a real one where it is installed."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from relaqs_engine.postgres.meaning import meaning_of

from benchmarks.postgres import Said, ask_postgres, compare, installed, postgres, verdict
from benchmarks.server_process import Running
from relaqs.serve.failures import RefusedError
from relaqs.serve.values import parameter_value

FACTS: tuple[tuple[str, tuple[str, ...], list[tuple[Any, ...]]], ...] = (
    ("SELECT 7 / 2, -7 / 2, 7 / 2.0", ("?column?",) * 3, [(3, -3, 3.5)]),
    ("SELECT count(*), max(7)", ("count", "max"), [(1, 7)]),
    (
        "SELECT count(*) FROM (VALUES (TIMESTAMP '2024-01-31 21:30'), ('2024-01-31 22:30')) v(x) "
        "WHERE x BETWEEN '2024-01-31 10:00 PM' AND 'Jan 31, 2024 11:00 PM' OR x = '1/31/2024 9:30 pm'",
        ("count",),
        [(2,)],
    ),
    (
        "SELECT '20240131'::date = 'Jan 31, 2024', '31-Jan-2024'::date, "
        "'1/31/2024 12:04 am'::timestamp::text",
        ("?column?", "date", "text"),
        [(True, date(2024, 1, 31), "2024-01-31 00:04:00")],
    ),
    (
        "SELECT generate_series('2024-01-01'::date, '2024-01-02', '1 day')::text",
        ("generate_series",),
        [("2024-01-01 00:00:00+00",), ("2024-01-02 00:00:00+00",)],
    ),
    (
        "SELECT (1, NULL) BETWEEN (0, 0) AND (1, 5), (2, 1) BETWEEN (1, NULL) AND (3, 5), "
        "(1, 2) NOT BETWEEN (2, 0) AND (NULL, 1)",
        ("?column?",) * 3,
        [(None, True, True)],
    ),
    (
        "SELECT 'a'::char(3) = 'a  ', 'a'::char(3) LIKE 'a', 'a'::char(3) IN ('b', 'a '), "
        "concat('a'::char(3), 'b'), 'a'::char(3) = 'a  '::text",
        ("?column?", "?column?", "?column?", "concat", "?column?"),
        [(True, False, True, "a  b", False)],
    ),
    (
        "SELECT coalesce(NULL::timestamp, '2023-11-20 10:00 PM') = '2023-11-20 22:00', "
        "greatest(DATE '2024-01-01', 'Feb 1, 2024')::text, (TIMESTAMP '2024-01-31 22:00', 1) = "
        "('2024-01-31 10:00 PM', 1), (CASE WHEN d IS NULL THEN d ELSE '2024-01-31 0:30 pm' END)::text, "
        "d::text FROM (VALUES (TIMESTAMP '2024-01-01'), ('2023-11-20 10:00 PM')) AS v(d)",
        ("?column?", "greatest", "?column?", "text", "d"),
        [
            (True, "2024-02-01", True, "2024-01-31 12:30:00", "2024-01-01 00:00:00"),
            (True, "2024-02-01", True, "2024-01-31 12:30:00", "2023-11-20 22:00:00"),
        ],
    ),
    (
        "SELECT (TIMESTAMP '2024-12-31 23:59:59.9999996')::text, regexp_replace('abc', 'abc|ab', 'x'), "
        "'abc' ~ '^(a|ab)c', regexp_replace(' a ', '^\\s+|\\s+$', '', 'g')",
        ("text", "regexp_replace", "?column?", "regexp_replace"),
        [("2025-01-01 00:00:00", "x", True, "a")],
    ),
    (
        "SELECT 1e20 || '', 1.50 || 'x', ('-1 day +02:03'::interval)::text, to_char(7, '000')",
        ("?column?", "?column?", "text", "to_char"),
        [("100000000000000000000", "1.50x", "-1 days +02:03:00", " 007")],
    ),
    (
        "SELECT regexp_count('abcabc', 'b'), regexp_like('abc', 'B'), regexp_substr('abc12', '[0-9]+'), "
        "regexp_substr('abc', '[0-9]'), "
        "date_bin('15 minutes', TIMESTAMP '2024-01-31 10:20', '2001-01-01')::text",
        ("regexp_count", "regexp_like", "regexp_substr", "regexp_substr", "date_bin"),
        [(2, False, "12", None, "2024-01-31 10:15:00")],
    ),
    (
        "SELECT (1, NULL) = (1, 2), (1, NULL) = (2, NULL), (NULL, 2) <> (1, 1), (NULL, 1) < (1, 2), "
        "(1, NULL) < (2, 0), (1, 2) >= (1, 2), ROW(1, NULL) = ROW(1, NULL), (2, 1) > (1, NULL)",
        ("?column?",) * 8,
        [(None, False, True, None, True, True, None, True)],
    ),
    (
        "SELECT (1, NULL) IN ((1, 2)), (1, 2) NOT IN ((1, NULL)), (1, 2) IN ((3, 4), (1, 2))",
        ("?column?",) * 3,
        [(None, None, True)],
    ),
    (
        "SELECT x FROM (VALUES (1, 2), (NULL, 3), (3, 0)) v(x, y) WHERE (x, y) > (1, 2)",
        ("x",),
        [(3,)],
    ),
    (
        "SELECT 1 = ANY(NULL::int[]), NOT (1 = ANY(NULL::int[])), 1 <> ALL(NULL::int[]), 1 <> ALL(ARRAY[2])",
        ("?column?",) * 4,
        [(None, None, None, True)],
    ),
    ("SELECT ARRAY[1] || NULL, NULL || ARRAY[2]", ("?column?",) * 2, [([1], [2])]),
    (
        "SELECT array_cat(x, y), x || y FROM (VALUES (NULL::int[], NULL::int[]), (ARRAY[1], NULL)) v(x, y)",
        ("array_cat", "?column?"),
        [(None, None), ([1], [1])],
    ),
    (
        "SELECT 'a'::char(3)::text, ('b'::char(2)), 'c'::char(2) || 'd'",
        ("text", "bpchar", "?column?"),
        [("a", "b ", "cd")],
    ),
    (
        "SELECT array_agg(DISTINCT x), string_agg(DISTINCT y, ',') "
        "FROM (VALUES (3, 'c'), (1, 'b'), (NULL, 'a'), (2, 'b'), (1, 'a')) v(x, y)",
        ("array_agg", "string_agg"),
        [([1, 2, 3, None], "a,b,c")],
    ),
    (
        "SELECT date_trunc('century', x)::text, date_trunc('millennium', x)::text "
        "FROM (VALUES (timestamp '2000-05-05'), ('2001-01-01')) v(x)",
        ("date_trunc",) * 2,
        [("1901-01-01 00:00:00", "1001-01-01 00:00:00"), ("2001-01-01 00:00:00", "2001-01-01 00:00:00")],
    ),
    (
        "SELECT x::timestamp::text FROM (VALUES ('2024-01-01 10:00 PM'), ('2024-01-01 12:30:05 am')) v(x)",
        ("x",),
        [("2024-01-01 22:00:00",), ("2024-01-01 00:30:05",)],
    ),
    ("SELECT timestamp '2024-01-01 10:00 pm' = timestamp '2024-01-01 22:00'", ("?column?",), [(True,)]),
    (
        "SELECT 'hello'::char(8), 'xyz'::char, 'abc'::bpchar, 'a '::char(3) || 'b'",
        ("bpchar", "bpchar", "bpchar", "?column?"),
        [("hello   ", "x", "abc", "ab")],
    ),
    ("SELECT 'off'::bool, ' YES '::bool, 'tr'::boolean", ("bool",) * 3, [(False, True, True)]),
    ("SELECT 1e20::text, 1.5e-3::text", ("text",) * 2, [("100000000000000000000", "0.0015")]),
    (
        "WITH RECURSIVE r(n) AS (SELECT 5 UNION ALL SELECT n - 1 FROM r WHERE n > 3) "
        "SELECT n / 2 FROM r ORDER BY n",
        ("?column?",),
        [(1,), (2,), (2,)],
    ),
    ("SELECT '{a\\,b,c d }'::text[]", ("text",), [(["a,b", "c d"],)]),
    ("SELECT round(0.0179005::numeric, 6)", ("round",), [(0.017901,)]),
    ("SELECT x FROM (VALUES (1), (NULL), (3)) v(x) ORDER BY x DESC", ("x",), [(None,), (3,), (1,)]),
    ("SELECT x FROM (VALUES (1), (NULL)) v(x) ORDER BY x DESC NULLS LAST", ("x",), [(1,), (None,)]),
    ("SELECT generate_series(1, 3)", ("generate_series",), [(1,), (2,), (3,)]),
    ("SELECT 'foo' SIMILAR TO 'f%', 'f.o' SIMILAR TO 'f.o'", ("?column?",) * 2, [(True, True)]),
    ("SELECT format('%s is %s%%', 'a', 1)", ("format",), [("a is 1%",)]),
    ("SELECT to_char(DATE '2024-02-03', 'DD.MM.YYYY')", ("to_char",), [("03.02.2024",)]),
    ("SELECT count FROM (SELECT count(*)) q", ("count",), [(1,)]),
    ("SELECT '{a,\"b c\"}'::name[], '{{a},{b}}'::name[][]", ("name",) * 2, [(["a", "b c"], [["a"], ["b"]])]),
    (
        "SELECT CASE 'ab'::char(4) WHEN 'ab' THEN 1 END AS a, "
        "CASE 'ab' WHEN 'ab'::char(4) THEN 'c'::char(2) END AS b, "
        "CASE coalesce('ab'::char(4), 'x') WHEN 'ab' THEN 1 END AS c",
        ("a", "b", "c"),
        [(1, "c ", 1)],
    ),
    (
        "SELECT '2024-12-31 23:59:59.9999996'::date::text AS a, "
        "date '2025-01-01' = '2024-12-31 23:59:59.9999996' AS b, "
        "coalesce(NULL::date, '2024-12-31 23:59:59.9999996')::text AS c, "
        "('2024-12-31  23:59:59.9999996'::timestamp)::text AS d",
        ("a", "b", "c", "d"),
        [("2024-12-31", False, "2024-12-31", "2025-01-01 00:00:00")],
    ),
    ("SELECT max('ab'::char(4)) AS m, coalesce('ab'::char(4), 'x') AS c", ("m", "c"), [("ab  ", "ab  ")]),
    ("SELECT 'a  '::char(5) = 'a'::char(3), length('ab '::char(4))", ("?column?", "length"), [(True, 2)]),
    (
        "SELECT (d - date '2024-01-01' + d)::text, (d - (d - date '2024-01-01'))::text "
        "FROM (VALUES (date '2024-01-03')) v(d)",
        ("text", "text"),
        [("2024-01-05", "2024-01-01")],
    ),
    ("SELECT ARRAY[1, 2] || 3, (ARRAY[1, 2])[-1]", ("?column?", "array"), [([1, 2, 3], None)]),
    ("SELECT '{1,NULL}'::int[], '{\"a b\"}'::text[]", ("int4", "text"), [([1, None], ["a b"])]),
    ("SELECT ARRAY['a b', NULL, '']::text, ARRAY[true]::text", ("array",) * 2, [('{"a b",NULL,""}', "{t}")]),
    ("SELECT 1e15::float8::text, 1::float8 || 'a'", ("text", "?column?"), [("1e+15", "1a")]),
    ("SELECT 3 <> ALL(ARRAY[1, 3]), 3 = ANY('{1,3}')", ("?column?",) * 2, [(False, True)]),
    (
        "SELECT ARRAY[1] @> ARRAY[1, NULL], string_to_array('', ',')",
        ("?column?", "string_to_array"),
        [(False, [])],
    ),
    (
        "SELECT justify_interval(interval '1 mon -1 hour')::text",
        ("justify_interval",),
        [("29 days 23:00:00",)],
    ),
    (
        f"SELECT x{2 * '::text::float8'}::text FROM (VALUES (1.5e20::float8), (NULL)) v(x) ORDER BY x",
        ("x",),
        [("1.5e+20",), (None,)],
    ),
    (
        f"SELECT ({4 * 'justify_interval('}x{4 * ')'})::text FROM (VALUES (interval '1 mon -1 hour')) v(x)",
        ("justify_interval",),
        [("29 days 23:00:00",)],
    ),
    ("SELECT interval '-1 month 3 days'::text", ("text",), [("-1 mons +3 days",)]),
    ("SELECT rpad('a', 3)", ("rpad",), [("a  ",)]),
    ("""SELECT '{"a": 1.0}'::jsonb @> '{"a": 1}'""", ("?column?",), [(True,)]),
    ("""SELECT '{"a": 100000}'::jsonb @> '{"a": 1e5}'""", ("?column?",), [(True,)]),
    ("""SELECT '{"a": 1e5}'::jsonb @> '{"a": 100000}'""", ("?column?",), [(True,)]),
    ("""SELECT '[0]'::jsonb @> '-0.0'""", ("?column?",), [(True,)]),
    ("""SELECT '[9007199254740993]'::jsonb @> '9007199254740992'""", ("?column?",), [(False,)]),
    ("""SELECT '[18446744073709551616]'::jsonb @> '18446744073709551617'""", ("?column?",), [(False,)]),
    ("""SELECT '{"a": "1"}'::jsonb @> '{"a": 1}'""", ("?column?",), [(False,)]),
    ("""SELECT '{"a": -1.50}'::jsonb @> '{"a": -1.5}'""", ("?column?",), [(True,)]),
    ("""SELECT '{"$.a": 5}'::jsonb ->> '$.a'""", ("?column?",), [("5",)]),
    ("""SELECT '{"": 6}'::jsonb ->> ''""", ("?column?",), [("6",)]),
    ("""SELECT '{"/a": 7}'::jsonb ->> '/a'""", ("?column?",), [("7",)]),
    ("""SELECT '{"*": 8}'::jsonb ->> '*'""", ("?column?",), [("8",)]),
    ("""SELECT '{"a": 5}'::jsonb ->> '$.a'""", ("?column?",), [(None,)]),
    ("""SELECT '[1, 2]'::jsonb ->> '1'""", ("?column?",), [(None,)]),
    ("""SELECT '{"1": 2}'::jsonb ->> '1'""", ("?column?",), [("2",)]),
    ("""SELECT '[1, 2]'::jsonb ->> 1""", ("?column?",), [("2",)]),
    ("""SELECT '{"a": {"b": 1.50}}'::jsonb -> 'a' ->> 'b'""", ("?column?",), [("1.50",)]),
    ("""SELECT ('{"a": "{}"}'::jsonb ->> 'a')::jsonb ->> 'a'""", ("?column?",), [(None,)]),
    (
        """SELECT 12345678901234567890.12::numeric = ANY('{12345678901234567890.13}')""",
        ("?column?",),
        [(False,)],
    ),
    ("""SELECT '"x"'::jsonb = '"x"'""", ("?column?",), [(True,)]),
    ("""SELECT 'true'::jsonb <> 'null'""", ("?column?",), [(True,)]),
    (
        "SELECT to_json(ARRAY[timestamp '2024-01-31 10:00'])::text",
        ("to_json",),
        [('["2024-01-31T10:00:00"]',)],
    ),
    ("SELECT lpad('abc', 5)", ("lpad",), [("  abc",)]),
    ("SELECT to_hex(-1), to_hex(-1::bigint)", ("to_hex",) * 2, [("f" * 8, "f" * 16)]),
    (
        "SELECT E'a\nb' ~ 'a.b', 'é' ~ '^\\w$', 'é' ~* '[[:alpha:]]', "
        "chr(8195) !~ '[\\w\\s]', 'a.b' ~ 'a\\.b'",
        ("?column?",) * 5,
        [(True, True, True, False, True)],
    ),
    (
        "SELECT 'é' ~ '\\W', chr(8195) ~ '\\S', 'w' ~ '[\\\\w]', "
        "'²' ~ '\\w', chr(133) ~ '\\s', '[' ~ '[[:word:][]'",
        ("?column?",) * 6,
        [(False, False, True, False, False, True)],
    ),
    (
        "SELECT E'a\nb' ~ $$a.b$$, E'a\nb' ~ 'a.b'::text, E'a\nb' ~ ('a' || '.b'), 'é' ~ E'^\\\\w$', "
        "E'a\nb' ~ concat('a', '.b'), regexp_split_to_array(E'a\nb', '.b'), 'éé' SIMILAR TO '[[:alpha:]]\\w'",
        (*5 * ("?column?",), "regexp_split_to_array", "?column?"),
        [(True, True, True, True, True, ["a", ""], True)],
    ),
    ("SELECT regexp_replace(E'a\né1', '.[\\w]', '#', 'g')", ("regexp_replace",), [("a#1",)]),
    (
        "SELECT regexp_match('né 2024-01', '(\\w+)\\s(\\d{4})-'), regexp_match('ab', 'A', 'i'), "
        "regexp_match('a', 'b'), regexp_match('a', '')",
        ("regexp_match",) * 4,
        [(["né", "2024"], ["a"], None, [""])],
    ),
    (
        "SELECT (DATE '2024-02-01', DATE '2024-01-01') OVERLAPS (DATE '2024-01-31', INTERVAL '1 day'), "
        "(DATE '2024-01-01', DATE '2024-01-15') OVERLAPS (DATE '2024-01-15', NULL::date)",
        ("overlaps",) * 2,
        [(True, None)],
    ),
    ("SELECT scale(1.230), scale(7), scale(NULL::numeric(9, 2))", ("scale",) * 3, [(3, 0, None)]),
    (
        """SELECT j ? 'a', j ? 'b', j ?| ARRAY['b', 'a'], j ?& ARRAY['b', 'a'], '["x", 1]'::jsonb ? '1'
        FROM (VALUES ('{"a": 1}'::jsonb)) v(j)""",
        ("?column?",) * 5,
        [(True, False, True, False, False)],
    ),
    (
        """SELECT * FROM json_each_text('{"a/b": 1, "~": null}') AS e(k) ORDER BY k""",
        ("k", "value"),
        [("a/b", "1"), ("~", None)],
    ),
    ("""SELECT key FROM jsonb_each('{"a": 1}') WHERE value IS NOT NULL""", ("key",), [("a",)]),
    (
        """SELECT i, k, e.value FROM (VALUES (1, '{"a": 1.5}'::json), (2, NULL)) v(i, j)
        CROSS JOIN LATERAL json_each_text(j) e(k) CROSS JOIN LATERAL upper(k) u""",
        ("i", "k", "value"),
        [(1, "a", "1.5")],
    ),
    (
        "SELECT NULL::jsonb ? 'a', regexp_match('abc', '(a)(b)')::text",
        ("?column?", "regexp_match"),
        [(None, "{a,b}")],
    ),
    ("SELECT json_agg(x ORDER BY x DESC) FROM (VALUES (1), (2)) v(x)", ("json_agg",), [([2, 1],)]),
    ("SELECT '{\"a\": [1, 2]}'::jsonb #>> '{a,1}'", ("?column?",), [("2",)]),
    ("SELECT '{\"a\": {\"b\": 1}}'::jsonb -> 'a' ->> 'b' = '1'", ("?column?",), [(True,)]),
    ("SELECT '{\"a\": 1}'::jsonb -> 'b' IS NULL", ("?column?",), [(True,)]),
    (
        "SELECT jsonb_typeof('[1]'::jsonb), json_typeof('1'::json)",
        ("jsonb_typeof", "json_typeof"),
        [("array", "number")],
    ),
    ("SELECT jsonb_array_length('[1, 2]'::jsonb)", ("jsonb_array_length",), [(2,)]),
    (
        """SELECT j @> '{"a": [1]}', '[1, 2]'::jsonb @> '2', '{"b": "x"}' <@ j, j @> '{"a": 1}',
        j @> '{"c": null}'
        FROM (VALUES ('{"a": [2, 1.0], "b": "x"}'::jsonb)) v(j)""",
        ("?column?",) * 5,
        [(True, True, True, False, False)],
    ),
    (
        """SELECT '{"a/b": 1, "~": 2}'::jsonb || '{"~": [3]}', '[1]'::jsonb || '{"a": 1}',
        '1'::jsonb || '2'""",
        ("?column?",) * 3,
        [({"a/b": 1, "~": [3]}, [1, {"a": 1}], [1, 2])],
    ),
    (
        """SELECT '{"a": {"b": 1.50}}'::json -> 'a' ->> 'b', '[-0.10]'::json ->> 0""",
        ("?column?",) * 2,
        [("1.50", "-0.10")],
    ),
    (
        """SELECT e ->> 'a', e.value FROM json_array_elements('[{"a": 1.50, "b": "2.0"}]') AS e""",
        ("?column?", "value"),
        [("1.50", {"a": 1.5, "b": "2.0"})],
    ),
    (
        "SELECT * FROM json_array_elements_text('[1.50, [2.10], null]')",
        ("value",),
        [("1.50",), ("[2.10]",), (None,)],
    ),
    ("""SELECT k FROM jsonb_object_keys('{"bb": 1, "a": 2}') AS k""", ("k",), [("a",), ("bb",)]),
    ("""SELECT value FROM json_each_text('{"a": 1.50}')""", ("value",), [("1.50",)]),
    (
        "SELECT to_json(m), json_build_array(m), row_to_json(q), to_json(m AT TIME ZONE 'UTC') "
        "FROM (SELECT timestamp '2024-01-31 10:00' AS m) q",
        ("to_json", "json_build_array", "row_to_json", "to_json"),
        [
            (
                "2024-01-31T10:00:00",
                ["2024-01-31T10:00:00"],
                {"m": "2024-01-31T10:00:00"},
                "2024-01-31T10:00:00+00:00",
            )
        ],
    ),
    (
        "SELECT * FROM (SELECT 1 AS b, 2 AS a) t JOIN (SELECT 2 AS a, 3 AS c) u USING (a)",
        ("a", "b", "c"),
        [(2, 1, 3)],
    ),
    (
        "SELECT *, 4 AS d FROM (SELECT 1 AS b, 2 AS a) t NATURAL JOIN (SELECT 2 AS a, 3 AS c) u",
        ("a", "b", "c", "d"),
        [(2, 1, 3, 4)],
    ),
    ("SELECT id AS a FROM (VALUES (1, 5), (2, 4)) t(id, a) ORDER BY a + 1", ("a",), [(2,), (1,)]),
    (
        "SELECT to_hex(255), lpad('a', 3), 'a'::varchar, (1, 2) = (1, 2)",
        ("to_hex", "lpad", "varchar", "?column?"),
        [("ff", "  a", "a", True)],
    ),
    ("SELECT '{{1,2},{3,NULL}}'::int[], '{}'::text[]", ("int4", "text"), [([[1, 2], [3, None]], [])]),
    (
        "SELECT pg_size_pretty(20480), pg_size_pretty(10239)",
        ("pg_size_pretty",) * 2,
        [("20 kB", "10239 bytes")],
    ),
    ("SELECT btrim(' a ') FOR UPDATE", ("btrim",), [("a",)]),
    (
        "SELECT make_interval(days => 3)::text, make_interval(1, 2, 3, 4, 5, 6, 7.5)::text, "
        "make_interval()::text",
        ("make_interval",) * 3,
        [("3 days", "1 year 2 mons 25 days 05:06:07.5", "00:00:00")],
    ),
    (
        "SELECT to_date(d, 'DD/MM/YYYY')::text, to_timestamp('2024-03-02 11:30 PM', 'YYYY-MM-DD HH12:MI AM') "
        "= '2024-03-02 23:30'::timestamptz FROM (VALUES ('31/01/2024')) v(d)",
        ("to_date", "?column?"),
        [("2024-01-31", True)],
    ),
    ("SELECT make_interval(DAYS => 1, hours := 2)::text", ("make_interval",), [("1 day 02:00:00",)]),
    ("SELECT to_date('2024-01-31T10', 'YYYY-MM-DD\"T\"HH24')::text", ("to_date",), [("2024-01-31",)]),
    ("SELECT num_nulls(1, NULL, 'a'), num_nonnulls(1, NULL, 'a')", ("num_nulls", "num_nonnulls"), [(1, 2)]),
    (
        "SELECT timestamp '2024-01-15' BETWEEN SYMMETRIC '2024-02-01' AND '2024-01-01', "
        "NOT 5 BETWEEN SYMMETRIC 9 AND 1, NULL BETWEEN SYMMETRIC 1 AND 2",
        ("?column?",) * 3,
        [(True, False, None)],
    ),
    ("SELECT txid_current_if_assigned()", ("txid_current_if_assigned",), [(None,)]),
    ("SELECT width_bucket(-3.5, 10, 0, 5), width_bucket(3, ARRAY[1, 2, 5])", ("width_bucket",) * 2, [(6, 2)]),
    (
        "SELECT encode('abc'::bytea, 'hex'), decode('YWJj', 'base64'), octet_length('é')",
        ("encode", "decode", "octet_length"),
        [("616263", b"abc", 2)],
    ),
    (
        "SELECT width_bucket(b, ARRAY[1, 2, 3]), array_remove(ARRAY[1, 2], __e), "
        "array_replace(ARRAY[1, 2], __e, b) FROM (SELECT 0 AS b, 1 AS __e) t",
        ("width_bucket", "array_remove", "array_replace"),
        [(0, [2], [0, 2])],
    ),
    (
        "SELECT octet_length(decode(s, 'hex')), octet_length(sha256(decode(s, 'hex'))), octet_length(s) "
        "FROM (SELECT '00ff41' AS s) t",
        ("octet_length",) * 3,
        [(3, 32, 6)],
    ),
    (
        "SELECT octet_length(b), octet_length(from_base64('AP9B')), octet_length('é' || 'é') "
        "FROM (SELECT decode(s, 'hex') AS b FROM (SELECT '00ff41' AS s) t) t",
        ("octet_length",) * 3,
        [(3, 3, 4)],
    ),
    (
        "SELECT encode('é', 'hex'), encode('é'::bytea, 'base64'), encode('\\000\\\\é', 'hex'), "
        "encode('\\x00ff', 'hex'), encode(sha256('é'), 'hex') LIKE '4a99557e%'",
        ("encode",) * 4 + ("?column?",),
        [("c3a9", "w6k=", "005cc3a9", "00ff", True)],
    ),
    (
        'SELECT Foo, 2 AS "Bar", count(*) AS N FROM (SELECT 1 AS Foo) Q GROUP BY 1',
        ("foo", "Bar", "n"),
        [(1, 2, 1)],
    ),
    ("SELECT current_user IS NULL AS Nobody", ("nobody",), [(False,)]),
    ("VALUES (1, 'a'), (2, 'b')", ("column1", "column2"), [(1, "a"), (2, "b")]),
    ("SELECT column1 FROM (VALUES (1), (2)) v", ("column1",), [(1,), (2,)]),
    ("SELECT * FROM lower('A') AS l JOIN upper('b') ON true", ("l", "upper"), [("a", "B")]),
    ("SELECT n FROM now() AS n WHERE false", ("n",), []),
    ("SELECT * FROM current_schema() AS s", ("s",), [("public",)]),
    ("SELECT v FROM version() v WHERE v IS NULL", ("v",), []),
    ("SELECT current_user IS NULL FROM current_user", ("?column?",), [(False,)]),
    (
        "SELECT set_config('application_name', 'x', false), pg_is_in_recovery()",
        ("set_config", "pg_is_in_recovery"),
        [("x", False)],
    ),
    (
        "SELECT 'pg_class'::regclass::text, x FROM (SELECT current_catalog) q(x)",
        ("text", "x"),
        [("pg_class", "relaqs")],
    ),
)
CODES = (
    ("SELECT regexp_replace('abc', '(a|ab)(c|bcd)', 'x')", "0A000"),
    ("SELECT 1 / 0", "22012"),
    ("SELECT faer FROM trips", "42703"),
    ("SELECT 1 FROM tripss", "42P01"),
    ("SELECT nope(1)", "42883"),
    ("SELECT 'a'::int", "22P02"),
    ("SELECT '1/2/2024'::date", "0A000"),  # DateStyle says which is the month
    ("SELECT '01/02/03'::date", "0A000"),  # and which is the year
    ("SELECT 'marx 2, 2024'::date", "22007"),
    ("SELECT '2024-01-31 13:00 PM'::timestamp", "22008"),
    ("SELECT now() > '2024-01-31 13:30 am'", "22008"),
    ("SELECT zone SIMILAR TO zone FROM trips", "0A000"),
    ("SELECT 'b' SIMILAR TO '\\b'", "0A000"),
    ("SELECT regexp_matches('foobar', '(o+)(b)')", "0A000"),
    ("SELECT regexp_match('foobar', '(x)?o')", "0A000"),
    ("SELECT regexp_match('foobar', 'o+?')", "0A000"),
    *(
        (f"SELECT 'a' ~ '{pattern}'", "0A000")
        for pattern in ("[\\W]", "\\ba", "\\B", "[[.a.]]", "[[=a=]]", "[[:punct:]]", "(?n)a.b", "a(?i)b")
    ),
    ("SELECT regexp_replace(E'a\nb', 'a.b', 'x', 'n')", "0A000"),
    (f"SELECT regexp_match('a', '{'[^a]' * 40}|')", "0A000"),
    (f"SELECT 'a' ~ '{'[' * 9000}'", "22000"),
    ("""SELECT '{"a": 1}'::jsonb @> to_jsonb(zone) FROM trips""", "0A000"),
    ("""SELECT '{"a": 1}'::jsonb @> '{"a": '""", "22P02"),
    ("""SELECT '{"a": 1}'::jsonb = '{"a":1}'""", "0A000"),
    ("SELECT '{1,}'::int[]", "22P02"),
    ("SELECT '1.5'::int", "22P02"),
    ("SELECT (1, 2) IS NULL", "0A000"),
    ("SELECT (1, 2) = (1, 2, 3)", "42601"),
    ("SELECT (1, 2)::text", "0A000"),
    ("SELECT '{{}}'::int[]", "22P02"),
    ("""SELECT '{1.5}'::int[]""", "22P02"),
    ("""SELECT ('{{1,2},{3,4}}'::int[])[1]""", "0A000"),
    ("""SELECT '{"a": 1}'::jsonb @> 'NaN'""", "22P02"),
    ("""SELECT '[1]'::jsonb @> '0.10000000000000000001'""", "0A000"),
    ("""SELECT '[1]'::jsonb @> '{"a": 1e99999999999999999999}'""", "22P02"),
    ("""SELECT '{"a": 1, "a": 2}'::jsonb || '{"b": 1}'""", "22000"),
    ("""SELECT '1.0'::jsonb = '1'""", "0A000"),
    ("""SELECT '1'::jsonb IN ('1.0')""", "0A000"),
    ("""SELECT '2'::jsonb > '10'""", "0A000"),
    ("""SELECT '1'::jsonb IS DISTINCT FROM '1.0'""", "0A000"),
    ("""SELECT nullif('1'::jsonb, '1.0')""", "0A000"),
    ("""SELECT CASE '1'::jsonb WHEN '1.0' THEN 1 END""", "0A000"),
    ("""SELECT '1'::jsonb BETWEEN '1' AND '2'""", "0A000"),
    ("""SELECT 1 FROM (SELECT '1'::jsonb AS j) a JOIN (SELECT '1.0'::jsonb AS j) b USING (j)""", "0A000"),
    ("""SELECT cardinality('{1,2}')""", "0A000"),
    ("""SELECT to_json(ARRAY[ARRAY[timestamp '2024-01-31 10:00']])""", "0A000"),
    (f"SELECT '[1]'::jsonb @> '{'[' * 600}1{']' * 600}'", "0A000"),
    ("SELECT " + "(" * 12 + "'{}'::jsonb" + " ->> 'a')::jsonb" * 12, "42601"),
    ("SELECT '{{1,2},{3}}'::int[]", "22P02"),
    (f"SELECT '{'{' * 5000}1{'}' * 5000}'::int[]", "54000"),
    ("""SELECT '{"a": {"b": 1}}'::jsonb -> 'a' ? 'b'""", "0A000"),
    ("SELECT (1, 2) OVERLAPS (3, 4)", "0A000"),
    ("SELECT scale(avg(fare)) FROM trips", "0A000"),
    ("SELECT scale(v) FROM (VALUES (1.5), (2.25)) q(v)", "0A000"),
    ("SELECT * FROM json_each('{}') WITH ORDINALITY", "0A000"),
    ("SELECT * FROM json_each('[1]')", "22P02"),
    ("""SELECT * FROM json_each('{"a": 1, "a": 2}')""", "22P02"),
    ("SELECT * FROM regexp_match('abc', '(b)')", "0A000"),
    ("SELECT E'\\u00e9'", "0A000"),
    ("SELECT zone, count(*) FROM trips", "42803"),
    ("SELECT count(*) FROM trips WHERE sum(zone) > 1", "42803"),
    ("SELECT sum(count(*)) FROM trips", "42803"),
    ("SELECT '2024-13-01'::date", "22008"),
    ("SELECT 'x'::date", "22007"),
    ("SELECT 'x'::interval", "22007"),
    ("SELECT '{'::json", "22P02"),
    ("SELECT id FROM trips AS a JOIN trips AS b ON true", "42702"),
    ("SELECT x.id FROM trips", "42P01"),
    ("SELECT id FROM trips ORDER BY 5", "42P10"),
    ("SELECT (SELECT id FROM trips)", "21000"),
    ("SELECT driver > 1 FROM trips", "42883"),
    ("SELECT 'a'::nope", "42704"),
)


@pytest.fixture
def connection(server: Running) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(("sql", "names", "rows"), FACTS, ids=[fact[0] for fact in FACTS])
def test_a_statement_means_what_it_means_in_postgres(
    connection: psycopg.Connection[Any], sql: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.encode())
        assert tuple(each.name for each in cursor.description or ()) == names
        found = [tuple(float(v) if hasattr(v, "as_tuple") else v for v in row) for row in cursor.fetchall()]
    assert found == rows


@pytest.mark.parametrize(("sql", "code"), CODES)
def test_errors_have_the_codes_that_tools_branch_on(
    connection: psycopg.Connection[Any], sql: str, code: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(sql.encode())
    assert raised.value.sqlstate == code


def test_columns_have_the_types_that_postgres_has(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute(
        "SELECT sum(x), sum(y), count(*), max(d) - min(d), extract(year FROM max(d)), "
        "date_part('year', max(d)), length(max(s)), sum(x) / 2 "
        "FROM (VALUES (1, 1::bigint, DATE '2024-01-31', 'a'), (2, 2, '2024-01-31', 'b')) AS v(x, y, d, s)"
    )
    assert [each.type_code for each in cursor.description or ()] == [20, 1700, 20, 23, 1700, 701, 23, 20]
    (row,) = cursor.fetchall()
    assert row == (3, 3, 2, 0, 2024, 2024.0, 1, 1)
    assert [*map(type, row)] == [int, Decimal, int, int, Decimal, float, int, int]
    cursor = connection.execute("SELECT sum(x::real), avg(x::real) FROM (VALUES (0.1), (0.2)) AS v(x)")
    assert [each.type_code for each in cursor.description or ()] == [700, 701]
    with pytest.raises(psycopg.errors.NumericValueOutOfRange, match="bigint out of range"):
        connection.execute("SELECT sum(x) * 4000000000000000000 FROM (VALUES (1), (2)) AS v(x)")


def test_moments_are_read_alike_as_parameters(connection: psycopg.Connection[Any]) -> None:
    asked = "SELECT %s::timestamp, %s::date, TIMESTAMP '2024-01-31 22:00' = %s, 'a'::char(3) = %s"
    given = ("2024-1-31 10:00 pm", "Jan 31, 2024", "31 Jan 2024 10:00 PM", "a ")
    row = connection.execute(asked, given).fetchone()
    assert row == (datetime(2024, 1, 31, 22), date(2024, 1, 31), True, True)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="write '2024-01-02'"):
        connection.execute("SELECT %s::date", ("1/2/2024",))


def test_a_pattern_means_the_same_as_a_parameter(connection: psycopg.Connection[Any]) -> None:
    sql = "SELECT E'a\nb' ~ %s, regexp_replace('é à', %s, %s), 'a' ~ %s, %s || '.' AS t"
    values = ("a.b", "\\W", "-", None, "a.b")
    assert connection.execute(sql, values).fetchall() == [(True, "é-à", None, "a.b.")]
    assert connection.execute("SELECT 'é' ~ $1, $1 AS t".replace("$1", "%(p)s"), {"p": "\\w"}).fetchall() == [
        (True, "\\w")
    ]
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("SELECT 'a' ~ %s", ("\\ba",))


def test_a_null_has_the_type_of_its_parameter(connection: psycopg.Connection[Any]) -> None:
    for type_oid in (16, 20, 701, 1007, 1082, 1114, 1184, 1700, 2950):
        connection.pgconn.prepare(b"q", b"SELECT $1", [type_oid])
        described, answered = (
            connection.pgconn.describe_prepared(b"q"),
            connection.pgconn.exec_prepared(b"q", [None]),
        )
        assert (described.ftype(0), answered.ftype(0), answered.get_value(0, 0)) == (type_oid, type_oid, None)
        connection.execute("DEALLOCATE q")
    assert connection.execute("SELECT %s", ([[1, 2], [3, 4]],)).fetchone() == ([[1, 2], [3, 4]],)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'a' = ANY(%s::text[])",
        "SELECT 'a' <> ALL(%s::text[])",
        "SELECT cardinality(%s)",
    ],
)
def test_an_array_of_arrays_is_no_parameter_of_a_function(
    connection: psycopg.Connection[Any], sql: str
) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"write it out|cast it"):
        connection.execute(sql, ([["a", "b"], ["c", "d"]],))


ROWS = "(VALUES (1, 1), (2, NULL), (NULL, 3), (4, 4)) AS v(a, b)"


@pytest.mark.parametrize("count", [3, 501])
@pytest.mark.parametrize("has_parameters", [False, True])
def test_a_list_of_many_rows_is_compared_row_by_row(
    connection: psycopg.Connection[Any], count: int, has_parameters: bool
) -> None:
    """As drivers of objects ask for composite keys, hundreds at once; where NULLs count, and where not."""
    pairs = [(each, each) for each in range(3, 3 + count)]
    row = "(%s, %s)" if has_parameters else "({}, {})"
    listed = ", ".join(row.format(*each) for each in pairs)
    given = [value for each in pairs for value in each] if has_parameters else None
    sql = f"SELECT a FROM {ROWS} WHERE (a, b) IN ({listed})"
    assert connection.execute(sql, given).fetchall() == [(4,)]
    told = f"SELECT a, (a, b) IN ({listed}) AS found FROM {ROWS} ORDER BY a"
    assert connection.execute(told, given).fetchall() == [(1, False), (2, False), (4, True), (None, None)]


def test_char_is_padded_where_it_is_shown_alone(connection: psycopg.Connection[Any]) -> None:
    grouped = "SELECT s::char(4), count(*) FROM (VALUES ('ab'), ('ab')) AS v(s) GROUP BY s::char(4)"
    assert [(key.strip(), count) for key, count in connection.execute(grouped)] == [("ab", 2)]
    assert connection.execute("SELECT ('ab'::char(4))::text, 'ab'::char(4)").fetchall() == [("ab", "ab  ")]


def test_rows_of_many_places_are_refused(connection: psycopg.Connection[Any]) -> None:
    ones = ", ".join(["1"] * 300)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="more than 25 places"):
        connection.execute(f"SELECT ({ones}) > ({ones})")
    ones = ", ".join(["1"] * 25)
    assert connection.execute(f"SELECT ({ones}) >= ({ones})").fetchall() == [(True,)]


def test_an_array_that_is_a_parameter_is_written_as_one(connection: psycopg.Connection[Any]) -> None:
    asked = "SELECT %s::text AS a, %s::text AS b, array_to_string(%s, ',') AS c, %s || 3 AS d"
    given = ([1, 2], ["x y", None], [True, None], [1])
    unnamed = asked.replace(" AS a", "").replace(" AS b", "").replace(" AS c", "").replace(" AS d", "")
    for sql in (asked, asked.replace("%s", "%t"), unnamed):
        assert connection.execute(sql, given).fetchall() == [("{1,2}", '{"x y",NULL}', "t", [1, 3])]
    path = "SELECT '{\"a\": [1, 2]}'::jsonb #>> %s"
    assert connection.execute(path, [["a", "1"]]).fetchall() == [("2",)]


def test_an_array_of_arrays_may_be_cast(connection: psycopg.Connection[Any]) -> None:
    for given in ([[1, 2], [3, 4]], [[[1], [2]], [[None], [7]]]):
        asked = connection.execute("SELECT %s::int[], %b::int[] AS b, %s::text[]", (given, given, given))
        texts = json.loads(json.dumps(given), parse_int=str)
        assert asked.fetchall() == [(given, given, texts)]


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("!iiI", 1 << 30, 0, 23),
        struct.pack("!iiI", -1, 0, 23),
        struct.pack("!iiIii", 1, 0, 23, 1 << 30, 1),
        struct.pack("!iiIii", 1, 0, 23, -2, 1),
        struct.pack("!iiIiiii", 2, 0, 23, 0, 1, 1, 1),
        struct.pack("!iiIiii", 1, 0, 1007, 1, 1, -1),
    ],
)
def test_an_array_that_says_it_is_longer_than_what_was_sent_is_refused(raw: bytes) -> None:
    with pytest.raises(RefusedError):
        parameter_value(raw, 1007, 1)


def test_a_connection_can_ask_for_the_meaning_of_duckdb(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.dialect = 'duckdb'")
    cursor = connection.execute("SELECT 7 / 2, count(*)")
    assert cursor.fetchall() == [(3.5, 1)]
    assert [each.name for each in cursor.description or ()] == ["(7 / 2)", "count_star()"]


def test_estimates_have_the_same_meaning(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '20%'")
    cursor = connection.execute(
        "SELECT zone, round(avg(fare), 2), count(*) FROM trips GROUP BY zone ORDER BY count DESC"
    )
    assert [each.name for each in cursor.description or ()] == ["zone", "round", "count"]
    counts = [row[2] for row in cursor.fetchall()]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(
    "sql",
    [
        "/*+ relaqs target=30% exact_below=off intervals=on */ SELECT avg(fare) AS fare FROM trips",
        "SELECT avg(fare) AS fare /*+ relaqs intervals=on, target='30%', exact_below=off */ FROM trips",
        "SELECT avg(fare) AS fare FROM trips /*+ RELAQS target=0.3 */ "
        "/*+ relaqs intervals=on exact_below=off */",
    ],
)
def test_a_hint_sets_what_one_statement_asks_for(connection: psycopg.Connection[Any], sql: str) -> None:
    cursor = connection.execute(sql.encode())
    assert [each.name for each in cursor.description or ()] == [
        "fare",
        "fare_low",
        "fare_high",
        "fare_certified",
    ]
    after = connection.execute("SELECT '/*+ relaqs intervals=on */' AS text")
    assert [each.name for each in after.description or ()] == ["text"]


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("targt=5%", "did you mean relaqs.target"),
        ("target=much", "it must be a relative error up to 100%"),
        ("target 5%", "does not read; write"),
        ("a" * 100_000, "does not read; write"),  # in the square of its length, without a bound
    ],
)
def test_a_hint_that_is_wrong_says_so(connection: psycopg.Connection[Any], hint: str, words: str) -> None:
    with pytest.raises(psycopg.Error, match=words):
        connection.execute(f"SELECT 1 /*+ relaqs {hint} */".encode())


@pytest.mark.skipif(installed() is None, reason="no Postgres server is installed")
def test_no_drawn_statement_differs_from_a_real_postgres() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path, which a socket needs
        tally, different = compare(Path(folder), 250, seed=4)
    said = [(each.sql, verdict(each.theirs, each.ours, each.sql)) for each in different]
    assert not [sql for sql, verdict_ in said if verdict_ == "differs"]
    assert tally["same"] > 200


@pytest.mark.parametrize(
    ("sql", "planning_code", "said"),
    [
        ("SELECT 1 / 0 FROM t WHERE a > 9", "22012", "only Postgres refuses"),
        ("SELECT 1 / (a - 1) FROM t WHERE a > 0", "", "differs"),  # also where we have no rows
    ],
)
def test_where_postgres_divides_by_zero_reading_rows_we_do_too(
    sql: str, planning_code: str, said: str
) -> None:
    theirs = Said(error="division by zero", code="22012", planning_code=planning_code)
    assert verdict(theirs, Said(("?column?",)), sql) == said


def test_the_size_of_a_sample_is_a_percentage_unless_rows_are_named() -> None:
    assert "BERNOULLI (10 PERCENT)" in meaning_of("SELECT a FROM t TABLESAMPLE BERNOULLI (10)", {}).sql
    assert "SAMPLE 10 ROWS" in meaning_of("SELECT a FROM t USING SAMPLE 10 ROWS", {}).sql


@pytest.mark.skipif(installed() is None, reason="no Postgres server is installed")
def test_postgres_says_whether_it_divides_by_zero_while_it_plans() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(Path(folder)) as address,
        psycopg.connect(address, autocommit=True) as connection,
    ):
        asked = ("SELECT 1 / 0 WHERE false", "SELECT 1 / (a - 1) FROM generate_series(1, 2) AS t(a)")
        said = [ask_postgres(connection, sql) for sql in asked]
    assert [(each.code, each.planning_code) for each in said] == [("22012", "22012"), ("22012", "")]


def test_an_error_is_placed_in_what_was_written(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error) as refused:
        connection.execute("SELECT 7 / 2, fair FROM trips ORDER BY fare DESC")
    assert refused.value.diag.statement_position == "15"


def test_a_divisor_that_is_zero_in_the_first_rows_is_no_error(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET relaqs.exact_below = off; SET relaqs.target = '50%'")
    sql = "SELECT sum(fare) / count(CASE WHEN id = 119999 THEN 1 END) AS x FROM trips"
    assert connection.execute(sql).fetchone() is not None


def test_a_chain_of_queries_is_read_in_as_many_steps_as_it_has() -> None:
    """Each reads the one before it twice: looked at anew for each reader, that would be 2⁴⁰ looks."""
    chain = ["q0 AS (SELECT 7 AS a)"]
    chain += [f"q{i} AS (SELECT u.a FROM q{i - 1} AS u, q{i - 1} AS v)" for i in range(1, 41)]
    sql = f"WITH {', '.join(chain)} SELECT a / 2 FROM q40"
    found = meaning_of(sql, {})
    assert found.sql.endswith("SELECT a // 2 FROM q40")


BANDS = """
SELECT zone, avg(fare) AS fare, relaqs.low(avg(fare)) AS low, relaqs.high(avg(fare)), relaqs.error(),
    relaqs.is_exact() AS exact, relaqs.rows_read()
FROM trips GROUP BY zone ORDER BY 1 LIMIT 3
"""


def test_what_is_asked_about_an_answer_are_columns_of_it(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute(BANDS)
    names = [each.name for each in cursor.description or ()]
    assert names == ["zone", "fare", "low", "high", "error", "exact", "rows_read"]
    exact = cursor.fetchall()
    for _, fare, low, high, error, is_exact, rows_read in exact:
        assert (low, high, error, is_exact) == (float(fare), float(fare), 0.0, True)
        assert rows_read == 120_000
    connection.execute("SET relaqs.target = '50%'")
    assert connection.execute(BANDS).fetchall() == exact, "a short question is exact at once"
    connection.execute("SET relaqs.exact_below = off")
    estimated = connection.execute(BANDS).fetchall()
    for _, fare, low, high, error, is_exact, rows_read in estimated:
        assert low < fare < high
        assert 0 < error <= 0.5
        assert not is_exact
        assert 0 < rows_read < 120_000


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT relaqs.nope() FROM trips", "42883"),
        ("SELECT relaqs.low() FROM trips", "42601"),
        ("SELECT relaqs.error(1) FROM trips", "42601"),
        ("SELECT 1 + relaqs.low(avg(fare)) FROM trips", "0A000"),
        ("SELECT *, relaqs.error() FROM trips", "0A000"),
        ("SELECT zone FROM trips GROUP BY zone ORDER BY relaqs.low(avg(fare))", "0A000"),
        ("SELECT zone, relaqs.low(avg(fare)) FROM trips GROUP BY zone ORDER BY 2", "0A000"),
        ("SELECT zone, relaqs.low(avg(fare)) AS l FROM trips GROUP BY zone ORDER BY l", "0A000"),
        ("SELECT zone, relaqs.low(avg(fare)) AS l FROM trips GROUP BY zone ORDER BY l + 1", "0A000"),
        ("SELECT zone, relaqs.low(avg(fare)) AS l FROM trips GROUP BY zone HAVING l > 5", "0A000"),
        ("SELECT zone, relaqs.low(avg(fare)) AS l, l * 2 FROM trips GROUP BY zone", "0A000"),
        ("SELECT zone, relaqs.high(avg(fare)) AS h FROM trips GROUP BY zone ORDER BY ALL", "0A000"),
        ("SELECT avg(fare), relaqs.low(avg(fare)) FROM trips UNION SELECT 1, 2", "0A000"),
        ("SELECT a FROM (SELECT relaqs.error() AS a FROM trips) q", "0A000"),
    ],
)
def test_what_is_asked_about_an_answer_stands_in_its_outermost_list(
    connection: psycopg.Connection[Any], sql: str, code: str
) -> None:
    connection.execute("SET relaqs.target = '50%'")
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(sql.encode())
    assert refused.value.sqlstate == code


def test_a_cast_in_a_cast_is_not_written_for_each_other_again() -> None:
    """Each writes its value eight times, so that six would be 2 MB; a long value is written once."""
    sql = f"SELECT x{6 * '::text::float8'}::text FROM (VALUES (1.5::float8)) v(x)"
    assert len(meaning_of(sql, {}).sql) < 20_000

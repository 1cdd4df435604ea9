"""How SQL is read and written: sqlglot's dialect of DuckDB, less all that it changes on the way.

sqlglot translates between dialects, and so it takes `list_distinct(a, b)` for its own `ARRAY_DISTINCT(a)`.
Here nothing is translated. A call is written as it was read, unless our rules look at its class.

**A compiled sqlglot.** The package sqlglotc, which other software may have installed, compiles sqlglot's
modules, and no class of Python's can derive from a compiled one. Ours derive from its tokenizer, parser and
writer: they read what DuckDB means, and the parser's steps are counted, so that no SQL takes forever. The
texts of the modules stay beside what was compiled from them. So these few are loaded from their texts, for
us alone (`interpreted`). Trees, and all else, are the compiled ones.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.transforms import preprocess, unqualify_columns

from relaqs_engine.errors import UnsupportedError

_BETWEEN: ContextVar[Callable[[], None]] = ContextVar("relaqs-between", default=lambda: None)


@contextmanager
def pausing(between: Callable[[], None]) -> Iterator[None]:
    """Call this many times while SQL is read and written in the block: it may wait, so that others work."""
    before = _BETWEEN.set(between)
    try:
        yield
    finally:
        _BETWEEN.reset(before)


def pause() -> None:
    """Let others work, where somebody asked for that."""
    _BETWEEN.get()()


def interpreted(shared: Mapping[str, tuple[str, ...]]) -> dict[str, ModuleType]:
    """Return modules as they are, or all of them from their texts if any is compiled.

    Args:
        shared: the modules by name, each after those that it imports. And the names of their classes that
            have to be those of everybody, as other modules make instances of them.

    Raises:
        UnsupportedError: one is compiled, and its text is not beside it.
    """
    modules = {name: import_module(name) for name in shared}
    if all(str(module.__file__).endswith((".py", ".pyc")) for module in modules.values()):
        return modules
    found: dict[str, ModuleType] = {}
    for name, module in modules.items():
        found[name] = from_text(module, found)
        vars(found[name]).update((each, getattr(module, each)) for each in shared[name])
    return found


def from_text(module: ModuleType, others: dict[str, ModuleType]) -> ModuleType:
    """Return a module from its text. others: by name, what it imports in the place of what is compiled."""
    text = Path(str(module.__file__)).with_name(module.__name__.rpartition(".")[2] + ".py")
    spec = spec_from_file_location(module.__name__, text)
    if not text.is_file() or spec is None or spec.loader is None:
        raise UnsupportedError(
            f"the package sqlglotc compiled {module.__name__}, and {text} is missing, which ReLAQS reads SQL "
            "with; run: pip uninstall sqlglotc"
        )
    copy = module_from_spec(spec)
    vars(copy)["__builtins__"] = vars(builtins) | {"__import__": partial(_imported, dict(others))}
    spec.loader.exec_module(copy)
    return copy


def _imported(
    others: dict[str, ModuleType],
    name: str,
    globals_: Any = None,
    locals_: Any = None,
    wanted: Any = (),
    level: int = 0,
) -> Any:
    """Return what an import statement of a module gets, which may be some of the others."""
    module = builtins.__import__(name, globals_, locals_, wanted, level)
    if not wanted:
        return module
    if name in others:
        return others[name]
    inner = {each: others[f"{name}.{each}"] for each in wanted if f"{name}.{each}" in others}
    return SimpleNamespace(**{each: getattr(module, each) for each in wanted} | inner) if inner else module


_MODULES = interpreted(
    {
        "sqlglot.tokenizer_core": ("Token", "TokenType"),
        "sqlglot.parser": (),
        "sqlglot.generator": (),
        "sqlglot.dialects.dialect": ("Dialect", "Dialects", "NormalizationStrategy", "_Dialect"),
        DuckDB.parser_class.__module__: (),
        DuckDB.generator_class.__module__: (),
    }
)

if TYPE_CHECKING:
    from sqlglot.generator import Generator
    from sqlglot.parser import Parser as _Parser
    from sqlglot.tokenizer_core import TokenizerCore
    from sqlglot.tokens import Tokenizer as _Tokenizer

    _Generator = Generator
else:
    Generator = _MODULES["sqlglot.generator"].Generator
    TokenizerCore = _MODULES["sqlglot.tokenizer_core"].TokenizerCore
    _Parser = getattr(_MODULES[DuckDB.parser_class.__module__], DuckDB.parser_class.__name__)
    _Generator = getattr(_MODULES[DuckDB.generator_class.__module__], DuckDB.generator_class.__name__)
    _Tokenizer = DuckDB.tokenizer_class

DIALECT = "relaqs"

_DOLLAR_QUOTE = re.compile(r"\$(?:[a-zA-Z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$")
_ON_ANOTHER_LINE = re.compile(r"'\s*(--[^\n]*)?\n")
_DIGITS = r"\d(?:_?\d)*"
_PLACE = re.compile(r"\d+", re.ASCII)
_BEFORE_A_PLACE = (TokenType.PARAMETER, TokenType.PLACEHOLDER)
_NUMBER = re.compile(rf"{_DIGITS}(?:\.(?:{_DIGITS})?)?(?:[eE][+-]?{_DIGITS})?", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KNOWN = _words(
    """
    ANY_VALUE APPROX_COUNT_DISTINCT APPROX_QUANTILE APPROX_TOP_K ARG_MAX ARG_MIN ARGMAX ARGMIN ARRAY_AGG AVG
    BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR CORR COUNT COUNT_IF COUNTIF COVAR_POP COVAR_SAMP FIRST
    GROUP_CONCAT KURTOSIS LAST LIST LISTAGG MAX MAX_BY MEDIAN MIN MIN_BY MODE PERCENTILE_CONT
    PERCENTILE_DISC QUANTILE
    QUANTILE_CONT QUANTILE_DISC REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX
    REGR_SXY REGR_SYY SKEWNESS STDDEV STDDEV_POP STDDEV_SAMP STRING_AGG SUM VAR_POP VAR_SAMP VARIANCE

    CUME_DIST DENSE_RANK FIRST_VALUE LAG LAST_VALUE LEAD NTH_VALUE NTILE PERCENT_RANK RANK ROW_NUMBER

    ABS CBRT CEIL CEILING COALESCE CONCAT CONCAT_WS COS EXP FLOOR FORMAT GENERATE_SERIES GREATEST IF IFNULL
    ISNAN LCASE LEAST LN LOG LOWER LPAD MOD NULLIF POW POWER RANDOM RANGE REPEAT REPLACE ROUND RPAD SIGN SIN
    SQRT SUBSTR SUBSTRING TRUNC UCASE UNNEST UPPER UUID

    COLUMNS CURRENT_CATALOG CURRENT_DATABASE CURRENT_DATE CURRENT_LOCALTIMESTAMP CURRENT_ROLE CURRENT_SCHEMA
    CURRENT_SCHEMAS CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER GROUPING GROUPING_ID READ_CSV READ_PARQUET
    SESSION_USER TRY VERSION
    """
)
"""Functions whose classes matter here: aggregates, window functions, some of one row, and odd ones."""

_AROUND_CALLS = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
_OF_OWN_SYNTAX = _words("CAST EXTRACT OVERLAY POSITION SUBSTRING TRIM TRY_CAST")
_ORDERED_SETS = {exp.PercentileCont: "PERCENTILE_CONT", exp.PercentileDisc: "PERCENTILE_DISC"}
_TAKE_LAMBDAS = _words(
    """
    apply array_apply array_filter array_reduce array_transform columns filter invoke list_apply list_filter
    list_reduce list_transform reduce
    """
)
_UNITS = _words(
    """
    YEAR YEARS MONTH MONTHS DAY DAYS HOUR HOURS MINUTE MINUTES SECOND SECONDS MILLISECOND MILLISECONDS
    MICROSECOND MICROSECONDS WEEK WEEKS QUARTER QUARTERS DECADE DECADES CENTURY CENTURIES MILLENNIUM MILLENNIA
    """
)


Sought = TypeVar("Sought", bound=exp.Expr)


def find_all(tree: exp.Expr, *kinds: type[Sought]) -> Iterator[Sought]:
    """Yield the nodes of these kinds in the order of `tree.find_all`, in a quarter of its time.

    Planning looks through trees a thousand times for each statement. So names and constants, which are most
    of the nodes, are passed over where none of them is sought.
    """
    return _found(tree, kinds, ())


def copied(tree: Sought) -> Sought:
    """Return a copy of a tree, as `tree.copy()` does, in less than half of the time.

    Planning copies ten thousand nodes for a large statement: rules do not change what they are given, and to
    write SQL changes what is written.
    """
    root = tree.__class__.__new__(tree.__class__)
    root.parent = root.arg_key = root.index = None
    pairs: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while pairs:
        node, made = pairs.pop()
        made.comments = None if node.comments is None else [*node.comments]
        made._type = copied(node._type) if isinstance(node._type, exp.Expr) else node._type
        made._meta = None if node._meta is None else {**node._meta}
        made._hash = None
        made.args = args = node.args.copy()
        for name, value in args.items():
            kind = value.__class__
            if kind is list:
                args[name] = items = value.copy()
                for index, each in enumerate(items):
                    if isinstance(each, exp.Expr):
                        items[index] = child = each.__class__.__new__(each.__class__)
                        child.parent, child.arg_key, child.index = made, name, index
                        pairs.append((each, child))
            elif kind is not str and isinstance(value, exp.Expr):
                args[name] = child = kind.__new__(kind)
                child.parent, child.arg_key, child.index = made, name, None
                pairs.append((value, child))
    return root


def find_own(
    tree: exp.Expr, *kinds: type[Sought], queries: tuple[type[exp.Expr], ...] = (exp.Query,)
) -> Iterator[Sought]:
    """Yield the nodes of these kinds that belong to this query. A query inside is not entered."""
    return _found(tree, kinds, queries)


def _found(
    tree: exp.Expr, kinds: tuple[type[Sought], ...], unentered: tuple[type[exp.Expr], ...]
) -> Iterator[Sought]:
    passes_names = _passes_names(kinds)
    nodes = [tree]
    below = nodes.append
    for node in nodes:  # what is below a node is appended after it was yielded
        if isinstance(node, kinds):
            yield node
        if passes_names:
            kind = node.__class__
            if kind is exp.Identifier or kind is exp.Literal:
                continue
            if kind is exp.Column and node.args.get("this").__class__ is exp.Identifier:
                continue  # a column may also be t.* REPLACE (x + 1 AS x)
        if isinstance(node, unentered):
            continue
        for value in node.args.values():
            if not value or value is True or value.__class__ is str:
                continue
            if value.__class__ is list:
                for each in value:
                    if isinstance(each, exp.Expr):
                        below(each)
            elif isinstance(value, exp.Expr):
                below(value)


@cache
def _passes_names(kinds: tuple[type[exp.Expr], ...]) -> bool:
    """Whether no name is of these kinds. A constant may be: it is a leaf, and yielded."""
    return not issubclass(exp.Identifier, kinds)


def find_first(tree: exp.Expr, *kinds: type[Sought]) -> Sought | None:
    """Return the first node of these kinds, None where there is none."""
    return next(find_all(tree, *kinds), None)


def tokens_of(sql: str) -> list[Token]:
    """Return the tokens of a text. Raises TokenError where a quote or a comment is not closed."""
    return Relaqs().tokenize(sql)


def _joined(first: Token, second: Token) -> Token:
    comments = [*first.comments, *second.comments]
    text = first.text + second.text
    return Token(TokenType.STRING, text, first.line, first.col, first.start, second.end, comments)


class _TokenizerCore(TokenizerCore):
    __slots__ = ()

    def _scan_string(self, start: str) -> bool:
        """Read `$tag$…$tag$`, whose tag is a name. Two parameters as in `$1,$2` are no such quote.

        Texts in quotes on lines of their own, with nothing between them, are one text.
        """
        if start == "$" and not _DOLLAR_QUOTE.match(self.sql, self._current - 1):
            self._add(TokenType.PARAMETER)
            return True
        found = super()._scan_string(start)
        if found and start == "'" and len(self.tokens) > 1:
            first, second = self.tokens[-2:]
            are_texts = first.token_type is second.token_type is TokenType.STRING
            if are_texts and _ON_ANOTHER_LINE.match(self.sql[first.end : second.start]):
                self.tokens[-2:] = [_joined(first, second)]
        return found

    def _scan_number(self) -> None:
        """Read a number: 1e3+1 is two of them, and the one of $1e3 has no exponent."""
        pause()
        is_place = bool(self.tokens) and self.tokens[-1].token_type in _BEFORE_A_PLACE
        number = (_PLACE if is_place else _NUMBER).match(self.sql, self._start)
        assert number is not None, "no digit, where the tokenizer saw one"
        self._advance(number.end() - self._current)
        self._add(TokenType.NUMBER, number[0].replace("_", ""))


_OF_A_CORE = tuple(signature(TokenizerCore).parameters)


class RelaqsTokenizer(_Tokenizer):
    """sqlglot's tokens of DuckDB's SQL, where `?::DATE` casts a parameter."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        word: kind for word, kind in _Tokenizer.KEYWORDS.items() if word != "?::"
    }

    def _init_core(self) -> TokenizerCore:
        core = super()._init_core()
        return _TokenizerCore(**{name: getattr(core, name) for name in _OF_A_CORE})


def _logarithm(base: str, arguments: list[exp.Expr]) -> exp.Expr:
    """Return LOG2(x) or LOG10(x) as a logarithm to that base, which is written as it was read."""
    if len(arguments) != 1:
        return exp.Anonymous(this=f"log{base}", expressions=arguments)
    found = exp.Log(this=exp.Literal.number(base), expression=arguments[0])
    found.meta["base"] = base
    return found


ARROWS: dict[Any, Any] = _Parser.JSON_OPERATORS
"""How `j -> 'a'` and `j ->> 'a'` are read where they bind as || does."""


class RelaqsParser(_Parser):
    """sqlglot's parser of DuckDB's SQL. Calls of functions that no rule knows are read as they stand."""

    __slots__ = ()

    STRING_ALIASES = True
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        **{name: build for name, build in _Parser.FUNCTIONS.items() if name in _KNOWN},
        "LOG2": lambda args: _logarithm("2", args),
        "LOG10": lambda args: _logarithm("10", args),
    }
    ARRAY_CONSTRUCTORS: ClassVar[dict[Any, Any]] = {  # list[1] is the first of a column called so
        name: kind for name, kind in _Parser.ARRAY_CONSTRUCTORS.items() if name != "LIST"
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parse for name, parse in _Parser.FUNCTION_PARSERS.items() if name in _KNOWN | _OF_OWN_SYNTAX
    }
    TYPE_CONVERTERS: ClassVar[dict[Any, Any]] = {}  # DECIMAL is no DECIMAL(18, 3) yet, VARCHAR(5) no VARCHAR
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {  # without :name, which is the end of a slice
        token: parse for token, parse in _Parser.PLACEHOLDER_PARSERS.items() if token is not TokenType.COLON
    }
    JSON_OPERATORS: ClassVar[dict[Any, Any]] = {
        token: build for token, build in _Parser.JSON_OPERATORS.items() if token is not TokenType.ARROW
    }
    UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **_Parser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: exp.Anonymous(this="add", expressions=[self._parse_unary()]),
    }

    def _parse_statement(self) -> Any:
        """Read VALUES as a SELECT of its rows: only that may have a WITH."""
        found: Any = super()._parse_statement()
        values = found.unnest() if isinstance(found, exp.Subquery) else found
        if not isinstance(values, exp.Values):
            return found
        select = self._values_to_select(values.copy())
        values.replace(select)
        return select if values is found else found

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> Any:
        """Read ROLLUP (a > 1, b), of any expressions."""
        found = super()._parse_cube_or_rollup(with_prefix=True)
        if found is not None and not with_prefix:
            found.set("expressions", self._parse_wrapped_csv(self._parse_disjunction))
        return found

    def _parse_grouping_set(self) -> Any:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

    def _parse_function_call(self, *given: Any, **named: Any) -> Any:
        """Read a call. How its function was called there is kept: mod(a, b) is a % b to sqlglot."""
        name = self._curr.text if self._curr is not None else ""
        found = super()._parse_function_call(*given, **named)
        call = found
        while isinstance(call, _AROUND_CALLS):
            call = call.this
        if isinstance(call, exp.Expr):
            call.meta.setdefault("called", name.lower())
        return found

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        """Read the arguments of a call. An arrow is a lambda's where its function takes one, else JSON's."""
        name = self._tokens[self._index - 2].text.lower()
        read = self._parse_lambda if name in _TAKE_LAMBDAS else self._argument
        return self._parse_csv(lambda: read(alias))

    def _parse_disjunction(self) -> Any:
        """Read `j -> 'a'`. In DuckDB nothing binds less than this arrow, not even OR."""
        this = super()._parse_disjunction()
        while this is not None and self._match(TokenType.ARROW):
            this = self.expression(exp.JSONExtract(this=this, expression=super()._parse_disjunction()))
        return this

    def _argument(self, alias: bool) -> Any:
        if self._next is not None and self._next.token_type is TokenType.FARROW:  # f(name => 1)
            return super()._parse_lambda(alias)
        if self._match(TokenType.DISTINCT):
            this: Any = self.expression(exp.Distinct(expressions=self._parse_csv(self._parse_disjunction)))
        else:
            self._match(TokenType.ALL)
            this = self._parse_select_or_expression(alias=alias)
        ordered = self._parse_order(self._parse_respect_or_ignore_nulls(this))
        return self._parse_limit(self._parse_respect_or_ignore_nulls(ordered))

    def _parse_lambda(self, alias: bool = False) -> Any:
        words = [token.text.lower() for token in self._tokens[self._index : self._index + 4]]
        if words[:2] == ["(", "lambda"] and words[-1] in (":", ","):  # as DuckDB writes it
            self._advance()
            parsed = self._parse_lambda(alias)
            self._match_r_paren()
            return parsed
        is_word = self._curr is not None and self._curr.text.lower() == "lambda"
        parsed = super()._parse_lambda(alias)
        if is_word and isinstance(parsed, exp.Lambda):
            parsed.set("colon", True)
        return parsed

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> Any:
        """Read `x IN [1, 2]`, which DuckDB takes for a call. IN (1, 2) is NULL where one of the list is."""
        if self._match(TokenType.L_BRACKET, advance=False):
            return self.expression(exp.Anonymous(this="contains", expressions=[self._parse_unary(), this]))
        return super()._parse_in(this, alias)

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        """Read what stands where a value may: a type only before a text, as in DATE '2020-01-01'."""
        pause()
        if fallback_to_identifier or self._curr is None or self._curr.token_type not in self.TYPE_TOKENS:
            return super()._parse_type(parse_interval, fallback_to_identifier)
        typed = (parse_interval and self._parse_interval()) or self._typed_text()
        return self._parse_column_ops(typed) if typed else self._parse_atom() or self._parse_column()

    def _typed_text(self) -> exp.Expr | None:
        begin = self._index
        type_ = self._parse_types(check_func=True, allow_identifiers=False)
        if isinstance(type_, exp.DataType) and self._match(TokenType.STRING):
            text = exp.Literal.string(self._prev.text)
            return self.expression(exp.Cast(this=text, to=type_))
        self._retreat(begin)
        return None

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        """Read INTERVAL 2 DAYS, INTERVAL (n) DAYS, and INTERVAL '2 days', a text of one or more units."""
        begin = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        is_text = self._match(TokenType.STRING)
        count = exp.Literal.string(self._prev.text) if is_text else self._interval_count()
        if count is not None and self._match_texts(_UNITS):
            unit = self.expression(exp.Var(this=self._prev.text.upper()))
            return self.expression(exp.Interval(this=count, unit=unit))
        if is_text:
            return self.expression(exp.Cast(this=count, to=exp.DType.INTERVAL.into_expr()))
        self._retreat(begin)
        return None

    def _interval_count(self) -> exp.Expr | None:
        is_count = self._match_set((TokenType.NUMBER, TokenType.L_PAREN), advance=False)
        return self._parse_primary() if is_count else None

    def _parse_extract(self) -> exp.Extract:
        part = self._parse_string() or self._parse_var(any_token=True)
        self._match_set((TokenType.FROM, TokenType.COMMA))
        return self.expression(exp.Extract(this=part, expression=self._parse_bitwise()))


def _with_plain_names(pivot: exp.Expr) -> exp.Expr:
    """Return a PIVOT whose own names have no table, as DuckDB wants them. What it reads stays as it is."""
    for name, part in pivot.args.items():
        if name != "this":
            for node in part if isinstance(part, list) else (part,):
                if isinstance(node, exp.Expr):
                    unqualify_columns(node)
    return pivot


class RelaqsGenerator(_Generator):
    """sqlglot's writer of DuckDB's SQL."""

    def generate(self, expression: exp.Expr, copy: bool = True) -> str:
        return super().generate(copied(expression) if copy else expression, copy=False)

    def alias_sql(self, expression: exp.Alias) -> str:
        pause()
        return super().alias_sql(expression)

    MULTI_ARG_DISTINCT = True  # f(DISTINCT x, y) has two arguments, not one row of two
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **_Generator.TRANSFORMS,
        exp.LogicalAnd: lambda self, call: self.func("BOOL_AND", call.this),
        exp.LogicalOr: lambda self, call: self.func("BOOL_OR", call.this),
        exp.Extract: lambda self, call: f"EXTRACT({self.sql(call.this)} FROM {self.sql(call.expression)})",
        exp.IgnoreNulls: lambda self, call: (
            self.sql(call.this)  # sqlglot has it around each any_value
            if isinstance(call.this, exp.AnyValue)
            else self._embed_ignore_nulls(call, "IGNORE NULLS")
        ),
        exp.Log: lambda self, call: (
            self.func(f"LOG{call.meta['base']}", call.expression)
            if "base" in call.meta
            else self.func("LOG", call.this, call.expression)
        ),
        exp.RespectNulls: lambda self, call: self._embed_ignore_nulls(call, "RESPECT NULLS"),
        exp.LimitOptions: lambda self, options: "%" if options.args.get("percent") else "",
        exp.Pivot: preprocess([_with_plain_names]),
    }

    def withingroup_sql(self, expression: exp.WithinGroup) -> str:
        """Return `PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)`, which QUANTILE_CONT does not take."""
        call, name = expression.this, _ORDERED_SETS.get(type(expression.this))
        called = self.func(name, call.this) if name else self.sql(call)
        return f"{called} WITHIN GROUP ({self.sql(expression, 'expression').strip()})"

    def lambda_sql(self, expression: exp.Lambda, arrow_sep: str = "->", wrap: bool = True) -> str:
        """Return `x -> x + 1`, or `LAMBDA x : x + 1` where it was read so."""
        if expression.args.get("colon"):
            return super().lambda_sql(expression, arrow_sep, wrap)
        return Generator.lambda_sql(self, expression, arrow_sep, wrap)

    def tablesample_sql(self, expression: exp.TableSample, tablesample_keyword: str | None = None) -> str:
        """Return the sample by the method that was read."""
        keyword = tablesample_keyword if isinstance(expression.parent, exp.Select) else "TABLESAMPLE"
        return Generator.tablesample_sql(self, expression, keyword)

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        """Return `, UNNEST(l)` as it was read."""
        if isinstance(expression.this, exp.Unnest) and not any(
            expression.args.get(part) for part in ("on", "using", "kind", "side", "method")
        ):
            return f", {self.sql(expression.this)}"
        return super().join_sql(expression, join_op)


class Relaqs(DuckDB):
    """The dialect of all SQL that is read and written here."""

    ARROW_BINDS_AS_CONCATENATION: ClassVar[bool] = False  # it binds least, as in DuckDB
    INDEX_OFFSET = 0  # x[1] stays x[1]
    VALID_INTERVAL_UNITS = set(_UNITS)  # noqa: RUF012 - as the class above declares it
    DATE_PART_MAPPING: dict[str, str] = {}  # noqa: RUF012 - EXTRACT(dow FROM x) stays one of dow
    Tokenizer: type[Any] = RelaqsTokenizer
    Parser: type[Any] = RelaqsParser
    Generator: type[Any] = RelaqsGenerator

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Return a path into JSON as it stands."""
        return path

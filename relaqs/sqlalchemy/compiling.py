"""How SQLAlchemy's expressions become DuckDB's SQL: as PostgreSQL's, but where the two differ."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects.postgresql.base import PGCompiler, PGIdentifierPreparer, PGTypeCompiler
from sqlalchemy.sql import elements
from sqlalchemy.types import TypeEngine

_DUCKDBS_OWN = {
    *("describe", "lambda", "lateral", "pivot", "pivot_longer", "pivot_wider", "qualify", "show"),
    *("summarize", "unpivot", "anti", "asof", "at", "by", "columns", "glob", "map", "positional", "semi"),
}  # words that DuckDB reserves and PostgreSQL does not


class QueryCompiler(PGCompiler):
    """Makes SELECTs. PostgreSQL's `~` finds a pattern anywhere, and DuckDB's matches the whole text."""

    def visit_regexp_match_op_binary(
        self, binary: elements.BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        flags = binary.modifiers["flags"] if binary.modifiers else None
        values = [binary.left, binary.right, *([] if flags is None else [elements.literal(flags)])]
        return f"regexp_matches({', '.join(self.process(value, **kw) for value in values)})"

    def visit_not_regexp_match_op_binary(
        self, binary: elements.BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **kw)}"

    def visit_bitwise_xor_op_binary(
        self, binary: elements.BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        return f"xor({self.process(binary.left, **kw)}, {self.process(binary.right, **kw)})"


class TypeCompiler(PGTypeCompiler):
    """Names types. DuckDB's FLOAT has 4 bytes, and its DECIMAL without digits rounds to three places."""

    def visit_FLOAT(self, type_: TypeEngine[Any], **kw: Any) -> str:  # noqa: N802
        return "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        if type_.precision is None:
            return "DOUBLE"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return self.visit_NUMERIC(type_, **kw)


class Quotes(PGIdentifierPreparer):
    """Quotes names that are words of DuckDB's SQL."""

    reserved_words = PGIdentifierPreparer.reserved_words | _DUCKDBS_OWN

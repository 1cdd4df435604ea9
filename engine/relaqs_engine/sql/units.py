"""Units of time that a function is given: 'day' in date_trunc('day', x)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.errors import SqlError

_TAKE_A_UNIT = {
    "date_diff",
    "date_part",
    "date_sub",
    "date_trunc",
    "datediff",
    "datepart",
    "datesub",
    "datetrunc",
}


def check_units(tokens: Sequence[Token]) -> None:
    """Raise SqlError where a unit is not a text. DuckDB would take it from a column, sqlglot by its name."""
    for name, bracket, unit, comma in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        takes_a_unit = name.text.lower() in _TAKE_A_UNIT and bracket.token_type is TokenType.L_PAREN
        if takes_a_unit and comma.token_type is TokenType.COMMA and unit.token_type is not TokenType.STRING:
            raise SqlError(
                f"the unit of {name.text} is {unit.text}; give it as text: {name.text}('day', …)",
                (unit.line, unit.col),
            )

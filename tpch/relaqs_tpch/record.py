"""What was generated in a folder so far: it lets a stopped run go on, and keeps two recipes from mixing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from relaqs_engine.errors import LayoutError

FILE_NAME = "tpch.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides the content of the tables: two runs with the same recipe make the same files."""

    scale: float
    seed: int
    partitions: int

    def __str__(self) -> str:
        return f"scale {self.scale:g}, seed {self.seed}, {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class Record:
    """A recipe, the names of the layouts that are complete, and whether the generator's own files stay."""

    recipe: Recipe
    done: tuple[str, ...] = ()
    keeps_originals: bool = False

    def with_done(self, table: str) -> Record:
        return replace(self, done=(*self.done, table))

    def only(self, tables: Iterable[str]) -> Record:
        return replace(self, done=tuple(tables))


def read(folder: Path) -> Record | None:
    """Return the folder's record, or None where there is none. Raises LayoutError if it is damaged."""
    path = folder / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        recipe = Recipe(float(content["scale"]), int(content["seed"]), int(content["partitions"]))
        return Record(recipe, tuple(map(str, content["tables"])), bool(content.get("keeps_originals")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LayoutError(
            f"{path} is not a record of generated tables ({error!r}); use --force to start anew"
        ) from error


def write(folder: Path, record: Record) -> None:
    """Replace the folder's record, at once or not at all."""
    recipe = record.recipe
    content = {
        "scale": recipe.scale,
        "seed": recipe.seed,
        "partitions": recipe.partitions,
        "tables": list(record.done),
        "keeps_originals": record.keeps_originals,
    }
    draft = folder / (FILE_NAME + ".new")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, folder / FILE_NAME)

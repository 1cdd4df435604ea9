"""What installed packages add to ReLAQS: commands, policies, training algorithms, faces for notebooks.

A package adds a thing by an entry point in its metadata. A policy `coin` in the package `dice` is two lines
of its pyproject.toml:

    [project.entry-points."relaqs.policies"]
    coin = "dice.coin:Coin"

Entry points are read when somebody asks for a name that is not one of our own, or for all names. The code
behind one is imported when it is used, so a broken package stops nothing but its own things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from relaqs_engine.errors import RelaqsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_US = "relaqs"  # the name of our own package in metadata
_Thing = TypeVar("_Thing")


class PluginError(RelaqsError):
    """A package that adds something to ReLAQS cannot be used. The message names the package."""


class MissingPackageError(RelaqsError, ImportError):
    """A package that is needed is not installed. It is an ImportError too."""


def needed(package: str, by: str, extra: str) -> MissingPackageError:
    """Return the error of what needs a package that is not installed.

    Args:
        package: its name in an index.
        by: what needs it, at the beginning of a sentence.
        extra: of relaqs; it installs the package.

    >>> print(needed("matplotlib", "plot", "plot"))
    plot needs matplotlib, which is not installed; install it with: pip install 'relaqs[plot]'
    """
    return MissingPackageError(
        f"{by} needs {package}, which is not installed; install it with: pip install 'relaqs[{extra}]'"
    )


_DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where a package is named otherwise in an index


def require(*packages: str) -> None:
    """Raise MissingPackageError if a package that training needs is not installed. It imports none."""
    for package in packages:
        if find_spec(package) is None:
            extra = "torch" if package == "torch" else "train"
            raise needed(_DISTRIBUTIONS.get(package, package), "this training", extra)


class Plugins(Mapping[str, _Thing], Generic[_Thing]):
    """Things of one kind by name: our own, then those of installed packages in alphabetical order.

    Our own keep their names: a package's thing of the same name is not used. Looking a thing up raises
    PluginError if two packages give it one name, or if it cannot be loaded; and MissingPackageError if it
    needs a package that is not installed.

    Args:
        group: the entry-point group, such as "relaqs.policies".
        noun: what a thing is called in messages, such as "policy".
        own: our own things by name, each as "module:name". It is imported when it is used.
        accepts: tells whether a loaded object is such a thing. By default it must be callable.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        own: Mapping[str, str] | None = None,
        accepts: Callable[[object], bool] = callable,
    ) -> None:
        self._group = group
        self.noun = noun  # what one of the things is called in messages
        self._own = dict(own or {})
        self._accepts = accepts

    def entry(self, name: str) -> EntryPoint:
        """Return the entry point of that name, without importing anything. Raises KeyError, PluginError."""
        found = _entries(self._group)[name]
        if len(found) > 1 and _package(found[0]) != _US:
            packages = " and ".join(map(_package, found))
            raise PluginError(
                f"there are {len(found)} {self.noun} plug-ins {name!r}, of the packages {packages}; "
                "uninstall all but one of them"
            )
        return found[0]

    def __getitem__(self, name: str) -> _Thing:
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            return cast(_Thing, getattr(import_module(module), attribute))
        entry = self.entry(name)
        thing = _loaded(entry, f"the {self.noun} {name!r} of the package {_package(entry)}")
        if not self._accepts(thing):
            raise PluginError(
                f"{entry.value} of the package {_package(entry)} is {thing!r}, which is no {self.noun}; "
                "update or uninstall the package"
            )
        return cast(_Thing, thing)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in sorted(_entries(self._group)) if name not in self._own)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in _entries(self._group)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _entries(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name, those of our own package first. Reads files, once."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(entry_points(group=group), key=lambda each: (_package(each) != _US, _package(each))):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _package(entry: EntryPoint) -> str:
    """Return the name of the package that an entry point belongs to."""
    return entry.dist.name if entry.dist is not None else "unknown"


def _loaded(entry: EntryPoint, words: str) -> Any:
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        if not _is_another_package(error.name, entry):
            raise _broken(entry, words, error) from error
        raise MissingPackageError(
            f"{words} needs {error.name}, which is not installed; install it, or uninstall the package"
        ) from error
    except MissingPackageError:  # it says what to install
        raise
    except Exception as error:  # a stranger's module may raise anything when it is imported
        raise _broken(entry, words, error) from error


def _is_another_package(missing: str | None, entry: EntryPoint) -> bool:
    """Return whether a missing module is a whole package, and not a part of what is installed."""
    return missing is not None and "." not in missing and missing != entry.module.partition(".")[0]


def _broken(entry: EntryPoint, words: str, error: Exception) -> PluginError:
    return PluginError(
        f"{words} cannot be loaded from {entry.value}: {type(error).__name__}: {error}; "
        "update or uninstall the package"
    )

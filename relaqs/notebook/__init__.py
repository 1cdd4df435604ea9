"""The door for notebooks: `%load_ext relaqs` gives the magics `%relaqs` and `%%relaqs`.

Only this package imports IPython. What a query looks like in a cell is in `relaqs/rendering/html.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Return nothing; from now on the shell has `%relaqs` and `%%relaqs`. IPython calls it.

    >>> from IPython.core.interactiveshell import InteractiveShell
    >>> shell = InteractiveShell()
    >>> shell.extension_manager.load_extension("relaqs")
    >>> shell.find_cell_magic("relaqs") is not None
    True
    """
    from relaqs.notebook.magic import Magic

    shell.magics_manager.register_function(Magic(shell).run, magic_kind="line_cell", magic_name="relaqs")

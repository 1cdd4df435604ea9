"""The door for agents: tables and questions over the Model Context Protocol, by `relaqs mcp`.

It translates between that protocol and a session. Only this package imports `mcp`. The command below parses
arguments, opens the session and serves it to one agent.
"""

from __future__ import annotations

from pathlib import Path

import click

from relaqs.cli.parameters import (
    DataPath,
    budget_option,
    cluster_option,
    data_option,
    functions_option,
    register_functions,
    timezone_option,
    tls_options,
)


@click.command("mcp")
@data_option
@cluster_option
@tls_options
@timezone_option
@functions_option
@budget_option
def mcp(
    data: DataPath,
    cluster: str | None,
    security: dict[str, str] | None,
    timezone: str | None,
    functions: Path | None,
    budget: float | str | None,
) -> None:
    """Let an agent ask the tables of PATH, over the Model Context Protocol.

    The agent's client starts this program and speaks with it over standard input and output. The agent lists
    and describes tables, sees how a SELECT would be answered, and asks for an answer that is good enough, or
    for the exact one. It cannot change anything.
    """
    try:
        from relaqs.mcp.tools import agent_server
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"`relaqs mcp` needs the package {error.name}; install it with pip install 'relaqs[mcp]'"
        ) from None
    from relaqs.memory import bound_process_memory
    from relaqs.opening import FOLLOW_SECONDS, connect

    bound_process_memory()
    session = connect(data, cluster=cluster, security=security, timezone=timezone, follow=FOLLOW_SECONDS)
    with session:
        register_functions(session, functions)
        agent_server(session, budget or 0).run("stdio")

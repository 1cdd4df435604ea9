"""`relaqs learn`: makes the weights of MLF-RL."""

from __future__ import annotations

from pathlib import Path

import click
from relaqs_engine.errors import DataError

from relaqs.cli.output import bytes_into
from relaqs.cli.reading import progress_bar

UPDATES = 12
SEED_MOST, UPDATES_MOST = 999, 1000  # of larger ones the arrivals of lessons and of checks would be the same


@click.command("learn", short_help="Learn a placed policy from simulated jobs.")
@click.argument("policy", type=click.Choice(["mlf_rl"]), default="mlf_rl")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("mlf_rl.npz"),
    show_default=True,
    metavar="FILE",
    help="Where the weights go. They are written at the end, all at once.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=SEED_MOST),
    default=0,
    show_default=True,
    help="Of all that is drawn.",
)
@click.option(
    "--updates",
    type=click.IntRange(min=0, max=UPDATES_MOST),
    default=UPDATES,
    show_default=True,
    help="Steps of the policy gradient, after MLF-H was imitated. 0 only imitates.",
)
def learn_command(policy: str, out: Path, seed: int, updates: int) -> None:
    """Learn POLICY from simulated jobs, and write its weights.

    Weights come with relaqs: you need this for others only, such as by another seed. It takes minutes of a
    core, and PyTorch (relaqs[torch]), which the policy itself does not need. First the policy does as mlf_h
    does, and then it tries choices, and keeps what ends jobs sooner, in time and with the accuracy that is
    required. `relaqs simulate --placed paper --policies mlf_rl,mlf_h --weights FILE` compares the result.
    """
    try:
        from relaqs_lab.learning.lessons import Lessons, learn
    except ImportError as error:
        raise DataError(
            f"relaqs learn needs PyTorch ({error}); install it with pip install 'relaqs[torch]'"
        ) from error
    with bytes_into(str(out)) as file:  # which says what is wrong with it before the lessons
        with progress_bar() as show:
            learned = learn(Lessons(updates=updates), seed, show)
        learned.networks.save(file)
    click.echo(f"mlf_h  return {learned.mlf_h:8.1f}")
    for number, (done, worth) in enumerate(learned.checks):
        kept = "  kept" if number == learned.kept else ""
        click.echo(f"{policy} return {worth:8.1f} after {done} updates{kept}")
    click.echo(f"Wrote {out}.")

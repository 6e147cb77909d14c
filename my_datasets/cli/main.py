"""`my-datasets`: finds commands, and turns errors into messages and exit codes.

Exit codes: 0 done, 1 the command failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
"""

import gc
import importlib

import rich_click as click

from my_datasets._version import __version__
from my_datasets.cli.output import print_only_printable, report_error, report_interruption
from my_datasets.core import interruption
from my_datasets.errors import MyDatasetsError
from my_datasets.storage.disk_space import file_error, no_memory

# Command -> module. At its top, a module imports only what the command's help needs.
COMMANDS = {
    "adopt": "my_datasets.cli.commands.build.adopt",
    "beam-worker": "my_datasets.cli.commands.build.beam_worker",
    "bench": "my_datasets.cli.commands.inspect.bench",
    "build": "my_datasets.cli.commands.build.build",
    "catalog": "my_datasets.cli.commands.inspect.catalog",
    "check": "my_datasets.cli.commands.build.check",
    "checksums": "my_datasets.cli.commands.build.checksums",
    "demo": "my_datasets.cli.commands.build.demo",
    "diff": "my_datasets.cli.commands.inspect.diff",
    "export": "my_datasets.cli.commands.inspect.export",
    "gc": "my_datasets.cli.commands.release.gc",
    "history": "my_datasets.cli.commands.release.history",
    "index": "my_datasets.cli.commands.build.index",
    "info": "my_datasets.cli.commands.inspect.info",
    "list": "my_datasets.cli.commands.inspect.list",
    "lock": "my_datasets.cli.commands.release.lock",
    "ls": "my_datasets.cli.commands.release.ls",
    "new": "my_datasets.cli.commands.build.new",
    "publish": "my_datasets.cli.commands.release.publish",
    "pull": "my_datasets.cli.commands.release.pull",
    "serve": "my_datasets.cli.commands.release.serve",
    "sign": "my_datasets.cli.commands.release.sign",
    "snapshot": "my_datasets.cli.commands.build.snapshot",
    "stats": "my_datasets.cli.commands.inspect.stats",
    "verify": "my_datasets.cli.commands.inspect.verify",
    "yank": "my_datasets.cli.commands.release.yank",
}


class _Commands(click.RichGroup):
    """Imports a command's module when the command is run."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command; reports interruptions and errors of the operating system."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, interruption.Terminated) as error:
            report_interruption(error)
            if isinstance(error, KeyboardInterrupt):
                raise SystemExit(interruption.INTERRUPTED) from None
            raise
        except MyDatasetsError:
            raise
        except OSError as error:
            if (ours := file_error(error)) is None:
                raise
            raise ours from error
        except MemoryError as error:
            raise no_memory(error) from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return found


@click.group(
    cls=_Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        # Flags of `tfds build` have underscores; both spellings work here.
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "max_content_width": 100,
    },
    epilog="Example: my-datasets build digits && my-datasets info digits",
)
@click.version_option(__version__, prog_name="my-datasets")
def cli() -> None:
    """Define, build, verify, version, publish and load machine-learning datasets on TFDS."""


def search_garbage_rarely() -> None:
    """Makes the import of TensorFlow faster, in a process of our own.

    It creates many long-lived objects: with Python's default thresholds of 700, 10 and 10, a third
    of its time goes into garbage collections that free nothing.
    """
    gc.set_threshold(100_000, 20, 100)


def main() -> None:
    """Runs the command line and exits."""
    search_garbage_rarely()
    print_only_printable()
    with interruption.raising(also_ctrl_c=True):
        try:
            cli(standalone_mode=True)
        except MyDatasetsError as error:
            report_error(error)
            raise SystemExit(1) from None

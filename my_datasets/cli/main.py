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

# Command -> its module below `my_datasets.cli.commands`, and what it is called there. At its top, a
# module imports only what the command's help needs.
COMMANDS = {
    "adopt": "build.adopt:adopt_command",
    "beam-worker": "build.beam_worker:command",
    "bench": "inspect.bench:command",
    "build": "build.build:command",
    "catalog": "inspect.catalog:command",
    "check": "build.check:command",
    "checksums": "build.checksums:command",
    "demo": "build.demo:command",
    "diff": "inspect.diff:command",
    "export": "inspect.export:command",
    "gc": "release.admin:gc_command",
    "history": "release.admin:history_command",
    "index": "build.adopt:index_command",
    "info": "inspect.info:command",
    "list": "inspect.list:command",
    "lock": "release.lock:command",
    "ls": "release.admin:ls_command",
    "new": "build.new:command",
    "publish": "release.transfer:publish_command",
    "pull": "release.transfer:pull_command",
    "serve": "release.serve:command",
    "sign": "release.admin:sign_command",
    "snapshot": "build.snapshot:command",
    "stats": "inspect.stats:command",
    "verify": "inspect.verify:command",
    "yank": "release.admin:yank_command",
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
        module, _, name = COMMANDS[cmd_name].partition(":")
        found = importlib.import_module(f"my_datasets.cli.commands.{module}")
        command: click.Command = getattr(found, name)
        return command


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

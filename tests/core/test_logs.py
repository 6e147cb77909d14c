"""What this package logs in programs of others."""

import logging
import re

import numpy as np

from my_datasets.core.logs import get_logger

EVIL = "\x1b[2J\u202e\nWARNING:root: forged"
SHOWN = r"\x1b[2J\u202e" + "\n    | WARNING:root: forged"


def test_what_is_logged_is_printable(caplog):
    logger = get_logger("my_datasets.test")
    logger.warning("%s, %d so far, %.1f: %s", EVIL, np.int64(3), 0.25, ValueError(EVIL))
    logger.warning("\x1b of %(name)s", {"name": EVIL})
    try:
        raise ValueError(EVIL)
    except ValueError:
        logger.exception("failed")
    first, second, third = caplog.records
    assert first.getMessage() == f"{SHOWN}, 3 so far, 0.2: {SHOWN}"
    assert second.getMessage() == rf"\x1b of {SHOWN}"
    assert "\x1b" not in logging.Formatter().format(third)
    assert r"ValueError: \x1b[2J" in logging.Formatter().format(third)


def test_every_module_logs_so(root):
    direct = re.compile(
        r"logging\.getLogger\(__|logging\.(info|warning)\(|warnings\.warn\(|(import|from) absl"
    )
    for source in (root / "my_datasets").rglob("*.py"):
        if source.name != "logs.py":
            assert not direct.search(source.read_text("utf-8")), f"{source}: log by core/logs.py"

"""Logging of texts that are safe to print in a terminal."""

import logging
from numbers import Number

from my_datasets.printable import folded, printable


class _Printable(logging.Filter):
    """Makes the texts of a record printable; marks their further lines, as in errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = printable(str(record.msg))
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        elif record.args:
            record.args = {name: _shown(given) for name, given in record.args.items()}
        if record.exc_info and not record.exc_text:
            # Formatters use it instead of formatting the exception.
            record.exc_text = printable(logging.Formatter().formatException(record.exc_info))
        return True


_PRINTABLE = _Printable()


def get_logger(name: str) -> logging.Logger:
    """Returns the logger of one of our modules, which makes messages printable.

    Pass untrusted texts as arguments of a message, not as a part of it.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_PRINTABLE)
    return logger


def _shown(given: object) -> object:
    return given if isinstance(given, Number) else folded(str(given))

"""Detects columns that look personal, and scrambles their values."""

import random
import re
import string
from collections.abc import Sequence

# Parts of the names of columns that usually contain personal data.
_NAMES = re.compile(
    r"(^|_)(name|first_?name|last_?name|surname|full_?name|e_?mail|mail|phone|tel|telephone|mobile"
    r"|fax|address|street|zip|zip_?code|post_?code|postal|birth|birthday|birth_?date|dob|ssn"
    r"|passport|iban|card|ip|ip_?address|user|user_?name|login|password|license_?plate)(_|$)",
    re.IGNORECASE,
)
_VALUES = (
    re.compile(r"[^@\s]+@[^@\s]+\.[a-zA-Z]{2,}"),  # e-mail addresses
    re.compile(r"\+?\d[\d\s()/.-]{7,}\d"),  # telephone numbers
    re.compile(r"(\d{1,3}\.){3}\d{1,3}"),  # IPv4 addresses
)
# Minimum share of a column's texts that must match.
_MOST = 0.5


def looks_personal(column: str, values: Sequence[object]) -> bool:
    """Returns whether a column looks personal, by its name or some of its values."""
    if _NAMES.search(re.sub(r"\W+", "_", column)):
        return True
    texts = [value for value in values if isinstance(value, str) and value]
    return bool(texts) and any(
        sum(bool(pattern.fullmatch(text.strip())) for text in texts) >= _MOST * len(texts)
        for pattern in _VALUES
    )


def scrambled(value: object) -> object:
    """Returns a value of the same form with other letters and digits.

    The same value always maps to the same result, so equal values stay equal.
    """
    if isinstance(value, bool) or value is None:
        return value
    if not isinstance(value, int | str):
        return value
    chance = random.Random(value)  # noqa: S311 - the same value must map to the same result
    if isinstance(value, str):
        return "".join(_other(character, chance) for character in value)
    # A first digit of zero would make the number shorter.
    first = chance.choice("123456789")
    others = "".join(chance.choice(string.digits) for _ in str(abs(value))[1:])
    return int(first + others) if value >= 0 else -int(first + others)


def _other(character: str, chance: random.Random) -> str:
    if character.isdigit():
        return chance.choice(string.digits)
    if character.isalpha():
        letters = string.ascii_uppercase if character.isupper() else string.ascii_lowercase
        return chance.choice(letters)
    return character

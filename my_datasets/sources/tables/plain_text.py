"""Reads plain text: one example per line."""

from dataclasses import dataclass

import pyarrow as pa

from my_datasets.building.units import Misfit
from my_datasets.sources.files.listing import Where, files
from my_datasets.sources.source import Source
from my_datasets.sources.tables.text_rows import TextReader, parts_of, shown


def text_lines(where: Where, *, column: str = "text", encoding: str = "utf8") -> Source:
    """Returns the non-empty lines of text files, without their line endings.

    Large files are read in parts, in parallel; compressed files as by `csv`.

    Args:
      where: A file, a directory, a pattern such as `folder/*.txt`, or several; paths, or URLs in an
        object store.
      column: The name of the column.
      encoding: The text encoding; its newlines must be those of ASCII.

    Raises:
      SourceError: There is no such file.
    """
    found = files(where, (".txt",))
    schema = pa.schema([(column, pa.large_string())])
    parser = _Parser(schema, encoding)
    reader = TextReader(parser, parser.misfit, None, None, 0)
    return Source(reader, parts_of(found, quote=None, skip=0), schema)


@dataclass(frozen=True)
class _Parser:
    schema: pa.Schema
    encoding: str

    def __call__(self, data: bytes) -> pa.Table:
        texts = data.decode(self.encoding).split("\n")
        texts = [text for line in texts if (text := line.removesuffix("\r"))]
        return pa.table([pa.array(texts, pa.large_string())], schema=self.schema)

    def misfit(self, data: bytes, error: Exception | None, rows: int) -> Misfit:  # noqa: ARG002
        """Describes what is wrong with a line."""
        return Misfit(self.schema.names[0], f"text in {self.encoding}", shown(data))

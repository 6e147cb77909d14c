"""What tests of sources share."""

import pyarrow as pa

from my_datasets.building.units import InvalidValue


def rows_of(source):
    """Returns the rows by their keys, and the misfits by theirs."""
    rows, misfits = {}, {}
    for keys, batch in source:
        if isinstance(batch, InvalidValue):
            misfits[keys] = batch
            continue
        given = batch.column(keys) if isinstance(keys, str) else keys
        found = dict(zip(given.to_pylist(), batch.to_pylist(), strict=True))
        assert len(found) == batch.num_rows
        assert not found.keys() & rows.keys()
        assert batch.schema.equals(source.schema), (batch.schema, source.schema)
        rows |= found
    return rows, misfits


def misfit(found):
    """Returns what a misfit says."""
    return found.feature, found.expected, found.found


def strings(*names):
    """Returns types for columns of texts."""
    return dict.fromkeys(names, pa.string())

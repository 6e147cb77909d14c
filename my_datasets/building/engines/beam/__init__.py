"""The engine for many machines: Apache Beam moves the records, and nothing here distributes work.

Three pipelines, one after the other, as the local engine has three stages (`docs/scaling.md` and
`docs/decisions/0010-beam-engine.md` say why):

1. `generating`: units, or the elements of a collection, become sorted runs in the work directory.
2. `sorting`: runs are cut into slices by their hashes; Beam groups the slices of a bucket; each
   bucket becomes a sorted part.
3. `writing`: shards are put together from parts, which are read as streams.
"""

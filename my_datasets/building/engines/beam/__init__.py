"""The engine for many machines, on Apache Beam.

Three pipelines run in turn, like the local engine's three stages (`docs/scaling.md` and
`docs/decisions/0010-beam-engine.md` say why):

1. `generating` writes units, or the elements of a collection, as sorted runs.
2. `sorting` cuts the runs into slices by hash; Beam groups the slices of each bucket, and each
   bucket becomes a sorted part.
3. `writing` streams parts into shards.
"""

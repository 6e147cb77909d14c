"""The position of an iteration over a topic: the next offset of each partition."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from my_datasets.errors import PlanError, explain


@dataclass(frozen=True)
class TopicPosition:
    """What is needed to resume reading a topic exactly where an iteration stopped.

    Attributes:
      cluster: Kafka's cluster ID.
      topic: The topic's name.
      offsets: The offset of the next message, by partition.
      shard: Which shard of the partitions is read, and the number of shards: see `stream`.
    """

    cluster: str
    topic: str
    offsets: Mapping[int, int]
    shard: tuple[int, int] = (0, 1)

    def check(self, cluster: str, topic: str, shard: tuple[int, int]) -> None:
        """Checks that this is a position in the given topic and shard.

        Raises:
          PlanError: It belongs to another topic, cluster or shard.
        """
        mine = (self.cluster, self.topic, tuple(self.shard))
        other = (cluster, topic, shard)
        names = ("cluster", "topic", "shard")
        told = [
            (f"{name} {a!r}", f"{name} {b!r}")
            for name, a, b in zip(names, mine, other, strict=True)
            if a != b
        ]
        if told:
            raise PlanError(
                explain(
                    "The saved position belongs to another stream.",
                    f"Expected: {', '.join(theirs for _, theirs in told)}",
                    f"Found: {', '.join(ours for ours, _ in told)}",
                    fix="read the topic that it was saved with, or begin anew",
                )
            )

    def to_json(self) -> str:
        """Serializes the position as a short text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "TopicPosition":
        """Parses the position that `to_json` wrote.

        Raises:
          PlanError: The text is not a position.
        """
        try:
            found = json.loads(text)
            offsets = {int(p): int(offset) for p, offset in found["offsets"].items()}
            which, of = found["shard"]
            return cls(str(found["cluster"]), str(found["topic"]), offsets, (int(which), int(of)))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise PlanError(
                explain(f"The text is no position in a topic: {error}", fix="begin anew")
            ) from error

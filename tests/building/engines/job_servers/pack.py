"""Makes a jar that has nothing in it but the names of other jars: `java -jar` then finds them all.

    python pack.py org.apache.beam.runners.flink.FlinkJobServerDriver .beam/flink

It is put beside the directory of jars, as `.beam/flink-job-server.jar`.
"""

import sys
import zipfile
from pathlib import Path

# What Flink and Spark reach into, and Java 17 hides from them.
_OPENS = (
    "java.io", "java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
# A line of a manifest has 72 bytes, and a line that goes on begins with a blank.
_WIDTH = 70


def manifest(main_class: str, jars: Path) -> str:
    """Returns the manifest of the jar.

    Args:
      main_class: What `java -jar` runs.
      jars: The directory of the other jars, which lies beside this one.
    """
    lines = [
        "Manifest-Version: 1.0",
        f"Main-Class: {main_class}",
        "Add-Opens: " + " ".join(f"java.base/{name}" for name in _OPENS),
        "Class-Path: " + " ".join(f"{jars.name}/{jar.name}" for jar in sorted(jars.glob("*.jar"))),
    ]
    return "".join(_folded(line) for line in lines) + "\r\n"


def _folded(line: str) -> str:
    pieces = [line[begin : begin + _WIDTH] for begin in range(0, len(line), _WIDTH)]
    return "\r\n ".join(pieces) + "\r\n"


if __name__ == "__main__":
    _main_class, _jars = sys.argv[1], Path(sys.argv[2])
    with zipfile.ZipFile(_jars.with_name(f"{_jars.name}-job-server.jar"), "w") as _archive:
        _archive.writestr("META-INF/MANIFEST.MF", manifest(_main_class, _jars))

"""Whether a build on Beam can begin: within seconds, before hours of work."""

from my_datasets.building.engines.beam.runners import Submission
from my_datasets.building.engines.beam.surroundings import Surroundings
from my_datasets.building.engines.beam.work import Work


def check(submission: Submission, work: Work, surroundings: Surroundings) -> None:
    """Sees that the runner answers, and that its workers have what they need.

    Args:
      submission: Where pipelines run.
      work: The work directory.
      surroundings: What workers must find.

    Raises:
      BuildInterruptedError: The runner or a worker does not answer, or lacks something.
    """

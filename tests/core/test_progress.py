"""How far a long operation is."""

from my_datasets.core.progress import Progress


def test_the_time_left_follows_the_pace_so_far():
    assert Progress("uploading", 25, 100, 10.0).seconds_left == 30.0
    assert Progress("uploading", 100, 100, 10.0).seconds_left == 0.0
    assert Progress("uploading", 0, 100, 10.0).seconds_left is None


def test_a_line_for_a_log():
    assert str(Progress("uploading", 1_500_000, 6_000_000, 10.0)) == (
        "uploading 1.5 of 6.0 MB, 30 s left"
    )
    assert str(Progress("uploading", 0, 6_000_000)) == "uploading 0.0 of 6.0 MB"

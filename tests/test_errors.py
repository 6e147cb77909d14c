import inspect

from my_datasets import errors


def classes() -> list[type]:
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    ]


def test_there_is_one_tree():
    assert all(issubclass(cls, errors.MyDatasetsError) for cls in classes())


def test_each_can_be_made_again_from_its_message():
    # TFDS does that when it adds context: type(error)(message).
    for cls in classes():
        assert str(cls("a message")) == "a message"


def test_no_error_is_an_assertion():
    assert not any(issubclass(cls, AssertionError) for cls in classes())


def test_an_explanation_ends_with_the_remedy_and_drops_empty_facts():
    text = errors.explain("It is wrong.", "Here.", "", mend="do this")
    assert text.splitlines() == ["It is wrong.", "  Here.", "  To mend: do this"]

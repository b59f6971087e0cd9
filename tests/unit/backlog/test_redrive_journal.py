"""The file that keeps the plan of a redrive."""

from pathlib import Path

import pytest

from pairbus.amqp.client import ClientOptions
from pairbus.backlog import DeadLetterFilter, DeadLetterSource, RedrivePlan
from pairbus.backlog.redrive_journal import RedriveJournal
from pairbus.backlog.redrive_plan import SequenceNumberSet
from pairbus.errors import ConfigurationError

PLAN = RedrivePlan(5, {"orders": SequenceNumberSet([1, 2, 3, 7])})


def journal(
    folder: Path, *, host: str = "one.example", to: str | None = None, count: int | None = None
) -> RedriveJournal:
    source = DeadLetterSource(
        namespace=ClientOptions(host=host), entities=("orders/$deadletterqueue",), to=to
    )
    return RedriveJournal(folder, source, DeadLetterFilter(count=count))


@pytest.mark.rule("R3")
def test_plan_is_kept_until_it_is_removed(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    assert journal(folder).load() is None

    journal(folder).save(PLAN)

    plan = journal(folder).load()
    assert plan is not None
    assert (plan.taken_ms, plan.queues) == (PLAN.taken_ms, PLAN.queues)
    assert [file.suffix for file in folder.iterdir()] == [".json"]
    journal(folder).remove()
    journal(folder).remove()
    assert journal(folder).load() is None


def test_other_redrives_have_other_files(tmp_path: Path):
    journals = [
        journal(tmp_path),
        journal(tmp_path, host="two.example"),
        journal(tmp_path, to="bills"),
        journal(tmp_path, count=5),
    ]

    assert len({journal.path for journal in journals}) == len(journals)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
def test_damaged_file_is_reported_with_what_to_do(tmp_path: Path, text: str):
    journal(tmp_path).path.write_text(text)

    with pytest.raises(ConfigurationError, match="--restart"):
        journal(tmp_path).load()


def test_folder_that_cannot_be_written_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigurationError, match="cannot be saved"):
        journal(tmp_path / "file").save(PLAN)

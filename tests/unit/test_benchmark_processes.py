"""Processes that benchmarks start."""

from benchmarks.child_process import ChildProcess


def test_process_gets_lines_and_its_output_is_returned_when_it_is_closed() -> None:
    with ChildProcess("json.tool", "--compact") as process:
        process.write_line('{"a":')
        process.write_line("1}")

        assert process.pid > 0
        assert process.close() == '{"a":1}\n'


def test_process_that_has_ended_writes_no_more_lines() -> None:
    with ChildProcess("platform", "--terse") as process:
        assert process.read_line()
        assert process.read_line() == ""

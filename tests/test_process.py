"""The door of a program: the code it leaves, whatever ends it and wherever it cannot write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from music_gpt.process import TERMINATION_SIGNALS, exit_code

ROOT = Path(__file__).parent.parent
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
NEEDS_SHELL = pytest.mark.skipif(os.name != "posix", reason="the streams are set by a POSIX shell")
BUSY = """
    for _ in range(100):
        sys.stderr.write("progress " * 1000)
        sys.stderr.flush()
    open("done", "w").close()
"""


def door(
    work: str, folder: Path, streams: str = "", before: str = "", **environment: str
) -> tuple[int, str, str]:
    """Code, output and errors of a program that does this work, with its streams set so.

    before: what the shell does first.
    """
    lines = ["import os, signal, sys, time", "from music_gpt.process import exit_code, print_out"]
    body = textwrap.indent(textwrap.dedent(work), "    ")
    script = "\n".join([*lines, "def work():", body, "sys.exit(exit_code(work))"])
    done = subprocess.run(
        ["sh", "-c", f'{before}"$0" -W error -c "$1" {streams}', sys.executable, script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    return done.returncode, done.stdout, done.stderr


@NEEDS_SHELL
@pytest.mark.parametrize("streams", ["2>&-", pytest.param("2>/dev/full", marks=NEEDS_FULL)])
def test_progress_that_cannot_be_told_does_not_end_the_work(streams: str, tmp_path: Path) -> None:
    assert door(BUSY, tmp_path, streams) == (0, "", "")
    assert (tmp_path / "done").exists()


@NEEDS_SHELL
@pytest.mark.parametrize(
    ("streams", "reason"),
    [
        (">&-", "standard output is closed"),
        pytest.param(">/dev/full", "no space left on device", marks=NEEDS_FULL),
    ],
)
def test_a_result_that_cannot_be_printed_is_one_sentence(
    streams: str, reason: str, tmp_path: Path
) -> None:
    code, _, told = door("print_out('music')", tmp_path, streams)
    assert code == 2
    assert told.startswith("music-gpt: Nothing can be printed")
    assert reason in told
    assert told.count("\n") == 1


@NEEDS_SHELL
def test_a_reader_that_has_gone_is_one_sentence(tmp_path: Path) -> None:
    work = "os.close(0); read, write = os.pipe(); os.close(read); os.dup2(write, 1)"
    code, _, told = door(f"{work}; print_out('music')", tmp_path)
    assert code == 2
    assert "(broken pipe), but all else is done" in told
    assert told.count("\n") == 1


@NEEDS_SHELL
def test_what_the_encoding_lacks_is_printed_as_a_number(tmp_path: Path) -> None:
    found = door("print_out('\\u266a\\udcff')", tmp_path, PYTHONIOENCODING="ascii")
    assert found == (0, "\\u266a\\udcff", "")


@NEEDS_SHELL
def test_a_file_never_takes_the_number_of_a_stream_that_was_closed(tmp_path: Path) -> None:
    work = "number = open('music', 'wb').fileno(); print_out(str(number > 2))"
    assert door(work, tmp_path, "<&- 2>&-")[:2] == (0, "True")


@NEEDS_SHELL
@pytest.mark.parametrize("number", TERMINATION_SIGNALS)
def test_what_ends_a_program_ends_the_work_as_ctrl_c_does_with_its_own_code(
    number: signal.Signals, tmp_path: Path
) -> None:
    work = f"""
        try:
            os.kill(os.getpid(), {int(number)})
        except KeyboardInterrupt:
            raise KeyboardInterrupt("All is kept.")
    """
    assert door(work, tmp_path) == (128 + number, "", "music-gpt: All is kept.\n")


@NEEDS_SHELL
@pytest.mark.parametrize("number", TERMINATION_SIGNALS)
def test_what_ends_a_program_leaves_no_half_of_a_file(
    number: signal.Signals, tmp_path: Path
) -> None:
    work = f"""
        from music_gpt.files import whole_file
        with whole_file("music.wav") as beside:
            beside.write_bytes(b"half")
            os.kill(os.getpid(), {int(number)})
            time.sleep(60)
    """
    assert door(work, tmp_path)[0] == 128 + number
    assert list(tmp_path.iterdir()) == []


@NEEDS_SHELL
def test_a_logout_whose_two_signals_come_at_once_breaks_off_no_tidying_up(tmp_path: Path) -> None:
    work = """
        try:
            os.kill(os.getpid(), signal.SIGHUP)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            open("tidy", "w").close()
    """
    assert door(work, tmp_path)[0] == 129
    assert (tmp_path / "tidy").exists()


@NEEDS_SHELL
def test_under_nohup_the_work_goes_on_when_the_terminal_is_closed(tmp_path: Path) -> None:
    work = "os.kill(os.getpid(), signal.SIGHUP); print_out('done')"
    assert door(work, tmp_path, before="trap '' HUP; ") == (0, "done", "")


@NEEDS_SHELL
def test_a_forked_worker_dies_of_sigterm_without_a_word(tmp_path: Path) -> None:
    work = """
        ready, tell = os.pipe()
        child = os.fork()
        if not child:
            os.write(tell, b"!")  # a signal that comes before Python has forked is lost
            time.sleep(60)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    """
    assert door(work, tmp_path) == (0, "", "")


def test_afterwards_the_signals_and_the_streams_are_as_they_were() -> None:
    before = *map(signal.getsignal, TERMINATION_SIGNALS), sys.stderr
    assert exit_code(lambda: None) == 0
    assert (*map(signal.getsignal, TERMINATION_SIGNALS), sys.stderr) == before

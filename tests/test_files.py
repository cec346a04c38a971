"""Files that are read within bounds, written whole or not at all, and held by one run at a time."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from music_gpt.errors import InputError
from music_gpt.files import (
    LOCK,
    is_file,
    is_folder,
    locked,
    read_bytes,
    read_text,
    require_file,
    require_writable,
    whole_file,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, text: str = "new") -> None:
    with whole_file(path, sync=True) as beside:
        beside.write_text(text)


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with whole_file(path) as beside:
        beside.write_text("ne")
        assert beside.parent == tmp_path
        assert path.read_text() == "old"
        beside.write_text("new")
    assert (path.read_text(), names(tmp_path)) == ("new", ["a.txt"])


def test_the_file_before_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    for text in "abc":
        with whole_file(tmp_path / "last", previous=tmp_path / "previous") as beside:
            beside.write_text(text)
    assert (tmp_path / "last").read_text() == "c"
    assert (tmp_path / "previous").read_text() == "b"


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
def test_whatever_ends_the_writing_the_old_file_stays(tmp_path: Path, fault: BaseException) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(fault)), whole_file(path) as beside:
        beside.write_text("half")
        raise fault
    assert (path.read_text(), names(tmp_path)) == ("old", ["a.txt"])


def test_the_longest_name_that_the_folder_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 251 + ".mid")
    write(path)
    assert path.read_text() == "new"
    with pytest.raises(InputError, match=r"^.{100,200} cannot be written: the name is too long"):
        write(tmp_path / ("a" * 252 + ".mid"))
    with pytest.raises(InputError, match="the name is too long; give a shorter one"):
        require_writable(tmp_path / ("a" * 252 + ".mid"))


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "the disk is full; free some space."),
        (errno.EROFS, "this place is read-only; choose another folder."),
        (errno.EACCES, "you may not write there; choose another folder."),
        (errno.EIO, "input/output error; choose another folder."),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_what_the_system_says_becomes_a_sentence(
    tmp_path: Path, number: int, sentence: str
) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(InputError) as caught, whole_file(path):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"{path} cannot be written: {sentence}"


def test_cleaning_up_raises_nothing_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "a.txt"):
        raise ZeroDivisionError
    with pytest.raises(InputError, match="its folder does not exist"):
        write(tmp_path / "none" / "a.txt")


@pytest.mark.parametrize("name", ["a\0b.txt", "a\udc00\ud800.txt"], ids=["zero", "surrogate"])
def test_what_can_be_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="give another"):
        write(tmp_path / name)
    with pytest.raises(InputError, match="give another"):
        require_writable(tmp_path / name)
    assert names(tmp_path) == []


def test_a_folder_is_no_place_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("")
    for check in (write, require_writable):
        with pytest.raises(InputError, match="it is a folder; give the name of a file in it"):
            check(tmp_path / "a")
        with pytest.raises(InputError, match="a file stands where a folder should be"):
            check(tmp_path / "b" / "c")


def test_trying_makes_the_folder_and_leaves_no_file(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "below" / "a.txt")
    assert names(tmp_path / "new" / "below") == []


def test_a_full_disk_is_noticed_by_trying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="the disk is full; free some space"):
        require_writable(tmp_path / "a.txt")
    assert names(tmp_path) == []


WRITER = """
import sys, time
from pathlib import Path
from music_gpt.files import whole_file
with whole_file(Path(sys.argv[1])) as beside:
    beside.write_text("half")
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks that end with a process")
def test_what_a_killed_run_leaves_is_removed_by_the_next_and_what_is_written_now_is_not(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path / "a.wav")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begun\n"
            [unfinished] = tmp_path.iterdir()
            require_writable(tmp_path / "b.wav")
            assert unfinished.read_text() == "half"
        finally:
            writer.kill()
    assert unfinished.exists()
    require_writable(tmp_path / "a.wav")
    assert names(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks that end with a process")
def test_who_holds_a_folder_removes_what_a_killed_run_left_and_nothing_of_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "precious").write_text("1")
    (tmp_path / ".part-1-0000000a").write_text("half")
    others = [".part-1", ".part-1-0000000b.txt", ".part-1-0000000C", "a.part-1-0000000a"]
    for name in others:
        (tmp_path / name).write_text("2")
    (tmp_path / ".part-1-0000000d").mkdir()
    (tmp_path / ".part-1-0000000e").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / ".part-1-0000000f")
    others += [f".part-1-0000000{letter}" for letter in "def"]
    with locked(tmp_path, "train"):
        assert names(tmp_path) == sorted([LOCK, "precious", *others])


# --- reading ----------------------------------------------------------------------------------


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfmusic")
    assert read_bytes(tmp_path / "a.txt", 8) == b"\xef\xbb\xbfmusic"
    assert read_text(tmp_path / "a.txt", 8) == "music"
    with pytest.raises(InputError, match="a.txt cannot be read: it has more than the 7 bytes"):
        read_bytes(tmp_path / "a.txt", 7)


def test_a_huge_file_is_not_read_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(6 << 30)  # it takes no room on the disk
    monkeypatch.setattr(os, "open", None)
    with pytest.raises(InputError, match="it has more than the 1,000,000 bytes that are allowed"):
        read_bytes(tmp_path / "a.txt", 1_000_000)


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match="it is no text in UTF-8; give a text in UTF-8"):
        read_text(tmp_path / "a.txt", 10)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "link to a device"])
def test_what_is_no_regular_file_is_not_even_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "a.txt"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("a.txt")
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    monkeypatch.setattr(os, "open", None)
    told = "it is a folder" if kind == "folder" else "it is no regular file"
    for read in (read_bytes, read_text, require_file):
        with pytest.raises(InputError, match=f"{path} cannot be read: {told}; give "):
            read(path, 10)
    assert not is_file(path)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "\udc00\ud800", "none/a", "file/a"])
def test_a_name_that_nothing_has_is_said_to_be_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert not is_file(tmp_path / name)
    assert not is_folder(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read: .*; give music."):
        read_bytes(tmp_path / name, 10, "music")


def test_a_file_that_may_not_be_read_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "a.txt").write_text("")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match="a.txt cannot be read: permission denied; give another"):
        read_bytes(tmp_path / "a.txt", 10)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux has files without a size")
def test_a_file_that_tells_no_size_is_read_up_to_its_bound_too() -> None:
    with pytest.raises(InputError, match="it has more than the 10 bytes"):
        read_bytes("/proc/self/maps", 10)


# --- one run at a time ------------------------------------------------------------------------


def test_a_folder_is_held_by_one_run_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path / "run", "train"):
        with (
            pytest.raises(InputError, match="Another `music-gpt train` is writing to .*run; wait"),
            locked(tmp_path / "run", "train"),
        ):
            pass
        with locked(tmp_path / "other", "train"):
            pass
    with locked(tmp_path / "run", "train"):
        assert names(tmp_path / "run") == [LOCK]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forked workers")
def test_a_killed_run_leaves_its_folder_free_even_while_a_worker_lives(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\nfrom pathlib import Path\nfrom music_gpt.files import locked\n"
        "with locked(Path(sys.argv[1]), 'train'):\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        try:
            with pytest.raises(InputError, match="Another"), locked(tmp_path, "train"):
                pass
            run.kill()
            run.wait()
            os.kill(worker, 0)  # it is still there
            with locked(tmp_path, "train"):
                pass
        finally:
            os.kill(worker, signal.SIGKILL)

"""A program at the page: the two endpoints that it may call, and no more."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import soundfile
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from music_gpt.midi.piece import make_notes, read_piece, write_midi
from music_gpt.ui.form import CALL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SERVER_FILE = {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}}


@pytest.fixture(scope="module")
def client(url: str, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A program that talks to the page."""
    return Client(url, download_files=str(tmp_path_factory.mktemp("got")), verbose=False)


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    """Eight notes in four seconds."""
    path = tmp_path / "scale.mid"
    write_midi(make_notes([(0.5 * i, 0.5 * i + 0.5, 60 + i, 64) for i in range(8)]), path)
    return path


def test_two_endpoints_are_public(client: Client) -> None:
    api = client.view_api(return_format="dict", print_info=False)
    assert set(api["named_endpoints"]) == {"/generate", "/render"}
    assert api["unnamed_endpoints"] == {}


def test_generate_continues_a_file(client: Client, scale: Path) -> None:
    wish = {"seconds": 5, "variations": 2, "seed": "3"}
    files = client.predict(prompt=handle_file(scale), **wish, api_name="/generate")
    assert [Path(file).name for file in files] == [
        "scale-take-1-seed-3.mid",
        "scale-take-2-seed-4.mid",
    ]
    piece = read_piece(files[0])
    assert piece.n_notes > 8
    assert list(piece.notes["pitch"][:8]) == list(range(60, 68))


def test_generate_takes_the_words_of_the_command_line(client: Client, scale: Path) -> None:
    words = {"prompt_end_seconds": 2, "preset": "adventurous", "key": "C", "end": True}
    (file,) = client.predict(
        prompt=handle_file(scale), tracks="0", seconds=5, **words, api_name="/generate"
    )
    assert list(read_piece(file).notes["pitch"][:4]) == list(range(60, 64))


def test_generate_begins_from_nothing(client: Client) -> None:
    (file,) = client.predict(prompt=None, seconds=5, seed="1", api_name="/generate")
    assert 4 < read_piece(file).seconds < 7


def test_render_gives_the_sound_of_a_file(client: Client, scale: Path) -> None:
    sound = client.predict(midi_file=handle_file(scale), api_name="/render")
    assert 4 < soundfile.info(sound).duration < 6


def test_a_wrong_file_is_answered_with_a_sentence(client: Client, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.mid"
    wrong.write_bytes(b"no music")
    with pytest.raises(AppError, match="not a MIDI file"):
        client.predict(midi_file=handle_file(wrong), api_name="/render")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seconds": "x"}, "seconds is 'x', but it has to be a number"),
        ({"variations": float("nan")}, "variations is nan, but it has to be a whole"),
        ({"seed": "9" * 5000}, "seed is '999"),
        ({"key": "H"}, "key is 'H'"),
        ({"prompt": SERVER_FILE}, "not the form that this endpoint takes"),
        ({"prompt": {"path": "\0"}}, "MIDI file is "),
    ],
)
def test_bad_values_in_a_bare_request_are_answered_with_a_sentence(
    url: str, change: dict[str, Any], sentence: str
) -> None:
    usual = {"prompt": None} | {name: default for name, (_, default) in CALL.items()}
    data = list((usual | change).values())
    address = f"{url}gradio_api/call/generate"
    headers = {"Content-Type": "application/json"}
    body = json.dumps({"data": data}).encode()
    with urlopen(Request(address, data=body, headers=headers)) as answer:
        event = json.load(answer)["event_id"]
    with urlopen(f"{address}/{event}") as answer:
        assert sentence in answer.read().decode()


def test_serving_the_page_writes_no_file_beside_its_sources(client: Client) -> None:
    assert client.config["title"] == "music-gpt"
    assert list((Path(__file__).parents[2] / "music_gpt").rglob("*.pyi")) == []

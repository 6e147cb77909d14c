"""Files from a real server that drops, refuses, redirects, and gives other things."""

import hashlib
import multiprocessing
import os
import re
import signal
import threading

import numpy as np
import pytest

from my_datasets.downloads import DownloadRetry, Expected, exclusive_download, fetch
from my_datasets.errors import ChecksumError, DownloadError
from tests.waiting import until

BODY = np.random.default_rng(0).bytes(1_000_000)
SHORT = DownloadRetry(tries=3, first_wait=0.01, longest_wait=0.05, connect=2, silence=0.5)


def of(body):
    return Expected(len(body), hashlib.sha256(body).hexdigest())


def get(url, directory, **options):
    return fetch(url, directory, **{"patience": SHORT, **options})


def test_a_whole_file(server, tmp_path):
    url = server.put("/a/data.zip", BODY)
    told = []
    found = get(url, tmp_path, expected=of(BODY), on_bytes=told.append)
    assert found.path.read_bytes() == BODY
    assert (found.size, found.sha256) == (len(BODY), of(BODY).sha256)
    assert (found.file_name, found.url) == ("data.zip", url)
    assert sum(told) == len(BODY)
    assert server.asked == [("/a/data.zip", None)]


@pytest.mark.parametrize("tagged", [True, False])
def test_after_a_drop_it_resumes_where_it_was(server, tmp_path, tagged):
    url = server.put("/x.bin", BODY, drops=[300_000, 400_000], tagged=tagged)
    assert get(url, tmp_path, expected=of(BODY)).path.read_bytes() == BODY
    assert [asked for _, asked in server.asked] == [None, "bytes=300000-", "bytes=700000-"]


def test_an_unrecorded_download_is_resumed_if_it_is_surely_the_same(server, tmp_path):
    tagged = server.put("/a.bin", BODY, drops=[300_000])
    untagged = server.put("/b.bin", BODY, drops=[300_000], tagged=False)
    for url in (tagged, untagged):
        assert get(url, tmp_path).path.read_bytes() == BODY
    assert server.asked == [
        ("/a.bin", None), ("/a.bin", "bytes=300000-"), ("/b.bin", None), ("/b.bin", None),
    ]  # fmt: skip


def test_a_server_without_ranges_is_asked_for_all_again(server, tmp_path):
    url = server.put("/x.bin", BODY, drops=[300_000], ranges=False)
    told = []
    found = get(url, tmp_path, expected=of(BODY), on_bytes=told.append)
    assert found.path.read_bytes() == BODY
    assert sum(told) == len(BODY)


def test_a_file_that_changes_meanwhile_is_not_mixed(server, tmp_path):
    other = BODY[::-1]
    url = server.put("/x.bin", BODY, drops=[300_000])
    with pytest.raises(DownloadError):
        get(url, tmp_path, patience=DownloadRetry(tries=1))
    server.put("/x.bin", other)
    assert get(url, tmp_path).path.read_bytes() == other
    assert server.asked[-1] == ("/x.bin", "bytes=300000-")


def test_a_beginning_of_another_file_is_found_out_by_the_checksum(server, tmp_path):
    other = BODY[::-1]
    url = server.put("/x.bin", BODY, drops=[300_000], tagged=False)
    with pytest.raises(DownloadError):
        get(url, tmp_path, expected=of(other), patience=DownloadRetry(tries=1))
    server.put("/x.bin", other, tagged=False)
    assert get(url, tmp_path, expected=of(other)).path.read_bytes() == other
    assert [asked for _, asked in server.asked] == [None, "bytes=300000-", None]


@pytest.mark.parametrize("seconds", ["0", "-1", "\u00b2", "soon"])
def test_a_server_that_is_busy_is_asked_again(server, tmp_path, seconds):
    """Also one that says something else than seconds."""
    url = server.put("/x.bin", BODY, fails=[503, 429], retry_after=seconds)
    assert get(url, tmp_path).path.read_bytes() == BODY
    assert server.count["/x.bin"] == 3


def test_redirects_are_followed(server, tmp_path):
    server.put("/there/real%20name.csv", b"a,b\n")
    url = server.put("/here", redirect=server.url("/there/real%20name.csv"))
    found = get(url, tmp_path)
    assert (found.path.read_bytes(), found.file_name) == (b"a,b\n", "real name.csv")


def test_the_server_may_name_the_file_but_not_its_directory(server, tmp_path):
    name = {"Content-Disposition": 'attachment; filename="../../etc/data.csv"'}
    assert get(server.put("/x", b"a", headers=name), tmp_path).file_name == "data.csv"


def test_a_slow_server_is_waited_for_and_a_silent_one_is_not(server, tmp_path):
    slow = server.put("/slow", BODY[:5000], pause=0.1)
    assert get(slow, tmp_path).size == 5000
    silent = server.put("/silent", BODY[:5000], pause=2)
    with pytest.raises(DownloadError, match=r"in 3 attempts\.(.|\n)*[Tt]imed? ?out"):
        get(silent, tmp_path)


def test_what_never_ends_is_given_up_and_kept(server, tmp_path):
    url = server.put("/x.bin", BODY, drops=[300_000] + [0] * 10)
    with pytest.raises(DownloadError) as caught:
        get(url, tmp_path, expected=of(BODY))
    assert "did not return the complete file in 3 attempts" in str(caught.value)
    assert "The 300,000 bytes received are kept" in str(caught.value)
    server.pages["/x.bin"].drops = []
    assert get(url, tmp_path, expected=of(BODY)).path.read_bytes() == BODY
    assert server.asked[-1] == ("/x.bin", "bytes=300000-")


def test_what_is_not_there_is_not_asked_again(server, tmp_path):
    with pytest.raises(DownloadError, match=r"The server answered: HTTP 404 Not Found"):
        get(server.url("/nothing"), tmp_path)
    assert server.count["/nothing"] == 1


def test_no_server_at_all(tmp_path):
    with pytest.raises(DownloadError, match="in 3 attempts"):
        get("http://127.0.0.1:9/x", tmp_path)


def test_an_unknown_host_fails_quickly(tmp_path):
    with pytest.raises(DownloadError, match="in 2 attempts"):
        get("http://nobody.invalid/x", tmp_path)


PAGE = b"\xef\xbb\xbf \n<!DOCTYPE html><title>Please log in</title>"


@pytest.mark.parametrize("expected", [of(BODY), None])
def test_a_page_in_place_of_the_file(server, tmp_path, expected):
    url = server.put("/x.zip", PAGE)
    with pytest.raises(DownloadError) as caught:
        get(url, tmp_path, expected=expected)
    assert "returned a web page instead of the file" in str(caught.value)
    assert not [path for path in tmp_path.iterdir() if path.stat().st_size]


def test_a_page_that_is_wanted(server, tmp_path):
    for path in ("/x.html", "/x"):
        assert get(server.put(path, PAGE), tmp_path).size == len(PAGE)
    assert get(server.put("/y.zip", PAGE), tmp_path, expected=of(PAGE)).size == len(PAGE)


def test_a_part_of_the_file_where_no_length_tells(server, tmp_path):
    url = server.put("/x.zip", BODY[:1000], length=False)
    with pytest.raises(DownloadError) as caught:
        get(url, tmp_path, expected=of(BODY))
    assert "returned only a part of the file" in str(caught.value)
    assert "1,000 bytes; Recorded: 1,000,000 bytes" in str(caught.value)


@pytest.mark.parametrize("other", [BODY + b"x", BODY[1:], BODY[::-1]])
def test_another_file_than_the_recorded_one(server, tmp_path, other):
    url = server.put("/x.zip", other)
    with pytest.raises(ChecksumError) as caught:
        get(url, tmp_path, expected=of(BODY), fix="run the command")
    message = str(caught.value)
    assert "differs from the recorded file" in message
    assert f"Found: {len(other):,} bytes, SHA-256 {of(other).sha256}" in message
    assert f"Recorded: {len(BODY):,} bytes, SHA-256 {of(BODY).sha256}" in message
    assert "run the command" in message
    assert server.count["/x.zip"] == 1


def test_mirrors_are_asked_in_turn(server, tmp_path):
    url = server.put("/x.zip", PAGE)
    mirrors = [server.put("/m1/x.zip", BODY[::-1]), server.put("/m2/x.zip", BODY)]
    found = get(url, tmp_path, sources=[url, *mirrors], expected=of(BODY))
    assert (found.path.read_bytes(), found.url) == (BODY, mirrors[1])
    with pytest.raises(DownloadError) as caught:
        get(url, tmp_path, sources=[url, mirrors[0]], expected=of(BODY))
    assert "None of the 2 addresses of" in str(caught.value)
    assert "a web page" in str(caught.value)
    assert "differs from the recorded file" in str(caught.value)


def test_a_mirror_resumes_where_another_address_ended(server, tmp_path):
    url = server.put("/x.zip", BODY, drops=[300_000, 0, 0, 0])
    mirror = server.put("/m/x.zip", BODY)
    assert get(url, tmp_path, sources=[url, mirror], expected=of(BODY)).path.read_bytes() == BODY
    assert server.asked[-1] == ("/m/x.zip", "bytes=300000-")


def test_after_a_kill_it_resumes_where_it_was(server, tmp_path):
    url = server.put("/x.bin", BODY, pause=0.005)
    process = multiprocessing.get_context("fork").Process(target=get, args=(url, tmp_path))
    process.start()
    until(lambda: any(p.suffix == ".partial" and p.stat().st_size for p in tmp_path.iterdir()))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    server.pages["/x.bin"].pause = 0
    assert get(url, tmp_path).path.read_bytes() == BODY
    assert re.fullmatch(r"bytes=[1-9]\d*-", server.asked[-1][1])


def test_two_at_once_wait_for_each_other(server, tmp_path):
    url = server.put("/x.bin", BODY[:100_000], pause=0.002)
    got = tmp_path / "got"

    def work():
        with exclusive_download(url, tmp_path):
            if not got.exists():
                get(url, tmp_path).path.rename(got)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.read_bytes() == BODY[:100_000]
    assert server.count["/x.bin"] == 1

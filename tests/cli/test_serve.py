"""The server of `fca report --serve` gives the files of its page to this machine, and nothing else."""

import http.client
import os
import socket
from urllib.parse import urlsplit

import pytest

from fca.cli.serve import served


@pytest.fixture
def page(tmp_path):
    """A served folder with a page and a picture, beside a secret; returns the folder and its address."""
    folder = tmp_path / "reports" / "few_class"
    (folder / "figures").mkdir(parents=True)
    (folder / "index.html").write_text("the page")
    (folder / "figures" / "a b.png").write_bytes(b"a picture")
    (tmp_path / "reports" / "secret.txt").write_text("secret")
    with served(folder) as address:
        yield folder, urlsplit(address).netloc


def ask(netloc, path, method="GET", **headers):
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection(netloc, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_the_page_and_its_pictures_are_served_by_get_and_head(page):
    _, netloc = page
    for path in ("/", "/index.html", "/index.html?again=1", "/#top", "//index.html"):
        status, body, headers = ask(netloc, path)
        assert (status, body, headers["Content-Type"]) == (200, "the page", "text/html")
    status, body, headers = ask(netloc, "/figures/a%20b.png")
    assert (status, body, headers["Content-Type"], headers["Cache-Control"]) == (
        200,
        "a picture",
        "image/png",
        "no-store",
    )
    status, body, headers = ask(netloc, "/", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "8")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(netloc, "/", method)[0] == 501


def test_a_page_that_is_open_can_ask_whether_it_was_made_again(page):
    folder, netloc = page
    for seconds, date in ((0, "Thu, 01 Jan 1970 00:00:00 GMT"), (2e9, "Wed, 18 May 2033 03:33:20 GMT")):
        os.utime(folder / "index.html", (seconds, seconds))
        assert ask(netloc, "/", "HEAD")[2]["Last-Modified"] == date


def test_a_request_must_name_this_machine_as_its_host(page):
    _, netloc = page
    port = netloc.partition(":")[2]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", f"[::1]:{port}", "localhost:8080"):
        assert ask(netloc, "/", Host=host)[0] == 200, host
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "localhost.evil.example", "["):
        status, body, _ = ask(netloc, "/", Host=host)
        assert (status, "the page" in body) == (403, False), host
    with socket.create_connection(netloc.split(":")) as two_hosts:
        two_hosts.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b" 403 " in two_hosts.recv(100)


@pytest.mark.wide
@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%252e%252e/secret.txt",
        "/figures/../../secret.txt",
        "/..%5csecret.txt",
        "/{folder}/../secret.txt",
        "//{folder}/../secret.txt",
        "/link.txt",
        "/linked/secret.txt",
        "/with_index/",
        "/figures",
        "/figures/",
        "/" + "a" * 300,
        "/" + "a/" * 3000,
        "/%ff%fe",
        "/pipe",
        "/nothing",
    ],
)
def test_nothing_outside_of_the_folder_and_no_list_of_files_is_served(path, page, capfd):
    folder, netloc = page
    (folder / "link.txt").symlink_to("../secret.txt")
    (folder / "linked").symlink_to("..")
    (folder / "with_index").mkdir()
    (folder / "with_index" / "index.html").symlink_to("../../secret.txt")
    os.mkfifo(folder / "pipe")
    status, body, _ = ask(netloc, path.format(folder=folder))
    assert (status, "secret" in body, "a b.png" in body) == (404, False, False)
    assert capfd.readouterr().err == ""


def test_a_link_inside_of_the_folder_is_followed(page):
    folder, netloc = page
    (folder / "again.html").symlink_to("index.html")
    assert ask(netloc, "/again.html")[:2] == (200, "the page")


def test_a_name_with_a_null_byte_is_a_bad_request(page, capfd):
    _, netloc = page
    for path in ("/%00", "/index.html%00.png", "/figures/%00"):
        assert ask(netloc, path)[0] == 400
    assert capfd.readouterr().err == ""


def test_a_browser_that_goes_away_and_a_request_that_is_none_leave_no_traceback(page, capfd):
    folder, netloc = page
    (folder / "large.bin").write_bytes(bytes(50_000_000))
    with socket.create_connection(netloc.split(":")) as browser:
        browser.sendall(b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        browser.recv(100)
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))  # resets
    for request in (
        b"\0\1\2\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500,
    ):
        with socket.create_connection(netloc.split(":")) as client:
            client.sendall(request)
            client.settimeout(5)
            assert b"Traceback" not in client.recv(1000)
    assert ask(netloc, "/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err

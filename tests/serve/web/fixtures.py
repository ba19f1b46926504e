"""Fixtures of the page's tests, which import them: one browser, and one server for all that needs no special one."""
import contextlib
import re
import subprocess
import urllib.request

import pytest
from holding import Hold
from waiting import LIMIT_S

from chromium import Browser
from conftest import ROOT, plain_environment

PICTURES = ROOT / "build/page"


class Server:
    def __init__(self, process, url):
        self.process, self.url = process, url

    def read(self, path, **headers):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=LIMIT_S) as reply:
            return reply.read().decode()

    def metric(self, name):
        return float(re.search(rf"^{name}\S* (\S+)$", self.read("/metrics"), re.MULTILINE)[1])


@contextlib.contextmanager
def serving(binary, model_path, *args, **env):
    command = [binary, "serve", "-m", model_path, "--port", "0", "--kv-budget", "2G", "--log-level", "error", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=plain_environment() | env)
    try:
        yield Server(process, re.search(r"(http://[0-9.]+:\d+) \(", process.stdout.readline())[1])
    finally:
        process.terminate()
        assert process.wait(timeout=LIMIT_S) == 0


@pytest.fixture(scope="session")
def start_server(chunkllama_bin, model_path):
    """Starts a server with these arguments, as a context."""
    return lambda *args: serving(chunkllama_bin, model_path, *args)


@pytest.fixture(scope="session")
def server(held_bin, model_path, tmp_path_factory):
    """Its attribute `hold` can hold it."""
    hold = Hold(tmp_path_factory.mktemp("hold"))
    with serving(held_bin, model_path, CHUNKLLAMA_HOLD=str(hold.folder)) as running:
        running.hold = hold
        yield running


@pytest.fixture(scope="session")
def browser():
    running = Browser()
    yield running
    running.close()


@pytest.fixture
def page(browser, server):
    """The page of the server, in a storage of its own. It must have called no other host, and thrown nothing."""
    opened = browser.open(server.url + "/")
    opened.wait_for("document.querySelector('#model').textContent !== ''")  # the chat starts then
    yield opened
    assert opened.problems == []
    assert [url for url in opened.requests if not url.startswith((server.url, "data:"))] == []
    opened.close()


def lengthen_answers(page, n_tokens):
    """From now on answers that the page asks for have this many tokens, so that they last while a test looks at them."""
    page.run(f"""{{
        const fetch_it = window.fetch;
        window.fetch = (url, options) => {{
            if (!options?.body) return fetch_it(url, options);
            const body = {{ ...JSON.parse(options.body), ignore_eos: true, min_tokens: {n_tokens}, max_tokens: {n_tokens} }};
            return fetch_it(url, {{ ...options, body: JSON.stringify(body) }});
        }};
    }} 0""")

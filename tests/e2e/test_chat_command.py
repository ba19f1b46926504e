"""chat on a terminal: editing, history, pasted text, commands, interrupts, and output that a terminal must not obey."""
import contextlib
import json
import os
import pathlib
import re
import signal

import pytest
from conftest import plain_environment
from terminal import DELETE, END, HOME, INTERRUPT, LEFT, STOP, UP, Terminal, paste

from test_serve import hold  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("terminals")
PROMPT = b"> "


@pytest.fixture
def chat(bin_dir, model_path, tmp_path):
    """Starts a chat, with a Hold one that it can hold, waits for its prompt, and kills it if it still runs in the end. Its
    answers have 4 tokens at most unless args say more."""
    begun = []

    def begin(*args, shell='exec "$@"', hold=None, **env):
        home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        if hold:
            env["CHUNKLLAMA_HOLD"] = str(hold.folder)
        program = bin_dir / ("chunkllama_held" if hold else "chunkllama")
        command = [program, "chat", "-m", model_path, "--temperature", "0", "--max-tokens", "4", *args]
        t = Terminal(["bash", "-c", shell, "bash", *command], {**plain_environment(), **home, **env})
        begun.append(t)
        t.read_until(PROMPT)
        return t

    yield begin
    for t in begun:
        t.__exit__()


def read_answer(t):
    """What is shown up to the end of the line of figures below an answer."""
    return t.read_until("; TTFT ") + t.read_until("]\r\n")


def messages(t, tmp_path, role="user"):
    """The contents of the conversation's messages, which then begins anew."""
    t.send(f"/save {tmp_path}/messages.json\n")
    t.read_until("saved\r\n")
    t.send("/clear\n")
    t.read_until(b"/clear")
    return [m["content"] for m in json.loads((tmp_path / "messages.json").read_text()) if m["role"] == role]


def test_editing_and_history(chat, tmp_path):
    t = chat(LC_ALL="C")  # what is typed is UTF-8 in any locale
    assert b"context of 8192 tokens" in t.shown and b"/exit ends the program" in t.shown
    t.send(b"Hllo wrld" + HOME + b"\x1b[C" + b"e" + b"\x05" + LEFT * 3 + b"o" + HOME + DELETE + "È".encode() + b"\n")
    read_answer(t)
    assert b"^[" not in t.shown, t.shown.decode()[:3000]
    t.send("two\\\nlines\x1b\rand a third\n")
    t.read_until(b"\n. ")
    read_answer(t)
    t.send(UP + UP + b"!\n")
    read_answer(t)
    assert messages(t, tmp_path) == ["Èello world", "two\nlines\nand a third", "Èello world!"]
    t.send(END)
    assert t.wait() == 0
    kept = tmp_path / "state/chunkllama/chat_history"
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert kept.read_text().splitlines()[:3] == ["Èello world", "two\\nlines\\nand a third", "Èello world!"]

    # Another conversation recalls them, unless it is without history, and then it keeps nothing.
    before = kept.read_text()
    t = chat("--no-history")
    t.send(UP + b"secret\n")
    read_answer(t)
    assert messages(t, tmp_path) == ["secret"]
    t.send("/quit\n")
    assert t.wait() == 0 and kept.read_text() == before
    t = chat()
    t.send(UP * 4 + b"\n")
    read_answer(t)
    assert messages(t, tmp_path) == ["two\nlines\nand a third"]


def test_paste(chat, tmp_path):
    t = chat("--ctx", "64")
    long = "x" + " ab" * 1700 + " Z"
    lines = "".join(f"line {i} with é and /help\n" for i in range(4000)) + "/exit"
    assert len(long) > 5000 and len(lines) > 100000
    # The context is too short for an answer, so the message says how many tokens it has; then it is recalled and saved.
    for text in [long, lines]:
        for typed in [paste(text), UP]:
            t.send(typed + b"\n")
            shown = t.read_until("begins a new conversation\r\n")
            assert shown.count(b"maximum context length is 64 tokens") == 1
    t.send(END)
    assert t.wait() == 0
    kept = (tmp_path / "state/chunkllama/chat_history").read_text()
    assert kept == long + "\n" + lines.replace("\n", "\\n") + "\n"


def test_paste_arrives_whole(chat, tmp_path):
    """Also while an answer is written, and typed lines beyond 4,096 bytes, at which a terminal's own line ends."""
    t = chat("--ctx", "0")
    long = "x" + "=" * 5000 + "Z"
    lines = "first\nsecond\n\n\tfourth\\\n" * 30 + "end"
    t.send(long + "\n")
    t.send(paste(lines) + b"\n")
    read_answer(t)
    read_answer(t)
    assert messages(t, tmp_path) == [long, lines]
    # Line ends of Windows, and a control character.
    t.send(b"\x1b[200~a\r\nb\x07\x1b[31mc\x1b[201~\n")
    read_answer(t)
    assert messages(t, tmp_path) == ["a\nb[31mc"]


def test_commands(chat, tmp_path):
    t = chat()
    t.send("/stats\n/regen\n/save\n/load /none/file\n")
    t.read_until("messages     0\r\n")
    t.read_until("there is no message to answer yet")
    t.read_until("/save needs the name of a file")
    t.read_until("cannot open /none/file: No such file or directory")
    t.send("/system You are a pirate.\nWho are you?\n")
    read_answer(t)
    t.send("/regen\n")
    again = re.search(rb"\[\d+ prompt tokens, \d+ of them cached; (\d+) generated; TTFT [\d.]+ s", read_answer(t))
    assert 1 <= int(again[1]) <= 4
    t.send("/stats\n")
    assert b"messages     3\r\nlast answer  " in t.read_until("\r\nall 2 ")
    every = re.search(rb" (\d+) generated; mean TTFT ", t.read_until("mean TTFT "))
    assert int(every[1]) == 2 * int(again[1])  # the same answer twice
    t.send("/save ~/one.json\n")
    t.read_until("3 messages saved")
    saved = json.loads((tmp_path / "one.json").read_text())
    assert [m["role"] for m in saved] == ["system", "user", "assistant"] and saved[0]["content"] == "You are a pirate."
    assert (tmp_path / "one.json").stat().st_mode & 0o777 == 0o600

    for wrong, why in [('{"a": 1}', "must hold a JSON array"), ('[{"role": "x", "content": ""}]', "message 0 has no role"),
                       ('[{"role": "user", "content": 1}]', "content of message 0"), ("[", "line 1: ")]:
        (tmp_path / "wrong.json").write_text(wrong)
        t.send("/load ~/wrong.json\n")
        t.read_until(why)
    (tmp_path / "other.json").write_text(json.dumps({"messages": [{"role": "user", "content": "Say hello."}]}))
    t.send("/load ~/other.json\n/regen\n")
    t.read_until("1 messages loaded; /regen answers the last one")
    read_answer(t)
    assert messages(t, tmp_path) == ["Say hello."]
    t.send("/load ~/one.json\n/system\n")
    t.read_until("/system")
    assert messages(t, tmp_path, "system") == []

    t.send("/stat\n/frobnicate\n/help\n")
    t.read_until("unknown command /stat; did you mean /stats?")
    t.read_until("unknown command /frobnicate; /help lists all")
    shown = t.read_until("Ctrl-C stops an answer.")
    assert all(f"\n/{name}".encode() in shown for name in ["help", "system TEXT", "save FILE", "load FILE", "regen", "stats", "clear", "exit"])
    t.send("//help\n/usr/bin\n")
    read_answer(t)
    read_answer(t)
    assert messages(t, tmp_path) == ["/help", "/usr/bin"]
    t.send("/exit\n")
    assert t.wait() == 0


def begin_story(t, hold):
    """Send a message, whose answer stands still once it has some tokens, while the point "step" is held."""
    t.send("Write a very long story.\n")
    hold.wait("step")
    for _ in range(4):
        hold.next("step")


def test_interrupts(chat, hold, tmp_path):
    t = chat("--max-tokens", "-1", hold=hold)
    with hold("step", reached=False):
        begin_story(t, hold)
        t.send(INTERRUPT)  # ends the answer
    assert b"[stopped; " in read_answer(t)
    t.send("half a line" + LEFT.decode())
    t.read_until("half a line")
    t.send(INTERRUPT)  # drops the line
    t.read_until("Ctrl-D or /exit ends the program")
    t.send("more\\\n")
    t.read_until(b"\n. ")
    t.send(INTERRUPT)  # drops the message
    t.read_until("Ctrl-D or /exit ends the program")
    with hold("step", reached=False):
        t.send("Why?\n")
        hold.wait("step")
        t.send(INTERRUPT)  # before the first token
    assert b"[stopped; " in t.read_until("]\r\n")
    assert messages(t, tmp_path) == ["Write a very long story.", "Why?"]
    t.send(END)
    assert t.wait() == 0 and t.shown.endswith(b"\r\n\x1b[?2004l")


@pytest.mark.parametrize("answering", [False, True])
def test_the_terminal_is_given_back(chat, hold, answering):
    t = chat("--max-tokens", "-1", shell='set -m; "$@"; echo in the shell; read; fg', hold=hold)
    with hold("step", reached=False) if answering else contextlib.nullcontext():
        if answering:
            begin_story(t, hold)
        assert not t.echoes()
        t.send(STOP)
        t.read_until(b"\nin the shell\r\n")
        assert t.echoes()
        t.send("\n")
        t.read_until(b"\x1b[?2004h")
        if answering:
            t.send(INTERRUPT)
    if answering:
        read_answer(t)
    t.send("Hi\n")
    t.read_until(b"> Hi")
    chat_of_shell = pathlib.Path(f"/proc/{t.process}/task/{t.process}/children").read_text()
    os.kill(int(chat_of_shell), signal.SIGTERM)
    assert os.WEXITSTATUS(t.wait()) == 128 + signal.SIGTERM and t.shown.endswith(b"\x1b[?2004lTerminated\r\n")


def test_signals_outside_a_shell(chat):
    """A process that no shell could continue does not stop, and what its caller ignores stays ignored."""
    t = chat()
    os.kill(t.process, signal.SIGTSTP)
    t.read_until(b"\x1b[?2004h")
    t.send("Hi\n")
    read_answer(t)
    os.kill(t.process, signal.SIGTERM)
    assert os.WTERMSIG(os.waitpid(t.process, 0)[1]) == signal.SIGTERM and t.echoes()
    t.process = None
    t = chat(shell='trap "" INT TSTP; exec "$@"')
    ignored = int(re.search(r"SigIgn:\s*(\w+)", pathlib.Path(f"/proc/{t.process}/status").read_text())[1], 16)
    assert all(ignored >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGTSTP))


@pytest.mark.whole_model
def test_hostile_output(chat, tmp_path):
    """The model repeats what is in its prompt: escapes, also those of one byte (C1), reach the terminal as text."""
    (tmp_path / "plain.jinja").write_text("{{ messages[-1]['content'] }}")
    t = chat("--chat-template", tmp_path / "plain.jinja", "--max-tokens", "40", "--chat-template-kwargs", "{}")
    for text in ["\x1b[2J A\n", "\x9b2J B\n"]:
        (tmp_path / "hostile.json").write_text(json.dumps([{"role": "user", "content": text * 40}]))
        t.send("/load ~/hostile.json\n/regen\n")
        t.read_until("/regen\r\n")
        answer = read_answer(t)
        assert text.replace("\n", "\r\n").encode("unicode_escape").replace(b"\\r\\n", b"\r\n") in answer, answer
        assert b"\x1b[2J" not in answer and b"\x9b" not in answer
    assert "\x9b2J" in messages(t, tmp_path, "assistant")[0]  # the conversation has them


def test_lines_of_a_pipe(chunkllama, tmp_path):
    """Where standard input is no terminal there is no prompt, and a backslash at a line's end is what it is; commands work."""
    plain = ["chat", "--temperature", "0", "--max-tokens", "4"]
    env = {"XDG_STATE_HOME": str(tmp_path)}
    done = chunkllama(*plain, stdin=f"Hi\\\n/stats\n/stat\n/save {tmp_path}/a.json\n", env=env)
    assert "> " not in done.stdout and "\x1b" not in done.stdout + done.stderr and "context of" not in done.stderr
    assert "messages     2\n" in done.stderr and "did you mean /stats?" in done.stderr
    saved = json.loads((tmp_path / "a.json").read_text())
    assert [m["content"] for m in saved] == ["Hi\\", done.stdout[:-1]]
    assert not (tmp_path / "chunkllama").exists()


def test_dumb_terminal(chat):
    """A terminal that cannot move its cursor gets a plain prompt."""
    t = chat(TERM="dumb")
    t.send("Hi\n")
    read_answer(t)
    t.read_until(PROMPT)
    t.send(END)
    assert t.wait() == 0 and b"\x1b" not in t.shown

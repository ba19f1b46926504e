"""The page at / in headless Chromium: the chat with a real model, texts that a model should not write, keys, and narrow screens."""
import json
import urllib.error
import urllib.request

import pytest
from waiting import LIMIT_S

from fixtures import PICTURES, browser, lengthen_answers, page, server, start_server

QUESTION = "Name three primary colors."
IDLE = "document.querySelector('#stop').hidden"
ANSWERS = "document.querySelectorAll('.message.assistant').length"
CHATS = "Object.entries(localStorage).filter(([key]) => key.startsWith('chunkllama.chat.')).map(([, text]) => JSON.parse(text))"

# What Markdown and messages may consist of.
ELEMENTS = set("A ARTICLE BLOCKQUOTE BUTTON CODE DEL DETAILS DIV EM FOOTER H3 H4 H5 H6 HR LI OL P PRE SPAN STRONG SUMMARY TABLE "
               "TBODY TD TH THEAD TR UL".split())

HOSTILE = [
    "<img src=x onerror='window.broken = 1'><script>window.broken = 1</script></script><svg/onload=window.broken=1>",
    "[a](javascript:window.broken=1) [b](JaVaScRiPt:window.broken=1) [c]( javascript:x) [d](data:text/html,x) [e](//other.test/)",
    "[a\" onmouseover=\"window.broken=1](https://other.test/\"onmouseover=\"window.broken=1) <https://other.test/?<b>>",
    "![picture](https://other.test/picture.png) ![x](x\" onerror=\"window.broken=1)",
    "```html\" onclick=\"window.broken=1\n</code></pre><script>window.broken = 1</script>\n```\n`<b>` **<b>**",
    "| <b>a</b> | b |\n|---|---|\n| <script>window.broken=1</script> | [x](javascript:window.broken=1) |\n| too | many | cells |",
    "\u202eright to left\u2066 \u202d [\u202etxt.exe](https://other.test/) \u0000\ufffe\ud83d",
    "{{constructor.constructor('window.broken=1')()}} ${window.broken=1} &lt;b&gt; &#60;b&#62;",
    "> " * 2000 + "deep", "- " * 2000 + "deep", "*_" * 2000 + "deep" + "_*" * 2000, "[" * 5000 + "](https://other.test/)",
]

# Lines that expressions or searches could take quadratic time for.
HUGE = ["a", "*", "_", "`", "[", "](", "![", "~", "#", "- ", "|", "|-", " ", "\t", "<", "\\", "http://", "a*", "**a ", "*a**", "1. ",
        "> ", "```", "\n", "-\n", "\u202e", "|a\n", "`a ", "(", "[a](http://b", "- -"]

MARKDOWN = [
    ("one\ntwo *three* **four** `five*` ~~six~~ snake_case_name 2 * 3 * 4 \\*seven\\*",
     "<p>one\ntwo <em>three</em> <strong>four</strong> <code>five*</code> <del>six</del> snake_case_name 2 * 3 * 4 *seven*</p>"),
    ("**a *b* c** *a **b** c* ***d***",
     "<p><strong>a <em>b</em> c</strong> <em>a <strong>b</strong> c</em> <strong><em>d</em></strong></p>"),
    ("# A\n## B ##\ntext\n---", "<h3>A</h3><h4>B</h4><p>text</p><hr>"),
    ("- a\n- b\n  - c\n  - d\n\n    more\n- e\n\nend",
     "<ul><li>a</li><li>b<ul><li>c</li><li>d<p>more</p></li></ul></li><li>e</li></ul><p>end</p>"),
    ("3. a\n4. b\n* c", '<ol start="3"><li>a</li><li>b</li></ol><ul><li>c</li></ul>'),
    ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"),
    ("see:\n| a | b |\n|:-:|--:|\n| 1 | `2` |\nend",
     '<p>see:</p><div class="wide-table"><table><thead><tr><th class="center">a</th><th class="right">b</th></tr></thead>'
     '<tbody><tr><td class="center">1</td><td class="right"><code>2</code></td></tr></tbody></table></div><p>end</p>'),
    ("Use a | b here and more\n---\nnext", "<p>Use a | b here and more</p><hr><p>next</p>"),
    ("[the *page*](https://a.test/b_(c)) and https://a.test/d.", None),
]


# What the pictures show.
SAMPLE = """A **prefix tree** keeps what texts have *in common* once:

1. Every run of tokens is a node.
2. Where two texts differ, the tree branches.

| requests | shared | stored |
|---|--:|--:|
| 1 | 0 | 2,048 |
| 16 | 30,720 | 2,048 |

```python
def match(node, tokens):
    while child := node.child(tokens):
        node, tokens = child, tokens[len(child):]
    return node
```

Read more in the paper on [ChunkAttention](https://arxiv.org/abs/2402.15220)."""


def write_stream(*deltas, finish="stop"):
    """A stream of the API with these deltas."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def set_field(page, name, value):
    page.click(f"#settings [name={name}]")
    page.run("document.activeElement.select()")
    page.type(value)


def ask(page, text=QUESTION):
    """Type a question, and wait until its answer is complete."""
    n = page.run(ANSWERS)
    page.click("#input")
    page.type(text)
    page.press("Enter")
    page.wait_for(f"{ANSWERS} > {n} && {IDLE}")


def complete(server, messages, **more):
    """The API's answer without a stream."""
    body = json.dumps({"messages": messages, **more}).encode()
    request = urllib.request.Request(server.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def stored(page):
    """The messages of the chat that was used last."""
    return page.run(f"{CHATS}.sort((a, b) => b.used - a.used)[0].messages")


def test_chat(page, server):
    """Answers stream in and are those of the API; regenerating and editing ask again; the chat survives the page."""
    set_field(page, "temperature", "0")
    set_field(page, "max_tokens", "40")
    page.run("""window.lengths = new Set();
        new MutationObserver(() => {
            const body = document.querySelector('.message.assistant > .markdown');
            if (body) lengths.add(body.textContent.length);
        }).observe(document.querySelector('#log'), { subtree: true, childList: true }); 0""")
    with server.hold("step", reached=False):
        page.click("#input")
        page.type(QUESTION)
        page.press("Enter")
        server.hold.wait("step")
        while page.run("lengths.size") < 3:  # the answer comes in pieces
            server.hold.next("step")
    page.wait_for(f"{ANSWERS} > 0 && {IDLE}")
    first = complete(server, [{"role": "user", "content": QUESTION}], temperature=0, max_tokens=40)
    assert stored(page)[1]["content"] == first
    shown = page.text(".message.assistant > .markdown")
    assert "".join(shown.split()) == "".join(first.split())
    assert "prompt tokens cached" in page.text(".message.assistant .note")

    ask(page, "And a fourth?")
    history = [{"role": role, "content": text}
               for role, text in (("user", QUESTION), ("assistant", first), ("user", "And a fourth?"))]
    second = complete(server, history, temperature=0, max_tokens=40)
    assert [message["content"] for message in stored(page)] == [QUESTION, first, "And a fourth?", second]

    # The first answer again, of which the rest depended.
    page.run("document.querySelectorAll('.message.assistant')[0].querySelector('footer button').setAttribute('id', 'again'); 0")
    page.click("#again")
    page.wait_for(f"{ANSWERS} === 1 && {IDLE}")
    assert [message["content"] for message in stored(page)] == [QUESTION, first]

    page.click(".message.user footer button")
    page.press("Escape")
    assert page.text(".message.user .text") == QUESTION
    assert page.run("document.activeElement.textContent") == "Edit"
    page.click(".message.user footer button")
    page.run("document.activeElement.select()")
    page.type("Name one animal.")
    page.press("Enter")
    page.wait_for(f"{IDLE} && {ANSWERS} === 1 && document.querySelector('.message.user .text')?.textContent === 'Name one animal.'")
    assert page.text("#chats .title") == "Name one animal."
    animal = complete(server, [{"role": "user", "content": "Name one animal."}], temperature=0, max_tokens=40)
    assert [message["content"] for message in stored(page)] == ["Name one animal.", animal]

    page.go(server.url + "/")
    page.wait_for(f"{ANSWERS} === 1")
    assert "".join(page.text(".message.assistant > .markdown").split()) == "".join(animal.split())
    assert page.run("settings.elements.temperature.value") == "0"
    page.click("#new-chat")
    assert page.run(ANSWERS) == 0 and page.run("document.activeElement.id") == "input"
    page.click("#chats .title")
    page.wait_for(f"{ANSWERS} === 1")
    page.click("#chats .icon")  # asks before it deletes
    page.wait_until(lambda: page.dialogs == 1, "the page asks")
    page.wait_for(f"{ANSWERS} === 0 && {CHATS}.length === 0")


def test_stop(page, server):
    """Escape ends the request in the server, too, and what has come remains. It first closes what is open elsewhere."""
    lengthen_answers(page, 6000)
    set_field(page, "temperature", "0")
    page.click("#input")
    page.type("Write a very long story about the sea, with many chapters.")
    page.press("Enter")
    page.wait_for("document.querySelector('.message.assistant > .markdown')?.textContent.length > 20")
    assert server.metric("vllm:num_requests_running") == 1
    page.click("#set-key")
    page.press("Escape")
    page.wait_for("!document.querySelector('#key-dialog').open")
    page.run("document.querySelector('.tree-view').focus()")
    page.wait_for("document.querySelector('#tree').dataset.in_use > 0")
    page.press("ArrowRight")
    page.press("Enter")
    page.wait_for("!document.querySelector('.tree-details').hidden")
    page.press("Escape")
    assert page.run("document.querySelector('.tree-details').hidden") and not page.run(IDLE)
    assert server.metric("vllm:num_requests_running") == 1
    page.run("""window.said = [];
        new MutationObserver(() => said.push(document.querySelector('#announcement').textContent)).observe(
            document.querySelector('#announcement'), { childList: true });
        document.querySelector('.message.user footer button').click()""")  # Edit
    page.press("Enter")
    page.wait_for("document.querySelector('.message.running > .markdown')?.textContent.length > 20")
    assert page.run("said") == []  # the new answer runs on
    page.press("Escape")
    page.wait_until(lambda: server.metric("vllm:num_requests_running") == 0, "the server has no request")
    page.wait_for(IDLE)
    assert page.text(".message.assistant .note") == "stopped" and page.run("said") == ["Stopped."]
    text = page.text(".message.assistant > .markdown")
    assert len(text) > 20 and "".join(stored(page)[1]["content"].split()) == "".join(text.split())


def test_what_the_server_refuses(page, server):
    """Its text is shown, and the chat goes on."""
    set_field(page, "temperature", "-1")
    ask(page)
    with pytest.raises(urllib.error.HTTPError) as error:
        complete(server, [{"role": "user", "content": QUESTION}], temperature=-1)
    assert page.text(".message .error") == json.loads(error.value.read())["error"]["message"]
    set_field(page, "temperature", "0")
    set_field(page, "max_tokens", "4")
    page.click(".message.assistant footer button")
    page.wait_for(f"{IDLE} && document.querySelector('.message .error').hidden")
    assert stored(page)[1]["content"]
    page.problems.clear()  # the browser reports each answer with status 400


def test_system_prompt_and_lines(page, server):
    """The system prompt counts, and Shift and Enter begin a line."""
    set_field(page, "system", "You answer with one word.")
    set_field(page, "temperature", "0")
    set_field(page, "max_tokens", "16")
    page.click("#input")
    page.type("Which color has")
    page.press("Enter", shift=True)
    page.type("the sky?")
    page.press("Enter")
    page.wait_for(f"{ANSWERS} === 1 && {IDLE}")
    question = {"role": "user", "content": "Which color has\nthe sky?"}
    system = {"role": "system", "content": "You answer with one word."}
    expected = complete(server, [system, question], temperature=0, max_tokens=16)
    assert [message["content"] for message in stored(page)] == [question["content"], expected]


def test_reasoning_and_tools(page):
    """Both are shown apart from the text; what is typed after a call is its result."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": text}} for text in ('{"city": ', '"<b>Oslo</b>"}')]
    page.answer_instead("/v1/chat/completions",
                        write_stream({"role": "assistant", "reasoning_content": "I need *the*"}, {"reasoning_content": " weather."},
                                     {"tool_calls": [call]}, *({"tool_calls": [piece]} for piece in pieces), finish="tool_calls"),
                        write_stream({"content": "It snows."}))
    set_field(page, "tools", "[1")
    ask(page, "How is the weather?")
    assert page.text(".message .error").startswith("The tools are not JSON: ")
    set_field(page, "tools", json.dumps(tools))
    page.click(".message.assistant footer button")
    page.wait_for(f"{IDLE} && document.querySelector('.call')")
    assert page.bodies[0]["tools"] == tools
    assert page.text(".reasoning .markdown") == "I need the weather."
    assert page.text(".call") == 'Calls weather{\n  "city": "<b>Oslo</b>"\n}'
    assert page.run("input.placeholder") == "Result of weather"
    ask(page, '{"snow": true}')
    assert page.bodies[1]["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {
            "name": "weather", "arguments": '{"city": "<b>Oslo</b>"}'}}]},
        {"role": "tool", "content": '{"snow": true}', "tool_call_id": "call_1"}]
    assert page.run("document.querySelector('.message:last-child > .markdown').innerHTML") == "<p>It snows.</p>"
    assert page.run("input.placeholder") == "Ask something"


def test_broken_stream(page):
    """A stream that ends too early, and one that ends with an error."""
    cut = write_stream({"content": "half"}).split("data: [DONE]")[0].rsplit("data: ", 1)[0]
    page.answer_instead("/v1/chat/completions", cut, cut + 'data: {"error": {"message": "memory is lacking"}}\n\n')
    ask(page)
    assert page.text(".message .error") == "The server ended the answer before it was complete."
    assert page.text(".message.assistant > .markdown") == "half"
    ask(page)
    assert page.text(".message:last-child .error") == "memory is lacking"


def test_two_tabs(page, browser, server):
    """What one tab adds to a chat appears in the other, which neither brings it back nor drops it when it is left."""
    page.answer_instead("/v1/chat/completions", *(write_stream({"content": text}) for text in ("One.", "Two.", "Three.")))
    ask(page)
    other = browser.open(server.url + "/", beside=page)
    other.wait_for(f"{ANSWERS} === 1")
    page.call("Page.bringToFront")  # the browser handles clicks on a tab in the background late
    ask(page, "And then?")
    other.wait_for(f"{ANSWERS} === 2 && document.querySelector('.message:last-child > .markdown').textContent === 'Two.'")
    other.run("document.querySelector('.message.user footer button').click()")  # an edit here keeps what it began with
    ask(page, "And then?")
    other.wait_until(lambda: len(stored(other)) == 6, "the other tab sees what is stored")
    assert other.run(f"{ANSWERS} === 2 && Boolean(document.querySelector('.editing'))")
    other.run("document.querySelector('.editing button').click()")
    other.wait_for(f"{ANSWERS} === 3")
    page.click("#chats .icon")
    page.wait_for(f"{CHATS}.length === 0")
    other.wait_for("document.querySelector('#chats').children.length === 0")
    other.go(server.url + "/")
    other.wait_for("document.querySelector('#welcome')")
    assert page.run(f"{CHATS}.length") == 0 and other.problems == []


def test_storage(page, server):
    """What another program stored is left out. A browser that blocks its storage shows chats and the tree all the same."""
    page.run("""Object.assign(localStorage, { "chunkllama.settings": "{", "chunkllama.chat.a": '{"id": "a", "messages": []}',
        "chunkllama.chat.b": '{"id": "b", "title": "b", "used": 1, "settings": {}, "messages": [null]}' }); 0""")
    begun = "document.querySelector('#welcome') && document.querySelector('#tree').dataset.runs"
    page.go(server.url + "/")
    page.wait_for(begun)
    assert page.run("document.querySelector('#chats').children.length") == 0
    page.call("Page.addScriptToEvaluateOnNewDocument", source="""for (const name of ["localStorage", "sessionStorage"])
        Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });""")
    page.go(server.url + "/")
    page.wait_for(begun)
    page.answer_instead("/v1/chat/completions", write_stream({"content": "Here."}))
    set_field(page, "temperature", "0.5")
    ask(page)
    assert page.bodies[0]["temperature"] == 0.5 and page.text(".message.assistant > .markdown") == "Here."


def test_a_chat_without_room(page):
    """The oldest chats make room for a new one, but not for one that would not fit even then."""
    kept = page.run("""import("./web/chats.js").then(({ create_chat, store_chat, all_chats }) => {
        const store = (title, n) =>
            store_chat(Object.assign(create_chat(), { title, messages: [{ role: "user", content: "x".repeat(n) }] }));
        const titles = () => all_chats().map((chat) => chat.title).sort().join("");
        const begin = store("a", 2e6), now = Date.now();
        while (Date.now() === now); // so that the next one is later
        return [begin, store("b", 2e6), store("c", 6e6), titles(), store("d", 2e6), titles()];
    })""")
    assert kept == [True, True, False, "ab", True, "bd"]


def test_hostile_text(page):
    """What a model writes never becomes more than text and links that are followed by clicks alone."""
    page.answer_instead("/v1/chat/completions", *(write_stream({"content": text}) for text in HOSTILE))
    for text in HOSTILE:
        ask(page, text)
    tags = page.run("[...new Set([...document.querySelectorAll('#log *')].map((element) => element.tagName))]")
    assert set(tags) <= ELEMENTS
    links = page.run("[...document.querySelectorAll('#log a')].map((link) => [link.protocol, link.rel])")
    assert len(links) >= 5 and all(link == ["https:", "noopener noreferrer"] for link in links)
    names = page.run("[...new Set([...document.querySelectorAll('#log *')].flatMap((element) => element.getAttributeNames()))]")
    assert set(names) <= {"class", "href", "rel", "target", "referrerpolicy", "type", "role", "aria-label", "hidden", "start"}
    shown = page.run("[...document.querySelectorAll('.message.user .text')].map((element) => element.textContent)")
    assert shown == [text.replace("\ud83d", "\ufffd") for text in HOSTILE]
    assert page.text(".message.assistant > .markdown").startswith("<img src=x onerror='window.broken = 1'><script>")
    assert page.run("window.broken ?? null") is None and page.dialogs == 0


def test_policy(page):
    """What would come into the page by a mistake could neither run nor call another host."""
    page.run("""window.refused = [];
        document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
        document.body.insertAdjacentHTML("beforeend",
            "<img src='http://other.test/' onerror='window.broken = 1'><b style='color: red'></b>");
        document.body.append(Object.assign(document.createElement("script"), { textContent: "window.broken = 1" }));
        fetch("http://other.test/").catch(() => 0)""")
    page.wait_for("refused.length >= 5")
    expected = {"img-src", "script-src-attr", "style-src-attr", "script-src-elem", "connect-src"}
    assert set(page.run("refused")) == expected and page.run("window.broken ?? null") is None
    page.problems.clear()  # the browser reports each
    page.requests[:] = [url for url in page.requests if url != "http://other.test/"]  # it asked itself, not the host


def test_markdown(page):
    for text, html in MARKDOWN:
        shown = page.run(f"""import("./web/markdown.js").then(({{ show_markdown }}) => {{
            const element = document.createElement("div");
            for (let n = 0; n <= {len(text)}; n++) show_markdown(element, {json.dumps(text)}.slice(0, n));
            return element.innerHTML;
        }})""")
        if html:
            assert shown == html
        else:
            link = '<a href="{}" rel="noopener noreferrer" target="_blank" referrerpolicy="no-referrer">{}</a>'
            assert shown == "<p>{} and {}.</p>".format(link.format("https://a.test/b_(c)", "the <em>page</em>"),
                                                       link.format("https://a.test/d", "https://a.test/d"))


def test_huge_lines(page):
    """No line takes quadratic time: each of 100,000 characters takes about the time of ten lines, shown apart, of a tenth."""
    huge, tenths = page.run(f"""import("./web/markdown.js").then(({{ show_markdown }}) => {{
        const seconds = (line, n) => {{
            const begin = performance.now();
            for (let i = 0; i < n; i++) show_markdown(document.createElement("div"), line);
            return performance.now() - begin;
        }};
        const least = (line, n) => Math.min(...[1, 2, 3, 4].map(() => seconds(line, n)));
        const times = (length, n) => {json.dumps(HUGE)}.map((unit) => least(unit.repeat(length / unit.length) + "x", n));
        const sum = (values) => values.reduce((a, b) => a + b);
        return [sum(times(1e5, 1)), sum(times(1e4, 10))];
    }})""")
    print(f"{huge:.0f} ms for huge lines, {tenths:.0f} ms for tenths")
    assert huge < 3 * tenths  # one that took quadratic time would alone take many times as long as all others


# Texts of which each character or line would be an argument, or a step of a regular expression that repeats a group.
LONG = ["*", "-", "- ", "_ ", "`a` ", "**a** ", "a\n\n", "# a\n", "> a\n", "- a\n", "|a|\n", "a\\*", "[a](https://a.test) "]


@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_million_characters(page, n):
    """No text is too long to be shown, whatever it repeats."""
    shown = page.run(f"""import("./web/markdown.js").then(({{ show_markdown }}) => {json.dumps(LONG)}.map((unit) => {{
        const element = document.createElement("div");
        show_markdown(element, unit.repeat({n} / unit.length));
        return element.childNodes.length > 0;
    }}))""")
    assert shown == [True] * len(LONG)


@pytest.mark.parametrize("flags, sampling, placeholders", [
    ([], {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "min_p": 0.05}, ["0.8", "0.95", "40"]),
    (["--temperature", "0.25", "--top-k", "7"], {"temperature": 0.25, "top_p": 0.95, "top_k": 7, "min_p": 0.05}, ["0.25", "0.95", "7"]),
    (["--sampling-defaults", "openai"], {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}, ["1", "1", "all"]),
])
def test_defaults(browser, start_server, flags, sampling, placeholders):
    """Empty fields of the settings show what requests have instead, as the server says."""
    with start_server(*flags) as server:
        page = browser.open(server.url + "/")
        page.wait_for("settings.elements.top_k.placeholder !== ''")
        assert page.run("['temperature', 'top_p', 'top_k'].map((name) => settings.elements[name].placeholder)") == placeholders
        page.answer_instead("/v1/chat/completions", *(write_stream({"content": "Yes."}) for _ in range(2)))
        ask(page)
        set_field(page, "temperature", "0.5")
        ask(page)
        for body, temperature in zip(page.bodies, [sampling["temperature"], 0.5]):
            assert {name: body[name] for name in sampling} == sampling | {"temperature": temperature}
        page.close()


def test_key_and_model_name(browser, start_server):
    """The page asks for the key that the server wants, and a model's name is text."""
    name = "<img/src=x/onerror=window.broken=1>"
    with start_server("--api-key", "k-right", "--served-model-name", name) as server:
        page = browser.open(server.url + "/")
        page.wait_for("document.querySelector('#key-dialog').open")
        page.type("schlüssel→")
        page.press("Enter")
        assert page.run("document.querySelector('#key-dialog').open && document.querySelector('#key').matches(':invalid')")
        page.run("document.querySelector('#key').select()")
        page.type("wrong")
        page.press("Enter")
        page.wait_for("document.querySelector('#key-dialog').open && document.querySelector('#key').value === ''")
        assert page.text("#key-reason") == "The server does not accept this key. Enter another one."
        page.type("k-right")
        page.press("Enter")
        page.wait_for("document.querySelector('#model').textContent !== ''")
        assert page.text("#model") == name and page.run("document.querySelector('#model').children.length") == 0
        set_field(page, "temperature", "0")
        set_field(page, "max_tokens", "4")
        ask(page)
        assert stored(page)[1]["content"]
        assert page.run("JSON.stringify(Object.values(localStorage)).includes('k-right')") is False
        page.click("#set-key")
        page.press("Escape")  # keeps the key
        assert page.run("sessionStorage['chunkllama.key']") == "k-right"
        page.click("#set-key")
        page.press("Enter")  # forgets it; the tree does not ask for another one at once
        page.wait_for("document.querySelector('.tree-empty').textContent.includes('key')")
        assert page.run("sessionStorage['chunkllama.key'] === '' && !document.querySelector('#key-dialog').open")
        page.click("#input")
        page.type("And now?")
        page.press("Enter")
        page.wait_for("document.querySelector('#key-dialog').open")
        assert page.run("window.broken ?? null") is None
        assert all(url.startswith(server.url) for url in page.requests)
        page.close()


# Pairs of colours, text and what is behind it, that do not have WCAG's contrast of 4.5.
CONTRAST = """(() => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        canvas.fillStyle = style.getPropertyValue(name);
        canvas.fillRect(0, 0, 1, 1);
        const linear = (v) => v <= 0.04045 * 255 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(linear);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const pairs = [["--fg", "--bg"], ["--fg", "--panel"], ["--fg", "--raised"], ["--fg", "--accent-soft"], ["--muted", "--bg"],
                   ["--muted", "--panel"], ["--muted", "--raised"], ["--accent", "--panel"], ["--accent-fg", "--accent"],
                   ["--danger", "--danger-soft"]];
    const contrast = (a, b) => Math.max(a, b) / Math.min(a, b);
    return pairs.filter(([a, b]) => !(contrast(light(a), light(b)) >= 4.5));
})()"""


def test_narrow_and_dark(browser, server):
    """On a phone one part is shown at a time, nothing is wider than the screen, and the menu has the settings. All text can be
    read, light and dark. Pictures for eyes."""
    page = browser.open(server.url + "/", 390, 844)
    page.wait_for("document.querySelector('#model').textContent !== ''")
    is_shown = "document.querySelector('{}').checkVisibility()"
    set_tab = "document.body.dataset.tab"
    assert page.run(is_shown.format("#chat")) and not page.run(is_shown.format("#tree"))
    page.click("#tabs [data-tab=tree]")
    assert not page.run(is_shown.format("#chat")) and page.run(is_shown.format("#tree"))
    panels = "[...document.querySelectorAll('[role=tabpanel]')].map((panel) => panel.id)"
    assert page.run(panels) == ["chat", "tree"]
    page.press("ArrowLeft")
    assert page.run(set_tab) == "chat" and page.run("document.activeElement.dataset.tab") == "chat"
    assert not page.run(is_shown.format("#side"))
    page.click("#menu")
    set_field(page, "max_tokens", "60")
    page.click("#model")
    assert not page.run(is_shown.format("#side"))
    wide = "wide" * 99 + "\n\n```\n" + "wide" * 99
    page.answer_instead("/v1/chat/completions", write_stream({"content": wide}), write_stream({"content": SAMPLE}))
    ask(page, "wide" * 99)
    assert page.run("[document.documentElement.scrollWidth, document.querySelector('#log').scrollWidth]") == [390, 390]
    page.run("document.querySelector('#new-chat').click()")
    ask(page, "What is a prefix tree?")
    page.picture(PICTURES / "phone.png")
    for name, dark in ("light", False), ("dark", True):
        page.resize(1440, 900)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        assert page.run(CONTRAST) == []
        assert page.run(is_shown.format("#chat")) and page.run(is_shown.format("#tree")) and page.run(is_shown.format("#side"))
        page.picture(PICTURES / f"{name}.png")
    assert page.run(panels) == []
    assert page.text("#chats [aria-current]") == "What is a prefix tree?"
    page.click("#chats li:last-child .icon")
    page.wait_for("document.querySelector('#chats').children.length === 1")
    assert page.run("document.activeElement.ariaLabel") == "Delete the chat What is a prefix tree?"
    page.close()

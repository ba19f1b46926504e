"""The panel of the tree in headless Chromium: the demonstration on a real server, and trees that a server would not have."""
import contextlib
import json

import pytest
from fixtures import PICTURES, browser, lengthen_answers, page, server, start_server
from waiting import wait_until

KEYS = {"Enter": 13, "Escape": 27, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
PANEL = "document.querySelector('#tree')"
SIXTEEN = f"{PANEL}.dataset.leaves === '16' && {PANEL}.dataset.readers === '16'"
ENDED = f"{PANEL}.querySelector('.tree-run-demo').textContent !== 'Stop'"
HOSTILE = "<img src=x onerror='window.broken = 1'><script>window.broken = 1</script>\u202e\u0000{{x}}"


def node(id, parent=None, position=0, tokens=10, sequences=0, text="", **more):
    """A node as the server reports it."""
    return {"id": id, "parent": parent, "depth": 0 if parent is None else 1, "tenant": "default", "position": position,
            "tokens": tokens, "ready": tokens, "coming": 0, "chunks": 1, "bytes": 1474560,
            "state": "live" if sequences else "retained", "sequences": sequences, "pins": 0, "readers": sequences, "hits": 1,
            "last_use": 1700000000, "text": text, **more}


def start_panel(page, nodes):
    """A second panel, in place of the first one, whose server has these nodes. Returns the script that finds it."""
    answer = {"object": "cache.nodes", "live_bytes": 0, "retained_bytes": 0, "unshared_bytes": 0, "nodes": len(nodes), "running": 0,
              "waiting": 0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0, "max_sequences": 32, "data": nodes}
    page.wait_for(f"{PANEL}.dataset.runs")  # the first one has begun
    page.run(f"""import("./web/tree.js").then(({{ start_tree }}) => {{
        window.answer = {json.dumps(answer)};
        window.asked = [];
        document.querySelector("#tree").remove();
        const panel = document.createElement("section");
        panel.id = "tree";
        document.body.append(panel);
        const get = async (path) => {{
            window.asked.push(path);
            const id = new URLSearchParams(path.split("?")[1]).get("node");
            if (window.answer.error) throw new Error(window.answer.error);
            if (!id) return window.answer;
            const data = window.answer.data.filter((node) => node.id == id);
            await window.held;
            return {{ data }};
        }};
        start_tree(panel, {{ api: {{ get }} }});
    }})""")
    page.wait_for(f"{PANEL}.dataset.runs === '{len(nodes)}' && {PANEL}.dataset.moves === 'false'")


def press(page, *keys):
    for key in keys:
        for kind in ("rawKeyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])


def click_at(page, across, down, n_clicks=1):
    """Click at a place of the picture, from 0 to 1; twice for a double click."""
    box = page.run(f"{PANEL}.querySelector('canvas').getBoundingClientRect().toJSON()")
    place = {"x": box["x"] + across * box["width"], "y": box["y"] + down * box["height"]}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
    for click in range(1, n_clicks + 1):
        for kind in ("mousePressed", "mouseReleased"):
            page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=click, **place)
        page.run("new Promise(requestAnimationFrame)")  # the picture has its new size


def text(page, selector):
    return page.run(f"{PANEL}.querySelector('{selector}').innerText")


def cells(page):
    """The figures of the demonstration: prompt tokens, those that were computed, and megabytes."""
    return page.wait_for(f"""(() => {{
        const texts = [...{PANEL}.querySelectorAll(".tree-cells b")].slice(1).map((value) => value.innerText);
        const values = texts.map((text) => parseFloat(text.replaceAll(",", "")));
        return !values.includes(NaN) && values; // until the tokens that are computed are known
    }})()""")


@contextlib.contextmanager
def opened(browser, url, *size, **options):
    page = browser.open(url + "/", *size, **options)
    yield page
    assert page.problems == []
    page.close()


def test_demonstration(page, server):
    """One trunk and sixteen leaves, in the page as in the server; a click on the trunk shows its text and its sixteen readers."""
    page.run(f"""window.figures = new Set();
        new MutationObserver(() => figures.add({PANEL}.querySelector(".tree-cells").innerText)).observe(
            {PANEL}.querySelector(".tree-cells"), {{ childList: true }})""")
    lengthen_answers(page, 3000)
    page.click(".tree-run-demo:enabled")
    page.wait_for(SIXTEEN)
    assert page.run("[...figures].some((text) => text.includes('…')) && ![...figures].some((text) => text.includes('NaN'))")
    nodes = [node for node in json.loads(server.read("/cache?nodes=1000"))["data"] if node["state"] == "live"]
    (trunk,) = [node for node in nodes if node["sequences"] == 16]
    leaves = [node for node in nodes if node["sequences"] == 1 and not any(other["parent"] == node["id"] for other in nodes)]
    assert trunk["parent"] is None and trunk["tokens"] > 300 and len(leaves) == 16
    assert server.metric("vllm:num_requests_running") == 16
    click_at(page, 0.1, 0.5)
    page.wait_for(f"{PANEL}.querySelectorAll('.tree-details li').length === 16")
    assert text(page, ".tree-details h3") == f"{trunk['tokens']} tokens, stored once, read by 16 requests now"
    page.wait_for(f"{PANEL}.querySelector('pre').textContent.includes('for two nights at most.')")
    page.click(".tree-details li button")  # the first reader
    page.wait_for(f"{PANEL}.querySelector('pre').textContent.includes('back from Skarv?')")
    assert text(page, ".tree-details h3").endswith("read by 1 request now")
    press(page, "Escape")
    assert page.run(f"{PANEL}.querySelector('.tree-details').hidden")
    prompts, computed, memory = cells(page)
    assert prompts > 16 * 300 and 0 < computed < prompts / 4 and 0 < memory < 100
    page.picture(PICTURES / "tree.png")
    page.click(".tree-run-demo")
    page.wait_until(lambda: server.metric("vllm:num_requests_running") == 0, "the server has no request")
    page.wait_for(f"{ENDED} && {PANEL}.dataset.in_use === '0'")
    assert text(page, ".tree-demo p") == "Stopped."


def test_a_small_server_gets_fewer_requests(browser, start_server):
    """On a phone and to the end, when the figures are those of the answers."""
    with start_server("--max-seqs", "4") as small, opened(browser, small.url, 390, 844, dark=True) as page:
        lengthen_answers(page, 400)
        page.click("#tabs [data-tab=tree]")
        page.click(".tree-run-demo:enabled")
        page.wait_for(f"{PANEL}.dataset.leaves === '4' && {PANEL}.dataset.readers === '4'")
        limit = "This server runs 4 sequences at most (--max-seqs). "
        assert text(page, ".tree-demo p") == limit.strip()
        assert page.run("document.documentElement.scrollWidth") == 390
        cells(page)
        page.picture(PICTURES / "tree-phone.png")
        page.wait_for(ENDED)
        assert text(page, ".tree-demo p").startswith(limit + "All have ended.")
        prompts, computed, _ = cells(page)
        assert small.metric("vllm:prompt_tokens_total") == prompts
        assert small.metric("vllm:prefix_cache_hits_total") == prompts - computed > prompts / 2


def test_keyboard(page):
    """Arrows walk through the tree, Enter opens details, and a screen reader gets the run as the tree's active item."""
    leaves = [node(2 + i, 1, 100, 20, min(i, 1), f"leaf {i}") for i in range(3)]
    start_panel(page, [node(1, None, 0, 100, 2, "trunk"), *leaves, node(9, text="other")])
    page.run(f"{PANEL}.querySelector('.tree-view').focus()")
    active = f"document.getElementById({PANEL}.querySelector('.tree-view').getAttribute('aria-activedescendant')).textContent"
    for key, expected in (("Home", "100 tokens, stored once, read by 2 requests now: trunk"), ("ArrowDown", ": other"),
                          ("ArrowDown", ": other"), ("ArrowUp", ": trunk"), ("ArrowRight", ": leaf 1"), ("ArrowUp", ": leaf 0"),
                          ("ArrowDown", ": leaf 1"), ("ArrowDown", "20 tokens, stored once, read by 1 request now: leaf 2"),
                          ("ArrowRight", ": leaf 2"), ("ArrowLeft", ": trunk")):
        press(page, key)
        assert page.run(active).endswith(expected), key
    assert page.run(f"{PANEL}.querySelector('.tree-details').hidden")
    press(page, "Enter")
    assert text(page, ".tree-details h3") == "100 tokens, stored once, read by 2 requests now"
    assert page.run(f"[...{PANEL}.querySelectorAll('.tree-details li')].map((item) => item.textContent)") == ["leaf 1", "leaf 2"]
    press(page, "Escape")
    assert page.run(f"{PANEL}.querySelector('.tree-details').hidden")
    page.run("window.answer = { ...window.answer, nodes: 1, data: window.answer.data.slice(-1) }")
    page.wait_for(f"{PANEL}.dataset.runs === '1'")
    assert page.run(f"{PANEL}.querySelector('[aria-activedescendant], [role=treeitem]')") is None


def test_hostile_text(page):
    """Texts and names are shown as they are, and are never more than text."""
    start_panel(page, [node(1, None, 0, 100, 1, HOSTILE, tenant=HOSTILE), node(2, 1, 100, 50, 1, HOSTILE)])
    click_at(page, 0.2, 0.5)
    page.wait_for("window.asked.some((path) => path.startsWith('/cache?node=1&nodes=1&text=100'))")
    page.wait_for(f"{PANEL}.querySelector('pre').textContent === {json.dumps(HOSTILE)}")
    assert page.run(f"[...{PANEL}.querySelectorAll('dd')].some((value) => value.textContent === {json.dumps(HOSTILE)})")
    assert "\u202e" not in text(page, ".tree-status")
    assert page.run(f"{PANEL}.querySelectorAll('img, script, a').length") == 0 and page.run("window.broken ?? null") is None


def test_text_of_a_run_that_grows(page):
    """What came while a call for the text was under way is shown in the end."""
    start_panel(page, [node(1, tokens=100, text="begin")])
    page.run("window.held = new Promise((resolve) => { window.release = resolve; }), 0")
    click_at(page, 0.2, 0.5)
    page.wait_for("window.asked.some((path) => path.startsWith('/cache?node=1&nodes=1&text=100'))")
    page.run("window.answer = { ...window.answer, data: [{ ...window.answer.data[0], tokens: 101, text: 'begin and end' }] }, 0")
    page.wait_for(f"{PANEL}.querySelector('h3').textContent.startsWith('101 tokens')")
    page.run("window.release()")
    page.wait_for(f"{PANEL}.querySelector('pre').textContent === 'begin and end'")


def test_double_click(page):
    """It zooms into the run that the first click met, although its details take room from the picture, which then moves."""
    start_panel(page, [node(1, tokens=100, sequences=1), node(2, tokens=200, sequences=1)])
    click_at(page, 0.2, 0.48, 2)
    assert text(page, ".tree-details h3").startswith("100 tokens")
    press(page, "Escape")
    page.wait_for(f"{PANEL}.dataset.moves === 'false'")
    click_at(page, 0.2, 0.9)
    assert text(page, ".tree-details h3").startswith("100 tokens")  # nothing else is shown


def test_the_server_refuses(page):
    start_panel(page, [node(1)])
    page.run("window.answer = { error: 'The tree needs a key of the tenant <b>default</b>.' }")
    page.wait_for(f"{PANEL}.querySelector('.tree-empty').textContent === window.answer.error && {PANEL}.dataset.runs === '0'")
    assert page.run(f"{PANEL}.querySelector('.tree-run-demo').disabled")


def test_nothing_is_asked_while_nothing_is_seen(browser, server):
    """Then no call is under way, and no timer that would begin one."""
    with opened(browser, server.url, 390, 844) as page:
        page.wait_for(f"{PANEL}.dataset.runs")  # the first question is asked at once
        page.run("""{
            const set = window.setTimeout, fetch_it = window.fetch;
            window.pending = 0;
            window.setTimeout = (then, ms) => (pending++, set(() => { pending--; then(); }, ms));
            window.fetch = (...call) => (pending++, fetch_it(...call).finally(() => pending--));
        } 0""")
        page.click("#tabs [data-tab=tree]")
        page.wait_until(lambda: sum("/cache?" in url for url in page.requests) >= 3, "the page asks again")
        page.click("#tabs [data-tab=chat]")
        # One that asks is hardly ever found without either.
        wait_until(lambda: all(page.run("pending === 0") for _ in range(50)), "the page to ask no more")
        page.click("#tabs [data-tab=tree]")
        page.wait_for("pending > 0")


LAYOUT = """Promise.all(["tree_layout", "tree_view"].map((name) => import(`./web/${name}.js`))).then(([layout, { TreeView }]) => {
    const place = (nodes) => {
        const tree = layout.link_runs(nodes);
        return { ...layout.lay_out(tree), tree };
    };
    const whole = place(NODES), split = place(SPLIT);
    for (const run of whole.tree.runs.values()) {
        const own = whole.places.get(run.id), above = whole.places.get(run.above?.id);
        const is_beside = !above || (own.left === above.right && own.top > above.top - 1e-9 && own.bottom < above.bottom + 1e-9);
        if (!is_beside) return "not beside its parent";
        if (!(own.left < own.right && own.top < own.bottom)) return "empty";
    }
    if (whole.places.get(3).right >= whole.places.get(4).right) return "fewer tokens are wider";
    const moved = [2, 3, 4].some((id) => Math.abs(whole.places.get(id).left - split.places.get(id).left) > 1e-9);
    if (moved) return "a run that is cut in two moves others";
    for (const position of [0, 1, 57, 300, 512, 520]) {
        const back = layout.position_at(whole.axis, layout.place_of(whole.axis, position));
        if (Math.abs(back - position) > 1e-6) return "the axis is not its own inverse";
    }
    const colours = { scale: Array(32).fill("red"), on_scale: Array(32).fill("white"), mono: "monospace", font: "serif" };
    const draw = (calm) => {
        const view = new TreeView(document.createElement("canvas"), { colours, calm });
        const widths = [];
        view.show(whole.tree.runs, whole, 16);
        for (let i = 0; i < 100; i++) {
            view.draw(16 * i);
            const { left, right } = view.sprites.get(4).now;
            widths.push(right - left);
        }
        view.show(place(NODES.slice(0, 3)).tree.runs, place(NODES.slice(0, 3)), 16);
        view.draw(1600);
        const fades = view.sprites.has(4);
        for (let i = 1; i < 200; i++) view.draw(1600 + 16 * i);
        return [widths[0] < widths[5] && widths[5] < widths[99], fades, view.sprites.has(4)];
    };
    return [draw(false), draw(true)];
})"""


def test_words(page):
    """Texts of runs are cut between words, unless a word is longer than the line, and begin with one."""
    assert page.run("""import("./web/tree_view.js").then(({ wrap, fit, whole_words }) => [
        wrap("the Veldhavn ferry at nine", 9, 9), wrap("Donaudampfschiff ahoy", 6, 9), wrap("a b c", 3, 1), wrap("one  two", 4, 9),
        fit("the ferry", 9), fit("the Veldhavn ferry", 9), fit("Veldhavn", 5), fit("x", 1),
        whole_words("istant The ferry", "ass"), whole_words("user The ferry", "<|im_start|>"), whole_words(" The ferry", "is"),
        whole_words("9 o'clock", "1"), whole_words("ñandú x", "a"), whole_words(", and", "so"), whole_words("ant", ""),
    ])""") == [
        ["the", "Veldhavn", "ferry at", "nine"], ["Donaud", "ampfsc", "hiff", "ahoy"], ["a b"], ["one", "two"],
        "the ferry", "the…", "Veld…", "x",
        "… The ferry", "user The ferry", " The ferry", "… o'clock", "… x", ", and", "ant"]  # fmt: skip


CONTRAST = """import("./web/tree_colours.js").then(({ read_colours }) => {
    const values = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const light = (rgb) => {
        const [r, g, b] = rgb.map((v) => (v <= 0.04045 * 255 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const { retained, on_retained } = read_colours(document.querySelector("#tree"));
    const below = values(retained);
    const text = values(on_retained).map((v, i) => 0.85 * v + 0.15 * below[i]); // as the text of a run is drawn
    const [a, b] = [light(text), light(below)];
    return Math.max(a, b) / Math.min(a, b);
})"""


@pytest.mark.parametrize("dark", [False, True])
def test_contrast_of_runs_that_are_kept(browser, server, dark):
    with opened(browser, server.url, 820, 1180, dark=dark) as page:
        assert page.run(CONTRAST) >= 4.5


def test_layout_and_movement(page):
    """Children are beside their parent. A new run grows, one that is gone fades; with less motion both happen at once."""
    nodes = [node(1, None, 0, 512, 3), node(2, 1, 512, 8, 1), node(3, 1, 512, 16, 1), node(4, 1, 512, 40, 1)]
    split = [node(1, None, 0, 200, 3), node(5, 1, 200, 312, 3), *(dict(leaf, parent=5) for leaf in nodes[1:])]
    moves = page.run(LAYOUT.replace("NODES", json.dumps(nodes)).replace("SPLIT", json.dumps(split)))
    assert moves == [[True, True, False], [False, False, False]]


SPEED = """Promise.all(["tree_layout", "tree_view", "tree_colours"].map((name) => import(`./web/${name}.js`))).then(
    ([layout, { TreeView }, { read_colours }]) => {
    // 2,000 runs: 40 trunks, and leaves below other runs at random; the texts are those of prompts.
    let seed = 1;
    const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
    const nodes = [];
    for (let id = 1; id <= 2000; id++) {
        const parent = id <= 40 ? null : nodes[random(Math.min(id - 1, 400))];
        const position = parent ? parent.position + parent.tokens : 0, sequences = random(3) === 0 ? 1 + random(16) : 0;
        nodes.push({ id, parent: parent?.id ?? null, position, tokens: 8 + random(300), ready: 8, sequences, pins: 0,
                     text: "You answer questions at the harbour. ".repeat(3) });
    }
    const canvas = document.querySelector("#tree canvas");
    const view = new TreeView(canvas, { colours: read_colours(document.querySelector("#tree")) });
    view.resize();
    for (let frame = 0; frame < 90; frame++) {
        if (frame % 6 === 0) { // ten answers of the server a second, more than there are; in each, runs have grown, come and gone
            for (const node of nodes) if (node.sequences > 0 && random(4) === 0) node.tokens++;
            const shown = nodes.filter((node) => node.id <= 1000 || random(50) > 0);
            const tree = layout.link_runs(shown);
            view.show(tree.runs, layout.lay_out(tree), 16);
        }
        view.draw(frame * 16);
        view.context.getImageData(0, 0, 1, 1); // waits until it is drawn
    }
    return view.sprites.size;
})"""


# As many frames of as many boxes with texts, without any layout.
PLAIN = """(() => {
    const canvas = document.querySelector("#tree canvas");
    const context = canvas.getContext("2d");
    for (let frame = 0; frame < 90; frame++) {
        for (let i = 0; i < 2000; i++) {
            context.fillStyle = i % 2 ? "red" : "blue";
            context.fillRect(i % 900, (7 * i) % 700, 90, 9);
            context.fillText("You answer questions at the harbour. ", i % 900, (7 * i) % 700);
        }
        context.getImageData(0, 0, 1, 1);
    }
})()"""


def test_two_thousand_runs(page):
    """A frame with 2,000 runs that all move takes about the CPU time of one with 2,000 boxes and texts."""
    page.wait_for(f"{PANEL}.dataset.runs")
    page.call("Performance.enable")

    def cpu_seconds(script):
        def now():
            metrics = page.call("Performance.getMetrics")["metrics"]
            return next(metric["value"] for metric in metrics if metric["name"] == "ProcessTime")

        begin, value = now(), page.run(script)
        return now() - begin, value

    plain, _ = cpu_seconds(PLAIN)
    runs, n_runs = cpu_seconds(SPEED)
    print(f"{runs:.2f} s for runs, {plain:.2f} s for boxes")
    assert n_runs >= 1990 and 0 < runs < 3 * plain

// The panel of the tree: asks the server for it, and shows it with its figures and the demonstration.
import { Chart } from "./chart.js";
import { create } from "./dom.js";
import { Details, bytes_text, describe } from "./tree_details.js";
import { is_in_use, lay_out, link_runs } from "./tree_layout.js";
import { read_colours } from "./tree_colours.js";
import { Demo, MOST_REQUESTS } from "./tree_demo.js";
import { TreeView, count_of, label_of } from "./tree_view.js";

const MOST_NODES = 2000;
const MOST_ALL_TEXT = 1 << 20; // tokens; the server's limit, as cache_nodes.c has it
const POLL_MS = 200; // from an answer to the next call while something happens
const IDLE_POLL_MS = 600;
const REFUSED_POLL_MS = 5000;

const PARTS = `
  <header>
    <h2>What the server remembers</h2>
    <button type="button" class="tree-run-demo" disabled></button>
  </header>
  <p class="tree-lead" id="tree-lead">Each block is a run of tokens that is <strong>stored once</strong> and read by every request
    whose text begins with it. Left is the start of a prompt; where prompts differ, it branches.</p>
  <ul class="tree-legend" aria-label="Legend">
    <li><span class="tree-key tree-key-scale"></span> read now by <span>1</span>–<span class="tree-most">${MOST_REQUESTS}</span> requests</li>
    <li><span class="tree-key tree-key-retained"></span> kept for later requests</li>
    <li><span class="tree-key tree-key-pen"></span> being written</li>
  </ul>
  <section class="tree-demo" aria-label="Demonstration" hidden>
    <div class="tree-cells"></div>
    <p role="status"></p>
  </section>
  <div class="tree-picture">
    <div class="tree-view" role="tree" tabindex="0" aria-label="Prefix tree" aria-describedby="tree-lead">
      <canvas aria-hidden="true"></canvas>
    </div>
    <p class="tree-empty" role="status"></p>
  </div>
  <p class="tree-status"></p>
  <section class="tree-details" aria-label="Details of a run"></section>
  <div class="tree-charts"></div>`;

/**
 * Show the tree in an element. Its dataset says what is shown: runs, leaves, in_use, readers (the most of a run), and whether
 * something still moves.
 */
export function start_tree(element, { api }) {
  new Panel(element, api);
}

class Panel {
  constructor(element, api) {
    Object.assign(this, { element, api, tree: link_runs([]), zoomed: null, page: null, rest: "", visible: false });
    this.samples = [];
    element.innerHTML = PARTS;
    const part = (name) => element.querySelector(`.tree-${name}`);
    this.box = part("view");
    this.status = part("status");
    this.empty = part("empty");
    this.most = part("most");
    this.demo = new Demo(part("run-demo"), part("demo"), { api, on_start: () => this.wake?.() });
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const colours = read_colours(element);
    this.view = new TreeView(this.box.querySelector("canvas"), { colours, calm: calm.matches });
    const chart = (title, lines) => new Chart(part("charts"), { title, lines, colours });
    this.speed = chart("Speed", [{ colour: "heat" }]);
    this.memory = chart("K/V memory", [{ colour: "accent" }, { colour: "muted", dashed: true }]);
    this.details = new Details(part("details"), {
      api,
      select: (id) => {
        this.box.focus(); // the button that was pressed is about to go
        this.select(id);
      },
      zoom: (id) => this.zoom(id),
      close: () => this.close_details(),
    });
    calm.addEventListener("change", () => { this.view.calm = calm.matches; });
    dark.addEventListener("change", () => {
      Object.assign(colours, read_colours(element)); // the view and the charts have the same object
      this.redraw_all();
    });
    new ResizeObserver(() => this.redraw_all()).observe(this.box);
    this.listen();
    new IntersectionObserver((entries) => this.set_visible(entries.at(-1).isIntersecting)).observe(this.box);
    document.addEventListener("visibilitychange", () => this.wake?.());
    this.poll();
  }

  // ---- The server ----

  set_visible(visible) {
    this.visible = visible;
    if (visible) this.wake?.();
  }

  /** Wait, and while the page or the panel cannot be seen, longer. */
  async pause(milliseconds) {
    const begun = performance.now();
    do {
      const rest = Math.max(0, milliseconds - (performance.now() - begun));
      const can_be_seen = this.visible && !document.hidden;
      await new Promise((resolve) => {
        this.wake = resolve;
        if (can_be_seen) setTimeout(resolve, rest);
      });
    } while (!this.visible || document.hidden);
    this.wake = null;
  }

  async poll() {
    for (;;) {
      let wait = IDLE_POLL_MS;
      const begun = performance.now();
      try {
        const n_nodes = this.page?.nodes ?? 0;
        const text = n_nodes <= 60 ? 1000 : n_nodes <= 400 ? 100 : 20;
        const page = await this.api.get(`/cache?nodes=${Math.min(MOST_NODES, Math.floor(MOST_ALL_TEXT / text))}&text=${text}`);
        if (page.running > 0 || page.waiting > 0 || this.demo.is_running) wait = POLL_MS;
        this.show(page);
      } catch (error) {
        this.refuse(error);
        wait = REFUSED_POLL_MS;
      }
      // However slow the answers are, the panel takes a small part of the time.
      await this.pause(Math.max(wait, 3 * (performance.now() - begun)));
    }
  }

  /** The server does not show its tree, and says why. */
  refuse(error) {
    this.page = null;
    this.demo.update(null);
    this.show_tree(link_runs([]));
    this.say_empty(error.message);
  }

  show(page) {
    this.page = page;
    this.show_tree(link_runs(page.data));
    this.show_rates(page);
    const n_shown = page.data.length;
    const of_all = `${n_shown.toLocaleString("en")} of ${count_of(page.nodes, "run")}`;
    this.rest = n_shown < page.nodes ? ` The first ${of_all} are shown.` : "";
    this.say_empty(page.nodes === 0 ? "Nothing yet. Chat, or start the demonstration." : "");
    this.say();
    this.demo.update(page);
  }

  show_tree(tree) {
    this.tree = tree;
    const runs = [...tree.runs.values()];
    const zoomed = tree.runs.get(this.zoomed) ?? null;
    if (!zoomed) this.zoomed = null;
    const readers = Math.max(0, ...runs.map((run) => run.sequences));
    const most = Math.max(MOST_REQUESTS, readers); // those with the strongest colour
    this.most.textContent = most;
    this.view.show(tree.runs, lay_out(tree, zoomed), most);
    if (!tree.runs.has(this.view.selected)) this.unselect();
    if (this.details.run) this.details.update(tree.runs.get(this.details.run.id));
    const in_use = runs.filter(is_in_use);
    const leaves = in_use.filter((run) => !run.below.some(is_in_use));
    Object.assign(this.element.dataset, { runs: runs.length, in_use: in_use.length, leaves: leaves.length, readers });
    this.redraw();
  }

  /** The charts: tokens a second, over the last second or so, and memory. */
  show_rates(page) {
    const now = performance.now() / 1000;
    this.samples.push([now, page.completion_tokens]);
    while (this.samples.length > 2 && this.samples[1][0] < now - 1) this.samples.shift();
    const [then, before] = this.samples[0];
    const rate = now > then ? Math.max(0, page.completion_tokens - before) / (now - then) : 0;
    this.speed.add(now, [rate], `${Math.round(rate).toLocaleString("en")} tokens/s`);
    const saved = page.unshared_bytes - page.live_bytes;
    const share = page.unshared_bytes > 0 ? ` (${Math.round((100 * saved) / page.unshared_bytes)} %)` : "";
    const text = page.unshared_bytes > 0 ? `${bytes_text(page.live_bytes)}, ${bytes_text(saved)} saved${share}` : "";
    this.memory.add(now, [page.live_bytes, page.unshared_bytes], text || `${bytes_text(page.retained_bytes)} kept`);
  }

  // ---- The picture ----

  /** Draw until nothing moves any more. */
  redraw() {
    this.frame ??= requestAnimationFrame((time) => {
      this.frame = null;
      const moves = this.view.draw(time);
      this.element.dataset.moves = moves;
      if (moves) this.redraw();
    });
  }

  /** Draw everything again, in another size or other colours. */
  redraw_all() {
    this.view.resize();
    this.redraw();
    this.speed.draw();
    this.memory.draw();
  }

  /** Why there is nothing to see; a screen reader speaks it whenever it is set. */
  say_empty(text) {
    if (this.empty.textContent !== text) this.empty.textContent = text;
  }

  /** The line below the picture: the run under the pointer, or else the one that the keyboard has reached. */
  say() {
    const run = this.tree.runs.get(this.view.hovered ?? this.view.selected);
    const text = run ? `${describe(run)}: ${label_of(run)}` : `Touch or click a block for details.${this.rest}`;
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  // ---- Pointer and keyboard ----

  listen() {
    const at = (event) => {
      const box = this.box.querySelector("canvas").getBoundingClientRect();
      return this.view.find(event.clientX - box.left, event.clientY - box.top);
    };
    const hover = (id) => {
      if (id === this.view.hovered) return;
      this.view.hovered = id;
      this.box.classList.toggle("on-run", id !== null);
      this.say();
      this.redraw();
    };
    this.box.addEventListener("pointermove", (event) => hover(event.pointerType === "touch" ? null : at(event)));
    this.box.addEventListener("pointerleave", () => hover(null));
    let pressed = null; // by the first click of two; the second one may meet another run, for the picture has moved
    this.box.addEventListener("click", (event) => {
      if (event.detail > 1) return;
      pressed = at(event);
      if (pressed !== null) this.select(pressed, true);
      else this.close_details();
    });
    this.box.addEventListener("dblclick", () => this.zoom(pressed));
    this.box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.on_key(event.key)) return;
      event.preventDefault();
    });
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (!this.details.section.hidden) this.close_details();
      else if (this.zoomed !== null) this.zoom(null);
      else return;
      event.preventDefault(); // it does not stop an answer, too
    });
  }

  /** Walk through the tree. Returns whether the key means something here. */
  on_key(key) {
    const run = this.tree.runs.get(this.view.selected);
    const top = this.tree.runs.get(this.zoomed);
    const trunks = top ? [top] : this.tree.trunks;
    if (key === "Enter" || key === " ") {
      if (run) this.select(run.id, true);
      return Boolean(run);
    }
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home"].includes(key)) return false;
    const beside = run === top || !run?.above ? trunks : run.above.below;
    const next = {
      Home: trunks[0],
      ArrowLeft: run === top ? run : run?.above,
      ArrowRight: run?.below.find(is_in_use) ?? run?.below[0],
      ArrowUp: beside[beside.indexOf(run) - 1],
      ArrowDown: beside[beside.indexOf(run) + 1],
    };
    const target = run ? next[key] : trunks.find(is_in_use) ?? trunks[0];
    if (target) this.select(target.id);
    return true;
  }

  /** Select a run, and open its details if that is wanted or they are open anyway. */
  select(id, opens = false) {
    const run = this.tree.runs.get(id);
    if (!run) return;
    // A screen reader speaks the item that the tree names as its active one.
    const beside = run.above?.below ?? this.tree.trunks;
    const item = create("div", {
      id: `tree-run-${id}`, class: "unseen", role: "treeitem", "aria-selected": "true", "aria-level": run.depth + 1,
      "aria-posinset": beside.indexOf(run) + 1, "aria-setsize": beside.length,
    }, `${describe(run)}: ${label_of(run)}`);
    this.unselect();
    this.view.selected = id;
    this.box.append(item);
    this.box.setAttribute("aria-activedescendant", item.id);
    if (opens || !this.details.section.hidden) this.details.open(run);
    this.say();
    this.redraw();
  }

  unselect() {
    this.view.selected = null;
    this.box.querySelector(".unseen")?.remove();
    this.box.removeAttribute("aria-activedescendant");
  }

  close_details() {
    if (this.details.section.contains(document.activeElement)) this.box.focus();
    this.details.close();
  }

  /** Show only a run and what is below it; again, or null: everything. */
  zoom(id) {
    this.zoomed = this.zoomed === id ? null : id;
    this.show_tree(this.tree);
  }
}

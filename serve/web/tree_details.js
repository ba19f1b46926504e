// What a run holds and who uses it: the section that a click opens.
import { create, create_button } from "./dom.js";
import { count_of, fit, label_of } from "./tree_view.js";
import { ends_below } from "./tree_layout.js";

const MOST_TEXT = 16384; // tokens, the server's limit
const MOST_USERS = 32;
const FETCH_MS = 1000; // from one text of a run that grows to the next

export function bytes_text(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const unit = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** unit;
  return `${value.toFixed(unit > 0 && value < 100 ? 1 : 0)} ${units[unit]}`;
}

/** What a run is, in a sentence. */
export function describe(run) {
  const uses = [];
  if (run.sequences > 0) uses.push(`read by ${count_of(run.sequences, "request")} now`);
  if (run.pins > 0) uses.push("pinned");
  return `${count_of(run.tokens, "token")}, stored once, ${uses.join(", ") || "kept for later requests"}`;
}

export class Details {
  /** Fills a section. select, zoom: called with a run's id; close: without. */
  constructor(section, { api, select, zoom, close }) {
    Object.assign(this, { section, api, select, run: null });
    this.fetching = null; // the object of the calls for the text of the run; another run has another one
    section.hidden = true;
    this.title = create("h3");
    this.list = create("dl");
    this.text = create("pre", { tabindex: 0, "aria-label": "Text of the run" });
    this.users = create("ul");
    this.users_title = create("h4");
    const zoom_in = create_button("Zoom in", () => zoom(this.run.id));
    const end = create_button("Close", close);
    section.append(create("header", {}, this.title, zoom_in, end), this.list, this.text, this.users_title, this.users);
  }

  /** Open the section for a run, and fetch its whole text. */
  open(run) {
    this.close();
    this.run = run;
    this.section.hidden = false;
    this.text.textContent = run.text ?? "";
    this.update(run);
    this.fetch_text();
  }

  close() {
    this.run = null;
    this.fetching = null;
    this.section.hidden = true;
  }

  /** Fetch the text of the run, and while the run grows again, at most once a second. */
  async fetch_text() {
    if (this.fetching) return; // which sees that the run has grown
    const fetching = (this.fetching = {});
    const is_open = () => this.fetching === fetching;
    for (let fetched = null; is_open() && fetched !== this.run.tokens; ) {
      const { id, tokens } = this.run;
      fetched = tokens;
      try {
        const page = await this.api.get(`/cache?node=${id}&nodes=1&text=${Math.max(1, Math.min(tokens, MOST_TEXT))}`);
        if (is_open()) this.text.textContent = page.data[0].text + (tokens > MOST_TEXT ? "…" : "");
      } catch (error) {
        if (is_open()) this.text.textContent = error.message;
      }
      await new Promise((resolve) => setTimeout(resolve, FETCH_MS));
    }
    if (is_open()) this.fetching = null;
  }

  /** The tree has changed; run: the one that is shown, or undefined if it is gone. */
  update(run) {
    if (!run) {
      this.title.textContent = "This run is gone";
      return;
    }
    this.title.textContent = describe(run);
    const rows = {
      Tokens: `${run.tokens.toLocaleString("en")}, from position ${run.position.toLocaleString("en")} of the prompt`,
      Computed: run.ready === run.tokens ? "all" : `${run.ready.toLocaleString("en")} so far`,
      Memory: `${count_of(run.chunks, "chunk")}; ${bytes_text(run.bytes)} are of this run alone`,
      Requests: `${run.sequences} now, ${run.readers} of them in the last step; found in the cache ${count_of(run.hits, "time")}`,
      Tenant: run.tenant ?? "none: a cache_salt, or a choice that shares with nobody",
      "Last use": new Date(run.last_use * 1000).toLocaleTimeString(),
    };
    this.list.replaceChildren(
      ...Object.entries(rows).flatMap(([name, value]) => [create("dt", {}, name), create("dd", {}, value)]),
    );
    const grows = run.tokens !== this.run.tokens;
    this.run = run;
    if (grows) this.fetch_text();
    this.list_users(ends_below(run).filter((end) => end !== run));
  }

  /** List the requests that are behind the run, unless they are listed already: a button that is replaced loses the focus. */
  list_users(ends) {
    const named = ends.slice(0, MOST_USERS).map((end) => [end.id, fit(label_of(end).trim(), 80)]);
    const key = JSON.stringify([named, ends.length]);
    if (key === this.listed) return;
    this.listed = key;
    this.users_title.textContent = ends.length > 0 ? "Requests that read it now, by what they go on with" : "";
    const rows = named.map(([id, text]) => create_button(text, () => this.select(id)));
    if (ends.length > MOST_USERS) rows.push(`and ${ends.length - MOST_USERS} more`);
    this.users.replaceChildren(...rows.map((row) => create("li", {}, row)));
  }
}

// The picture of the tree on a canvas: draws its runs, and moves them to their places when the tree changes.
import { place_of, position_at } from "./tree_layout.js";
import { step_of } from "./tree_colours.js";

const SETTLE_MS = 140; // in this time a run goes 63 % of its way
const SETTLED = 0.0004; // of the picture; closer than that, it has arrived
const AXIS_HEIGHT = 18; // pixels above the runs, with the positions
const EDGES = ["left", "right", "top", "bottom", "alpha"];

/** Characters that change the direction of a text or cannot be seen; texts come from strangers. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A text as it is drawn on a run: the marks of chat templates, such as <|im_end|>, are shown as dots. */
export function drawn_text(text) {
  return text
    .replace(/<\|[^|<>]{1,40}\|>/g, " · ")
    .replace(UNSEEN, "")
    .replace(/\s+/g, " ")
    .replace(/(· )+/g, "· ");
}

/** What a run begins with, as it is drawn on it. */
export function label_of(run) {
  return drawn_text(whole_words(run.text ?? "", run.above?.end ?? ""));
}

export function count_of(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

/** The end of a line of at most `columns` characters: where a word ends, unless the first one is longer than the line. */
function line_end(text, at, columns) {
  if (at + columns >= text.length) return text.length;
  const space = text.lastIndexOf(" ", at + columns);
  return space > at ? space : at + columns;
}

/** Break a text into at most `most` lines of at most `columns` characters. */
export function wrap(text, columns, most) {
  const lines = [];
  for (let at = 0; at < text.length && lines.length < most; ) {
    const end = line_end(text, at, columns);
    lines.push(text.slice(at, end).trim());
    for (at = end; text[at] === " "; at++);
  }
  return lines;
}

/** The beginning of a text in one line of at most `columns` characters, with a mark where it is cut. */
export function fit(text, columns) {
  return text.length <= columns ? text : `${text.slice(0, line_end(text, 0, Math.max(1, columns - 1)))}…`;
}

/** The text of a run without the end of a word that began in the run above, whose place a mark takes. */
export function whole_words(text, above) {
  const is_inside = /[\p{L}\p{M}\p{N}]$/u.test(above) && /^[\p{L}\p{M}\p{N}]/u.test(text);
  return is_inside ? text.replace(/^[\p{L}\p{M}\p{N}]+/u, "…") : text;
}

/** The next step of a number on its way to a goal. */
function approach(from, to, part) {
  return Math.abs(to - from) < SETTLED ? to : from + (to - from) * part;
}

export class TreeView {
  /** Draws on a canvas with `colours`, which the caller may replace. calm: nothing moves, all is in its place at once. */
  constructor(canvas, { colours, calm = false }) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.colours = colours;
    this.calm = calm;
    this.sprites = new Map();
    this.axis = { positions: [], places: [] };
    this.selected = null; // the ids of a run, or null
    this.hovered = null;
    this.drawn_at = null;
    this.width = this.height = 0;
  }

  /** Use the size that the page gives to the canvas. */
  resize() {
    const ratio = globalThis.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.font = `11px ${this.colours.mono}`;
    this.column = this.context.measureText("0").width;
  }

  /** Show runs at their places (tree_layout.js). Those that are new grow out of their parent, those that are gone fade. */
  show(runs, { axis, places }, most_readers) {
    this.axis = axis;
    for (const [id, place] of places) {
      const run = runs.get(id);
      let sprite = this.sprites.get(id);
      if (!sprite) {
        const begin = this.sprites.get(run.above?.id)?.now.right ?? place.left;
        sprite = { now: this.calm ? { ...place, alpha: 1 } : { ...place, left: begin, right: begin, alpha: 0 } };
        this.sprites.set(id, sprite);
      }
      sprite.goal = { ...place, alpha: 1 };
      sprite.run = run;
      sprite.step = run.sequences > 0 ? step_of(run.sequences, most_readers) : -1;
      if (sprite.text !== run.text) {
        sprite.text = run.text;
        sprite.shown_text = label_of(run);
        sprite.lines = null;
      }
    }
    for (const [id, sprite] of this.sprites) if (!places.has(id)) sprite.goal = { ...sprite.now, alpha: 0 };
  }

  /** The id of the run at a point of the canvas, or null. */
  find(x, y) {
    const across = x / this.width;
    const down = (y - AXIS_HEIGHT) / (this.height - AXIS_HEIGHT);
    for (const [id, { now, goal }] of this.sprites)
      if (goal.alpha > 0 && now.left <= across && across < now.right && now.top <= down && down < now.bottom) return id;
    return null;
  }

  /** Draw what is to be seen at a time, in milliseconds. Returns whether something still moves. */
  draw(time) {
    const elapsed = this.drawn_at === null ? 16 : Math.min(100, time - this.drawn_at);
    const part = this.calm ? 1 : 1 - Math.exp(-elapsed / SETTLE_MS);
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw_axis();
    let moves = false;
    for (const [id, sprite] of this.sprites) {
      const { now, goal } = sprite;
      for (const edge of EDGES) {
        if (now[edge] === goal[edge]) continue;
        now[edge] = approach(now[edge], goal[edge], part);
        moves = true;
      }
      if (goal.alpha === 0 && now.alpha === 0) this.sprites.delete(id);
      else this.draw_run(sprite);
    }
    for (const [id, width] of [[this.hovered, 1], [this.selected, 2]]) this.draw_path(id, width);
    this.drawn_at = moves ? time : null;
    return moves;
  }

  /** The pixels of a run; runs with room for it have a gap between each other. */
  box({ left, right, top, bottom }) {
    const height = this.height - AXIS_HEIGHT;
    const x = left * this.width;
    const y = AXIS_HEIGHT + top * height;
    const gap_x = (right - left) * this.width > 4 ? 1.5 : 0;
    const gap_y = (bottom - top) * height > 4 ? 1.5 : 0;
    return [x, y, Math.max(0.5, (right - left) * this.width - gap_x), Math.max(0.5, (bottom - top) * height - gap_y)];
  }

  draw_axis() {
    const { context, colours, axis } = this;
    if (axis.positions.length < 2) return;
    context.font = `10px ${colours.font}`;
    context.fillStyle = colours.muted;
    context.textBaseline = "middle";
    const n_marks = Math.max(1, Math.floor(this.width / 110));
    const first = axis.positions[0];
    for (let i = 0, before = -1; i < n_marks; i++) {
      const exact = position_at(axis, i / n_marks);
      const unit = Math.max(1, 10 ** Math.floor(Math.log10(Math.max(1, exact / 10))));
      const position = i === 0 ? first : Math.round(exact / unit) * unit;
      if (position <= before) continue;
      before = position;
      const x = place_of(axis, position) * this.width;
      context.fillRect(x, AXIS_HEIGHT - 5, 1, 3);
      context.fillText(`${i === 0 ? "token " : ""}${position.toLocaleString("en")}`, x + 4, AXIS_HEIGHT / 2 - 1);
    }
  }

  draw_run(sprite) {
    const { context, colours } = this;
    const { run, step, now } = sprite;
    const [x, y, width, height] = this.box(now);
    if (now.alpha !== 1) context.globalAlpha = now.alpha;
    context.fillStyle = step >= 0 ? colours.scale[step] : colours.retained;
    if (height > 8 && width > 8) {
      context.beginPath();
      context.roundRect(x, y, width, height, Math.min(4, height / 4));
      context.fill();
    } else {
      context.fillRect(x, y, width, height);
    }
    if (run.ready < run.tokens && width > 4) { // what is still to be computed is paler
      const computed = (width * run.ready) / run.tokens;
      context.globalAlpha = 0.45 * now.alpha;
      context.fillStyle = colours.panel;
      context.fillRect(x + computed, y, width - computed, height);
      context.globalAlpha = now.alpha;
    }
    // The end of a run that grows at every step.
    if (step >= 0 && run.below.length === 0 && height > 3) {
      context.fillStyle = colours.heat;
      context.fillRect(x + width - 2, y + 1, 2, height - 2);
    }
    if (height >= 11 && width >= 30) this.draw_text(sprite, x + 6, y, width - 12, height);
    if (context.globalAlpha !== 1) context.globalAlpha = 1;
  }

  /** The text of a run: in a flat one a single line, in a tall one what it is and as many lines as there is room for. */
  draw_text(sprite, x, y, width, height) {
    const { context, colours } = this;
    const { run, step } = sprite;
    context.fillStyle = step >= 0 ? colours.on_scale[step] : colours.on_retained;
    context.textBaseline = "middle";
    context.font = `11px ${colours.mono}`;
    const columns = Math.floor(width / this.column);
    if (height < 44) {
      const tokens = run.tokens.toLocaleString("en");
      const room = columns - tokens.length - 1;
      context.fillText(fit(sprite.shown_text.trim(), room < 6 ? columns : room), x, y + height / 2);
      if (room < 6) return;
      context.textAlign = "right";
      context.globalAlpha *= 0.85;
      context.fillText(tokens, x + width, y + height / 2);
      context.textAlign = "left";
      return;
    }
    let line_y = y + 14;
    context.font = `600 12px ${colours.font}`;
    for (const line of this.title(run, width)) {
      context.fillText(line, x, line_y);
      line_y += 16;
    }
    const n_lines = Math.floor((y + height - line_y) / 15);
    const key = columns * 10000 + n_lines;
    if (sprite.lines?.key !== key)
      sprite.lines = { key, list: columns < 4 ? [] : wrap(sprite.shown_text.trim(), columns, n_lines) };
    context.font = `11px ${colours.mono}`;
    context.globalAlpha *= 0.85;
    sprite.lines.list.forEach((line, i) => context.fillText(line, x, line_y + 4 + 15 * i));
  }

  /** The lines of a run's title that fit into a width. */
  title(run, width) {
    const tokens = count_of(run.tokens, "token");
    const use = run.sequences > 0 ? `read by ${run.sequences}` : run.pins > 0 ? "pinned" : "kept";
    const fits = (line) => this.context.measureText(line).width <= width;
    const whole = `${tokens}, stored once, ${use}`;
    return fits(whole) ? [whole] : [fits(tokens) ? tokens : run.tokens.toLocaleString("en"), "stored once", use].filter(fits);
  }

  /** A ring around a run, and thin ones around the runs before it: together they are a prompt. */
  draw_path(id, line_width) {
    let run = this.sprites.get(id)?.run;
    if (!run) return;
    this.context.strokeStyle = this.colours.fg;
    for (let width = line_width; run; run = run.above, width = 0.75) {
      const sprite = this.sprites.get(run.id);
      if (!sprite) return;
      const [x, y, w, h] = this.box(sprite.now);
      this.context.lineWidth = width;
      this.context.strokeRect(x + width / 2, y + width / 2, Math.max(0, w - width), Math.max(0, h - width));
    }
  }
}

// Shows Markdown, as models write it. All text goes into text nodes, and only the elements that this file creates exist, so
// HTML in a text is shown as it was written. Lines may be incomplete: a text is shown anew whenever a piece has come.
import { create, create_button } from "./dom.js";

const MAX_DEPTH = 8; // of lists and quotes in each other, and of marks in each other; deeper ones are text
const MAX_SPAN = 2000; // characters between two marks, so that a line of nothing but marks takes no quadratic time

const MAX_INNER = 20; // strong parts within an emphasized one, counted by their marks

// ---- Marks within a line ----

/** Where `mark` comes next, not too far away; -1: it does not. */
function find(text, mark, from) {
  const at = text.slice(from, from + MAX_SPAN).indexOf(mark);
  return at < 0 ? -1 : from + at;
}

/** The address, if it is one that a link may have. */
function safe_url(text) {
  try {
    const url = new URL(text.trim());
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(url, children) {
  return create("a", { href: url, rel: "noopener noreferrer", target: "_blank", referrerpolicy: "no-referrer" }, children);
}

const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const is_word = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);
const is_blank = (c) => c === undefined || /\s/.test(c);

/** The end of a link's address, which may contain pairs of parentheses. */
function end_of_address(text, from) {
  let open = 0;
  for (let i = from; i < text.length && i < from + MAX_SPAN; i++) {
    if (text[i] === "(") open++;
    else if (text[i] === ")" && open-- === 0) return i;
    else if (text[i] === "\n") return -1;
  }
  return -1;
}

/** What begins at a place: the node and where it ends; null: text. */
function read_mark(text, at, depth) {
  const c = text[at];
  if (c === "`") {
    let n = 1;
    while (text[at + n] === "`") n++;
    const end = find(text, "`".repeat(n), at + n);
    return end < 0 ? { node: text.slice(at, at + n), end: at + n }
                   : { node: create("code", {}, text.slice(at + n, end)), end: end + n };
  }
  if (c === "[" || (c === "!" && text[at + 1] === "[")) {
    const begin = c === "!" ? at + 2 : at + 1; // a picture would come from elsewhere: it is shown as a link
    const middle = find(text, "](", begin);
    const end = middle < 0 ? -1 : end_of_address(text, middle + 2);
    const url = end < 0 ? null : safe_url(text.slice(middle + 2, end).replace(/\s+"[^"]*"\s*$/, ""));
    return url && { node: link(url, read_line(text.slice(begin, middle), depth + 1, false)), end: end + 1 };
  }
  if (c === "h" && !is_word(text[at - 1]) && /^https?:\/\//.test(text.slice(at, at + 8))) {
    const found = text.slice(at, at + MAX_SPAN).match(/^[^\s<>"'`]+/)[0].replace(/[.,;:!?*_~)\]]+$/, "");
    const url = safe_url(found);
    return url && { node: link(url, found), end: at + found.length };
  }
  for (const [mark, tag] of MARKS) {
    if (!text.startsWith(mark, at)) continue;
    if (is_blank(text[at + mark.length])) return null;
    if (mark[0] === "_" && is_word(text[at - 1])) return null;
    let end = find(text, mark, at + mark.length + 1);
    // The end of *a **b** c* is not within the strong part, and that of ***a*** is the last mark.
    for (let n = 0; mark.length === 1 && end >= 0 && text[end + 1] === mark; n++)
      end = n < MAX_INNER ? find(text, mark, end + 2) : -1;
    if (mark.length === 2 && end >= 0 && text[end + 2] === c) end++;
    if (end < 0 || is_blank(text[end - 1]) || (mark[0] === "_" && is_word(text[end + mark.length]))) continue;
    return { node: create(tag, {}, read_line(text.slice(at + mark.length, end), depth + 1)), end: end + mark.length };
  }
  return null;
}

/** The nodes of a text without blocks. may_link: links are read. */
function read_line(text, depth = 0, may_link = true) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [];
  let begin = 0;
  for (let i = 0; i < text.length; ) {
    const c = text[i];
    if (c === "\\" && /[\\`*_{}[\]()#+\-.!~|<>]/.test(text[i + 1] ?? "")) {
      nodes.push(text.slice(begin, i));
      begin = i + 1;
      i += 2;
      continue;
    }
    const mark = "`*_~".includes(c) || (may_link && "[!h".includes(c)) ? read_mark(text, i, depth) : null;
    if (!mark) {
      i++;
      continue;
    }
    nodes.push(text.slice(begin, i), mark.node);
    begin = i = mark.end;
  }
  nodes.push(text.slice(begin));
  return nodes.filter((node) => node !== "");
}

// ---- Blocks ----

// None of these expressions takes more than linear time, also on lines that nobody would write, or repeats a group for each
// character of a line, for which browsers lack stack.
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(\S.*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;

/** Whether a line is a rule: three or more of one mark, perhaps with blanks between them. */
function is_rule(line) {
  const marks = line.replace(/\s+/g, "");
  return /^ {0,3}\S/.test(line) && marks.length >= 3 && /^(?:-+|\*+|_+)$/.test(marks);
}

/** The marks and the language of a line that begins a code block; null: it begins none. */
function fence_of(line) {
  const found = line.match(FENCE);
  if (!found || (found[1][0] === "`" && found[2].includes("`"))) return null;
  return { marks: found[1], language: found[2].trim().split(/\s/)[0] };
}

function code_block(language, text) {
  const head = create("div", { class: "code-head" }, create("span", {}, language || "text"));
  if (navigator.clipboard) {
    const button = create_button("Copy", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    head.append(button);
  }
  return create("div", { class: "code" }, head, create("pre", {}, create("code", {}, text)));
}

const cells_of = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

/** Whether a table begins with a line: the next line is a rule with as many cells. */
function begins_table(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length) return false;
  const rule = cells_of(lines[at + 1]);
  return rule.every((cell) => /^:?-+:?$/.test(cell)) && rule.length === cells_of(lines[at]).length;
}

function table_block(lines) {
  const sides = cells_of(lines[1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  const row = (line, tag) => {
    const cells = cells_of(line).slice(0, sides.length);
    return create("tr", {}, cells.map((cell, i) => create(tag, { class: sides[i] }, read_line(cell))));
  };
  const body = lines.slice(2).map((line) => row(line, "td"));
  return create("div", { class: "wide-table" },
    create("table", {}, create("thead", {}, row(lines[0], "th")), create("tbody", {}, body)));
}

function list_block(lines, depth) {
  const ordered = /\d/.test(lines[0].match(ITEM)[2]);
  const list = create(ordered ? "ol" : "ul", {});
  if (ordered) list.start = parseInt(lines[0].match(ITEM)[2], 10);
  const base = lines[0].match(ITEM)[1].length;
  let item = null;
  const close = () => item && list.append(create("li", {}, item_nodes(item, depth)));
  for (const line of lines) {
    const found = line.match(ITEM);
    if (found && found[1].length < base + 2) {
      close();
      item = { lines: [found[4]], indent: found[1].length + found[2].length + 1 };
    } else {
      item.lines.push(line.slice(Math.min(item.indent, line.length - line.trimStart().length)));
    }
  }
  close();
  return list;
}

/** An item of one paragraph has no <p>. */
function item_nodes(item, depth) {
  const nodes = blocks_of(item.lines, depth + 1).map((block) => block.create());
  return nodes[0]?.tagName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
}

/** Whether a line begins a block that ends a paragraph. */
const begins_block = (line) =>
  fence_of(line) !== null || HEADING.test(line) || is_rule(line) || ITEM.test(line) || /^ {0,3}>/.test(line);

/** The lines from `at` on that belong to the same list. */
function list_end(lines, at) {
  const base = lines[at].match(ITEM)[1].length;
  const ordered = /\d/.test(lines[at].match(ITEM)[2]);
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    const indent = line.length - line.trimStart().length;
    const found = line.match(ITEM);
    if (line.trim() === "") {
      // A list goes on behind a blank line with another item, or with what is indented.
      const next = lines[end + 1];
      if (next === undefined || (!/^ {2}/.test(next) && !ITEM.test(next))) break;
    } else if (found && indent < base + 2) {
      if (is_rule(line) || indent < base || /\d/.test(found[2]) !== ordered) break;
    } else if (indent <= base && (begins_block(line) || lines[end - 1].trim() === "")) {
      break;
    }
  }
  return end;
}

/** The blocks of some lines: the lines of each as one text, and what creates its element. */
function blocks_of(lines, depth = 0) {
  const blocks = [];
  const add = (from, to, create_block) => blocks.push({ source: lines.slice(from, to).join("\n"), create: create_block });
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const begin = i;
    const fence = fence_of(line);
    const heading = line.match(HEADING);
    if (line.trim() === "") {
      i++;
    } else if (fence) {
      const is_end = (text) => text.trim().startsWith(fence.marks) && text.trim().replaceAll(fence.marks[0], "") === "";
      for (i++; i < lines.length && !is_end(lines[i]); ) i++;
      const text = lines.slice(begin + 1, i).join("\n");
      add(begin, ++i, () => code_block(fence.language, text));
    } else if (heading) {
      // The page itself has levels 1 and 2.
      const tag = `h${Math.min(6, heading[1].length + 2)}`;
      add(begin, ++i, () => create(tag, {}, read_line(heading[2].trim().replace(/ #+$/, ""))));
    } else if (is_rule(line)) {
      add(begin, ++i, () => create("hr"));
    } else if (/^ {0,3}>/.test(line) && depth < MAX_DEPTH) {
      while (i < lines.length && /^ {0,3}>/.test(lines[i])) i++;
      const inner = lines.slice(begin, i).map((text) => text.replace(/^ {0,3}> ?/, ""));
      add(begin, i, () => create("blockquote", {}, blocks_of(inner, depth + 1).map((block) => block.create())));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      i = list_end(lines, i);
      const inner = lines.slice(begin, i);
      add(begin, i, () => list_block(inner, depth));
    } else if (begins_table(lines, i)) {
      for (i += 2; i < lines.length && lines[i].includes("|"); ) i++;
      const rows = lines.slice(begin, i);
      add(begin, i, () => table_block(rows));
    } else {
      for (i++; i < lines.length && lines[i].trim() !== "" && !begins_block(lines[i]) && !begins_table(lines, i); ) i++;
      const text = lines.slice(begin, i).join("\n").trim();
      add(begin, i, () => create("p", {}, read_line(text)));
    }
  }
  return blocks;
}

const shown = new WeakMap(); // of an element, the sources of its blocks

/**
 * Show a text in an element that has nothing else. Blocks that are shown already and have not changed are left alone, so a
 * text that grows costs little, and what a reader has selected in it stays selected.
 */
export function show_markdown(element, text) {
  const blocks = blocks_of(text.split(/\r\n?|\n/));
  const before = shown.get(element) ?? [];
  let same = 0;
  while (same < blocks.length && before[same] === blocks[same].source) same++;
  while (element.childNodes.length > same) element.lastChild.remove();
  for (const block of blocks.slice(same)) element.append(block.create());
  shown.set(element, blocks.map((block) => block.source));
}

// Creates elements. Texts become text nodes and are never parsed as HTML.

/** An element with children: nodes, strings, or arrays of them, which may be longer than a call can have arguments. */
export function create(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const child of children.flat()) element.append(child);
  return element;
}

/** A button that is a word. */
export function create_button(text, on_click) {
  const button = create("button", { type: "button", class: "quiet" }, text);
  button.addEventListener("click", on_click);
  return button;
}

// The colours of the page as a canvas needs them, read from the custom properties of style.css.

/** Steps of the scale from one reader to many. */
const STEPS = 32;

/**
 * A function that says what a CSS colour is for a canvas, as #rrggbbaa, which canvases read fastest: the browser resolves variables
 * and mixtures, and a pixel shows the result, whatever notation the browser has for it.
 */
function resolver(element) {
  const probe = document.createElement("span");
  probe.hidden = true;
  element.append(probe);
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  return {
    resolve: (css) => {
      probe.style.color = css;
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = getComputedStyle(probe).color;
      context.fillRect(0, 0, 1, 1);
      return "#" + [...context.getImageData(0, 0, 1, 1).data].map((value) => value.toString(16).padStart(2, "0")).join("");
    },
    end: () => probe.remove(),
  };
}

/** The luminance of WCAG, which its contrast is about. */
function luminance(colour) {
  const values = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const [red, green, blue] = values.map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Of two colours, the one that is better to read on a background. */
function readable(background, one, other) {
  const light = luminance(background);
  const contrast = (colour) => {
    const of_colour = luminance(colour);
    return (Math.max(light, of_colour) + 0.05) / (Math.min(light, of_colour) + 0.05);
  };
  return contrast(one) >= contrast(other) ? one : other;
}

/** The colours that the page has now. `scale` and `on_scale`, the texts on it, go from one reader to many. */
export function read_colours(element) {
  const { resolve, end } = resolver(element);
  const dark = resolve("color-mix(in srgb, black 88%, var(--accent))");
  const colours = {
    panel: resolve("var(--panel)"),
    fg: resolve("var(--fg)"),
    muted: resolve("var(--muted)"),
    border: resolve("var(--border)"),
    accent: resolve("var(--accent)"),
    heat: resolve("var(--heat)"),
    saved: resolve("color-mix(in srgb, var(--accent) 16%, transparent)"),
    retained: resolve("color-mix(in srgb, var(--muted) 15%, var(--bg))"),
    on_retained: resolve("color-mix(in srgb, var(--fg) 82%, var(--bg))"),
    scale: [],
    on_scale: [],
    font: getComputedStyle(element).getPropertyValue("--font"),
    mono: getComputedStyle(element).getPropertyValue("--mono"),
  };
  for (let i = 0; i < STEPS; i++) {
    const part = i / (STEPS - 1);
    const hue = `color-mix(in oklch, var(--heat) ${100 * part}%, var(--accent))`;
    const colour = resolve(`color-mix(in srgb, ${hue} ${34 + 46 * part ** 0.8}%, var(--panel))`);
    colours.scale.push(colour);
    colours.on_scale.push(readable(colour, readable(colour, colours.fg, dark), "#ffffffff"));
  }
  end();
  return colours;
}

/** The step of the scale for a number of readers, at least 1; `most` readers and more have the last one. */
export function step_of(readers, most) {
  const part = Math.log2(readers) / Math.log2(Math.max(2, most));
  return Math.round(Math.min(1, part) * (STEPS - 1));
}

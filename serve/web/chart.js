// A small chart: up to two lines over the last minute, the current values as text beside the title.
import { create } from "./dom.js";

const SECONDS = 60;

export class Chart {
  /**
   * Append a chart to an element. lines: of each the name of its colour (tree_colours.js) and whether it is dashed; with two of
   * them the area between is filled, otherwise that below the line.
   */
  constructor(element, { title, lines, colours }) {
    this.lines = lines;
    this.colours = colours;
    this.points = []; // [seconds, value, ...]
    this.label = create("span", { class: "chart-value" });
    this.canvas = create("canvas", { "aria-hidden": "true" });
    const caption = create("figcaption", {}, create("span", {}, title), this.label);
    element.append(create("figure", { class: "chart" }, caption, this.canvas));
  }

  /** Add the values of the lines at a time, and say what they are. */
  add(seconds, values, text) {
    this.points.push([seconds, ...values]);
    while (this.points.length > 2 && this.points[1][0] < seconds - SECONDS) this.points.shift();
    this.label.textContent = text;
    this.draw();
  }

  draw() {
    const { canvas, points, colours } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.fillStyle = colours.border;
    context.fillRect(0, height - 1, width, 1);
    if (points.length < 2) return;
    const most = Math.max(1e-9, ...points.flatMap((point) => point.slice(1)));
    const end = points.at(-1)[0];
    const x_of = (seconds) => width * (1 - (end - seconds) / SECONDS);
    const y_of = (value) => height - 1 - (height - 4) * (value / most);
    const trace = (line, backwards) => {
      const order = backwards ? points.toReversed() : points;
      for (const point of order) context.lineTo(x_of(point[0]), y_of(line < 0 ? 0 : point[line + 1]));
    };
    context.fillStyle = colours.saved;
    context.beginPath();
    trace(this.lines.length - 1, false);
    trace(this.lines.length - 2, true);
    context.fill();
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    this.lines.forEach(({ colour, dashed }, line) => {
      context.strokeStyle = colours[colour];
      context.setLineDash(dashed ? [4, 3] : []);
      context.beginPath();
      trace(line, false);
      context.stroke();
    });
    context.setLineDash([]);
  }
}

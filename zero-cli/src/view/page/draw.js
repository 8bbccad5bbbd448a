// Draw: colours, patterns, numbers in words, and elements. Knows no plan.

// What the page is made of: its palette, and its views with their plans.
const index = JSON.parse(document.getElementById("index").textContent);

// How things are drawn, by name: a colour, and a pattern, so that nothing is told apart by colour alone.
const PALETTE = Object.fromEntries(index.palette.map((paint) => [paint.name, paint]));

const HOLDINGS = {
  sharded: "a shard: one of",
  replicated: "whole, as on every rank of the pipeline stage",
  alone: "whole, on this rank alone",
  gathered: "gathered or converted for use, then given up",
  own: "of the rank's own micro-batches",
  passing: "on its way to other ranks",
};

const patterns = new Map();

// A tile with the pattern of a name, on a colour or on nothing.
function tile(name, ink, fill) {
  const made = document.createElement("canvas");
  made.width = made.height = 8;
  const to = made.getContext("2d");
  if (fill) {
    to.fillStyle = fill;
    to.fillRect(0, 0, 8, 8);
  }
  to.strokeStyle = ink;
  to.beginPath();
  for (const [x0, y0, x1, y1] of PALETTE[name].strokes) {
    to.moveTo(x0, y0);
    to.lineTo(x1, y1);
  }
  to.stroke();
  return made;
}

// The ink of a pattern: on a colour, a darker shade of it.
function inkOf(name, theme) {
  return PALETTE[name].fill ? "rgba(0,0,0,0.4)" : theme.soft;
}

// A pattern as a style of a canvas; none where it is plain.
function pattern(name, theme) {
  if (PALETTE[name].strokes.length === 0) return null;
  if (!patterns.has(name)) patterns.set(name, document.createElement("canvas").getContext("2d").createPattern(tile(name, inkOf(name, theme)), "repeat"));
  return patterns.get(name);
}

// The style that fills an element of the page.
function background(name) {
  const { fill } = PALETTE[name];
  return `background:${fill || "none"} url(${tile(name, inkOf(name, themeOf())).toDataURL()})`;
}

// Fills the shape that `path` makes with a colour and a pattern of the palette.
function paint(to, name, theme, path) {
  const { fill } = PALETTE[name];
  path();
  if (fill) {
    to.fillStyle = fill;
    to.fill();
  }
  const style = pattern(name, theme);
  if (style) {
    to.fillStyle = style;
    to.fill();
  }
}

// Colours that the style sheet decides.
function themeOf() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), soft: of("--soft"), line: of("--line"), back: of("--back"), raised: of("--raised"), mark: of("--mark") };
}

function scaled(value, base, names) {
  let unit = 0;
  while (unit + 1 < names.length && Math.abs(value) >= base) {
    value /= base;
    unit += 1;
  }
  return [value, names[unit]];
}

// Sizes as reports write them: one decimal, cut and not rounded.
function bytes(value) {
  const [number, unit] = scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
  return unit === "B" ? `${value} B` : `${(Math.trunc(number * 10) / 10).toFixed(1)} ${unit}`;
}

// Three digits, or all of those before the point.
function short(value) {
  return String(Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3)));
}

// A time on a clock. `digits` more are kept where neighbouring times must differ.
function time(value, clock, digits = 0) {
  const names = clock === "ns" ? ["ns", "µs", "ms", "s"] : ["", "k", "M", "G", "T", "P"];
  const [number, unit] = scaled(value, 1000, names);
  const text = digits > 0 ? String(Number(number.toPrecision(3 + digits))) : short(number);
  return clock === "ns" ? `${text} ${unit}` : `${text} ${unit ? unit + " " : ""}op`;
}

function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "0.0 %";
}

const grouped = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, " ");

// An element with attributes and children; an attribute that is a function listens to the event of that name.
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// A canvas that is as sharp as the screen; gives its context and its size in pixels of the style sheet.
function fitted(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const to = canvas.getContext("2d");
  to.setTransform(ratio, 0, 0, ratio, 0, 0);
  to.clearRect(0, 0, width, height);
  return [to, width, height];
}

// Round numbers between two, at most `most` of them.
function ticks(from, to, most) {
  const rough = Math.max((to - from) / Math.max(most, 1), 1e-9);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) || 10 * power;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return [found, step];
}

// A patch that shows how something is drawn, for legends and tables.
function patch(name) {
  const canvas = el("canvas", { class: "patch", width: 28, height: 16, "aria-hidden": "true" });
  canvas.dataset.paint = name;
  paintPatch(canvas);
  return canvas;
}

function paintPatch(canvas) {
  const to = canvas.getContext("2d");
  const theme = themeOf();
  to.clearRect(0, 0, 28, 16);
  paint(to, canvas.dataset.paint, theme, () => {
    to.beginPath();
    to.rect(0.5, 0.5, 27, 15);
  });
  to.strokeStyle = theme.soft;
  to.stroke();
}

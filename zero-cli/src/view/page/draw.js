// Draw: colours, patterns, numbers in words, and elements. Knows no plan.

// Palette of Okabe and Ito (2008), which people with any colour vision can tell apart. Each has a pattern, too, so that colour
// is never all that tells two things apart.
const PALETTE = {
  forward: { fill: "#0072B2", ink: "#ffffff", pattern: "plain" },
  recompute: { fill: "#CC79A7", ink: "#000000", pattern: "dots" },
  backward: { fill: "#D55E00", ink: "#000000", pattern: "rising" },
  update: { fill: "#009E73", ink: "#000000", pattern: "grid" },
  gather: { fill: "#56B4E9", ink: "#000000", pattern: "level" },
  reduce: { fill: "#E69F00", ink: "#000000", pattern: "falling" },
  parcel: { fill: "#F0E442", ink: "#000000", pattern: "upright" },
  agree: { fill: "#666666", ink: "#ffffff", pattern: "plain" },
  wait: { fill: null, ink: null, pattern: "sparse" },
  parameters: { fill: "#0072B2", ink: "#ffffff", pattern: "plain" },
  optimizer: { fill: "#009E73", ink: "#000000", pattern: "grid" },
  gathered: { fill: "#56B4E9", ink: "#000000", pattern: "level" },
  gradients: { fill: "#D55E00", ink: "#000000", pattern: "rising" },
  activations: { fill: "#CC79A7", ink: "#000000", pattern: "dots" },
  workspace: { fill: "#F0E442", ink: "#000000", pattern: "upright" },
  outside: { fill: null, ink: null, pattern: "sparse" },
};

const CLASSES = [
  ["forward", "forward"],
  ["recompute", "recompute"],
  ["backward", "backward"],
  ["update", "update"],
  ["gather", "parameters travel"],
  ["reduce", "gradients travel"],
  ["parcel", "parcels between pipeline stages"],
  ["agree", "agreement of all ranks"],
  ["wait", "waits"],
];

const GROUPS = [
  ["parameters", "parameters"],
  ["optimizer", "optimizer state"],
  ["gathered", "gathered parameters"],
  ["gradients", "gradients"],
  ["activations", "activations"],
  ["workspace", "workspace and outgoing"],
];

const HOLDINGS = {
  sharded: "a shard: one of",
  replicated: "whole, as on every rank of the pipeline stage",
  alone: "whole, on this rank alone",
  gathered: "gathered or converted for use, then given up",
  own: "of the rank's own micro-batches",
  passing: "on its way to other ranks",
};

// Strokes of a tile of 8 x 8 pixels.
const STROKES = {
  plain: [],
  dots: "dots",
  rising: [[0, 8, 8, 0]],
  falling: [[0, 0, 8, 8]],
  level: [[0, 2, 8, 2], [0, 6, 8, 6]],
  upright: [[2, 0, 2, 8], [6, 0, 6, 8]],
  grid: [[0, 4, 8, 4], [4, 0, 4, 8]],
  sparse: [[0, 8, 8, 0]],
};

const patterns = new Map();

// A pattern as a style of a canvas; none where it is plain.
function pattern(name, ink) {
  const key = name + ink;
  if (STROKES[name].length === 0) return null;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const to = tile.getContext("2d");
    to.strokeStyle = to.fillStyle = ink;
    to.lineWidth = 1;
    if (STROKES[name] === "dots") {
      for (const [x, y] of [[1, 1], [5, 5]]) to.fillRect(x, y, 2, 2);
    } else {
      to.beginPath();
      for (const [x0, y0, x1, y1] of STROKES[name]) {
        // Twice more beside the tile, so that slanted lines meet at its corners.
        for (const shift of [-8, 0, 8]) {
          to.moveTo(x0 + shift, y0);
          to.lineTo(x1 + shift, y1);
        }
      }
      to.stroke();
    }
    patterns.set(key, to.createPattern(tile, "repeat"));
  }
  return patterns.get(key);
}

// Fills what `path` has put into the canvas as something of the palette is drawn.
function paint(to, name, theme, path) {
  const { fill, pattern: lines } = PALETTE[name];
  path();
  if (fill) {
    to.fillStyle = fill;
    to.fill();
  }
  const style = pattern(lines, fill ? "rgba(0,0,0,0.38)" : theme.soft);
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

function short(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits).replace(/\.0+$/, "");
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

// An element with attributes and children; an attribute that is a function listens.
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
  const rough = Math.max((to - from) / Math.max(most, 1), Number.MIN_VALUE);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) || 10 * power;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return [found, step];
}

// A patch of what something is drawn as, for legends and tables.
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

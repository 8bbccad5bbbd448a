// Timeline: the ops of all pipeline stages, or of all ranks, on one axis of time. Never decides what an op means.

const ROW = 22;
const TRACK = 9;
const GAP = 12;
const TOP = 28;
const TRACKED = ["gather", "reduce", "parcel", "agree"];

class Timeline {
  constructor(view, axis) {
    Object.assign(this, { view, axis, selected: null, hovered: null });
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label":
        "Schedule of a step. Left and right arrow: the op before or after. Up and down: another row. Shift with left and right: move. " +
        "Plus and minus: zoom. 0: the whole step. Enter: the line of the spec. Escape: select nothing.",
    });
    this.spacer = el("div", { class: "spacer" });
    this.scroller = el("div", { class: "scroller" }, el("div", { class: "held" }, this.canvas), this.spacer);
    this.tip = el("div", { class: "tip", hidden: true });
    this.element = el("div", { class: "timeline" }, this.scroller, this.tip);
    axis.listeners.push(() => this.draw());
    this.scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.listen();
  }

  set plan(plan) {
    this.shown = plan;
    this.lay();
  }

  // Lays out the rows: the planned ops of each pipeline stage or rank, below them the bytes that travel, and below
  // those the measured ops.
  lay() {
    const { plan, measured, expanded } = this.view;
    const rows = expanded ? this.view.plan.pipelineOf.map((pipeline, rank) => ({ pipeline, rank })) : plan.pipeline_stages.map((_, pipeline) => ({ pipeline, rank: null }));
    if (expanded) rows.sort((a, b) => a.pipeline - b.pipeline || a.rank - b.rank);
    let y = TOP;
    for (const row of rows) {
      const tracks = plan.pipeline_stages[row.pipeline].tracks;
      row.y = y;
      row.tracks = {};
      y += ROW + 2;
      for (const name of TRACKED) {
        row.tracks[name] = y;
        y += (tracks[name] || 0) * TRACK;
      }
      row.measured = null;
      if (measured) {
        row.measured = measured.ranks[row.rank ?? plan.ranksOf[row.pipeline][0]];
        row.measuredY = y + 2;
        y += ROW + 2;
      }
      row.bottom = y;
      y += GAP;
    }
    this.rows = rows;
    this.height = y;
    this.spacer.style.height = `${Math.max(0, y)}px`;
    this.scroller.style.height = `${Math.min(y, Math.max(280, Math.round(window.innerHeight * 0.62)))}px`;
    if (this.selected) this.selected.row = Math.min(this.selected.row, rows.length - 1);
    this.draw();
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    const { plan, theme } = this.view;
    const [to, width, height] = fitted(this.canvas);
    if (width === 0) return;
    const scale = (this.scale = new Scale(this.axis, width));
    const top = this.scroller.scrollTop;
    drawTicks(to, scale, theme, plan.clock, TOP - 12, height);
    to.save();
    to.beginPath();
    to.rect(0, TOP - 12, width, height);
    to.clip();
    to.translate(0, -top);
    const seen = this.rows.filter((row) => row.bottom >= top && row.y <= top + height);
    for (const row of seen) this.paintRow(to, scale, theme, row);
    this.paintSelected(to, scale, theme);
    to.restore();
  }

  paintRow(to, scale, theme, row) {
    const { plan } = this.view;
    const pipelineStage = plan.pipeline_stages[row.pipeline];
    this.paintNames(to, scale, theme, row, pipelineStage);
    to.save();
    to.beginPath();
    to.rect(scale.left, row.y - 4, scale.right - scale.left + 1, row.bottom - row.y + 8);
    to.clip();
    const { verb, start, end } = pipelineStage.ops;
    const classOf = (op) => plan.verbs[verb[op]].class;
    bars(to, scale, theme, { from: pipelineStage.from, start, end, classOf, label: (op) => plan.label(row.pipeline, op), first: pipelineStage.find(this.axis.from) }, row.y);
    // After its last op a rank waits for the others.
    idle(to, scale, theme, end[end.length - 1], plan.end, row.y);
    this.paintFlights(to, scale, theme, row, pipelineStage);
    if (row.measured) {
      const { start, end } = row.measured;
      const first = lowest(end.length, (i) => end[i] >= this.axis.from);
      bars(to, scale, theme, { from: start, start, end, classOf, label: (op) => plan.label(row.pipeline, op), first }, row.measuredY);
    }
    to.restore();
  }

  paintNames(to, scale, theme, row, pipelineStage) {
    const { plan, measured } = this.view;
    const narrow = scale.left < 80;
    const ranks = plan.ranksOf[row.pipeline];
    const name = row.rank !== null ? `rank ${row.rank}` : plan.pipeline_stages.length > 1 ? (narrow ? `pipe ${row.pipeline}` : `pipeline ${row.pipeline}`) : "all ranks";
    to.textBaseline = "middle";
    to.textAlign = "left";
    to.fillStyle = theme.ink;
    to.font = "600 12px system-ui, sans-serif";
    to.fillText(name, 4, row.y + ROW / 2);
    to.fillStyle = theme.soft;
    to.font = "9px system-ui, sans-serif";
    for (const [track, words] of [["gather", "parameters"], ["reduce", "gradients"], ["parcel", "parcels"]]) {
      const count = pipelineStage.tracks[track] || 0;
      if (count > 0 && !narrow) to.fillText(words, 14, row.tracks[track] + (count * TRACK) / 2);
    }
    if (row.measured) to.fillText(narrow ? "measured" : `measured, rank ${row.rank ?? ranks[0]}`, narrow ? 4 : 8, row.measuredY + ROW / 2);
  }

  paintFlights(to, scale, theme, row, pipelineStage) {
    const { flights } = pipelineStage;
    const last = {};
    for (let i = 0; i < flights.op.length; i += 1) {
      if (flights.start[i] > this.axis.to) break;
      if (flights.end[i] < this.axis.from) continue;
      const name = flights.class[i];
      const y = row.tracks[name] + flights.track[i] * TRACK;
      const x = Math.max(scale.x(flights.start[i]), scale.left - 4);
      const right = Math.min(scale.x(flights.end[i]), scale.right + 4);
      // A bar that ends on the pixel that was drawn last would not be seen.
      const key = `${name}${flights.track[i]}`;
      if (last[key] !== undefined && right < last[key] + 0.5) continue;
      const width = Math.max(right - x, 1);
      last[key] = x + width;
      paint(to, name, theme, () => {
        to.beginPath();
        to.rect(x, y + 1, width, TRACK - 2);
      });
    }
  }

  paintSelected(to, scale, theme) {
    for (const [at, wide] of [[this.selected, 2.5], [this.hovered, 1.5]]) {
      if (!at || !this.rows[at.row]) continue;
      const row = this.rows[at.row];
      const pipelineStage = this.view.plan.pipeline_stages[row.pipeline];
      const measured = at.measured && row.measured;
      const times = measured ? row.measured : pipelineStage.ops;
      const x = scale.x(times.start[at.op]);
      const width = Math.max(scale.x(times.end[at.op]) - x, 2);
      const y = measured ? row.measuredY : row.y;
      to.strokeStyle = theme.mark;
      to.lineWidth = wide;
      to.strokeRect(x - 1, y - 1, width + 2, ROW + 2);
      to.fillStyle = theme.mark;
      to.beginPath();
      to.moveTo(x + width / 2 - 5, y - 8);
      to.lineTo(x + width / 2 + 5, y - 8);
      to.lineTo(x + width / 2, y - 2);
      to.fill();
      to.lineWidth = 1;
    }
  }

  // The op at a place of the canvas.
  at(x, y) {
    if (!this.scale || x < this.scale.left) return null;
    const below = y + this.scroller.scrollTop;
    const number = this.rows.findIndex((row) => below >= row.y - 4 && below <= row.bottom + 4);
    if (number < 0 || y < TOP - 12) return null;
    const row = this.rows[number];
    const pipelineStage = this.view.plan.pipeline_stages[row.pipeline];
    const at = this.scale.time(x);
    for (const name of TRACKED) {
      const track = Math.floor((below - row.tracks[name]) / TRACK);
      if (track < 0 || track >= (pipelineStage.tracks[name] || 0)) continue;
      const { flights } = pipelineStage;
      const slack = 2 / this.scale.perTime;
      const hit = flights.op.findIndex((_, i) => flights.class[i] === name && flights.track[i] === track && flights.start[i] <= at + slack && flights.end[i] >= at - slack);
      return hit < 0 ? null : { row: number, op: flights.op[hit], flight: hit };
    }
    const measured = row.measured !== null && below >= row.measuredY - 1;
    const { start, end } = measured ? row.measured : pipelineStage.ops;
    const op = lowest(end.length, (i) => end[i] >= at);
    if (op >= end.length) return null;
    // An op that takes no time is found if the pointer is near it.
    const near = 3 / this.scale.perTime;
    const inside = op < end.length && (measured ? start[op] : pipelineStage.from[op]) <= at;
    const takes = inside && end[op] > start[op];
    if (takes) return { row: number, op, measured };
    return inside || start[op] - at < near ? { row: number, op, measured } : null;
  }

  select(at, quiet) {
    this.selected = at;
    if (at) {
      const row = this.rows[at.row];
      const pipelineStage = this.view.plan.pipeline_stages[row.pipeline];
      this.axis.reveal(pipelineStage.from[at.op], pipelineStage.ops.end[at.op]);
      const [top, height] = [this.scroller.scrollTop, this.scroller.clientHeight];
      if (row.y - TOP < top) this.scroller.scrollTop = row.y - TOP;
      else if (row.bottom > top + height) this.scroller.scrollTop = row.bottom - height;
    }
    if (!quiet) this.view.explain(at && this.found(at));
    this.draw();
  }

  // The op at `at`, in the form that the rest of the page needs.
  found(at) {
    const row = this.rows[at.row];
    return { ...at, pipeline: row.pipeline, rank: row.rank, times: at.measured ? row.measured : null, other: row.measured };
  }

  // Selects the op after the selected one, or before it, or in another row.
  step(by, rows) {
    const at = this.selected;
    if (!at) {
      const op = this.view.plan.pipeline_stages[this.rows[0].pipeline].find(this.axis.from);
      return this.select({ row: 0, op: Math.min(op, this.view.plan.pipeline_stages[this.rows[0].pipeline].ops.end.length - 1) });
    }
    const row = Math.min(Math.max(at.row + rows, 0), this.rows.length - 1);
    const pipelineStage = this.view.plan.pipeline_stages[this.rows[row].pipeline];
    const last = pipelineStage.ops.end.length - 1;
    let op = at.op + by;
    if (rows !== 0 && row !== at.row) {
      op = pipelineStage.find(this.view.plan.pipeline_stages[this.rows[at.row].pipeline].ops.end[at.op]);
    }
    return this.select({ row, op: Math.min(Math.max(op, 0), last), measured: at.measured });
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const ops = () => this.view.plan.pipeline_stages[this.rows[this.selected?.row || 0].pipeline].ops;
    const middle = () => {
      const at = this.selected;
      return at ? (ops().start[at.op] + ops().end[at.op]) / 2 : undefined;
    };
    const keys = {
      ArrowRight: () => (event.shiftKey ? this.axis.pan(0.25) : this.step(1, 0)),
      ArrowLeft: () => (event.shiftKey ? this.axis.pan(-0.25) : this.step(-1, 0)),
      ArrowDown: () => this.step(0, 1),
      ArrowUp: () => this.step(0, -1),
      "+": () => this.axis.zoom(0.5, middle()),
      "=": () => this.axis.zoom(0.5, middle()),
      "-": () => this.axis.zoom(2, middle()),
      _: () => this.axis.zoom(2, middle()),
      0: () => this.axis.show(0, this.axis.end),
      Home: () => this.select({ row: this.selected?.row || 0, op: 0 }),
      End: () => this.select({ row: this.selected?.row || 0, op: ops().end.length - 1 }),
      Enter: () => this.view.source.go(),
      Escape: () => this.select(null),
    };
    const action = keys[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  }

  listen() {
    const { canvas, axis } = this;
    let drag = null;
    canvas.addEventListener("keydown", (event) => this.keyed(event));
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.offsetX, from: axis.from, to: axis.to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag && Math.abs(event.offsetX - drag.x) > 3) drag.moved = true;
      if (drag?.moved) {
        const by = (drag.x - event.offsetX) / this.scale.perTime;
        axis.show(drag.from + by, drag.to + by);
        return this.hover(null, event);
      }
      this.hover(this.at(event.offsetX, event.offsetY), event);
    });
    const end = (event) => {
      if (drag && !drag.moved && event.type === "pointerup") this.select(this.at(event.offsetX, event.offsetY));
      drag = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", (event) => this.hover(null, event));
    canvas.addEventListener("dblclick", (event) => axis.zoom(0.5, this.scale.time(event.offsetX)));
    canvas.addEventListener(
      "wheel",
      (event) => {
        const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
        if (event.ctrlKey || event.metaKey) axis.zoom(2 ** (event.deltaY / 200), this.scale.time(event.offsetX));
        else if (sideways !== 0) axis.pan(sideways / 800);
        else return;
        event.preventDefault();
      },
      { passive: false },
    );
  }

  hover(at, event) {
    const same = this.hovered && at && this.hovered.row === at.row && this.hovered.op === at.op && this.hovered.measured === at.measured && this.hovered.flight === at.flight;
    if (!same && (at || this.hovered)) {
      this.hovered = at;
      this.view.explain(at ? this.found(at) : this.selected && this.found(this.selected));
      this.draw();
    }
    this.tip.hidden = !at;
    if (!at) return;
    const [head, body] = this.view.words(this.found(at));
    if (!same) this.tip.replaceChildren(el("strong", {}, head), el("span", {}, body));
    const box = this.element.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 18}px`;
  }
}

// Bars of ops in a row; waits are hatched, and an op that takes no time is a tick at the bottom.
function bars(to, scale, theme, { from, start, end, classOf, label, first }, y) {
  let [drawn, ticked] = [-1, -1];
  for (let op = first; op < end.length && from[op] <= scale.axis.to; op += 1) {
    const x = Math.max(scale.x(start[op]), scale.left - 4);
    const right = Math.min(scale.x(end[op]), scale.right + 4);
    if (start[op] > from[op]) idle(to, scale, theme, from[op], start[op], y);
    const name = classOf(op);
    if (end[op] === start[op]) {
      if (x < ticked + 1.5) continue;
      ticked = x;
      to.fillStyle = PALETTE[name].fill;
      to.fillRect(x - 0.75, y + ROW - 5, 1.5, 7);
      continue;
    }
    // A bar that ends on the pixel that was drawn last would not be seen.
    if (right < drawn + 0.5) continue;
    const width = Math.max(right - x, 0.75);
    drawn = x + width;
    paint(to, name, theme, () => {
      to.beginPath();
      to.rect(x, y, width, ROW);
    });
    if (width < 3) continue;
    to.strokeStyle = theme.back;
    to.strokeRect(x + 0.5, y + 0.5, width - 1, ROW - 1);
    if (width > 16) write(to, label(op), x, y, width, name);
  }
}

function write(to, text, x, y, width, name) {
  to.font = "11px system-ui, sans-serif";
  to.textBaseline = "middle";
  to.textAlign = "left";
  let shown = text;
  if (to.measureText(shown).width > width - 6) shown = text.split(" ")[0];
  const wide = to.measureText(shown).width;
  if (wide > width - 3) return;
  const left = Math.max(x, 0) + Math.min(4, (width - wide) / 2);
  // The text stands on its bar's colour without the pattern, so that it can be read.
  to.fillStyle = PALETTE[name].fill;
  to.fillRect(left - 1, y + 4, wide + 2, ROW - 8);
  to.fillStyle = PALETTE[name].ink;
  to.fillText(shown, left, y + ROW / 2 + 0.5);
}

function idle(to, scale, theme, from, until, y) {
  const x = Math.max(scale.x(from), scale.left);
  const right = Math.min(scale.x(until), scale.right);
  if (right - x < 0.75) return;
  paint(to, "wait", theme, () => {
    to.beginPath();
    to.rect(x, y + 4, right - x, ROW - 8);
  });
}

// Memory: the bytes in use over a step on a rank of a pipeline stage, stacked by group, below its limits. Never adds up
// anything that is not in the plan.

const BELOW = 6;
const ABOVE = 16;

class MemoryChart {
  constructor(view, axis) {
    Object.assign(this, { view, axis });
    this.canvas = el("canvas", { class: "chart", role: "img" });
    this.element = el("div", { class: "memory" }, this.canvas);
    axis.listeners.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  // The top of the chart. A limit far above what is taken is given in words: a chart that reached it would leave
  // nothing to see.
  range() {
    const { plan, pipeline } = this.view;
    const arena = plan.pipeline_stages[pipeline].memory.arena_bytes;
    const taken = plan.outside_bytes + arena;
    const seen = plan.limits.filter(([, bytes]) => bytes - plan.outside_bytes <= 2.5 * arena);
    const top = Math.max(taken, ...seen.map(([, bytes]) => bytes));
    return { taken, seen, most: top + Math.max(0.08 * (top - plan.outside_bytes), 1) };
  }

  // Limits that the chart does not reach, in words.
  far() {
    const { seen } = this.range();
    const far = this.view.plan.limits.filter((limit) => !seen.includes(limit));
    return far.map(([name, limit]) => `${name}: ${bytes(limit)}, far above this chart.`).join(" ");
  }

  // Where bytes lie. Memory outside the arena is at the bottom, in a band that is not to scale if it would leave too
  // little room for the rest.
  level(height) {
    const outside = this.view.plan.outside_bytes;
    const { most } = this.range();
    const room = height - BELOW - ABOVE;
    const cut = outside > 0.5 * most;
    const band = cut ? 18 : (room * outside) / most;
    const inside = (bytes) => Math.max(bytes - outside, 0) / (most - outside);
    return { cut, most, y: (bytes) => height - BELOW - band * Math.min(bytes / outside, 1) - (room - band) * inside(bytes) };
  }

  paint() {
    const { plan, pipeline, theme } = this.view;
    const [to, width, height] = fitted(this.canvas);
    if (width === 0) return;
    const scale = new Scale(this.axis, width);
    const { taken, seen } = this.range();
    const { cut, most, y } = this.level(height);
    this.paintLevels(to, scale, theme, y, most, cut ? plan.outside_bytes : 0);
    to.save();
    to.beginPath();
    to.rect(scale.left, 0, scale.right - scale.left, height);
    to.clip();
    // A step that is shorter than the axis uses nothing after its end.
    to.save();
    to.beginPath();
    to.rect(scale.left, 0, scale.x(plan.end) - scale.left, height);
    to.clip();
    this.paintStack(to, scale, theme, y);
    to.restore();
    if (cut) this.tag(to, theme, `outside the arena, at most: ${bytes(plan.outside_bytes)}, not to scale`, scale.left + 6, y(0) - 9);
    this.line(to, scale, theme, y(taken), [5, 4], 1.25, `taken: ${bytes(taken)}`);
    for (const [name, limit] of seen) this.line(to, scale, theme, y(limit), [], 2.5, `${name}: ${bytes(limit)}`);
    this.paintPeak(to, scale, theme, y);
    to.restore();
    this.canvas.setAttribute("aria-label", this.view.memoryWords());
  }

  // Lines at round numbers of bytes, or of bytes of the arena where that has its own scale.
  paintLevels(to, scale, theme, y, most, from) {
    const unit = 1024 ** Math.floor(Math.log(most - from) / Math.log(1024));
    const [levels] = ticks(0, (most - from) / unit, 4);
    to.font = "11px system-ui, sans-serif";
    to.textBaseline = "middle";
    to.textAlign = "right";
    for (const level of levels) {
      const at = Math.round(y(from + level * unit)) + 0.5;
      to.strokeStyle = theme.line;
      to.beginPath();
      to.moveTo(scale.left, at);
      to.lineTo(scale.right, at);
      to.stroke();
      to.fillStyle = theme.soft;
      to.fillText(bytes(Math.round(level * unit)), scale.left - 5, at);
    }
    to.textAlign = "left";
  }

  paintStack(to, scale, theme, y) {
    const { plan, pipeline } = this.view;
    const outside = plan.outside_bytes;
    paint(to, "outside", theme, () => {
      to.beginPath();
      to.rect(scale.left, y(outside), scale.right - scale.left, y(0) - y(outside));
    });
    const columns = this.columns(scale);
    const under = columns.map(() => outside);
    const curve = plan.curve(pipeline);
    index.groups.forEach((name, group) => {
      const over = columns.map(({ op }, i) => under[i] + curve[group][op]);
      if (over.every((bytes, i) => bytes === under[i])) return;
      paint(to, name, theme, () => {
        to.beginPath();
        columns.forEach(({ x }, i) => {
          to.lineTo(x, y(over[i]));
          to.lineTo(columns[i + 1]?.x ?? scale.right, y(over[i]));
        });
        for (let i = columns.length - 1; i >= 0; i -= 1) {
          to.lineTo(columns[i + 1]?.x ?? scale.right, y(under[i]));
          to.lineTo(columns[i].x, y(under[i]));
        }
        to.closePath();
      });
      over.forEach((bytes, i) => (under[i] = bytes));
    });
  }

  // Columns of a pixel or more, each with an op. Of ops that share a pixel the one that uses most is shown, so that a
  // peak of an op that takes no time is seen; a longer op that uses less then begins a pixel late.
  columns(scale) {
    const { plan, pipeline } = this.view;
    plan.curve(pipeline);
    const { from, total, ops } = plan.pipeline_stages[pipeline];
    const columns = [];
    for (let op = plan.pipeline_stages[pipeline].find(this.axis.from); op < from.length && from[op] <= this.axis.to; op += 1) {
      const x = Math.max(scale.x(from[op]), scale.left);
      const last = columns[columns.length - 1];
      if (!last || x >= last.x + 1) columns.push({ x, op });
      else if (total[op] >= total[last.op]) last.op = op;
      else if (scale.x(ops.end[op]) - x >= 1) columns.push({ x: last.x + 1, op });
    }
    return columns;
  }

  line(to, scale, theme, y, dash, wide, text) {
    to.strokeStyle = theme.ink;
    to.lineWidth = wide;
    to.setLineDash(dash);
    to.beginPath();
    to.moveTo(scale.left, y);
    to.lineTo(scale.right, y);
    to.stroke();
    to.setLineDash([]);
    to.lineWidth = 1;
    this.tag(to, theme, text, scale.left + 6, y - 8);
  }

  tag(to, theme, text, x, y) {
    to.font = "11px system-ui, sans-serif";
    to.textBaseline = "middle";
    to.textAlign = "left";
    to.fillStyle = theme.back;
    to.fillRect(x - 3, y - 7, to.measureText(text).width + 6, 14);
    to.fillStyle = theme.ink;
    to.fillText(text, x, y);
  }

  paintPeak(to, scale, theme, y) {
    const { plan, pipeline } = this.view;
    const { peak } = plan.pipeline_stages[pipeline].memory;
    const at = plan.pipeline_stages[pipeline].ops;
    const x = scale.x((plan.pipeline_stages[pipeline].from[peak.op] + at.end[peak.op]) / 2);
    if (x < scale.left || x > scale.right) return;
    const top = y(plan.outside_bytes + peak.total_bytes);
    to.fillStyle = theme.mark;
    to.strokeStyle = theme.back;
    to.beginPath();
    to.arc(x, top, 4.5, 0, 7);
    to.fill();
    to.stroke();
    const text = `most in use: ${bytes(plan.outside_bytes + peak.total_bytes)}`;
    const wide = to.measureText(text).width;
    this.tag(to, theme, text, Math.max(scale.left + 4, Math.min(x + 9, scale.right - wide - 6)), top + 12);
  }
}

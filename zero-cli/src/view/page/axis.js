// Axis: the stretch of time that is shown, shared by everything that is drawn along it. Never draws.

class Axis {
  constructor(end) {
    this.listeners = [];
    this.end = Math.max(end, 1);
    [this.from, this.to] = [0, this.end];
  }

  // Takes a step of another length. The stretch that is shown stays, unless it was the whole step.
  resize(end) {
    const whole = this.from === 0 && this.to === this.end;
    this.end = Math.max(end, 1);
    this.show(this.from, whole ? this.end : this.to);
  }

  show(from, to) {
    const length = Math.min(Math.max(to - from, Math.min(this.end, 4)), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - length);
    this.to = this.from + length;
    this.listeners.forEach((listener) => listener());
  }

  pan(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  // Shows `factor` times as long a stretch; `at` stays where it is.
  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  // Moves so that a stretch of time is seen.
  reveal(from, to) {
    const margin = 0.05 * (this.to - this.from);
    if (from < this.from) this.show(from - margin, from - margin + this.to - this.from);
    else if (to > this.to) this.show(Math.min(to + margin - this.to + this.from, from - margin), Math.max(to + margin, 0));
  }
}

// Where times lie on a canvas: between a gutter for names and its right edge.
class Scale {
  constructor(axis, width) {
    this.axis = axis;
    this.left = gutter(width);
    this.right = width - 8;
    this.perTime = (this.right - this.left) / (axis.to - axis.from);
  }

  x(time) {
    return this.left + (time - this.axis.from) * this.perTime;
  }

  time(x) {
    return this.axis.from + (x - this.left) / this.perTime;
  }
}

function gutter(width) {
  return width < 520 ? 58 : 112;
}

// Times along the top, with lines down through what is below.
function drawTicks(to, scale, theme, clock, top, bottom) {
  const most = Math.floor((scale.right - scale.left) / 90);
  const [found, step] = ticks(scale.axis.from, scale.axis.to, most);
  const digits = Math.max(0, Math.ceil(Math.log10(Math.max(scale.axis.to, 1) / step)) - 2);
  to.font = "11px system-ui, sans-serif";
  to.textBaseline = "alphabetic";
  to.textAlign = "left";
  let free = scale.left;
  for (const at of found) {
    const x = Math.round(scale.x(at)) + 0.5;
    to.strokeStyle = theme.line;
    to.beginPath();
    to.moveTo(x, top);
    to.lineTo(x, bottom);
    to.stroke();
    to.fillStyle = theme.soft;
    const text = time(at, clock, digits);
    const width = to.measureText(text).width;
    const left = x + width + 3 > scale.right ? x - width - 3 : x + 3;
    if (left < free) continue;
    to.fillText(text, left, top - 4);
    free = left + width + 6;
  }
}

// Source: the text of the spec and the units, with marks on the line that decides an op and on the unit that it is
// about. Never parses a spec.

class Source {
  constructor(view) {
    this.view = view;
    this.lines = el("ol", { class: "spec", "aria-label": "The spec, line by line" });
    this.element = el("section", { class: "source" }, (this.heading = el("h3", {})), this.lines, (this.defaults = el("p", { class: "words" })));
  }

  set plan(plan) {
    this.heading.textContent = plan.source.name;
    const lines = plan.source.text.replace(/\n$/, "").split("\n");
    const decides = new Map();
    for (const key of plan.source.keys) if (key.line) decides.set(key.line, [...(decides.get(key.line) || []), `${key.path}: ${key.about}`]);
    this.items = lines.map((line, i) => el("li", { tabindex: decides.has(i + 1) ? "0" : null, title: (decides.get(i + 1) || []).join("\n") || null }, el("code", {}, line || " ")));
    this.lines.replaceChildren(...this.items);
    this.mark(null);
  }

  mark(key) {
    this.items.forEach((item, i) => item.classList.toggle("decides", Boolean(key) && key.line === i + 1));
    this.defaults.textContent = key && !key.line ? `${key.path} is not given: ${key.value}.` : "";
    this.marked = key?.line ? this.items[key.line - 1] : null;
  }

  go() {
    this.marked?.focus();
    this.marked?.scrollIntoView({ block: "nearest" });
  }
}

class Units {
  constructor() {
    this.body = el("tbody");
    const heads = ["unit", "parameters", "operations", "pipeline", "bucket"].map((name) => el("th", { scope: "col" }, name));
    this.table = el("table", {}, el("thead", {}, el("tr", {}, heads)), this.body);
    this.element = el("section", { class: "units" }, el("h3", {}, "Units"), el("div", { class: "long", tabindex: "0", role: "region", "aria-label": "Units" }, this.table));
  }

  set plan(plan) {
    this.rows = plan.units.map((unit) => {
      const name = unit.recomputed ? `${unit.name}, recomputed` : unit.name;
      const figures = [grouped(unit.params), time(unit.operations, "operations"), unit.pipeline, unit.bucket];
      return el("tr", {}, el("th", { scope: "row" }, name), figures.map((figure) => el("td", {}, String(figure))));
    });
    this.body.replaceChildren(...this.rows);
  }

  // Marks units; shows the first of them without moving the page.
  mark(first, last) {
    this.rows.forEach((row, i) => row.classList.toggle("decides", i >= first && i <= last));
    const row = this.rows[first];
    if (!row) return;
    const box = this.element.querySelector(".long");
    if (row.offsetTop < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }
}

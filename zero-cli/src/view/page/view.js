// View: one spec on the page: its plans, one for each choice of prefetch, and everything that shows them. Draws nothing
// itself.

class View {
  constructor({ id, name, variants, measured }, axis) {
    Object.assign(this, { id, name, variants, axis, expanded: false, pipeline: 0, theme: themeOf(), listeners: [] });
    this.plans = new Map();
    this.profile = measured ? JSON.parse(document.getElementById(measured).textContent) : null;
    this.given = Math.max(0, variants.findIndex((variant) => variant.given));
    this.plan = this.planOf(this.given);
    this.build();
    this.use(this.given);
  }

  planOf(number) {
    if (!this.plans.has(number)) this.plans.set(number, new Plan(JSON.parse(document.getElementById(this.variants[number].id).textContent)));
    return this.plans.get(number);
  }

  build() {
    this.mesh = new MeshFigure(this);
    this.timeline = new Timeline(this, this.axis);
    this.memory = new MemoryChart(this, this.axis);
    this.source = new Source(this);
    this.units = new Units();
    this.tiles = el("dl", { class: "tiles" });
    this.detail = el("div", { class: "detail", "aria-live": "polite" });
    this.tables = el("div", { class: "tables" });
    this.pipelineStages = el("select", { id: `${this.id}-pipeline`, change: () => this.choose(Number(this.pipelineStages.value)) });
    this.note = el("p", { class: "words" });
    this.element = el(
      "section",
      { class: "view", "aria-label": this.name },
      el("h2", {}, this.name),
      (this.summary = el("p", { class: "summary" })),
      this.tiles,
      this.slider(),
      el("section", { "aria-label": "Schedule" }, el("h3", {}, "Schedule of a step"), this.note, this.timeline.element, this.detail),
      el("section", { "aria-label": "Memory" }, (this.memoryHead = el("h3", {})), (this.pipelineChoice = el("p", { class: "choice" }, el("label", { for: `${this.id}-pipeline` }, "pipeline stage "), this.pipelineStages)), (this.limits = el("p", { class: "words" })), this.memory.element),
      this.mesh.element,
      el("div", { class: "pair" }, this.source.element, this.units.element),
      this.tables,
    );
  }

  slider() {
    // Sections of views side by side are aligned, so each view has all of them, even an empty one.
    if (this.variants.length < 2) return el("p", { class: "choice" });
    this.range = el("input", { type: "range", id: `${this.id}-prefetch`, min: 0, max: this.variants.length - 1, step: 1, value: this.given, input: () => this.use(Number(this.range.value)) });
    this.prefetchWords = el("output", { for: `${this.id}-prefetch` });
    return el("p", { class: "choice" }, el("label", { for: `${this.id}-prefetch` }, "prefetch "), this.range, this.prefetchWords);
  }

  // Shows the plan of a choice of prefetch.
  use(number) {
    const plan = (this.plan = this.planOf(number));
    this.measured = this.held(number);
    const { prefetch, given } = this.variants[number];
    if (this.range) {
      this.prefetchWords.textContent = ` ${counted(prefetch, "unit")} ahead${given ? ", as the spec says" : ", not what the spec says"}`;
      this.range.setAttribute("aria-valuetext", this.prefetchWords.textContent);
    }
    this.summary.textContent = plan.summary.join(" · ");
    this.tiles.replaceChildren(...figuresOf(plan).map(([name, words]) => el("div", {}, el("dt", {}, name), el("dd", {}, words))));
    this.note.textContent = this.noteWords();
    this.pipelineStages.replaceChildren(...plan.pipeline_stages.map((pipelineStage, i) => el("option", { value: i }, `${i}: ${pipelineStage.units}`)));
    this.pipelineChoice.hidden = plan.pipeline_stages.length === 1;
    this.mesh.plan = this.source.plan = this.units.plan = plan;
    this.timeline.selected = this.timeline.hovered = null;
    this.timeline.plan = plan;
    this.choose(number === this.given && !this.chosen ? fullest(plan) : Math.min(this.pipeline, plan.pipeline_stages.length - 1));
    this.explain(null);
    this.listeners.forEach((listener) => listener());
  }

  // The measured times on the axis of the plan: unchanged if that is time, and otherwise scaled to the planned step. A
  // run belongs only to the plan that the spec gives.
  held(number) {
    if (!this.profile || number !== this.given) return null;
    const factor = this.plan.clock === "ns" ? 1 : this.plan.end / this.profile.end;
    const scaled = (times) => times.map((at) => at * factor);
    return { factor, ranks: this.profile.ranks.map(({ start, end }) => ({ start: scaled(start), end: scaled(end) })) };
  }

  get end() {
    return this.measured && this.plan.clock === "ns" ? Math.max(this.plan.end, this.profile.end) : this.plan.end;
  }

  noteWords() {
    const { plan, measured, profile } = this;
    const words = [
      plan.clock === "ns"
        ? `Predicted for ${plan.hardware}. Below each row: what travels over links.`
        : "Time is in floating-point operations of computation; communication takes no time. Below each row: what travels, from the op that starts it to the one that has waited for it.",
    ];
    if (plan.pipeline_stages.length > 1 || plan.mesh.ranks.length > 1) words.push("All ranks of a pipeline stage do the same.");
    if (measured) {
      words.push(`Measured: the median of ${counted(profile.steps, "step")}, number ${profile.step} of them, ${time(profile.end, "ns")}${plan.clock === "ns" ? "" : ", drawn as long as the planned step"}.`);
    }
    return words.join(" ");
  }

  // Shows a pipeline stage's memory and figures.
  choose(pipeline) {
    this.chosen = true;
    this.pipeline = pipeline;
    this.pipelineStages.value = String(pipeline);
    const { plan } = this;
    this.memoryHead.textContent = `Memory of a rank${on(plan, pipeline)} over the step`;
    this.tables.replaceChildren(memoryTable(plan, pipeline), trafficTable(plan, pipeline), timeTable(plan, pipeline));
    this.limits.textContent = this.memory.far();
    this.memory.draw();
  }

  memoryWords() {
    const { plan, pipeline } = this;
    const { peak, arena_bytes } = plan.pipeline_stages[pipeline].memory;
    return `Memory in use over a step${on(plan, pipeline)}: at most ${bytes(plan.outside_bytes + peak.total_bytes)}, in ${plan.title(pipeline, peak.op)}; taken ${bytes(plan.outside_bytes + arena_bytes)}. The table below has all figures.`;
  }

  // An op in a few words and in a sentence.
  words({ pipeline, op, times, flight }) {
    const { plan } = this;
    const { ops, flights } = plan.pipeline_stages[pipeline];
    const micro = ops.micro_batch[op] >= 0 && plan.micro_batches > 1 ? `, micro-batch ${ops.micro_batch[op]}` : "";
    const span = times ? [times.start[op], times.end[op]] : [ops.start[op], ops.end[op]];
    const took = time((span[1] - span[0]) / (times ? this.measured.factor : 1), times ? "ns" : plan.clock);
    const parts = [plan.sentence(pipeline, op)];
    if (flight !== undefined) {
      const link = flights.link[flight] ? ` over the ${flights.link[flight]}` : "";
      parts.push(`On its way${link} for ${time(flights.end[flight] - flights.start[flight], plan.clock)}: ${bytes(flights.bytes[flight])}.`);
    } else if (span[1] > span[0]) parts.push(`${times ? "Measured: " : "Takes "}${took}.`);
    else parts.push("Takes no time.");
    if (!times && ops.waited[op] > 0) parts.push(`Waits ${time(ops.waited[op], plan.clock)} before, for ${plan.reason(pipeline, op)}.`);
    if (ops.sent[op] > 0 && flight === undefined) parts.push(`A rank sends ${bytes(ops.sent[op])}.`);
    return [`${plan.title(pipeline, op)}${micro}`, parts.join(" ")];
  }

  // Explains an op below the timeline, and marks its unit and the line that decides it.
  explain(found) {
    if (!found) {
      this.detail.replaceChildren(el("span", { class: "hint" }, "Point at an op, or step through them with the arrow keys."));
      this.source.mark(null);
      this.units.mark(-1, -2);
      return;
    }
    const { plan } = this;
    const { pipeline, op, rank, other } = found;
    const [head, body] = this.words(found);
    const { key, text } = plan.decision(pipeline, op);
    const ops = plan.pipeline_stages[pipeline].ops;
    const where = `op ${op} of ${ops.start.length}${rank !== null ? ` of rank ${rank}` : plan.pipeline_stages.length > 1 ? ` of pipeline stage ${pipeline}` : ""}`;
    const used = plan.outside_bytes + (plan.curve(pipeline), plan.pipeline_stages[pipeline].total[op]);
    const measured = other && !found.times ? ` Measured: ${time((other.end[op] - other.start[op]) / this.measured.factor, "ns")}.` : "";
    this.detail.replaceChildren(el("strong", {}, head), ` · ${where}. `, `${body}${measured} `, el("em", {}, text), ` ${bytes(used)} in use.`);
    this.source.mark(key);
    const about = ops.about[op];
    const verb = plan.verb(pipeline, op);
    if (verb.about === "unit") this.units.mark(about, about);
    else if (verb.about === "bucket") this.units.mark(...plan.buckets[about].units);
    else this.units.mark(-1, -2);
  }

  redraw() {
    this.theme = themeOf();
    this.timeline.lay();
    this.memory.draw();
  }
}

// Tables: memory, traffic and time of a pipeline stage as figures, and what differs between two specs. Never draws along the
// axis of time.

function bar(name, part, whole) {
  return el("span", { class: "bar", "aria-hidden": "true" }, el("span", { class: "fill", style: `${background(name)};width:${whole > 0 ? (100 * part) / whole : 0}%` }));
}

function table(caption, heads, rows) {
  const head = el("tr", {}, heads.map((name) => el("th", { scope: "col" }, name)));
  const body = rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", {}, cell))));
  return el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body));
}

function memoryTable(plan, number) {
  const { memory } = plan.pipeline_stages[number];
  const shards = plan.mesh.axes.find((axis) => axis.name === "zero").ranks;
  const rows = plan.kinds.flatMap((kind, i) => {
    if (memory.regions[i] === 0) return [];
    const how = HOLDINGS[memory.holdings[i]] + (memory.holdings[i] === "sharded" ? ` ${shards}` : "");
    return [[el("span", { class: "named" }, patch(kind.group), kind.name), el("span", {}, bytes(memory.regions[i]), bar(kind.group, memory.regions[i], memory.arena_bytes)), bytes(memory.peak.bytes[i]), how]];
  });
  const total = plan.outside_bytes + memory.arena_bytes;
  rows.push([el("span", { class: "named" }, patch("outside"), PALETTE.outside.words), bytes(plan.outside_bytes), bytes(plan.outside_bytes), "program, data, what a thread works in"]);
  rows.push(["all", bytes(total), bytes(plan.outside_bytes + memory.peak.total_bytes), ""]);
  for (const [name, limit] of plan.limits) rows.push([name, bytes(limit), "", total <= limit ? `${percent(total, limit)} of it is taken` : "less than is taken: it does not fit"]);
  return table(`Memory of a rank${on(plan, number)}`, ["what", "taken", "in use at the peak", "how it is held"], rows);
}

function trafficTable(plan, number) {
  const { traffic } = plan.pipeline_stages[number];
  const all = traffic.reduce((sum, part) => sum + part.bytes, 0);
  const colour = { "parameter all-gather": "gather", "loss and norm": "agree" };
  const rows = traffic.filter((part) => part.bytes > 0).map((part) => {
    const axis = plan.mesh.axes.find(({ name }) => name === part.axis);
    const where = !axis ? "to all ranks" : `${axis.name}${plan.mesh.nodes > 1 ? (axis.crosses_nodes ? ", across nodes" : ", within a node") : ""}`;
    const name = colour[part.name] || (part.axis === "pipeline" ? "parcel" : "reduce");
    return [el("span", { class: "named" }, patch(name), part.name), where, el("span", {}, bytes(part.bytes), bar(name, part.bytes, all)), percent(part.bytes, all)];
  });
  rows.push(["all", "", bytes(all), ""]);
  return table(`Sent by a rank in a step${on(plan, number)}`, ["what", "along", "bytes", "share"], rows);
}

function timeTable(plan, number) {
  const rows = plan.pipeline_stages[number].time.map(({ name, class: of, time: took }) => [
    el("span", { class: "named" }, patch(of || "wait"), name),
    el("span", {}, time(took, plan.clock), bar(of || "wait", took, plan.end)),
    percent(took, plan.end),
  ]);
  rows.push(["step", time(plan.end, plan.clock), ""]);
  const note = plan.clock === "operations" ? ", in operations: communication takes no time" : `, on ${plan.hardware}`;
  return table(`Time of a step${on(plan, number)}${note}`, ["what a rank does", "time", "share"], rows);
}

function on(plan, number) {
  return plan.pipeline_stages.length > 1 ? ` of pipeline stage ${number}` : "";
}

// The pipeline stage whose ranks take most.
function fullest(plan) {
  return plan.pipeline_stages.reduce((most, pipelineStage, i) => (pipelineStage.memory.arena_bytes > plan.pipeline_stages[most].memory.arena_bytes ? i : most), 0);
}

// The main figures of a plan: name, text, and the number in that text.
function figuresOf(plan) {
  const taken = (pipelineStage) => plan.outside_bytes + pipelineStage.memory.arena_bytes;
  const most = plan.pipeline_stages[fullest(plan)];
  const sent = Math.max(...plan.pipeline_stages.map((pipelineStage) => pipelineStage.traffic.reduce((sum, part) => sum + part.bytes, 0)));
  const computes = (pipelineStage) => pipelineStage.time.reduce((sum, part) => sum + (part.class ? part.time : 0), 0);
  const busiest = Math.max(...plan.pipeline_stages.map(computes));
  const figures = [
    ["a step", time(plan.end, plan.clock), plan.end],
    ["busy, at most", percent(busiest, plan.end), busiest / plan.end],
    ["taken by a rank", bytes(taken(most)), taken(most)],
    ["in use at the peak", bytes(plan.outside_bytes + most.memory.peak.total_bytes), plan.outside_bytes + most.memory.peak.total_bytes],
    ["sent by a rank in a step", bytes(sent), sent],
    ["ops of a rank", grouped(Math.max(...plan.pipeline_stages.map((pipelineStage) => pipelineStage.ops.start.length))), Math.max(...plan.pipeline_stages.map((pipelineStage) => pipelineStage.ops.start.length))],
  ];
  if (plan.clock === "ns") figures.splice(1, 0, ["tokens a second", grouped(Math.round(plan.tokens / (plan.end / 1e9))), plan.tokens / (plan.end / 1e9)]);
  return figures;
}

function comparison(a, b) {
  const before = figuresOf(a);
  const after = new Map(figuresOf(b).map(([name, ...rest]) => [name, rest]));
  const rows = before.flatMap(([name, words, number]) => {
    if (!after.has(name) || a.clock !== b.clock) return [];
    const [other, value] = after.get(name);
    const change = number > 0 ? (100 * (value - number)) / number : 0;
    const sign = change > 0 ? "+" : change < 0 ? "−" : "±";
    return [[name, words, other, value === number ? "the same" : Math.abs(change) < 0.05 ? "less than 0.1 %" : `${sign}${Math.abs(change).toFixed(1)} %`]];
  });
  return table("Both specs", ["what", a.source.name, b.source.name, "change"], rows);
}

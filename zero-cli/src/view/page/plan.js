// Plan: one plan of the page as arrays that are quick to search. Never draws.

class Plan {
  constructor(picture) {
    Object.assign(this, picture);
    this.keys = new Map(this.source.keys.map((key) => [key.path, key]));
    this.groups = index.groups.map((name) => this.kinds.flatMap((kind, i) => (kind.group === name ? [i] : [])));
    for (const pipelineStage of this.pipeline_stages) {
      const { start, end, waited } = pipelineStage.ops;
      pipelineStage.from = start.map((at, i) => at - waited[i]);
      pipelineStage.tracks = tracksOf(pipelineStage.flights);
      // Ends only grow, so ops are found by binary search.
      pipelineStage.find = (time) => lowest(end.length, (i) => end[i] >= time);
    }
    const axis = this.mesh.axes.findIndex(({ name }) => name === "pipeline");
    this.pipelineOf = this.mesh.ranks.map((at) => at[axis]);
    this.ranksOf = this.pipeline_stages.map((_, pipeline) => this.pipelineOf.flatMap((of, rank) => (of === pipeline ? [rank] : [])));
  }

  // A pipeline stage's curves of memory, by group, computed when they are first drawn.
  curve(number) {
    const pipelineStage = this.pipeline_stages[number];
    if (!pipelineStage.curve) {
      const count = pipelineStage.ops.start.length;
      pipelineStage.curve = this.groups.map((kinds) => {
        const sum = new Float64Array(count);
        for (const kind of kinds) {
          const changes = pipelineStage.memory.in_use[kind];
          changes.forEach(([from, bytes], i) => {
            const to = i + 1 < changes.length ? changes[i + 1][0] : count;
            for (let op = from; op < to; op += 1) sum[op] += bytes;
          });
        }
        return sum;
      });
      pipelineStage.total = new Float64Array(count);
      for (const sum of pipelineStage.curve) sum.forEach((bytes, op) => (pipelineStage.total[op] += bytes));
    }
    return pipelineStage.curve;
  }

  verb(pipeline, op) {
    return this.verbs[this.pipeline_stages[pipeline].ops.verb[op]];
  }

  subject(pipeline, op) {
    const { about } = this.verb(pipeline, op);
    const index = this.pipeline_stages[pipeline].ops.about[op];
    return about === "unit" ? this.units[index].name : about === "bucket" ? String(index) : "";
  }

  title(pipeline, op) {
    const verb = this.verb(pipeline, op);
    return verb.alone ? verb.name : `${verb.name} ${this.subject(pipeline, op)}`;
  }

  sentence(pipeline, op) {
    const { ops } = this.pipeline_stages[pipeline];
    const subject = this.subject(pipeline, op);
    const values = { unit: subject, bucket: subject, micro_batch: ops.micro_batch[op], round: ops.nth[op], slot: ops.nth[op] };
    return this.verb(pipeline, op).sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  }

  // What the op is about, in a few letters for its bar.
  label(pipeline, op) {
    const verb = this.verb(pipeline, op);
    const micro = this.pipeline_stages[pipeline].ops.micro_batch[op];
    const letter = { forward: "F", backward: "B", recompute: "R" }[verb.class];
    return letter ? `${letter}${micro} ${this.subject(pipeline, op)}` : this.title(pipeline, op);
  }

  // The key that decides an op, in words.
  decision(pipeline, op) {
    const key = this.keys.get(this.verb(pipeline, op).key);
    const value = key.value.length > 40 ? "" : ` ${key.value}`;
    const where = key.line ? `line ${key.line}` : "at its default";
    return { key, text: `Decided by ${key.path}:${value}, ${where}.` };
  }

  // What an op has waited for.
  reason(pipeline, op) {
    const { waits } = this.pipeline_stages[pipeline].ops;
    const wait = waits[lowest(waits.length, (i) => waits[i].op >= op)];
    if (!wait || wait.op !== op) return "its turn";
    const where = wait.pipeline !== pipeline ? ` of pipeline stage ${wait.pipeline}` : "";
    return `${wait.flow ? `the ${wait.flow} of ` : ""}${this.title(wait.pipeline, wait.of)}${where}`;
  }
}

function tracksOf({ class: classes, track }) {
  const found = {};
  classes.forEach((name, i) => (found[name] = Math.max(found[name] || 0, track[i] + 1)));
  return found;
}

// The lowest number below `count` for which `is` holds, or `count`; if it holds for one number, it must hold for all
// above.
function lowest(count, is) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

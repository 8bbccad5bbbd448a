// Plan: one plan of the page as arrays that are quick to search. Never draws.

class Plan {
  constructor(picture) {
    Object.assign(this, picture);
    this.keys = new Map(this.source.keys.map((key) => [key.path, key]));
    this.groups = index.groups.map((name) => this.kinds.flatMap((kind, i) => (kind.group === name ? [i] : [])));
    for (const stage of this.stages) {
      const { start, end, waited } = stage.ops;
      stage.from = start.map((at, i) => at - waited[i]);
      stage.tracks = tracksOf(stage.flights);
      // Ends only grow, so ops are found by halving.
      stage.find = (time) => lowest(end.length, (i) => end[i] >= time);
    }
    const pipeline = this.mesh.axes.findIndex((axis) => axis.name === "pipeline");
    this.stageOf = this.mesh.ranks.map((at) => at[pipeline]);
    this.ranksOf = this.stages.map((_, stage) => this.stageOf.flatMap((of, rank) => (of === stage ? [rank] : [])));
  }

  // The stages' curves of memory, by group: computed when they are first drawn.
  curve(number) {
    const stage = this.stages[number];
    if (!stage.curve) {
      const count = stage.ops.start.length;
      stage.curve = this.groups.map((kinds) => {
        const sum = new Float64Array(count);
        for (const kind of kinds) {
          const changes = stage.memory.in_use[kind];
          changes.forEach(([from, bytes], i) => {
            const to = i + 1 < changes.length ? changes[i + 1][0] : count;
            for (let op = from; op < to; op += 1) sum[op] += bytes;
          });
        }
        return sum;
      });
      stage.total = new Float64Array(count);
      for (const sum of stage.curve) sum.forEach((bytes, op) => (stage.total[op] += bytes));
    }
    return stage.curve;
  }

  verb(stage, op) {
    return this.verbs[this.stages[stage].ops.verb[op]];
  }

  subject(stage, op) {
    const { about } = this.verb(stage, op);
    const index = this.stages[stage].ops.about[op];
    return about === "unit" ? this.units[index].name : about === "bucket" ? String(index) : "";
  }

  title(stage, op) {
    const verb = this.verb(stage, op);
    return verb.alone ? verb.name : `${verb.name} ${this.subject(stage, op)}`;
  }

  sentence(stage, op) {
    const { ops } = this.stages[stage];
    const subject = this.subject(stage, op);
    const values = { unit: subject, bucket: subject, micro_batch: ops.micro_batch[op], round: ops.nth[op], slot: ops.nth[op] };
    return this.verb(stage, op).sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  }

  // What the op is about, in a few letters for its bar.
  label(stage, op) {
    const verb = this.verb(stage, op);
    const micro = this.stages[stage].ops.micro_batch[op];
    const letter = { forward: "F", backward: "B", recompute: "R" }[verb.class];
    return letter ? `${letter}${micro} ${this.subject(stage, op)}` : this.title(stage, op);
  }

  // The key that decides an op, in words.
  decision(stage, op) {
    const key = this.keys.get(this.verb(stage, op).key);
    const value = key.value.length > 40 ? "" : ` ${key.value}`;
    const where = key.line ? `line ${key.line}` : "at its default";
    return { key, text: `Decided by ${key.path}:${value}, ${where}.` };
  }

  // What an op has waited for.
  reason(stage, op) {
    const { waits } = this.stages[stage].ops;
    const wait = waits[lowest(waits.length, (i) => waits[i].op >= op)];
    if (!wait || wait.op !== op) return "its turn";
    const where = wait.stage !== stage ? ` of pipeline stage ${wait.stage}` : "";
    return `${wait.flow ? `the ${wait.flow} of ` : ""}${this.title(wait.stage, wait.of)}${where}`;
  }
}

function tracksOf({ class: classes, track }) {
  const found = {};
  classes.forEach((name, i) => (found[name] = Math.max(found[name] || 0, track[i] + 1)));
  return found;
}

// The lowest number below `count` for which `is` holds, or `count`; where it holds for one, it holds for all above.
function lowest(count, is) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

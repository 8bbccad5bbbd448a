// Mesh: the ranks on their nodes, and which part of each state each of them has. Never knows ops.

// If there are more ranks than this, the first are drawn for all.
const RANKS_DRAWN = 256;

class MeshFigure {
  constructor(view) {
    this.view = view;
    this.words = el("p", { class: "words", "aria-live": "polite" });
    this.nodes = el("div", { class: "nodes", role: "listbox", "aria-label": "Ranks. Arrow keys move from one to another.", tabindex: "0" });
    this.element = el("section", { class: "mesh", "aria-label": "Mesh" }, el("h3", {}, "Mesh, and what each rank holds"), (this.head = el("p", { class: "words" })), this.nodes, this.words);
    this.current = 0;
    this.nodes.addEventListener("keydown", (event) => this.keyed(event));
    this.nodes.addEventListener("focus", () => this.show(this.current));
    this.nodes.addEventListener("blur", () => this.show(null));
  }

  set plan(plan) {
    const { mesh } = plan;
    this.plan_ = plan;
    const axes = mesh.axes.filter((axis) => axis.ranks > 1);
    const reach = (axis) => (mesh.nodes > 1 ? (axis.crosses_nodes ? ", across nodes" : ", within a node") : "");
    const shape = axes.map((axis) => `${axis.name} ${axis.ranks}${reach(axis)}`).join("; ") || "one rank";
    this.head.textContent = `${counted(mesh.nodes, "node")} with ${counted(mesh.ranks_per_node, "rank")}${mesh.nodes > 1 ? " each" : ""}: ${shape}.`;
    this.cells = [];
    const drawn = Math.min(mesh.ranks.length, RANKS_DRAWN);
    const boxes = [];
    for (let node = 0; node * mesh.ranks_per_node < drawn; node += 1) {
      const first = node * mesh.ranks_per_node;
      const ranks = [];
      for (let rank = first; rank < Math.min(first + mesh.ranks_per_node, drawn); rank += 1) ranks.push(this.cell(plan, rank));
      boxes.push(el("div", { class: "node", role: "group", "aria-label": `node ${node}` }, el("span", { class: "nodename" }, `node ${node}`), el("div", { class: "cells" }, ranks)));
    }
    this.nodes.replaceChildren(...boxes);
    if (drawn < mesh.ranks.length) this.nodes.append(el("p", { class: "words" }, `and ${grouped(mesh.ranks.length - drawn)} more ranks like these`));
    this.current = Math.min(this.current, drawn - 1);
    this.show(null);
  }

  cell(plan, rank) {
    const bars = plan.mesh.states.map((state) => {
      const share = 100 / state.shards;
      const part = state.shards > 1 ? this.along(plan, rank, "zero") : 0;
      const fill = el("span", { class: "part", style: `${background(state.name)};left:${part * share}%;width:max(2px,${share}%)` });
      return el("span", { class: "whole", "data-letter": state.name[0].toUpperCase() }, fill);
    });
    const pipeline = plan.pipeline_stages.length > 1 ? el("span", { class: "pipe" }, `p${plan.pipelineOf[rank]}`) : null;
    const cell = el(
      "div",
      {
        class: "cell",
        role: "option",
        id: `${this.view.id}-rank-${rank}`,
        "aria-selected": "false",
        pointerenter: () => this.show(rank),
        pointerleave: () => this.show(document.activeElement === this.nodes ? this.current : null),
        click: () => {
          this.current = rank;
          this.view.choose(plan.pipelineOf[rank]);
        },
      },
      el("span", { class: "number" }, `rank ${rank}`, pipeline),
      bars,
    );
    this.cells.push(cell);
    return cell;
  }

  along(plan, rank, name) {
    return plan.mesh.ranks[rank][plan.mesh.axes.findIndex((axis) => axis.name === name)];
  }

  // Marks a rank and its peers, and says what it has.
  show(rank) {
    const plan = this.plan_;
    const { axes, ranks } = plan.mesh;
    this.cells.forEach((cell, other) => {
      const differs = rank === null ? [] : axes.filter((axis, i) => ranks[other][i] !== ranks[rank][i]).map((axis) => axis.name);
      const mark = rank === null ? "" : differs.length === 0 ? "this" : differs.length === 1 ? differs[0] : "";
      cell.dataset.peer = mark;
      cell.setAttribute("aria-selected", String(rank === other));
    });
    if (rank === null) {
      this.nodes.removeAttribute("aria-activedescendant");
      const letters = plan.mesh.states.map((state) => `${state.name[0].toUpperCase()} ${state.name}${state.shards > 1 ? `, 1/${state.shards}` : ", all"}`);
      this.words.textContent = `Filled: what a rank holds from step to step of its pipeline stage's states. ${letters.join("; ")}.`;
      return;
    }
    this.nodes.setAttribute("aria-activedescendant", this.cells[rank].id);
    const places = axes.filter((axis) => axis.ranks > 1).map((axis) => `${axis.name} ${this.along(plan, rank, axis.name)}`);
    const pipelineStage = plan.pipeline_stages[plan.pipelineOf[rank]];
    const shards = plan.mesh.states.map((state) => (state.shards > 1 ? `${state.name}: shard ${this.along(plan, rank, "zero")} of ${state.shards}` : `all ${state.name}`));
    this.words.textContent = `Rank ${rank}${places.length ? ` (${places.join(", ")})` : ""} has ${pipelineStage.units}; ${shards.join("; ")}; an arena of ${bytes(pipelineStage.memory.arena_bytes)}. Outlined: its peers along each axis.`;
  }

  keyed(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.plan_.mesh.ranks_per_node, ArrowUp: -this.plan_.mesh.ranks_per_node }[event.key];
    if (event.key === "Enter" || event.key === " ") this.view.choose(this.plan_.pipelineOf[this.current]);
    else if (by === undefined) return;
    else {
      this.current = Math.min(Math.max(this.current + by, 0), this.cells.length - 1);
      this.cells[this.current].scrollIntoView({ block: "nearest", inline: "nearest" });
      this.show(this.current);
    }
    event.preventDefault();
  }
}

const counted = (number, word) => `${grouped(number)} ${word}${number === 1 ? "" : "s"}`;

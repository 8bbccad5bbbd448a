// Main: puts the views of the page in place, and what they share: the axis of time, the colours, and which ranks are shown.

const axis = new Axis(1);
const views = index.views.map((view) => new View(view, axis));
const main = document.querySelector("main");
main.classList.toggle("two", views.length > 1);
main.append(...views.map((view) => view.element));

// All views share one axis, as long as the longest step, so that lengths can be compared.
function resize() {
  const clocks = new Set(views.map((view) => view.plan.clock));
  axis.resize(Math.max(...views.map((view) => view.end)));
  const both = document.getElementById("both");
  both.replaceChildren(...(views.length > 1 && clocks.size === 1 ? [comparison(views[0].plan, views[1].plan)] : []));
}
views.forEach((view) => view.listeners.push(resize));
resize();

const button = (id, action) => document.getElementById(id).addEventListener("click", action);
button("closer", () => axis.zoom(0.5));
button("farther", () => axis.zoom(2));
button("whole", () => axis.show(0, axis.end));
button("earlier", () => axis.pan(-0.5));
button("later", () => axis.pan(0.5));
button("ranks", ({ currentTarget }) => {
  const pressed = currentTarget.getAttribute("aria-pressed") !== "true";
  currentTarget.setAttribute("aria-pressed", String(pressed));
  for (const view of views) {
    view.expanded = pressed;
    view.timeline.select(null);
    view.redraw();
  }
});

function repaint() {
  patterns.clear();
  views.forEach((view) => view.redraw());
  document.querySelectorAll("canvas.patch").forEach(paintPatch);
}
const THEMES = ["auto", "light", "dark"];
button("theme", ({ currentTarget }) => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % THEMES.length];
  document.documentElement.dataset.theme = next;
  currentTarget.textContent = `colours: ${next}`;
  repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
window.addEventListener("resize", () => views.forEach((view) => view.redraw()));

// The legend lists only the classes of ops that occur.
const present = new Set(views.flatMap((view) => view.plan.verbs.map((verb) => verb.class)).concat("wait"));
document.getElementById("legend").append(...index.classes.filter((name) => present.has(name)).map((name) => el("li", {}, patch(name), PALETTE[name].words)));
document.documentElement.dataset.ready = "true";
requestAnimationFrame(() => requestAnimationFrame(() => (document.documentElement.dataset.painted = String(Math.round(performance.now())))));

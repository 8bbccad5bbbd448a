// Check: uses the pages of `cargo zero view` as a person would, and reports what is wrong. `check.sh` starts it.

import { basename } from "node:path";

import { chromium } from "playwright-core";

const [, , folder, executablePath, ...written] = process.argv;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
let failures = 0;

function expect(holds, what) {
  if (!holds) {
    failures += 1;
    console.log(`  FAILED: ${what}`);
  }
}

// Opens a page, does something with it, and takes a picture of it. Whatever it prints or asks the network for is a failure.
async function open(name, options, use = async () => {}) {
  const { label = name, file = `${folder}/${name}.html`, width = 1280, height = 900, scheme = "light", vision } = options;
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  page.on("console", (message) => expect(false, `${label} prints: ${message.text()}`));
  page.on("pageerror", (error) => expect(false, `${label} throws: ${error.stack}`));
  page.on("request", (request) => expect(/^(file|data):/.test(request.url()), `${label} asks for ${request.url()}`));
  if (vision) {
    const session = await page.context().newCDPSession(page);
    await session.send("Emulation.setEmulatedVisionDeficiency", { type: vision });
  }
  await page.goto(`file://${file}`);
  await page.waitForFunction(() => document.documentElement.dataset.painted);
  const painted = Number(await page.evaluate(() => document.documentElement.dataset.painted));
  console.log(`${label}: painted after ${painted} ms${painted > 1000 ? ", MORE THAN A SECOND" : ""}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  expect(wide <= 0, `${label} is ${wide} pixels wider than its window`);
  await use(page);
  await page.waitForTimeout(100);
  await page.screenshot({ path: `${folder}/${label}.png`, fullPage: true });
  await page.close();
}

const detail = (page) => page.locator(".detail").first().innerText();
const canvas = (page) => page.locator(".timeline canvas").first();

async function keyboard(page) {
  await canvas(page).focus();
  const seen = [];
  for (let i = 0; i < 4; i += 1) {
    await page.keyboard.press("ArrowRight");
    seen.push(await detail(page));
  }
  expect(seen.every((text, i) => text.includes(`op ${i} of `)), `the right arrow steps from op to op: ${seen.join(" / ")}`);
  expect(seen.every((text) => /Decided by [a-z_.]+/.test(text)), "each op says which key decides it");
  await page.keyboard.press("ArrowLeft");
  expect((await detail(page)).includes("op 2 of "), "the left arrow steps back");
  await page.keyboard.press("End");
  const last = await detail(page);
  const [, op, count] = last.match(/op (\d+) of (\d+)/);
  expect(Number(op) === Number(count) - 1, `End goes to the last op: ${last}`);
  const rows = await page.locator(".choice select option").count();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  expect(rows < 2 || (await detail(page)).includes("of pipeline stage 1"), "the down arrow goes to the next row");
  const before = await canvas(page).screenshot();
  for (const key of ["+", "+", "Shift+ArrowRight"]) await page.keyboard.press(key);
  await page.waitForTimeout(60);
  expect(!before.equals(await canvas(page).screenshot()), "plus changes what is shown");
  await page.keyboard.press("0");
  await page.keyboard.press("Home");
  for (let i = 0; i < 60 && !(await page.locator(".spec .decides").count()); i += 1) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement.matches(".spec .decides")), "Enter goes to the line of the spec");
  await canvas(page).focus();
  await page.keyboard.press("Escape");
  expect((await page.locator(".decides").count()) === 0, "Escape selects nothing");
}

// Every control can be reached by Tab, has a name, and shows that it has the focus.
async function tabs(page) {
  await page.evaluate(() => document.activeElement.blur());
  const reached = new Set();
  for (let i = 0; i < 60; i += 1) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate(() => {
      const it = document.activeElement;
      if (it === document.body) return null;
      const { outlineStyle, outlineWidth } = getComputedStyle(it);
      const label = it.labels?.[0]?.innerText || it.getAttribute("aria-label") || it.innerText;
      return { what: it.id || it.className || it.tagName, label, visible: outlineStyle !== "none" && outlineWidth !== "0px" };
    });
    if (!found) break;
    reached.add(found.what);
    expect(found.label?.trim(), `${found.what} has a name`);
    expect(found.visible, `${found.what} shows that it has the focus`);
  }
  for (const id of ["closer", "farther", "whole", "ranks", "theme", "nodes", "view-0-prefetch", "view-0-pipeline", "CANVAS"]) {
    expect(reached.has(id), `Tab reaches ${id}: ${[...reached].join(", ")}`);
  }
}

async function pointer(page) {
  const box = await canvas(page).boundingBox();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 30);
  const tip = page.locator(".tip").first();
  expect(await tip.isVisible(), "an op is explained where the pointer is");
  expect((await tip.innerText()).length > 20, "in a sentence");
  await page.mouse.click(box.x + box.width * 0.4, box.y + 30);
  const chosen = await detail(page);
  await page.mouse.move(box.x + 5, box.y + box.height + 300);
  expect((await detail(page)) === chosen, "what was clicked stays explained");
  expect(await tip.isHidden(), "and the tip goes away");
  const before = await canvas(page).screenshot();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 30);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -400);
  await page.keyboard.up("Control");
  await page.waitForTimeout(60);
  expect(!before.equals(await canvas(page).screenshot()), "the wheel with Control zooms");
  await page.locator("#whole").click();
}

async function slider(page) {
  const range = page.locator("#view-0-prefetch");
  const ops = () => page.locator(".tables").first().innerText();
  const [words, tables] = [await page.locator("output").first().innerText(), await ops()];
  await range.focus();
  await page.keyboard.press("Home");
  expect((await page.locator("output").first().innerText()) !== words, "the slider says what it stands for");
  expect((await ops()) !== tables, "another choice of prefetch has other figures");
}

async function ranks(page, count) {
  await page.locator("#ranks").click();
  expect((await page.locator("#ranks").getAttribute("aria-pressed")) === "true", "all ranks are asked for");
  const high = await page.locator(".spacer").first().evaluate((spacer) => spacer.clientHeight);
  expect(high > count * 30, `there is a row for each of ${count} ranks: ${high} pixels`);
  await canvas(page).focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  expect(/of rank \d+/.test(await detail(page)), "and each is stepped through as a rank");
}

async function mesh(page) {
  await page.locator(".nodes").first().focus();
  await page.keyboard.press("ArrowRight");
  const words = await page.locator(".mesh .words").nth(1).innerText();
  expect(words.startsWith("Rank 1 "), `the mesh is walked by arrow keys: ${words}`);
  expect((await page.locator('.cell[data-peer="this"]').count()) === 1, "the rank is marked");
}

// A number of bytes as the page writes it, computed another way: in whole tenths of the largest unit below it.
function inBytes(value) {
  let unit = 0;
  while (unit < 4 && value >= 1024 ** (unit + 1)) unit += 1;
  if (unit === 0) return `${value} B`;
  const tenths = (BigInt(value) * 10n) / 1024n ** BigInt(unit);
  return `${tenths / 10n}.${tenths % 10n} ${["KiB", "MiB", "GiB", "TiB"][unit - 1]}`;
}

const added = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

// The text of each table of a view: its caption, and its rows.
const tables = (page, view) =>
  page.locator(".tables").nth(view).locator("table").evaluateAll((all) =>
    all.map((table) => ({
      caption: table.caption.innerText,
      rows: [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim())),
    })),
  );

function compare(found, expected, what) {
  expect(JSON.stringify(found) === JSON.stringify(expected), `${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`);
}

// The tables of all pipeline stages of a view have the numbers that the page carries for them, and their sums.
async function figures(page, view = 0) {
  const plan = await page.evaluate((view) => {
    const read = (id) => JSON.parse(document.getElementById(id).textContent);
    return read(read("index").views[view].variants.find((it) => it.given).id);
  }, view);
  for (const [number, { memory, traffic }] of plan.pipeline_stages.entries()) {
    if (plan.pipeline_stages.length > 1) await page.locator(`#view-${view}-pipeline`).selectOption(String(number));
    const where = `of pipeline stage ${number} of view ${view}`;
    const [held, sent] = await tables(page, view);
    const peak = memory.peak.bytes;
    const parts = plan.kinds.map(({ name }, i) => [name, memory.regions[i], peak[i]]).filter(([, taken]) => taken > 0);
    const outside = plan.outside_bytes;
    const all = [outside + added(parts.map(([, taken]) => taken)), outside + added(parts.map(([, , used]) => used))];
    const rows = held.rows.slice(0, parts.length).map((cells) => cells.slice(0, 3));
    compare(rows, parts.map(([name, taken, used]) => [name, inBytes(taken), inBytes(used)]), `memory ${where}`);
    compare(held.rows[parts.length].slice(1, 3), [inBytes(outside), inBytes(outside)], `memory outside of the arena ${where}`);
    compare(held.rows[parts.length + 1].slice(0, 3), ["all", ...all.map(inBytes)], `the sum of memory ${where}`);
    const goes = traffic.filter((part) => part.bytes > 0);
    const whole = added(goes.map((part) => part.bytes));
    const share = (part) => `${whole > 0 ? ((100 * part) / whole).toFixed(1) : "0.0"} %`;
    const flows = goes.map(({ name, axis, bytes }) => [name, axis ?? "to all ranks", inBytes(bytes), share(bytes)]);
    compare(sent.rows.slice(0, -1).map(([name, along, ...rest]) => [name, along.split(",")[0], ...rest]), flows, `traffic ${where}`);
    compare(sent.rows.at(-1), ["all", "", inBytes(whole), ""], `the sum of traffic ${where}`);
  }
}

// Stepping through the ops of the first pipeline stage, a person meets as many gathers as the page carries.
async function gathers(page) {
  const { verbs, pipeline_stages } = await page.evaluate(() => JSON.parse(document.getElementById(JSON.parse(document.getElementById("index").textContent).views[0].variants.find((it) => it.given).id).textContent));
  const { verb } = pipeline_stages[0].ops;
  const expected = verb.filter((of) => verbs[of].name === "gather").length;
  await canvas(page).focus();
  await page.keyboard.press("Home");
  let met = 0;
  for (let op = 0; op < verb.length; op += 1) {
    met += (await detail(page)).startsWith("gather ") ? 1 : 0;
    await page.keyboard.press("ArrowRight");
  }
  await page.keyboard.press("Escape");
  expect(expected > 0 && met === expected, `${met} gathers are shown, and ${expected} are in the plan`);
}

await open("one", {}, async (page) => {
  await figures(page);
  await gathers(page);
  await keyboard(page);
  await pointer(page);
  await slider(page);
  await mesh(page);
});
await open("profile", {}, async (page) => {
  await tabs(page);
  expect((await page.locator(".view > section > .words").first().innerText()).includes("Measured: the median of 3 steps, number 2"), "what was measured is told");
  await canvas(page).focus();
  await page.keyboard.press("ArrowRight");
  expect((await detail(page)).includes("Measured: "), "each op says what it took");
});
await open("profile", { label: "profile-dark", scheme: "dark" }, async (page) => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await page.locator("#theme").click();
  expect((await ground()) !== dark, "the colours can be chosen");
  await page.locator("#theme").click();
  expect((await ground()) === dark, "dark is dark, by choice and by default");
});
await open("two", { width: 1500 }, async (page) => {
  for (const view of [0, 1]) await figures(page, view);
  expect((await page.locator("#both tbody tr").count()) >= 6, "two specs are compared in figures");
  const tops = await page.locator(".timeline").evaluateAll((all) => all.map((it) => Math.round(it.getBoundingClientRect().top)));
  expect(tops[0] === tops[1], `timelines side by side are at one height: ${tops}`);
});
for (const name of ["one", "two"]) await open(name, { label: `${name}-narrow`, width: 360, height: 740 });
for (const [name, options] of [["large", {}], ["flat", { scheme: "dark", label: "flat-dark" }]]) {
  await open(name, options, async (page) => {
    await figures(page);
    await ranks(page, 64);
  });
}
for (const vision of ["deuteranopia", "protanopia", "tritanopia", "achromatopsia"]) await open("profile", { label: `profile-${vision}`, vision });
// Pages that the command has written of programs; that of a profile is named after it.
for (const file of written) {
  const name = basename(file, ".html");
  await open(`written-${name}`, { file }, async (page) => {
    const views = await page.locator(".view").count();
    expect(views > 0, `${file} has a view`);
    for (let view = 0; view < views; view += 1) await figures(page, view);
    const words = await page.locator(".view > section > .words").first().innerText();
    expect(words.includes("Measured: the median of ") === (name === "profile"), `a profile is measured, and nothing else: ${words}`);
  });
}
await browser.close();
console.log(failures === 0 ? `all as it should be; screenshots are in ${folder}` : `${failures} failures`);
process.exit(failures === 0 ? 0 : 1);

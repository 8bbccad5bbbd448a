// Check: uses the pages of `cargo zero view` as a person would, and says what does not do as it should. `check.sh` starts it.

import { chromium } from "playwright-core";

const [, , folder, executablePath] = process.argv;
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
  const { label = name, width = 1280, height = 900, scheme = "light", vision } = options;
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  page.on("console", (message) => expect(false, `${label} prints: ${message.text()}`));
  page.on("pageerror", (error) => expect(false, `${label} throws: ${error.stack}`));
  page.on("request", (request) => expect(/^(file|data):/.test(request.url()), `${label} asks for ${request.url()}`));
  if (vision) {
    const session = await page.context().newCDPSession(page);
    await session.send("Emulation.setEmulatedVisionDeficiency", { type: vision });
  }
  await page.goto(`file://${folder}/${name}.html`);
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

// Every control can be reached by Tab, has a name, and shows that it is there.
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
  for (const id of ["closer", "farther", "whole", "ranks", "theme", "nodes", "view-0-prefetch", "view-0-stage", "CANVAS"]) {
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

await open("one", {}, async (page) => {
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
  expect((await page.locator("#both tbody tr").count()) >= 6, "two specs are compared in figures");
  const tops = await page.locator(".timeline").evaluateAll((all) => all.map((it) => Math.round(it.getBoundingClientRect().top)));
  expect(tops[0] === tops[1], `timelines side by side are at one height: ${tops}`);
});
for (const name of ["one", "two"]) await open(name, { label: `${name}-narrow`, width: 360, height: 740 });
await open("large", {}, (page) => ranks(page, 64));
await open("flat", { scheme: "dark", label: "flat-dark" }, (page) => ranks(page, 64));
for (const vision of ["deuteranopia", "protanopia", "tritanopia", "achromatopsia"]) await open("profile", { label: `profile-${vision}`, vision });
await browser.close();
console.log(failures === 0 ? `all as it should be; screenshots are in ${folder}` : `${failures} failures`);
process.exit(failures === 0 ? 0 : 1);

"use strict";
// Attention viewer: a grid of heads and a panel with the chosen one. Nothing is fetched.
if (self !== top) document.body.classList.add("embedded");  // in a report or a notebook, which have their own heading
const meta = JSON.parse(document.getElementById("meta").textContent);
const byId = (id) => document.getElementById(id);
const tip = byId("tip"), grid = byId("grid"), panel = byId("panel");
const two = meta.models.length > 1, DIFFERENCE = `${meta.models[1]} − ${meta.models[0]}`;
const VIEWS = two ? [...meta.models, DIFFERENCE] : meta.models;
const RED = [179, 38, 60], BLUE = [11, 110, 138], CELL_MAX = 18, MOST_RECTANGLES = 40000;
let example = 0, chosen = 0, shown = 0, bytes = [], related = {}, drawn = {}, round = 0;

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
// A cell is a block of `block` by `block` tokens with its largest weight; long sequences are thinned.
const now = () => meta.examples[example];
const side = () => now().side;
const weight = (model, head, q, k) => (bytes[model][(head * side() + q) * side() + k] / 255) ** 2;
const value = (view, head, q, k) => view < meta.models.length ? weight(view, head, q, k) : weight(1, head, q, k) - weight(0, head, q, k);
function colour(view, number) {  // white at 0; blue for weights, and red for differences above 0
  const end = view < meta.models.length || number < 0 ? BLUE : RED, t = Math.sqrt(Math.abs(number));
  return end.map((most) => Math.round(255 + (most - 255) * t));
}

function image(view, head) {
  const n = side(), canvas = document.createElement("canvas"), pixels = new ImageData(n, n);
  canvas.width = canvas.height = n;
  for (let q = 0; q < n; q++) for (let k = 0; k < n; k++) {
    const [r, g, b] = colour(view, value(view, head, q, k)), at = 4 * (q * n + k);
    pixels.data[at] = r; pixels.data[at + 1] = g; pixels.data[at + 2] = b; pixels.data[at + 3] = 255;
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
const outlined = () => related[byId("relation").value];
function outline(context, x, y, cell) {
  const n = side(), map = outlined();
  if (!map) return;
  context.strokeStyle = context.fillStyle = "rgba(209, 73, 91, .8)";
  for (let q = 0; q < n; q++) for (let k = 0; k < n; k++) if (map[q * n + k]) {
    if (cell > 4) context.strokeRect(x + k * cell + .5, y + q * cell + .5, cell - 1, cell - 1);
    else context.fillRect(x + (k + .35) * cell, y + (q + .35) * cell, Math.max(1, cell * .3), Math.max(1, cell * .3));
  }
}
function place(cell) {  // the tokens of a row or column
  const words = now().tokens, first = cell * now().block, last = Math.min(first + now().block, words.length) - 1;
  return first === last ? `${first} "${words[first]}"` : `${first} to ${last} "${words[first]} … ${words[last]}"`;
}
function say(view, head, q, k, x, y) {
  const { name, label } = meta.heads[head], most = now().block > 1 ? "at most " : "";
  const numbers = VIEWS.map((what, i) => `${two ? `${what}: ` : ""}${most}${value(i, head, q, k).toFixed(3)}`);
  const at = `${name}${label ? ` (${label})` : ""}: query ${place(q)} -> key ${place(k)}`;
  tip.textContent = two ? [at, ...numbers].join("\n") : `${at}: ${numbers[0]}`;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(0, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 14 + box.height > innerHeight ? Math.max(0, y - box.height - 10) : y + 14}px`;
}
function cellOf(event, canvas, margin, cell) {
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
  const [k, q] = [event.clientX - box.left, event.clientY - box.top].map((at) => Math.floor((at * scale - margin) / cell));
  return q >= 0 && k >= 0 && q < side() && k < side() ? [q, k] : null;
}
function reads(element, canvas, where) {  // the weight at the pointer
  element.onpointermove = (event) => {
    const { view, head, margin, cell } = where(), at = cellOf(event, canvas, margin, cell);
    if (at) say(view, head, ...at, event.clientX, event.clientY); else tip.hidden = true;
  };
  element.onpointerleave = () => { tip.hidden = true; };
}
function drawThumb(figure, head) {
  const canvas = figure.querySelector("canvas"), context = canvas.getContext("2d"), pixels = 2 * meta.thumb;
  canvas.width = canvas.height = pixels;
  context.imageSmoothingEnabled = side() > pixels;
  context.drawImage(image(shown, head), 0, 0, pixels, pixels);
  outline(context, 0, 0, pixels / side());
}
function labels(cell) {  // [row, text] of the tokens that fit
  const step = Math.ceil(9 / cell), block = now().block;
  return Array.from({ length: side() }, (_, i) => [i, now().tokens[i * block]]).filter(([i]) => i % step === 0)
    .map(([i, word]) => [i, word.length > 10 ? `${word.slice(0, 9)}…` : word]);
}
function geometry(room) {
  const longest = Math.max(...now().tokens.map((word) => Math.min(10, word.length)));
  const margin = 14 + 7 * longest, cell = Math.max(1, Math.min(CELL_MAX, Math.floor((room - margin) / side())));
  return { margin, cell, font: Math.min(12, Math.max(8, cell - 2)), whole: margin + side() * cell };
}
function drawPanel() {
  const { name, label } = meta.heads[chosen];
  byId("name").textContent = `head ${name}${label ? ` · ${label}` : ""}`;
  drawFinding();
  byId("legend").textContent = (two ? "Darker: more attention. Difference: red where the second attends more, blue where less." : "Darker: more attention; columns are keys, rows are queries.")
    + (now().block > 1 ? ` One cell is ${now().block} by ${now().block} tokens and shows the largest weight.` : "");
  const tall = Math.max(240, innerHeight - 190), room = Math.min(panel.clientWidth || 400, meta.findings.length ? 330 : Infinity, two ? Math.max(220, panel.clientWidth / 2 - 12, tall / 2) : tall);
  drawn = geometry(room);
  panel.querySelectorAll(".maps canvas").forEach((canvas, view) => {
    const { margin, cell, font, whole } = drawn, context = canvas.getContext("2d");
    canvas.width = canvas.height = whole;
    context.imageSmoothingEnabled = false;
    context.drawImage(image(view, chosen), margin, margin, side() * cell, side() * cell);
    outline(context, margin, margin, cell);
    context.fillStyle = getComputedStyle(document.body).color;
    context.font = `${font}px monospace`;
    for (const [i, text] of labels(cell)) {
      const middle = margin + (i + .5) * cell + font / 3;
      context.textAlign = "right";
      context.fillText(text, margin - 5, middle);
      context.save();
      context.translate(middle, margin - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(text, 0, 0);
      context.restore();
    }
    canvas.setAttribute("aria-label", `attention pattern of head ${name}${two ? `, ${VIEWS[view]}` : ""}, ${now().tokens.length} tokens`);
  });
}
function element(tag, text, ...children) {
  const made = Object.assign(document.createElement(tag), { textContent: text });
  made.append(...children);
  return made;
}
function bar([, drop, low, high], threshold, most) {  // cost with its interval; the line is the loss that counts
  const at = (value) => 100 * Math.max(0, Math.min(1, (value + .05) / (most + .05)));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "bar");
  svg.setAttribute("viewBox", "0 0 100 12");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = (x1, y1, x2, y2, colour, width) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "line");
    Object.entries({ x1, y1, x2, y2, stroke: colour, "stroke-width": width, "vector-effect": "non-scaling-stroke" }).forEach(([name, value]) => made.setAttribute(name, value));
    svg.append(made);
  };
  line(at(threshold), 0, at(threshold), 12, "#d1495b", 1);
  line(at(low), 6, Math.max(at(high), at(low) + 1), 6, "currentColor", 2);
  line(at(drop), 2, at(drop), 10, "currentColor", 3);
  return svg;
}
function drawFinding() {
  const one = meta.findings[chosen], place = byId("finding");
  if (!one) return;
  byId("sentence").textContent = one.sentence;
  const most = Math.max(.3, ...meta.findings.flatMap((each) => each.costs.map((cost) => cost[3])));
  const row = (cost) => element("tr", "", element("td", cost[0]), element("td", "", bar(cost, one.threshold, most)), element("td", `${cost[1].toFixed(2)} [${cost[2].toFixed(2)}, ${cost[3].toFixed(2)}]`));
  const head = (...names) => element("tr", "", ...names.map((name) => element("th", name)));
  const costs = element("table", "", head("its output or pattern becomes", "accuracy lost", ""), ...one.costs.map(row));
  place.replaceChildren(element("h3", "What each ablation costs"), costs);
  const note = element("p", `95 % intervals; the red line is the loss that counts, ${one.threshold.toFixed(2)}.`);
  note.className = "command";
  place.append(note);
  if (!one.probes.length) return;
  const probe = ([name, before, after]) => element("tr", "", element("td", name), element("td", before.toFixed(2)), element("td", after.toFixed(2)));
  byId("probes").replaceChildren(element("h3", "Probes before and after its layer"), element("table", "", head("target", "before", "after"), ...one.probes.map(probe)));
}
function svgText(view, left) {
  const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`), n = side(), map = outlined();
  const { margin, cell, font, whole } = drawn, parts = [`<text x="${left + margin}" y="14" font-size="13">${escape(`head ${meta.heads[chosen].name}${two ? `, ${VIEWS[view]}` : ""}`)}</text>`];
  const x = (k) => left + margin + k * cell, y = (q) => 20 + margin + q * cell;
  if (n * n > MOST_RECTANGLES) parts.push(`<image x="${x(0)}" y="${y(0)}" width="${n * cell}" height="${n * cell}" image-rendering="pixelated" href="${image(view, chosen).toDataURL()}"/>`);
  for (let q = 0; q < n; q++) for (let k = 0; k < n; k++) {
    const number = value(view, chosen, q, k), at = `x="${x(k)}" y="${y(q)}" width="${cell}" height="${cell}"`;
    if (number && n * n <= MOST_RECTANGLES) parts.push(`<rect ${at} fill="rgb(${colour(view, number)})"/>`);
    if (map && map[q * n + k]) parts.push(`<rect ${at} fill="none" stroke="#d1495b"/>`);
  }
  for (const [i, text] of labels(cell)) {
    const row = y(i) + cell / 2 + font / 3, column = x(i) + cell / 2 + font / 3;
    parts.push(`<text x="${x(0) - 5}" y="${row}" text-anchor="end">${escape(text)}</text>`, `<text transform="translate(${column} ${y(0) - 5}) rotate(-90)">${escape(text)}</text>`);
  }
  parts.push(`<rect x="${x(0)}" y="${y(0)}" width="${n * cell}" height="${n * cell}" fill="none" stroke="#999"/>`);
  return [parts.join("\n"), left + whole + 24];
}
function svg() {  // the panel's maps as one picture
  let left = 0, body = "", part;
  for (let view = 0; view < VIEWS.length; view++) { [part, left] = svgText(view, left); body += part; }
  const box = `width="${left}" height="${drawn.whole + 30}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${box} font-family="monospace" font-size="${drawn.font}"><rect ${box} fill="#fff"/>\n${body}\n</svg>\n`;
}
function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([svg()], { type: "image/svg+xml" }));
  link.download = `head-${meta.heads[chosen].name}-example-${example + 1}.svg`;
  link.click();
  URL.revokeObjectURL(link.href);
}
function choose(head, look) {
  chosen = head;
  grid.querySelectorAll("figure").forEach((figure, i) => {
    figure.classList.toggle("chosen", i === chosen);
    figure.setAttribute("aria-pressed", i === chosen);
  });
  drawPanel();
  const box = panel.getBoundingClientRect();
  if (look && box.top > innerHeight - 80) panel.scrollIntoView({ block: "start" });  // below the grid on narrow screens
}
const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
function build() {
  grid.style.gridTemplateColumns = `repeat(${meta.columns}, ${meta.thumb}px)`;
  meta.heads.forEach((head, i) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), canvas = document.createElement("canvas");
    figure.tabIndex = 0;
    figure.setAttribute("role", "button");
    caption.textContent = caption.title = head.label ? `${head.name} ${head.label}` : head.name;
    figure.setAttribute("aria-label", `head ${caption.textContent}`);
    figure.append(canvas, caption);
    if (meta.findings.length) {
      figure.classList.add("judged");
      figure.style.setProperty("--verdict", meta.findings[i].colour);
    }
    figure.onclick = () => choose(i, true);
    figure.onkeydown = (event) => {
      const [down, right] = MOVES[event.key] || [0, 0], next = grid.children[i + down * meta.columns + right];
      if (event.key === "Enter" || event.key === " ") choose(i, true);
      else if (down || right) { if (next) { next.focus(); choose(i + down * meta.columns + right); } } else return;
      event.preventDefault();
    };
    reads(figure, canvas, () => ({ view: shown, head: i, margin: 0, cell: 2 * meta.thumb / side() }));
    grid.append(figure);
  });
  VIEWS.forEach((what, view) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), canvas = document.createElement("canvas");
    const frame = document.createElement("div");
    let at = [0, 0];
    caption.textContent = two ? what : "";
    canvas.setAttribute("role", "img");
    frame.className = "scroll";
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `${two ? what : "pattern"}: arrow keys read weights`);
    frame.append(canvas);
    figure.append(caption, frame);
    reads(canvas, canvas, () => ({ view, head: chosen, ...drawn }));
    frame.onkeydown = (event) => {
      if (event.key === "Escape") tip.hidden = true;
      if (!MOVES[event.key]) return;
      event.preventDefault();
      at = at.map((old, i) => Math.max(0, Math.min(side() - 1, old + MOVES[event.key][i])));
      const box = canvas.getBoundingClientRect(), scale = box.width / canvas.width, [q, k] = at;
      say(view, chosen, q, k, box.left + scale * (drawn.margin + k * drawn.cell), box.top + scale * (drawn.margin + q * drawn.cell));
    };
    frame.onblur = () => { tip.hidden = true; };
    panel.querySelector(".maps").append(figure);
    if (two) byId("view").add(new Option(what, view));
  });
  meta.examples.forEach((one, i) => byId("example").add(new Option(`${i + 1} of ${meta.examples.length}`, i)));
  for (const name of Object.keys(meta.examples[0].relations)) byId("relation").add(new Option(name, name));
  byId("example").onchange = (event) => load(Number(event.target.value));
  byId("relation").onchange = redraw;
  if (two) byId("view").onchange = (event) => { shown = Number(event.target.value); redraw(); };
  byId("svg").onclick = save;
  byId("pdf").onclick = () => print();
  addEventListener("resize", drawPanel);
}
function redraw() {  // a few thumbnails at a time, so that hundreds do not freeze the page
  const mine = ++round, figures = [...grid.children];
  const step = (from) => {
    if (mine !== round) return;
    figures.slice(from, from + 12).forEach((figure, i) => drawThumb(figure, from + i));
    if (from + 12 < figures.length) setTimeout(step, 0, from + 12);
    else document.body.dataset.drawn = example + 1;
  };
  choose(chosen);
  step(0);
}
async function load(index) {
  const data = meta.examples[index];
  const maps = await Promise.all(Object.values(data.relations).map(unpack));
  bytes = await Promise.all(data.patterns.map(unpack));
  related = Object.fromEntries(Object.keys(data.relations).map((name, i) => [name, maps[i]]));
  example = index;
  redraw();
  document.body.dataset.ready = "yes";
}
build();
load(0);

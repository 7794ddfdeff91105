(() => {
"use strict";
// Attention viewer: a grid of heads and a panel with the chosen one. Nothing is fetched. A page can have several.
const root = document.currentScript.parentElement;
const find = (name) => root.querySelector(`.${name}`);
const meta = JSON.parse(root.querySelector("[type='application/json']").textContent);
const tip = find("tip"), grid = find("grid"), panel = find("panel");
const hasTwoModels = meta.models.length > 1;
const DIFFERENCE = `${meta.models[1]} − ${meta.models[0]}`;
const VIEWS = hasTwoModels ? [...meta.models, DIFFERENCE] : meta.models;
const RED = [179, 38, 60], BLUE = [11, 110, 138], FRAME = "#b8730a";
const CELL_MAX = 18, MAP_MAX = 560, SMALLEST_THUMBNAIL = 28, MOST_CAPTIONS = 6, TOP_TOKENS = 5, MOST_RECTANGLES = 40000, THUMBNAILS_PER_STEP = 12;
const SVG = "http://www.w3.org/2000/svg";
const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

// What is shown: the example, the head in the panel, and the view in the grid.
let exampleIndex = 0, chosenHead = meta.chosen, gridView = 0;
// The bytes of each model's patterns, and of each relation, in this example.
let patternBytes = [], relationBytes = {};
// Sizes of the maps in the panel, and the number of the last drawing of the grid.
let panelLayout = {}, drawingNumber = 0;

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Weights. A cell is a block of `block` by `block` tokens with its largest weight; long sequences are thinned.

const sequence = () => meta.examples[exampleIndex];
const side = () => sequence().side;

function weight(model, head, query, key) {
  const byte = patternBytes[model][(head * side() + query) * side() + key];
  return (byte / 255) ** 2;
}
function value(view, head, query, key) {
  if (view < meta.models.length) return weight(view, head, query, key);
  return weight(1, head, query, key) - weight(0, head, query, key);
}
function colour(view, number) {  // white at 0; blue for weights, and red for differences above 0
  const darkest = view < meta.models.length || number < 0 ? BLUE : RED;
  const strength = Math.sqrt(Math.abs(number));
  return darkest.map((channel) => Math.round(255 + (channel - 255) * strength));
}

// Maps on a canvas

function image(view, head) {
  const n = side(), canvas = document.createElement("canvas"), pixels = new ImageData(n, n);
  canvas.width = canvas.height = n;
  for (let query = 0; query < n; query++) for (let key = 0; key < n; key++) {
    const rgb = colour(view, value(view, head, query, key));
    pixels.data.set([...rgb, 255], 4 * (query * n + key));
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
const outlinedRelation = () => relationBytes[find("relation").value];

function drawOutline(context, x, y, cell) {
  const n = side(), relation = outlinedRelation();
  if (!relation) return;
  context.strokeStyle = context.fillStyle = "rgba(209, 73, 91, .8)";
  for (let query = 0; query < n; query++) for (let key = 0; key < n; key++) if (relation[query * n + key]) {
    const left = x + key * cell, top = y + query * cell, dot = Math.max(1, cell * .3);
    // a frame, or a dot in cells that are too small for one
    if (cell > 4) context.strokeRect(left + .5, top + .5, cell - 1, cell - 1);
    else context.fillRect(x + (key + .35) * cell, y + (query + .35) * cell, dot, dot);
  }
}
function drawThumbnail(button, head) {
  const canvas = button.querySelector("canvas"), context = canvas.getContext("2d"), pixels = 2 * meta.thumb;
  canvas.width = canvas.height = pixels;
  context.imageSmoothingEnabled = side() > pixels;
  context.drawImage(image(gridView, head), 0, 0, pixels, pixels);
  drawOutline(context, 0, 0, pixels / side());
}

// The tooltip with the weight of a cell

function tokensOf(cell) {  // the tokens of a row or column
  const { tokens, block } = sequence(), first = cell * block, last = Math.min(first + block, tokens.length) - 1;
  return first === last ? `${first} "${tokens[first]}"` : `${first} to ${last} "${tokens[first]} … ${tokens[last]}"`;
}
function showTip(view, head, query, key, x, y) {
  const { name, label } = meta.heads[head];
  const bound = sequence().block > 1 ? "at most " : "";
  const title = `${name}${label ? ` (${label})` : ""}: query ${tokensOf(query)} -> key ${tokensOf(key)}`;
  const numbers = VIEWS.map((viewName, index) => bound + value(index, head, query, key).toFixed(3));
  const lines = VIEWS.map((viewName, index) => `${viewName}: ${numbers[index]}`);
  placeTip(hasTwoModels ? [title, ...lines].join("\n") : `${title}: ${numbers[0]}`, x, y);
}
function placeTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  // next to the pointer, inside the window
  const box = tip.getBoundingClientRect();
  const left = Math.max(0, Math.min(x + 14, innerWidth - box.width - 4));
  const top = y + 14 + box.height > innerHeight ? Math.max(0, y - box.height - 10) : y + 14;
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}
function hideTip() { tip.hidden = true; }

function placeUnder(event, canvas, margin, cell) {  // query and key at the pointer; null where it is on labels
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
  const index = (pixels) => {
    const number = Math.floor((pixels * scale - margin) / cell);
    return number >= 0 && number < side() ? number : null;
  };
  return [index(event.clientY - box.top), index(event.clientX - box.left)];
}
function showThumbnailWeights(button, canvas, head) {
  button.onpointermove = (event) => {
    const [query, key] = placeUnder(event, canvas, 0, canvas.width / side());
    if (query === null || key === null) hideTip();
    else showTip(gridView, head, query, key, event.clientX, event.clientY);
  };
  button.onpointerleave = hideTip;
}

// Marked tokens: a query shades its keys, a key the queries that attend to it, a cell marks its row and column

function mark(canvas, view, query, key, x, y) {
  canvas.marked = query === null && key === null ? null : { query, key };
  drawMarked(canvas, view);
  if (!canvas.marked) hideTip();
  else if (query !== null && key !== null) showTip(view, chosenHead, query, key, x, y);
  else showTokenTip(view, query, key, x, y);
}
function numbersOf(view, query, key) {  // of a query to all keys, or of all queries to a key
  const tokens = [...Array(side()).keys()];
  return tokens.map((token) => query === null ? value(view, chosenHead, token, key) : value(view, chosenHead, query, token));
}
function showTokenTip(view, query, key, x, y) {
  const numbers = numbersOf(view, query, key), bound = sequence().block > 1 ? "at most " : "";
  const strongest = [...numbers.keys()].sort((a, b) => Math.abs(numbers[b]) - Math.abs(numbers[a])).slice(0, TOP_TOKENS);
  const lines = strongest.map((token) => `${tokensOf(token)}: ${bound}${numbers[token].toFixed(3)}`);
  const title = query === null ? `key ${tokensOf(key)}, from queries` : `query ${tokensOf(query)}, to keys`;
  placeTip([title, ...lines].join("\n"), x, y);
}

// The panel

function tokenLabels(cell) {  // [row, text] of the tokens that fit
  const { tokens, block } = sequence(), step = Math.ceil(9 / cell), labels = [];
  for (let row = 0; row < side(); row += step) {
    const token = tokens[row * block];
    labels.push([row, token.length > 10 ? `${token.slice(0, 9)}…` : token]);
  }
  return labels;
}
function layoutFor(room) {  // pixels of labels, cells, letters and the whole map
  const longest = Math.max(...sequence().tokens.map((token) => Math.min(10, token.length)));
  const margin = 14 + 7 * longest;
  const cell = Math.max(1, Math.min(CELL_MAX, Math.floor((room - margin) / side())));
  return { margin, cell, font: Math.min(12, Math.max(8, cell - 2)), size: margin + side() * cell };
}
function roomForMap() {  // pixels of a map that fits into the panel
  const width = panel.clientWidth || 400;
  const besideFinding = meta.findings.length ? 330 : MAP_MAX;
  const ofTwoMaps = Math.max(220, width / 2 - 12);
  return Math.min(width, besideFinding, hasTwoModels ? ofTwoMaps : MAP_MAX);
}
function drawPanel() {
  const { name, label, note } = meta.heads[chosenHead], { block } = sequence();
  find("name").textContent = `head ${name}${label ? ` · ${label}` : ""}`;
  drawFinding();
  let legend = "Darker: more attention; rows are queries, columns are keys. Point at a token, or move with the arrow keys, to see where it attends.";
  if (hasTwoModels) legend = "Darker: more attention. Difference: red where the second attends more, blue where less.";
  if (block > 1) legend += ` One cell is ${block} by ${block} tokens and shows the largest weight.`;
  find("legend").textContent = note ? `Why no label: ${note}. ${legend}` : legend;
  panelLayout = layoutFor(roomForMap());
  panel.querySelectorAll(".maps canvas").forEach(drawMap);
  // it stays in the window next to a long grid, if there is room for all of it
  panel.classList.toggle("fits", panel.offsetHeight < innerHeight - 16);
}
function drawMap(canvas, view) {
  const { margin, cell, size } = panelLayout, map = document.createElement("canvas"), context = map.getContext("2d");
  canvas.width = canvas.height = map.width = map.height = size;
  context.imageSmoothingEnabled = false;
  context.drawImage(image(view, chosenHead), margin, margin, side() * cell, side() * cell);
  drawOutline(context, margin, margin, cell);
  canvas.map = map;
  canvas.marked = null;
  drawMarked(canvas, view);
  const viewName = hasTwoModels ? `, ${VIEWS[view]}` : "";
  const text = `attention pattern of head ${meta.heads[chosenHead].name}${viewName}, ${sequence().tokens.length} tokens`;
  canvas.setAttribute("aria-label", text);
}
function drawMarked(canvas, view) {  // the map, what is marked, and the tokens
  const { margin, cell, size } = panelLayout, context = canvas.getContext("2d");
  context.clearRect(0, 0, size, size);
  context.drawImage(canvas.map, 0, 0);
  if (canvas.marked) drawMarks(context, view, canvas.marked);
  drawTokens(context);
}
function drawMarks(context, view, { query, key }) {
  const { margin, cell } = panelLayout, length = side() * cell;
  // labels at the other side, shaded by weight
  numbersOf(view, query, key).forEach((number, token) => {
    context.fillStyle = `rgb(${number < 0 || view < meta.models.length ? BLUE : RED}, ${.75 * Math.sqrt(Math.abs(number))})`;
    const start = margin + token * cell;
    if (query === null) context.fillRect(0, start, margin - 2, cell);
    else context.fillRect(start, 0, cell, margin - 2);
  });
  // the row and the column, from the labels on
  context.strokeStyle = FRAME;
  context.lineWidth = 2;
  if (query !== null) context.strokeRect(1, margin + query * cell, margin + length - 2, cell);
  if (key !== null) context.strokeRect(margin + key * cell, 1, cell, margin + length - 2);
}
function drawTokens(context) {
  const { margin, cell, font } = panelLayout;
  // the token of each row, and of each column, which is rotated
  context.fillStyle = getComputedStyle(document.body).color;
  context.font = `${font}px monospace`;
  for (const [row, text] of tokenLabels(cell)) {
    const middle = margin + (row + .5) * cell + font / 3;
    context.textAlign = "right";
    context.fillText(text, margin - 5, middle);
    context.save();
    context.translate(middle, margin - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(text, 0, 0);
    context.restore();
  }
}

// What is known about the chosen head

function element(tag, text, ...children) {
  const node = Object.assign(document.createElement(tag), { textContent: text });
  node.append(...children);
  return node;
}
function svgElement(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, attribute] of Object.entries(attributes)) node.setAttribute(name, attribute);
  return node;
}
function costBar([, drop, low, high], threshold, greatest) {  // cost with its interval; the line is the loss that counts
  const x = (cost) => 100 * Math.max(0, Math.min(1, (cost + .05) / (greatest + .05)));
  const svg = svgElement("svg", { class: "bar", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" });
  const line = (x1, y1, x2, y2, stroke, width) => svg.append(
    svgElement("line", { x1, y1, x2, y2, stroke, "stroke-width": width, "vector-effect": "non-scaling-stroke" })
  );
  line(x(threshold), 0, x(threshold), 12, "#d1495b", 1);
  line(x(low), 6, Math.max(x(high), x(low) + 1), 6, "currentColor", 2);
  line(x(drop), 2, x(drop), 10, "currentColor", 3);
  return svg;
}
function drawFinding() {
  const finding = meta.findings[chosenHead];
  if (!finding) return;
  find("summary").textContent = finding.sentence;
  // a table of costs, with bars of one scale for all heads
  const greatest = Math.max(.3, ...meta.findings.flatMap(({ costs }) => costs.map((cost) => cost[3])));
  const header = (...names) => element("tr", "", ...names.map((name) => element("th", name)));
  // intervals of samples have a width, those of every input have none
  const exact = finding.costs.length > 0 && finding.costs.every(([, , low, high]) => low === high);
  const costRow = (cost) => {
    const [name, drop, low, high] = cost, bar = costBar(cost, finding.threshold, greatest);
    const interval = exact ? "" : ` [${low.toFixed(2)}, ${high.toFixed(2)}]`, numbers = drop.toFixed(2) + interval;
    return element("tr", "", element("td", name), element("td", "", bar), element("td", numbers));
  };
  const names = header("its output or pattern becomes", "accuracy lost");
  names.lastChild.colSpan = 2;
  const costs = element("table", "", element("caption", "What each ablation costs"), names, ...finding.costs.map(costRow));
  const figures = exact ? "Every input, exact" : "95 % intervals";
  const note = element("p", `${figures}; the red line is the loss that counts, ${finding.threshold.toFixed(2)}.`);
  note.className = "command";
  find("costs").replaceChildren(costs, note);
  // a table of probes, if there are any
  if (!finding.probes.length) return;
  const probeRow = ([name, before, after]) =>
    element("tr", "", element("td", name), element("td", before.toFixed(2)), element("td", after.toFixed(2)));
  const probes = element("table", "", element("caption", "Probes around its layer"), header("target", "before", "after"), ...finding.probes.map(probeRow));
  find("probes").replaceChildren(probes);
}

// The panel's maps as an SVG file

function escaped(text) {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
function mapSvg(view, left) {  // the elements of one map, whose left edge is given
  const n = side(), relation = outlinedRelation(), { margin, cell, font } = panelLayout;
  const x = (key) => left + margin + key * cell, y = (query) => 20 + margin + query * cell;
  const square = `x="${x(0)}" y="${y(0)}" width="${n * cell}" height="${n * cell}"`;
  const title = `head ${meta.heads[chosenHead].name}${hasTwoModels ? `, ${VIEWS[view]}` : ""}`;
  const elements = [`<text x="${left + margin}" y="14" font-size="13">${escaped(title)}</text>`];
  // cells: rectangles, or one image if there are very many
  const hasImage = n * n > MOST_RECTANGLES;
  if (hasImage) elements.push(`<image ${square} image-rendering="pixelated" href="${image(view, chosenHead).toDataURL()}"/>`);
  for (let query = 0; query < n; query++) for (let key = 0; key < n; key++) {
    const number = value(view, chosenHead, query, key);
    const box = `x="${x(key)}" y="${y(query)}" width="${cell}" height="${cell}"`;
    if (number && !hasImage) elements.push(`<rect ${box} fill="rgb(${colour(view, number)})"/>`);
    if (relation && relation[query * n + key]) elements.push(`<rect ${box} fill="none" stroke="#d1495b"/>`);
  }
  // tokens and frame
  for (const [row, token] of tokenLabels(cell)) {
    const bottom = y(row) + cell / 2 + font / 3, column = x(row) + cell / 2 + font / 3, text = escaped(token);
    elements.push(`<text x="${x(0) - 5}" y="${bottom}" text-anchor="end">${text}</text>`);
    elements.push(`<text transform="translate(${column} ${y(0) - 5}) rotate(-90)">${text}</text>`);
  }
  elements.push(`<rect ${square} fill="none" stroke="#999"/>`);
  return elements.join("\n");
}
function panelSvg() {
  const { size, font } = panelLayout, step = size + 24;
  const maps = VIEWS.map((name, view) => mapSvg(view, view * step)).join("");
  const box = `width="${VIEWS.length * step}" height="${size + 30}"`;
  const attributes = `xmlns="${SVG}" ${box} font-family="monospace" font-size="${font}"`;
  return `<svg ${attributes}><rect ${box} fill="#fff"/>\n${maps}\n</svg>\n`;
}
function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([panelSvg()], { type: "image/svg+xml" }));
  link.download = `head-${meta.heads[chosenHead].name}-example-${exampleIndex + 1}.svg`;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Choosing and drawing

function choose(head, scrolls) {
  chosenHead = head;
  grid.querySelectorAll("button").forEach((button, index) => {
    button.classList.toggle("chosen", index === chosenHead);
    button.setAttribute("aria-pressed", index === chosenHead);
  });
  drawPanel();
  // the panel is below the grid on narrow screens
  const box = panel.getBoundingClientRect();
  if (scrolls && box.top > innerHeight - 80) panel.scrollIntoView({ block: "start" });
}
function addThumbnail(head, index) {
  const button = element("button", ""), caption = element("span", ""), canvas = element("canvas", "");
  button.type = "button";
  const text = head.label ? `${head.name} ${head.label}` : head.name;
  caption.title = head.note ? `${text}: ${head.note}` : text;
  // in many columns there is room for the name only
  caption.textContent = meta.columns > MOST_CAPTIONS ? head.name : text;
  button.setAttribute("aria-label", `head ${text}`);
  button.append(canvas, caption);
  if (meta.findings.length) {
    button.classList.add("judged");
    button.style.setProperty("--verdict", meta.findings[index].colour);
  }
  button.onclick = () => choose(index, true);
  button.onkeydown = (event) => {
    if (!MOVES[event.key]) return;
    const [down, right] = MOVES[event.key], neighbour = index + down * meta.columns + right;
    if (grid.children[neighbour]) { grid.children[neighbour].focus(); choose(neighbour); }
    event.preventDefault();
  };
  showThumbnailWeights(button, canvas, index);
  grid.append(button);
}
function addMap(viewName, view) {
  const figure = element("figure", ""), caption = element("figcaption", ""), canvas = element("canvas", "");
  const frame = element("div", "");
  caption.textContent = hasTwoModels ? viewName : "";
  canvas.setAttribute("role", "img");
  frame.className = "scroll";
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", `${hasTwoModels ? viewName : "pattern"}: arrow keys move over queries and keys`);
  frame.append(canvas);
  figure.append(caption, frame);
  canvas.onpointermove = (event) => {
    const { margin, cell } = panelLayout;
    mark(canvas, view, ...placeUnder(event, canvas, margin, cell), event.clientX, event.clientY);
  };
  canvas.onpointerleave = () => mark(canvas, view, null, null);
  // a cursor that arrow keys move, [query, key]
  let cursor = [0, 0];
  frame.onkeydown = (event) => {
    if (event.key === "Escape") mark(canvas, view, null, null);
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    cursor = cursor.map((position, axis) => Math.max(0, Math.min(side() - 1, position + move[axis])));
    const [query, key] = cursor, { margin, cell } = panelLayout;
    const box = canvas.getBoundingClientRect(), scale = box.width / canvas.width;
    const x = box.left + scale * (margin + key * cell), y = box.top + scale * (margin + query * cell);
    mark(canvas, view, query, key, x, y);
  };
  frame.onblur = () => mark(canvas, view, null, null);
  panel.querySelector(".maps").append(figure);
  if (hasTwoModels) find("view").add(new Option(viewName, view));
}
function addVerdicts() {  // the colours of the verdicts, if captions do not name them
  if (meta.columns <= MOST_CAPTIONS) return;
  const colours = new Map(meta.findings.map(({ verdict, colour }) => [verdict, colour]));
  for (const [verdict, colour] of colours) {
    const name = element("span", verdict);
    name.className = "verdict-colour";
    name.style.setProperty("--verdict", colour);
    find("controls").append(name);
  }
}
function build() {
  addVerdicts();
  grid.style.gridTemplateColumns = `repeat(${meta.columns}, minmax(${SMALLEST_THUMBNAIL}px, var(--thumb)))`;
  meta.heads.forEach(addThumbnail);
  VIEWS.forEach(addMap);
  // the menus and buttons
  meta.examples.forEach((_, index) => find("example").add(new Option(`${index + 1} of ${meta.examples.length}`, index)));
  for (const name of Object.keys(meta.examples[0].relations)) find("relation").add(new Option(name, name));
  find("example").onchange = (event) => load(Number(event.target.value));
  find("relation").onchange = redraw;
  if (hasTwoModels) find("view").onchange = (event) => { gridView = Number(event.target.value); redraw(); };
  find("svg").onclick = save;
}
function redraw() {  // a few thumbnails at a time, so that hundreds do not freeze the page
  const number = ++drawingNumber, buttons = [...grid.children];
  const drawFrom = (start) => {
    // another drawing has begun
    if (number !== drawingNumber) return;
    const end = start + THUMBNAILS_PER_STEP;
    buttons.slice(start, end).forEach((button, index) => drawThumbnail(button, start + index));
    if (end < buttons.length) setTimeout(drawFrom, 0, end);
    else root.dataset.drawn = exampleIndex + 1;
  };
  choose(chosenHead);
  drawFrom(0);
}
async function load(index) {
  const example = meta.examples[index], names = Object.keys(example.relations);
  const relations = await Promise.all(Object.values(example.relations).map(unpack));
  patternBytes = await Promise.all(example.patterns.map(unpack));
  relationBytes = Object.fromEntries(names.map((name, position) => [name, relations[position]]));
  exampleIndex = index;
  redraw();
  root.dataset.ready = "yes";
}
build();
load(0).then(() => {  // not earlier: a frame is resized as soon as it has content, and there would be no weights to draw
  addEventListener("resize", drawPanel);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawPanel);
});
})();

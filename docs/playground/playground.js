// The page: networks by ONNX Runtime, and what is drawn of them. Nothing is fetched but the files beside it.
"use strict";

const DATA = window.DATA; // written by build.py: networks, images, colours, words
const $ = (id) => document.getElementById(id);
const SCALE = 20 / 28; // longer side of a drawn digit, as in MNIST
const ROUTINGS = { trained: "as trained", uniform: "couplings uniform", another: "couplings of another image" };
const USUAL = {
  first: DATA.first, beside: DATA.beside, image: DATA.image, routing: "trained", donor: DATA.donor,
  dose: 1, iteration: 0, shown: -1, angle: 0, right: 0, down: 0, changes: {},
};
const state = { ...USUAL };
let drawing = null; // Float32Array of the sheet, in the size of the networks
let before = DATA.image; // the test image before the drawing

// --- Networks --------------------------------------------------------------------------------

async function unpack(text) { // base64 of gzip
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function script(name) { // works from a file too, where fetch does not
  return new Promise((resolve, reject) => {
    const tag = document.createElement("script");
    tag.src = name;
    tag.onload = resolve;
    tag.onerror = () => reject(new Error(`${name} is missing`));
    document.head.append(tag);
  });
}

const started = (async () => {
  if (typeof WebAssembly !== "object") throw new Error("this browser has no WebAssembly: take a newer one");
  await script("runtime.js");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = (await unpack(window.RUNTIME.wasm)).buffer;
  ort.env.wasm.wasmPaths = { mjs: `data:text/javascript;base64,${window.RUNTIME.mjs}` };
})();

const opened = {};
function network(name) { // its steps, opened once
  opened[name] ??= (async () => {
    await started;
    await script(`models/${name}.js`);
    const steps = {};
    for (const [step, text] of Object.entries(window.MODELS[name])) {
      steps[step] = await ort.InferenceSession.create(await unpack(text));
    }
    return steps;
  })().catch((error) => { delete opened[name]; throw error; });
  return opened[name];
}

async function run(session, ...inputs) { // tensors in, tensors out, in their order
  const given = Object.fromEntries(session.inputNames.map((name, i) => [name, inputs[i]]));
  const found = await session.run(given);
  return session.outputNames.map((name) => found[name]);
}

async function look(name, image, how = { routing: "trained" }) {
  // What a network makes of an image: {primary, votes, couplings, lengths, poses}, of all iterations.
  const about = DATA.networks[name], steps = await network(name);
  const [primary, votes] = await run(steps.votes, new ort.Tensor("float32", image, [1, ...about.shape]));
  const [couplings, lengths, poses] = await run(steps.routing, votes, primary);
  const found = { about, primary, votes, rounds: couplings.dims[0], couplings: couplings.data,
    lengths: lengths.data, poses: poses.data, classes: votes.dims[2], capsules: votes.dims[1] };
  if (how.routing === "trained") return found;
  const even = 1 / found.classes, given = new Float32Array(found.capsules * found.classes).fill(even);
  if (how.routing === "another") {
    const donor = await look(name, how.donor);
    const own = donor.couplings.slice(-given.length);
    given.forEach((_, i) => (given[i] = even + how.dose * (own[i] - even)));
  }
  const put = new ort.Tensor("float32", given, [1, found.capsules, found.classes]);
  const [changed, posed] = await run(steps.given, votes, primary, put);
  const plain = after(found.lengths, found, found.rounds - 1); // as trained
  return { ...found, rounds: 1, couplings: given, lengths: changed.data, poses: posed.data, plain };
}

const after = (values, found, r) => values.slice((r * values.length) / found.rounds, ((r + 1) * values.length) / found.rounds);

async function decode(name, poses, label) {
  const steps = await network(name), about = DATA.networks[name];
  if (!steps.decoder) return null;
  const shape = [1, about.classes.length, poses.length / about.classes.length];
  const classes = new ort.Tensor("int64", BigInt64Array.of(BigInt(label)), [1]);
  return (await run(steps.decoder, new ort.Tensor("float32", poses, shape), classes))[0].data;
}

// --- Images ----------------------------------------------------------------------------------

function warp(image, [, height, width], angle, right, down) { // bilinear, zero outside
  const radians = (angle * Math.PI) / 180, cos = Math.cos(radians), sin = Math.sin(radians);
  const cx = (width - 1) / 2, cy = (height - 1) / 2, out = new Float32Array(image.length);
  const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : image[y * width + x]);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const dx = x - right - cx, dy = y - down - cy;
      const u = cos * dx - sin * dy + cx, v = sin * dx + cos * dy + cy;
      const i = Math.floor(u), j = Math.floor(v), a = u - i, b = v - j;
      out[y * width + x] = (1 - b) * ((1 - a) * at(i, j) + a * at(i + 1, j))
        + b * ((1 - a) * at(i, j + 1) + a * at(i + 1, j + 1));
    }
  }
  return out;
}

function centred(sheet, side) { // strokes in a box, centred by mass, as MNIST's digits were
  const { data, width, height } = sheet.getContext("2d").getImageData(0, 0, sheet.width, sheet.height);
  let [x0, y0, x1, y1] = [width, height, -1, -1];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (data[4 * (y * width + x) + 3]) [x0, y0, x1, y1] = [Math.min(x0, x), Math.min(y0, y), Math.max(x1, x), Math.max(y1, y)];
    }
  }
  if (x1 < 0) return null;
  const scale = (SCALE * side) / Math.max(x1 - x0 + 1, y1 - y0 + 1);
  const small = document.createElement("canvas");
  small.width = Math.max(1, Math.round((x1 - x0 + 1) * scale));
  small.height = Math.max(1, Math.round((y1 - y0 + 1) * scale));
  const pen = small.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(sheet, x0, y0, x1 - x0 + 1, y1 - y0 + 1, 0, 0, small.width, small.height);
  const ink = pen.getImageData(0, 0, small.width, small.height).data.filter((_, i) => i % 4 === 3);
  const most = Math.max(...ink) || 1, out = new Float32Array(side * side);
  let [mass, mx, my] = [0, 0, 0];
  ink.forEach((value, i) => { mass += value; mx += value * (i % small.width); my += value * Math.floor(i / small.width); });
  const corner = (middle, size) => Math.min(Math.max(Math.round((side - 1) / 2 - middle / mass), 0), side - size);
  const left = corner(mx, small.width), top = corner(my, small.height);
  ink.forEach((value, i) => (out[(top + Math.floor(i / small.width)) * side + left + (i % small.width)] = value / most));
  return out;
}

const pictures = {};
async function picture(name) { // a test image, Float32Array in [0, 1]
  pictures[name] ??= unpack(DATA.images[name].pixels).then((bytes) => Float32Array.from(bytes, (value) => value / 255));
  return pictures[name];
}

// --- Drawing ---------------------------------------------------------------------------------

function element(tag, content, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...[content].flat());
  return made;
}

function raster(values, width, height, colour, low = 0, high = 1) {
  const canvas = element("canvas", [], { width, height, className: "cv-px" });
  const pixels = new ImageData(width, height);
  values.forEach((value, i) => {
    const level = Math.round(255 * Math.min(Math.max((value - low) / (high - low || 1), 0), 1));
    const rgb = colour ? colour.slice(3 * level, 3 * level + 3) : [level, level, level];
    pixels.data.set([...rgb, 255], 4 * i);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

function panel(content, caption) {
  const first = [content].flat()[0];
  if (first.tagName === "CANVAS") { first.setAttribute("role", "img"); first.setAttribute("aria-label", caption); }
  return element("figure", [...[content].flat(), element("figcaption", caption)], { className: "cv-panel" });
}

function bars(values, name, what, changed, before) { // as `capsviz explore` draws them
  const classes = DATA.networks[name].classes, winner = argmax(values);
  const rows = [...values].map((value, j) => {
    const bar = element("u", []), track = element("span", bar);
    bar.style.width = `${100 * Math.min(value, 1)}%`;
    if (before) { const tick = element("i", []); tick.style.left = `${100 * Math.min(before[j], 1)}%`; track.append(tick); }
    return element("div", [element("b", classes[j]), track, element("em", value.toFixed(2))],
      { className: j === winner ? "cv-bar cv-first" : "cv-bar" });
  });
  const head = element("h4", [`${name}: predicted as `, element("strong", classes[winner]), changed]);
  return element("div", [head, element("div", rows), element("p", what)], { className: "cv-bars" });
}

const argmax = (values) => values.indexOf(Math.max(...values));
const cividis = Uint8Array.from(atob(DATA.colours.coupling), (c) => c.charCodeAt(0));
const signed = Uint8Array.from(atob(DATA.colours.signed), (c) => c.charCodeAt(0));

function tiles(values, [types, rows, columns], colour, low, high) { // a map for each capsule type
  if (rows * columns === 1) {
    const strip = raster(values, types, 1, colour, low, high);
    strip.classList.add("cv-strip");
    return [strip];
  }
  const each = rows * columns, made = [];
  for (let t = 0; t < types; t++) made.push(raster(values.slice(t * each, (t + 1) * each), columns, rows, colour, low, high));
  return [element("div", made, { className: "cv-tiles" })];
}

function meanCouplings(found, r) { // (J, types): over the positions of each type
  const [types, rows, columns] = found.about.grid, each = rows * columns, { classes, capsules } = found;
  const couplings = after(found.couplings, found, r), out = new Float32Array(classes * types);
  for (let i = 0; i < capsules; i++) {
    for (let j = 0; j < classes; j++) out[j * types + Math.floor(i / each)] += couplings[i * classes + j] / each;
  }
  return out;
}

function evidence(found, j, r) { // of each capsule: coupling times the vote along the pose
  const { classes, capsules } = found, poses = after(found.poses, found, r), size = poses.length / classes;
  const pose = poses.slice(j * size, (j + 1) * size), norm = Math.hypot(...pose) || 1;
  const along = new Float32Array(capsules), weighted = new Float32Array(capsules);
  for (let i = 0; i < capsules; i++) {
    let sum = 0;
    for (let e = 0; e < size; e++) sum += found.votes.data[(i * classes + j) * size + e] * pose[e];
    along[i] = sum / norm;
    weighted[i] = along[i] * found.couplings[(r * capsules + i) * classes + j];
  }
  return [along, weighted];
}

function show(now, found, others, drawn, changed) {
  const name = now.first, { about } = found, [, height, width] = about.shape, { r, lengths, shown } = drawn;
  const images = [panel(raster(drawn.image, width, height), `Input, ${height} × ${width} px.`)];
  if (drawn.decoded) images.push(panel(raster(drawn.decoded, width, height), `Reconstruction from the pose of class ${about.classes[drawn.label]} alone.`));
  else images.push(element("p", "This network has no decoder.", { className: "cv-note" }));
  $("images").replaceChildren(...images);
  const what = `Length of each class capsule${found.rounds > 1 ? ` after iteration ${r + 1} of ${found.rounds}` : ""}. The sum need not be 1.`;
  const changes = { trained: "", uniform: ", with uniform couplings", another: `, with couplings of ${DATA.images[now.donor].text}` }[now.routing];
  const scores = [bars(lengths, name, what + (others.plain ? " Ticks: routing as trained." : ""), changes, others.plain)];
  if (others.beside) scores.push(bars(others.beside, now.beside, "Length of each class capsule.", ""));
  $("scores").replaceChildren(...scores);

  const types = about.grid[0], means = meanCouplings(found, r), even = 1 / found.classes;
  const low = Math.min(0, ...means), high = Math.max(0.3, ...means); // one scale while couplings are usual
  const heat = raster(means, types, found.classes, cividis, low, high);
  const names = element("div", about.classes.map((one) => element("b", one)), { className: "cv-names" });
  const scale = `Mean coupling of each capsule type (column) to each class (row): here from ${Math.min(...means).toFixed(3)} to ${Math.max(...means).toFixed(3)}; uniform is ${even.toFixed(3)}. Dark is ${low.toFixed(1)}, bright ${high.toFixed(1)}.${low < 0 ? " Negative couplings turn a vote round." : ""}`;
  const [along, weighted] = evidence(found, shown, r), most = (values) => Math.max(...values.map(Math.abs)) || 1;
  const size = found.primary.data.length / found.capsules;
  const norms = Float32Array.from({ length: found.capsules }, (_, i) => Math.hypot(...found.primary.data.slice(i * size, (i + 1) * size)));
  $("routed").replaceChildren(
    panel([element("div", [names, heat], { className: "cv-heat" })], scale),
    panel(tiles(norms, about.grid, cividis, 0, Math.max(...norms)), `Length of each primary capsule, type by type: from 0 to ${Math.max(...norms).toFixed(2)}.`),
    panel(tiles(along, about.grid, signed, -most(along), most(along)), `Votes for class ${about.classes[shown]}: length along its pose. Red is for it, blue against it.`),
    panel(tiles(weighted, about.grid, signed, -most(weighted), most(weighted)), "Evidence for it: vote × coupling."),
  );
  const deviations = after(found.couplings, found, r);
  const sd = Math.sqrt(deviations.reduce((sum, value) => sum + (value - even) ** 2, 0) / deviations.length);
  $("spread").textContent = `Standard deviation of the couplings about uniform: ${sd.toFixed(4)}. ${DATA.words[now.routing] ?? ""}`;

  $("pose").hidden = !changed;
  if (changed) {
    $("posed").replaceChildren(
      panel(raster(changed[0], width, height), `Unchanged pose of class ${about.classes[shown]}, decoded.`),
      panel(raster(changed[1], width, height), "Changed pose, decoded."),
    );
  }
  document.body.dataset.predicted = about.classes[drawn.label];
}

// --- Controls --------------------------------------------------------------------------------

const fits = (name, image) => String(DATA.networks[name].shape) === String(image === "drawing" ? [1, 28, 28] : DATA.images[image].shape);

function fill(select, names, chosen) { // names: [value, text]
  select.replaceChildren(...names.map(([value, text]) => element("option", text, { value, selected: value === String(chosen) })));
}

function controls() { // those whose choices depend on the network
  const { classes, iterations } = DATA.networks[state.first], suits = Object.keys(DATA.images).filter((one) => fits(state.first, one));
  const drawn = drawing && fits(state.first, "drawing"), named = suits.map((one) => [one, DATA.images[one].text]);
  if (state.image === "drawing" ? !drawn : !suits.includes(state.image)) state.image = suits.includes(before) ? before : suits[0];
  if (state.image !== "drawing") before = state.image;
  if (!suits.includes(state.donor)) state.donor = suits.includes(USUAL.donor) ? USUAL.donor : suits[2];
  fill($("image"), drawn ? [["drawing", "the drawing"], ...named] : named, state.image);
  fill($("donor"), named, state.donor);
  fill($("first"), Object.keys(DATA.networks).map((one) => [one, DATA.networks[one].text]), state.first);
  $("about").textContent = DATA.networks[state.first].about ?? "";
  const beside = Object.keys(DATA.networks).filter((one) => one !== state.first && String(DATA.networks[one].shape) === String(DATA.networks[state.first].shape));
  if (!beside.includes(state.beside)) state.beside = beside[0] ?? "";
  fill($("beside"), beside.map((one) => [one, DATA.networks[one].text]), state.beside);
  $("beside").parentElement.hidden = !beside.length;
  fill($("shown"), [[-1, "the longest capsule"], ...classes.entries()], state.shown);
  $("iteration").max = iterations;
  $("iterations").hidden = iterations === 1 || state.routing !== "trained";
  $("another").hidden = state.routing !== "another";
  for (const name of ["angle", "right", "down", "dose"]) $(name).value = state[name];
  $("iteration").value = state.iteration || iterations;
  document.querySelectorAll("input[name=routing]").forEach((one) => (one.checked = one.value === state.routing));
  [...$("dimensions").querySelectorAll("input")].forEach((one, d) => (one.value = state.changes[d] ?? 0));
  document.querySelectorAll("label output").forEach((one) => (one.textContent = one.parentElement.querySelector("input").value));
}

let running = null, again = false;
function refresh() { // the latest state is shown, however fast it changes
  controls();
  if (running) { again = true; return running; }
  const told = setTimeout(() => say("Computing …"), 300);
  running = (async () => {
    do {
      again = false;
      await update();
    } while (again);
    say("");
  })().catch((error) => say(`This cannot be shown: ${error.message}`, true))
    .finally(() => { clearTimeout(told); running = null; document.body.dataset.ready = "yes"; });
  document.body.dataset.ready = "no";
  return running;
}

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("cv-warn", wrong);
  document.body.classList.toggle("old", text !== ""); // what is shown is of an earlier state
}

async function update() {
  const now = { ...state, changes: { ...state.changes } }, { shape } = DATA.networks[now.first];
  const image = warp(now.image === "drawing" ? drawing : await picture(now.image), shape, now.angle, now.right, now.down);
  const how = { routing: now.routing, dose: now.dose, donor: await picture(now.donor) };
  const found = await look(now.first, image, how);
  const r = Math.min(now.iteration || found.rounds, found.rounds) - 1, lengths = after(found.lengths, found, r);
  const label = argmax(lengths), shown = now.shown < 0 ? label : now.shown, others = { plain: found.plain };
  if (now.beside) { const other = await look(now.beside, image); others.beside = other.lengths.slice(-other.classes); }
  const own = after(found.poses, found, r), decoded = await decode(now.first, own, label);
  let changed = null;
  if (decoded) {
    const size = own.length / found.classes, poses = own.slice();
    for (const [d, by] of Object.entries(now.changes)) poses[shown * size + Number(d)] += by;
    const unchanged = shown === label ? decoded : await decode(now.first, own, shown);
    changed = [unchanged, Object.keys(now.changes).length ? await decode(now.first, poses, shown) : unchanged];
  }
  show(now, found, others, { image, decoded, label, lengths, shown, r }, changed);
}

function listen() {
  const take = (id, event, read) => $(id).addEventListener(event, () => { read($(id).value); refresh(); });
  for (const id of ["angle", "right", "down", "dose", "iteration"]) take(id, "input", (value) => (state[id] = Number(value)));
  for (const id of ["beside", "donor"]) take(id, "change", (value) => (state[id] = value));
  take("image", "change", (value) => Object.assign(state, { image: value, changes: {} }));
  take("shown", "change", (value) => { state.shown = Number(value); state.changes = {}; });
  take("first", "change", (value) => Object.assign(state, { first: value, iteration: 0, shown: -1, changes: {} }));
  $("undo").addEventListener("click", () => { Object.assign(state, { angle: 0, right: 0, down: 0 }); refresh(); });
  $("own").addEventListener("click", () => { state.changes = {}; refresh(); });
  for (const [value, text] of Object.entries(ROUTINGS)) {
    const radio = element("input", [], { type: "radio", name: "routing", value });
    radio.addEventListener("change", () => { state.routing = value; refresh(); });
    $("routing").append(element("label", [radio, text]));
  }
  for (let d = 0; d < 16; d++) {
    const slider = element("input", [], { type: "range", min: -0.25, max: 0.25, step: 0.01, value: 0, id: `pose-${d}` });
    slider.addEventListener("input", () => { state.changes[d] = Number(slider.value); refresh(); });
    $("dimensions").append(element("label", [`Dimension ${d}`, slider, element("output", "0")]));
  }
  const sheet = $("sheet");
  const clear = penOn(sheet, () => {
    drawing = centred(sheet, 28);
    if (!fits(state.first, "drawing")) Object.assign(state, { first: DATA.first, iteration: 0, shown: -1 });
    Object.assign(state, { image: "drawing", changes: {} });
    refresh();
  });
  $("clear").addEventListener("click", () => {
    clear();
    drawing = null;
    refresh();
  });
}

function guide() {
  let tour = null, step = 0;
  const go = (to) => {
    step = to;
    const { text } = tour.steps[step];
    Object.assign(state, USUAL, ...tour.steps.slice(0, step + 1).map((one) => one.set));
    $("tour").hidden = false;
    document.querySelectorAll("#tours button").forEach((one, k) => one.setAttribute("aria-pressed", TOURS[k] === tour));
    $("tour-title").textContent = `${tour.title} ${step + 1} of ${tour.steps.length}`;
    $("tour-text").textContent = text;
    $("tour-back").disabled = step === 0;
    $("tour-next").disabled = step === tour.steps.length - 1;
    if ([$("tour-back"), $("tour-next")].includes(document.activeElement) && document.activeElement.disabled) $("tour-end").focus();
    return refresh();
  };
  for (const one of TOURS) {
    const button = element("button", one.title, { type: "button" });
    button.addEventListener("click", () => { tour = one; go(0); });
    $("tours").append(button);
  }
  $("tour-back").addEventListener("click", () => go(step - 1));
  $("tour-next").addEventListener("click", () => go(step + 1));
  $("tour-end").addEventListener("click", () => {
    $("tour").hidden = true;
    document.querySelectorAll("#tours button").forEach((one) => one.setAttribute("aria-pressed", false));
    Object.assign(state, { routing: "trained", angle: 0, right: 0, down: 0, changes: {} });
    refresh();
  });
}

listen();
guide();
refresh();
if (location.protocol.startsWith("http") && "serviceWorker" in navigator) navigator.serviceWorker.register("offline.js");

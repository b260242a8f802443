// The page: networks by ONNX Runtime, and what is drawn of them. Nothing is fetched but the files beside it.
"use strict";

const DATA = window.DATA; // written by build.py: networks, images, colours, words
const $ = (id) => document.getElementById(id);
const SCALE = 20 / 28; // longer side of a drawn digit, as in MNIST
const ROUTINGS = { trained: "as trained", uniform: "couplings uniform", another: "couplings of another image" };
const state = {
  first: DATA.first, beside: DATA.beside, image: DATA.image, routing: "trained", donor: DATA.donor,
  dose: 1, iteration: 0, shown: -1, angle: 0, right: 0, down: 0, changes: {},
};
let drawing = null; // Float32Array of the sheet, in the size of the networks

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
  })();
  return opened[name];
}

async function run(session, ...inputs) { // tensors in, tensors out, in their order
  const given = Object.fromEntries(session.inputNames.map((name, i) => [name, inputs[i]]));
  const found = await session.run(given);
  return session.outputNames.map((name) => found[name]);
}

async function look(name, image, how = { routing: "trained" }) {
  // What a network makes of an image: {primary, votes, couplings, lengths, poses}, of all iterations as trained.
  const about = DATA.networks[name], steps = await network(name);
  const [primary, votes] = await run(steps.votes, new ort.Tensor("float32", image, [1, ...about.shape]));
  const [couplings, lengths, poses] = await run(steps.routing, votes, primary);
  const last = (tensor) => tensor.data.slice(-tensor.data.length / tensor.dims[0]);
  const found = { about, primary, votes, rounds: couplings.dims[0], couplings: couplings.data,
    lengths: lengths.data, poses: last(poses), classes: votes.dims[2], capsules: votes.dims[1] };
  if (how.routing === "trained") return found;
  const even = 1 / found.classes, given = new Float32Array(found.capsules * found.classes).fill(even);
  if (how.routing === "another") {
    const donor = await look(name, how.donor);
    const own = donor.couplings.slice(-given.length);
    given.forEach((_, i) => (given[i] = even + how.dose * (own[i] - even)));
  }
  const put = new ort.Tensor("float32", given, [1, found.capsules, found.classes]);
  const [changed, posed] = await run(steps.given, votes, primary, put);
  return { ...found, rounds: 1, couplings: given, lengths: changed.data, poses: posed.data };
}

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

function bars(values, name, what, before) { // as `capsviz explore` draws them
  const classes = DATA.networks[name].classes, winner = argmax(values);
  const rows = [...values].map((value, j) => {
    const bar = element("u", []), track = element("span", bar);
    bar.style.width = `${100 * Math.min(value, 1)}%`;
    if (before) { const tick = element("i", []); tick.style.left = `${100 * Math.min(before[j], 1)}%`; track.append(tick); }
    return element("div", [element("b", classes[j]), track, element("em", value.toFixed(2))],
      { className: j === winner ? "cv-bar cv-first" : "cv-bar" });
  });
  const head = element("h4", [`${name}: predicted as `, element("strong", classes[winner])]);
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
  const start = r * capsules * classes, out = new Float32Array(classes * types);
  for (let i = 0; i < capsules; i++) {
    for (let j = 0; j < classes; j++) out[j * types + Math.floor(i / each)] += found.couplings[start + i * classes + j] / each;
  }
  return out;
}

function evidence(found, j, r) { // of each capsule: coupling times the vote along the pose
  const { classes, capsules } = found, size = found.poses.length / classes;
  const pose = found.poses.slice(j * size, (j + 1) * size), norm = Math.hypot(...pose) || 1;
  const along = new Float32Array(capsules), weighted = new Float32Array(capsules);
  for (let i = 0; i < capsules; i++) {
    let sum = 0;
    for (let e = 0; e < size; e++) sum += found.votes.data[(i * classes + j) * size + e] * pose[e];
    along[i] = sum / norm;
    weighted[i] = along[i] * found.couplings[(r * capsules + i) * classes + j];
  }
  return [along, weighted];
}

function show(found, others, drawn, changed) {
  const name = state.first, { about } = found, [, height, width] = about.shape;
  const r = Math.min(state.iteration || found.rounds, found.rounds) - 1;
  const lengths = found.lengths.slice(r * found.classes, (r + 1) * found.classes);
  const shown = state.shown < 0 ? argmax(found.lengths.slice(-found.classes)) : state.shown;
  const images = [panel(raster(drawn.image, width, height), `Input, ${height} × ${width} px.`)];
  if (drawn.decoded) images.push(panel(raster(drawn.decoded, width, height), `Reconstruction from the pose of class ${about.classes[drawn.label]} alone.`));
  $("images").replaceChildren(...images);
  const what = `Length of each class capsule${found.rounds > 1 ? ` after iteration ${r + 1} of ${found.rounds}` : ""}. The sum need not be 1.`;
  const scores = [bars(lengths, name, what + (others.plain ? " Ticks: routing as trained." : ""), others.plain)];
  if (others.beside) scores.push(bars(others.beside, state.beside, "Length of each class capsule."));
  $("scores").replaceChildren(...scores);

  const types = about.grid[0], means = meanCouplings(found, r), even = 1 / found.classes;
  const low = Math.min(...means), high = Math.max(...means, low + 0.001);
  const heat = raster(means, types, found.classes, cividis, low, high);
  const names = element("div", about.classes.map((one) => element("b", one)), { className: "cv-names" });
  const scale = `Mean coupling of each capsule type (column) to each class (row): from ${low.toFixed(3)} (dark) to ${high.toFixed(3)} (bright); uniform is ${even.toFixed(3)}.`;
  const [along, weighted] = evidence(found, shown, r), most = (values) => Math.max(...values.map(Math.abs)) || 1;
  const size = found.primary.data.length / found.capsules;
  const norms = Float32Array.from({ length: found.capsules }, (_, i) => Math.hypot(...found.primary.data.slice(i * size, (i + 1) * size)));
  $("routed").replaceChildren(
    panel([element("div", [names, heat], { className: "cv-heat" })], scale),
    panel(tiles(norms, about.grid, cividis, 0, Math.max(...norms)), `Length of each primary capsule, type by type: from 0 to ${Math.max(...norms).toFixed(2)}.`),
    panel(tiles(along, about.grid, signed, -most(along), most(along)), `Votes for class ${about.classes[shown]}: length along its pose. Red is for it, blue against it.`),
    panel(tiles(weighted, about.grid, signed, -most(weighted), most(weighted)), "Evidence for it: the same times the coupling."),
  );
  const deviations = found.couplings.slice(r * found.capsules * found.classes, (r + 1) * found.capsules * found.classes);
  const sd = Math.sqrt(deviations.reduce((sum, value) => sum + (value - even) ** 2, 0) / deviations.length);
  $("spread").textContent = `Standard deviation of the couplings about uniform: ${sd.toFixed(4)}. ${DATA.words[state.routing] ?? ""}`;

  $("pose").hidden = !changed;
  if (changed) {
    $("posed").replaceChildren(
      panel(raster(changed[0], width, height), `Unchanged pose of class ${about.classes[shown]}, decoded.`),
      panel(raster(changed[1], width, height), "Changed pose, decoded."),
    );
  }
  document.body.dataset.predicted = about.classes[argmax(found.lengths.slice(-found.classes))];
}

// --- Controls --------------------------------------------------------------------------------

const fits = (name, image) => String(DATA.networks[name].shape) === String(image === "drawing" ? [1, 28, 28] : DATA.images[image].shape);

function fill(select, names, chosen) { // names: value -> text
  select.replaceChildren(...Object.entries(names).map(([value, text]) => element("option", text, { value, selected: value === String(chosen) })));
}

function controls() { // those whose choices depend on the network
  const { classes, iterations } = DATA.networks[state.first], suits = Object.keys(DATA.images).filter((one) => fits(state.first, one));
  if (state.image === "drawing" ? !fits(state.first, "drawing") || !drawing : !suits.includes(state.image)) state.image = suits[0];
  if (!suits.includes(state.donor)) state.donor = suits.at(-1);
  const named = Object.fromEntries(suits.map((one) => [one, DATA.images[one].text]));
  fill($("image"), state.image === "drawing" ? { drawing: "the drawing", ...named } : named, state.image);
  fill($("donor"), named, state.donor);
  fill($("first"), Object.fromEntries(Object.keys(DATA.networks).map((one) => [one, DATA.networks[one].text])), state.first);
  const beside = Object.keys(DATA.networks).filter((one) => one !== state.first && String(DATA.networks[one].shape) === String(DATA.networks[state.first].shape));
  if (!beside.includes(state.beside)) state.beside = beside[0] ?? "";
  fill($("beside"), Object.fromEntries(beside.map((one) => [one, DATA.networks[one].text])), state.beside);
  $("beside").parentElement.hidden = !beside.length;
  fill($("shown"), { [-1]: "the longest capsule", ...classes }, state.shown);
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
  running = (async () => {
    do {
      again = false;
      await update();
    } while (again);
  })().catch((error) => { $("status").textContent = `This cannot be shown: ${error.message}`; $("status").classList.add("cv-warn"); })
    .finally(() => { running = null; document.body.dataset.ready = "yes"; });
  document.body.dataset.ready = "no";
  return running;
}

async function update() {
  const now = { ...state, changes: { ...state.changes } }, { shape } = DATA.networks[now.first];
  const image = warp(now.image === "drawing" ? drawing : await picture(now.image), shape, now.angle, now.right, now.down);
  const how = { routing: now.routing, dose: now.dose, donor: await picture(now.donor) };
  const found = await look(now.first, image, how);
  const label = argmax(found.lengths.slice(-found.classes)), others = {};
  if (now.routing !== "trained") { const plain = await look(now.first, image); others.plain = plain.lengths.slice(-found.classes); }
  if (now.beside) { const other = await look(now.beside, image); others.beside = other.lengths.slice(-other.classes); }
  const decoded = await decode(now.first, found.poses, label);
  let changed = null;
  if (decoded) {
    const j = now.shown < 0 ? label : now.shown, size = found.poses.length / found.classes, poses = found.poses.slice();
    for (const [d, by] of Object.entries(now.changes)) poses[j * size + Number(d)] += by;
    changed = [await decode(now.first, found.poses, j), await decode(now.first, poses, j)];
  }
  show(found, others, { image, decoded, label }, changed);
  $("status").textContent = "";
}

function listen() {
  const take = (id, event, read) => $(id).addEventListener(event, () => { read($(id).value); refresh(); });
  for (const id of ["angle", "right", "down", "dose", "iteration"]) take(id, "input", (value) => (state[id] = Number(value)));
  for (const id of ["image", "beside", "donor"]) take(id, "change", (value) => (state[id] = value));
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
  const sheet = $("sheet"), pen = sheet.getContext("2d", { willReadFrequently: true });
  let last = null;
  const stroke = (event) => {
    const box = sheet.getBoundingClientRect();
    const point = [((event.clientX - box.left) * sheet.width) / box.width, ((event.clientY - box.top) * sheet.height) / box.height];
    Object.assign(pen, { lineWidth: sheet.width / 13, lineCap: "round", lineJoin: "round" });
    pen.beginPath(); pen.moveTo(...(last ?? point)); pen.lineTo(...point); pen.stroke();
    last = point;
    sheet.parentElement.classList.add("cv-drawn");
    drawing = centred(sheet, 28);
    if (!fits(state.first, "drawing")) state.first = DATA.first;
    state.image = "drawing";
    refresh();
  };
  sheet.addEventListener("pointerdown", (event) => { sheet.setPointerCapture(event.pointerId); last = null; stroke(event); });
  sheet.addEventListener("pointermove", (event) => { if (last) stroke(event); });
  for (const name of ["pointerup", "pointercancel"]) sheet.addEventListener(name, () => (last = null));
  $("clear").addEventListener("click", () => {
    pen.clearRect(0, 0, sheet.width, sheet.height);
    sheet.parentElement.classList.remove("cv-drawn");
    drawing = null;
    refresh();
  });
}

function guide() {
  let tour = null, step = 0;
  const go = (to) => {
    step = to;
    const { text, set } = tour.steps[step];
    Object.assign(state, step ? {} : { shown: -1, iteration: 0, changes: {}, angle: 0, right: 0, down: 0 }, set);
    $("tour").hidden = false;
    $("tour-title").textContent = `${tour.title} ${step + 1} of ${tour.steps.length}`;
    $("tour-text").textContent = text;
    $("tour-back").disabled = step === 0;
    $("tour-next").hidden = step === tour.steps.length - 1;
    return refresh();
  };
  for (const one of TOURS) {
    const button = element("button", one.title, { type: "button" });
    button.addEventListener("click", () => { tour = one; go(0); });
    $("tours").append(button);
  }
  $("tour-back").addEventListener("click", () => go(step - 1));
  $("tour-next").addEventListener("click", () => go(step + 1));
  $("tour-end").addEventListener("click", () => ($("tour").hidden = true));
}

listen();
guide();
refresh();
if (location.protocol.startsWith("http") && "serviceWorker" in navigator) navigator.serviceWorker.register("offline.js");

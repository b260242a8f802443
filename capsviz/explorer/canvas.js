// A sheet to draw on: its value is a PNG, transparent outside the strokes, sent while a visitor draws.
const sheet = element.querySelector("canvas");
const pen = sheet.getContext("2d");
const EVERY_MS = 100;
let last = null, waiting = false;

function send() {
  if (!waiting) return; // cleared meanwhile
  waiting = false;
  props.value = sheet.toDataURL("image/png");
  trigger("input");
}

function soon() {
  if (!waiting) {
    waiting = true;
    setTimeout(send, EVERY_MS);
  }
}

function position(event) {
  const box = sheet.getBoundingClientRect();
  return [
    ((event.clientX - box.left) * sheet.width) / box.width,
    ((event.clientY - box.top) * sheet.height) / box.height,
  ];
}

function stroke(event) {
  const [x, y] = position(event);
  pen.lineWidth = sheet.width / 13;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(...(last ?? [x, y]));
  pen.lineTo(x, y);
  pen.stroke();
  last = [x, y];
  sheet.parentElement.classList.add("cv-drawn");
  soon();
}

sheet.addEventListener("pointerdown", (event) => {
  sheet.setPointerCapture(event.pointerId);
  last = null;
  stroke(event);
});
sheet.addEventListener("pointermove", (event) => {
  if (last) stroke(event);
});
for (const name of ["pointerup", "pointercancel"]) {
  sheet.addEventListener(name, () => (last = null));
}
element.querySelector("button").addEventListener("click", () => {
  waiting = false;
  pen.clearRect(0, 0, sheet.width, sheet.height);
  sheet.parentElement.classList.remove("cv-drawn");
  props.value = "";
  trigger("input");
});

// A sheet to draw on: its value is a PNG, transparent outside the strokes, sent while a visitor draws.
const sheet = element.querySelector("canvas");
const EVERY_MS = 100;
let waiting = false;

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

const clear = penOn(sheet, soon); // of pen.js
element.querySelector("button").addEventListener("click", () => {
  waiting = false;
  clear();
  props.value = "";
  trigger("input");
});

// Send the drawing sheet while a visitor draws: its value is a PNG, transparent outside the strokes.
const sheet = element.querySelector("canvas");
const EVERY_MS = 100;
let waiting = false;

function send() {
  if (!waiting) return; // the sheet was cleared meanwhile
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

const clear = penOn(sheet, soon); // defined in pen.js
element.querySelector("button").addEventListener("click", () => {
  waiting = false;
  clear();
  props.value = "";
  trigger("input");
});
